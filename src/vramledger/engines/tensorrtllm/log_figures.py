"""What one rank of TensorRT-LLM printed, in the ledger's words."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.log_facts import count_of, counted, said_by, size_of, sum_of, text_of
from vramledger.evidence import Evidence
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import AllocatorState, Figure, MeasuredPool
from vramledger.observation import Event, Observation

NAME = "tensorrt-llm"

_BUFFERS = {
    "execution context": (Owner.WORKSPACE, "execution context"),
    "runtime buffers": (Owner.WORKSPACE, "runtime buffers"),
    "decoder buffers": (Owner.WORKSPACE, "decoder buffers"),
    "attention workspace": (Owner.WORKSPACE, "attention workspace"),
}


class RankLines:
    """One rank's lines."""

    def __init__(self, said: Sequence[Observation], ranks: tuple[int, ...], version: str | None) -> None:
        self.said, self.ranks, self.version = said, ranks, version

    def evidence(self, item: Observation, formula: str = "") -> Evidence:
        return said_by(item, NAME, self.version, formula)

    def figure(
        self, owners: tuple[Owner, ...], name: str, size: ByteRange, item: Observation,
        entries: tuple[str, ...] = (), phase: Phase | None = None, formula: str = "",
    ) -> Figure:  # fmt: skip
        held = ByteRange(max(size.low, 0), max(size.expected, 0), max(size.high, 0))
        return Figure(
            owners=owners, name=name, bytes=held, evidence=self.evidence(item, formula), entries=entries, phase=phase,
            ranks=self.ranks,
        )  # fmt: skip

    def last(self, name: str, *events: Event) -> tuple[Observation, ByteRange] | None:
        for item in reversed(self.said):
            size = size_of(item, name) if item.event in events else None
            if size is not None:
                return item, size
        return None

    def figures(self) -> list[Figure]:
        out = []
        for name, label in (("engine_bytes", "engine"), ("weights_bytes", "parameters")):
            found = self.last(name, Event.WEIGHTS)
            if found is not None:
                out.append(self.figure((Owner.WEIGHTS,), label, found[1], found[0]))
        loaded = self.last("loaded_bytes", Event.PROFILE)
        if loaded is not None:
            out.append(self.figure((Owner.WEIGHTS,), "held by torch after the load", loaded[1], loaded[0]))
        active = self.last("activation_peak_bytes", Event.PROFILE)
        if active is not None:
            one = ("activation of a full step",)
            out.append(
                self.figure((Owner.ACTIVATION,), "activation peak", active[1], active[0], one, Phase.PREFILL)
            )
        beside, temporary = (
            self.last("non_torch_bytes", Event.PROFILE),
            self.last("temporary_kv_bytes", Event.PROFILE),
        )
        if beside is not None and temporary is not None:
            # The temporary pool is not torch's; what other processes hold on the device cannot be told from it.
            formula = (
                "outside torch in the estimating run - its temporary pool; other processes' memory is in it"
            )
            around = (Owner.RUNTIME_CONTEXT, Owner.COLLECTIVES)
            out.append(
                self.figure(around, "outside torch", beside[1] - temporary[1], beside[0], formula=formula)
            )
        out += self._buffers()
        lines = self._pool_lines()
        size = sum_of([size_of(item, "kv_cache_bytes") for item in lines])
        if size is not None:
            formula = " + ".join(f"{item.values.get('kv_tokens')} tokens" for item in lines)
            entries = ("KV pool", "stranded in the pool")
            out.append(self.figure((Owner.KV_CACHE,), "KV pools", size, lines[-1], entries, formula=formula))
        return out

    def _buffers(self) -> list[Figure]:
        latest: dict[str, tuple[Observation, ByteRange]] = {}
        for item in self.said:
            buffer = text_of(item, "buffer") if item.event is Event.BUFFER else None
            size = size_of(item, "size_bytes")
            whole = count_of(item, "size_bytes")
            if size is None and whole is not None:
                size = ByteRange.exact(whole)
            if buffer in _BUFFERS and size is not None:
                latest[buffer] = (item, size)
        return [
            self.figure((_BUFFERS[buffer][0],), buffer, size, item, (_BUFFERS[buffer][1],))
            for buffer, (item, size) in latest.items()
        ]

    def _final(self) -> Sequence[Observation]:
        """What was printed after the last estimate."""
        at = 0
        for position, item in enumerate(self.said):
            if item.event is Event.PROFILE or "budget_tokens" in item.values:
                at = position
        return self.said[at:]

    def _pool_lines(self) -> list[Observation]:
        """Allocations of the final pools; a draft model's follows the model's."""
        final = [item for item in self._final() if item.event is Event.KV_POOL]
        return final or [item for item in self.said if item.event is Event.KV_POOL][-1:]

    def pools(self) -> list[MeasuredPool]:
        out = []
        final = self._final()
        block = next(
            (size for item in reversed(final) if (size := count_of(item, "block_size")) is not None), None
        )
        length = self._length()
        for position, item in enumerate(self._pool_lines()):
            tokens = count_of(item, "kv_tokens")
            blocks = tokens // block if tokens is not None and block else None
            out.append(
                MeasuredPool(
                    evidence=self.evidence(item), bytes=size_of(item, "kv_cache_bytes"), num_blocks=counted(blocks),
                    block_size=block, tokens=counted(tokens), context_len=length if position == 0 else None,
                    kind="" if position == 0 else f"pool {position + 1}",
                )
            )  # fmt: skip
        windows: dict[int, Observation] = {}
        for item in final:
            window = count_of(item, "window_size")
            if window is not None and count_of(item, "num_blocks") is not None:
                windows[window] = item
        if len(windows) > 1:
            out += [self._window(window, item, block) for window, item in windows.items()]
        return out

    def _window(self, window: int, item: Observation, block: int | None) -> MeasuredPool:
        blocks = count_of(item, "num_blocks")
        return MeasuredPool(
            evidence=self.evidence(item),
            num_blocks=counted(blocks),
            block_size=block,
            tokens=counted(blocks * block) if blocks is not None and block else None,
            kind=f"window {window}",
        )

    def _length(self) -> int | None:
        for item in reversed(self.said):
            asked = count_of(item, "max_seq_len") if "limits" in item.values else None
            if asked is not None:
                return asked
            for name in ("reduced_len", "context_len"):
                length = count_of(item, name) if item.event is Event.KV_BUDGET else None
                if length is not None:
                    return length
        return None

    def free(self) -> list[AllocatorState]:
        out = []
        outside = self.last("outside_bytes", Event.PROFILE)
        for item in self.said:
            loaded = size_of(item, "loaded_bytes")
            free, total = size_of(item, "free_bytes"), size_of(item, "total_bytes")
            if item.event is Event.PROFILE and loaded is not None:
                beside = outside[1] if outside is not None else None
                out.append(self._state(item, "after the load", Phase.LOAD, allocated=loaded, outside=beside))
            elif item.event is Event.PROFILE and "peak_bytes" in item.values:
                peak = size_of(item, "peak_bytes")
                left = total - peak if total is not None and peak is not None else None
                out.append(
                    self._state(item, "peak of the estimating run", Phase.WARMUP, free=left, total=total)
                )
            elif item.event is Event.MEMORY and free is not None:
                component = text_of(item, "component")
                point = f"after {component}" if component is not None else str(item.values.get("point"))
                out.append(self._state(item, point, Phase.LOAD, free=free, total=total))
        return out

    def _state(
        self, item: Observation, point: str, phase: Phase, *, free: ByteRange | None = None, total: ByteRange | None = None,
        allocated: ByteRange | None = None, outside: ByteRange | None = None,
    ) -> AllocatorState:  # fmt: skip
        return AllocatorState(
            evidence=self.evidence(item), phase=phase, point=point, ranks=self.ranks, at_s=item.at_s, allocated_bytes=allocated,
            device_free_bytes=free, device_total_bytes=total, outside_bytes=outside,
        )  # fmt: skip
