"""Failures told apart: one incident for each burst of messages, with its first cause over all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from vramledger.diagnosis.messages import KINDS
from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.timeline import in_order
from vramledger.observation import Event, Observation

# Messages of one failure come within this time of each other, over all ranks and what waits for them.
BURST_S = 300.0
# Lines of the cause's own message, and of those that tell more of it, follow within so many lines of its source.
COMPANION_LINES = 40

_BAD_SIGNALS = frozenset({"SIGKILL", "SIGBUS", "SIGSEGV", "SIGABRT", "9", "7", "11", "6"})
_PROGRESS = frozenset({Event.LOAD_BEGIN, Event.WEIGHTS, Event.KV_POOL, Event.READY})
# Engines print settings also when they dump their state; these are printed by a start alone.
_SURE_STARTS = frozenset({Event.VERSION, Event.LOAD_BEGIN, Event.WEIGHTS})
_STARTS = frozenset({Event.VERSION, Event.SETTINGS, Event.MODEL, Event.LOAD_BEGIN, Event.WEIGHTS})


class Incident(Struct, frozen=True, kw_only=True):
    """One failure.

    `first` is its first cause, `lines` all its messages in order, `before` what the same instance said until then (its own
    start first), `others_before` what other sources said. `earlier` is the last line of an instance that ran before it in the same
    sources. `ranks` counts messages by the printer's label.
    """

    first: Observation
    lines: tuple[Observation, ...]
    before: tuple[Observation, ...]
    others_before: tuple[Observation, ...] = ()
    earlier: Observation | None = None
    ranks: tuple[tuple[str, int], ...] = ()

    @property
    def kind(self) -> MessageKind | None:
        return kind_of(self.first)

    @property
    def exception(self) -> Observation | None:
        """The first error of unknown meaning that was raised in a failure of which only consequences were read."""
        if standing_of(self.first) is not Standing.CONSEQUENCE:
            return None
        return next((item for item in self.lines if "exception" in item.values), None)

    @property
    def companions(self) -> tuple[Observation, ...]:
        """The cause and what its printer says of it right after."""
        place = self.first.place
        return tuple(
            item
            for item in self.lines
            if item is self.first
            or (
                item.place.source == place.source
                and 0 <= item.place.line - place.line <= COMPANION_LINES
                and standing_of(item) is not Standing.BENIGN
            )
        )


def kind_of(item: Observation) -> MessageKind | None:
    """The kind of a failure message, None for what is none (an exit, a kind that is not of the catalogue)."""
    name = item.values.get("message")
    return KINDS.get(name) if isinstance(name, str) else None


_ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "tensorrt-llm",
    "tensorrt": "tensorrt-llm",
    "ggml": "llamacpp",
    "llama": "llamacpp",
    "ollama": "llamacpp",
    "tgi": "tgi",
    "lmdeploy": "lmdeploy",
}


def engine_of(item: Observation) -> str | None:
    """The engine whose own message it is; None for what others say too."""
    kind = kind_of(item)
    return item.engine or (None if kind is None else _ENGINES.get(kind.name.partition("-")[0]))


def standing_of(item: Observation) -> Standing | None:
    """What a line says of a failure, None for a line that says nothing of one."""
    if item.event is Event.EXIT:
        return Standing.CONSEQUENCE if _ended_badly(item) else None
    if item.event is not Event.FAILURE:
        return None
    stated = item.values.get("standing")
    if isinstance(stated, str):
        return Standing(stated)
    kind = kind_of(item)
    tokens = item.values.get("available_tokens")
    if item.values.get("stage") == "kv-sizing" and isinstance(tokens, int):
        # Fewer tokens than were asked for, and the engine goes on with them; a number below 1 is a refusal.
        return Standing.EVIDENCE if tokens > 0 else Standing.CAUSE
    return Standing.CAUSE if kind is None else kind.standing


def _ended_badly(item: Observation) -> bool:
    code, signal = item.values.get("exit_code"), item.values.get("signal")
    if "exited" in item.values and code is None and signal is None:
        return True  # found dead by another process: nobody asked it to end
    return str(signal).upper() in _BAD_SIGNALS or (isinstance(code, int) and code not in (0, 130, 143))


def incidents(observations: Iterable[Observation]) -> list[Incident]:
    """Every failure in what was said, in order; the echo of one without the cause itself is one too.

    Warnings and benign messages belong to the failure that follows or stands beside them; where there is none, each kind of
    them is one incident for the instance.
    """
    ordered = in_order(observations)
    bursts = _bursts(ordered)
    return [_incident(ordered, burst) for burst in bursts]


def _bursts(ordered: Sequence[Observation]) -> list[list[int]]:
    """Indices of the messages of each burst."""
    real: list[list[int]] = []
    mild: dict[tuple[str, object], list[int]] = {}
    started = last_at = None
    instance = 0
    printers: dict[str, str] = {}
    for item in ordered:
        if item.engine is not None:
            printers.setdefault(item.place.source, item.engine)
    leaving: dict[str, float | None] = {}
    for index, item in enumerate(ordered):
        standing = standing_of(item)
        if item.event is Event.EXIT and standing is None:
            leaving[item.place.source] = item.at_s
        elif item.event in _PROGRESS:
            leaving.pop(item.place.source, None)
        if (
            (standing is Standing.CONSEQUENCE or _killed(item))
            and item.place.source in leaving
            and _near(leaving[item.place.source], item.at_s)
            and started is None
        ):
            continue  # what is torn down with an instance that was asked to end
        if standing is Standing.EVIDENCE:
            if started is not None and real and _near(last_at, item.at_s):
                real[-1].append(index)
            continue
        if standing is None:
            if item.event in _PROGRESS and real and started is not None:
                instance += 1
                started = None
            continue
        if standing in (Standing.WARNING, Standing.BENIGN):
            if started is not None and real and _near(last_at, item.at_s):
                real[-1].append(index)
            else:
                mild.setdefault((f"{item.place.source} {instance}", item.values.get("message")), []).append(
                    index
                )
            continue
        if (
            started is None
            or not _near(last_at, item.at_s)
            or _of_other_engines(printers, ordered[started], item)
        ):
            real.append([])
            started = index
        real[-1].append(index)
        last_at = item.at_s if item.at_s is not None else last_at
    if real:
        return real
    return sorted(mild.values(), key=lambda found: found[0])


def _of_other_engines(printers: Mapping[str, str], one: Observation, other: Observation) -> bool:
    """Whether two lines are of logs of different engines: a failure of one is none of the other's, whenever it was."""
    engines = {printers.get(item.place.source) for item in (one, other)} - {None}
    return len(engines) > 1


