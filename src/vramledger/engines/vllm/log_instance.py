"""Of what a vLLM log says, the part about one instance: its last start-up, and who of its ranks said what."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from vramledger.engines.vllm.log_settings import Setting, printed_settings
from vramledger.observation import Event, Observation

_PID = re.compile(r"pid=(\d{1,10})")
_REPLICA = re.compile(r"_DP(\d{1,5})")
_AFTER_START = frozenset(
    (Event.WEIGHTS, Event.PROFILE, Event.KV_BUDGET, Event.KV_POOL, Event.GRAPHS, Event.READY, Event.STEP)
)


class Instance(Struct, frozen=True, kw_only=True):
    """One start-up: its observations, its settings (a flag given wins over what the engine says it resolved to), and the
    rank of each process by its number."""

    observations: tuple[Observation, ...]
    settings: dict[str, Setting]
    rank_by_pid: dict[str, int]
    starts: int

    @property
    def version(self) -> str | None:
        """The release that the log names, the last one."""
        found = [
            item.values["engine_version"] for item in self.observations if "engine_version" in item.values
        ]
        return str(found[-1]) if found else None

    def whole(self, name: str) -> int | None:
        """A setting that is a whole number."""
        value = self.settings.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def world_size(self) -> int:
        return (self.whole("tensor_parallel_size") or 1) * (self.whole("pipeline_parallel_size") or 1)

    def rank(self, said: Observation) -> int | None:
        """The world rank of who said it, None where the log does not tell."""
        if said.rank is not None:
            return said.rank
        pid = _PID.search(said.process or "")
        if pid is not None and pid.group(1) in self.rank_by_pid:
            return self.rank_by_pid[pid.group(1)]
        if self.world_size > 1:
            return None
        replica = _REPLICA.search(said.process or "")
        if replica is not None:
            return int(replica.group(1))
        return 0 if (self.whole("data_parallel_size") or 1) == 1 else None


def last_instance(observations: Iterable[Observation]) -> Instance:
    """The last start-up of a log."""
    current: list[Observation] = []
    starters: set[str] = set()
    loaded = False
    starts = 0
    for said in observations:
        if _starts(said):
            label = _label(said)
            if loaded and (label in starters or said.event is Event.VERSION or "args" in said.values):
                current, starters, loaded = [], set(), False
            if not starters:
                starts += 1
            starters.add(label)
        elif said.event in _AFTER_START:
            loaded = True
        current.append(said)
    return Instance(
        observations=tuple(current),
        settings=_settings(current),
        rank_by_pid=_ranks(current),
        starts=starts,
    )


def _starts(said: Observation) -> bool:
    if said.event is Event.SETTINGS:
        return "args" in said.values or ("config" in said.values and "failing" not in said.values)
    return said.event is Event.VERSION


def _label(said: Observation) -> str:
    """Who printed it, without the process's number: what two start-ups have in common."""
    kind = "args" if "args" in said.values else said.event.value
    return f"{kind} {_PID.sub('', said.process or '')}"


def _settings(observations: Iterable[Observation]) -> dict[str, Setting]:
    """Flags given first, then the engine's own configuration, then single choices that it tells of."""
    given: dict[str, Setting] = {}
    resolved: dict[str, Setting] = {}
    chosen: dict[str, Setting] = {}
    for said in observations:
        if said.event is not Event.SETTINGS:
            continue
        for name, value in said.values.items():
            if name == "args":
                given.update(printed_settings(str(value)))
            elif name == "config":
                resolved.update(printed_settings(str(value)))
            elif isinstance(value, str | int | float | bool) and name not in ("engine_version", "failing"):
                chosen[name] = value
    if "max_seq_len" in resolved:  # the engine's max_model_len under its old name
        resolved["max_model_len"] = resolved.pop("max_seq_len")
    return resolved | given | _resolved_over_given(resolved) | chosen


def _resolved_over_given(resolved: dict[str, Setting]) -> dict[str, Setting]:
    """What the engine settles itself: a flag may say "auto"."""
    names = ("max_model_len", "dtype", "quantization", "enforce_eager", "enable_prefix_caching")
    return {name: resolved[name] for name in names if name in resolved}


def _ranks(observations: Iterable[Observation]) -> dict[str, int]:
    out: dict[str, int] = {}
    for said in observations:
        rank = said.values.get("rank_id")
        pid = _PID.search(said.process or "")
        if said.event is Event.RANK and isinstance(rank, int) and pid is not None:
            out[pid.group(1)] = rank
    return out