def _killed(item: Observation) -> bool:
    """Whether a process was ended from outside for reasons that are not told: also what does not end in time is killed."""
    kind = kind_of(item)
    return kind is not None and kind.domain is Domain.HOST and not kind.proves_memory


def _near(last_at: float | None, at: float | None) -> bool:
    return last_at is None or at is None or at - last_at <= BURST_S


def _incident(ordered: Sequence[Observation], burst: list[int]) -> Incident:
    lines = tuple(ordered[index] for index in burst)
    first_index = next((index for index in burst if standing_of(ordered[index]) is Standing.CAUSE), burst[0])
    first = ordered[first_index]
    own = [item for item in ordered[:first_index] if item.place.source == first.place.source]
    begin = _start_of_instance(own)
    counts: dict[str, int] = {}
    for item in lines:
        label = item.process or ("" if item.rank is None else f"rank {item.rank}")
        counts[label] = counts.get(label, 0) + 1
    return Incident(
        first=first,
        lines=lines,
        before=tuple(own[begin:]),
        others_before=tuple(
            item for item in ordered[:first_index] if item.place.source != first.place.source
        ),
        earlier=_earlier(ordered[:first_index], own[:begin], own[begin:], first),
        ranks=tuple(counts.items()),
    )


def _start_of_instance(own: Sequence[Observation]) -> int:
    """Where the failing instance begins: at the first line of a start-up that comes after service, an end or a failure."""
    begin, ended = 0, False
    candidate: int | None = None
    for index, item in enumerate(own):
        if item.event in (Event.READY, Event.STEP, Event.EXIT, Event.FAILURE):
            ended, candidate = True, None
        elif item.event in _STARTS and ended:
            candidate = index if candidate is None else candidate
            if item.event in _SURE_STARTS:
                begin, ended, candidate = candidate, False, None
    return begin


def _earlier(
    before: Sequence[Observation],
    same_source: Sequence[Observation],
    instance: Sequence[Observation],
    first: Observation,
) -> Observation | None:
    """The last line of an instance that ran on the same device before this one began, where it is known when."""
    if same_source:
        return same_source[-1]
    if not instance and first.values.get("stage") != "startup-check":
        return None  # its own start was not read, so nothing tells what came before it
    start = instance[0].at_s if instance else first.at_s
    if start is None:
        return None
    device = first.values.get("device_id", first.values.get("device"))
    ended = [
        item
        for item in before
        if item.place.source != first.place.source
        and item.at_s is not None
        and item.at_s <= start
        and item.engine is not None
        and (device is None or item.values.get("device_id", device) == device)
    ]
    ready = {item.place.source for item in ended if item.event in (Event.READY, Event.STEP)}
    gone = [item for item in ended if item.place.source in ready]
    return gone[-1] if gone else None
