"""Buffers of a start-up as figures, pools and free memory.

A printed buffer is one entry of the ledger of the same name, so a figure names exactly that entry.
"""

from __future__ import annotations

from vramledger.engines.llamacpp.log_state import Buffer, Loaded, State, device_of, is_host
from vramledger.engines.log_facts import StartUp, count_of, counted, said_by, size_of, text_of
from vramledger.evidence import Evidence
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import AllocatorState, Figure, MeasuredPool
from vramledger.observation import Event, Observation
from vramledger.units import MIB

_NAME = "llamacpp"
_OWNERS = {
    "model": Owner.WEIGHTS, "LoRA": Owner.ADAPTERS, "projector": Owner.WEIGHTS, "projector compute": Owner.WORKSPACE,
    "KV": Owner.KV_CACHE, "windowed KV": Owner.KV_CACHE, "indexer key": Owner.KV_CACHE, "RS": Owner.KV_CACHE,
    "output": Owner.WORKSPACE, "input": Owner.WORKSPACE, "compute": Owner.WORKSPACE,
}  # fmt: skip
_ENTRIES = {"projector": "projector and encoder", "projector compute": "projector's compute buffer"}


class Places:
    """Which rank each device is, and how a line becomes evidence."""

    def __init__(self, start: StartUp, state: State, version: str | None) -> None:
        self.start, self.state, self.version = start, state, version
        self.devices = _devices(start, state)

    def evidence(self, item: Observation, formula: str = "") -> Evidence:
        return said_by(item, _NAME, self.version, formula)

    def ranks(self, where: str) -> tuple[int, ...]:
        """The rank of a buffer's device; the host is rank 0 where there are no devices. A projector whose line names no
        device lies on the first."""
        if is_host(where):
            return () if self.devices else (0,)
        device = device_of(where)
        if not where:
            return (0,)
        if device in self.devices:
            return (self.devices.index(device),)
        return (0,) if len(self.devices) == 1 else ()

    def on_host(self, where: str) -> bool:
        return is_host(where) and bool(self.devices)


def _devices(start: StartUp, state: State) -> list[str]:
    """Devices by name: those that were listed in use, then those that hold buffers."""
    found: list[str] = []
    named = [text_of(item, "where") for item in start.of(Event.DEVICE) if "total_bytes" not in item.values]
    named += [
        buffer.where
        for model in state.models
        for group in (model.weights, *model.contexts)
        for buffer in group.values()
    ]
    for where in named:
        if where and where != "total" and not is_host(where) and device_of(where) not in found:
            found.append(device_of(where))
    return found


def buffer_figures(places: Places) -> tuple[Figure, ...]:
    """One figure a buffer: the served model's, then those of a draft model and of further contexts."""
    out: list[Figure] = []
    for number, model in enumerate(places.state.models):
        aside = "draft model: " if number else ""
        out += [_figure(places, buffer, aside) for buffer in model.weights.values()]
        for at, context in enumerate(model.contexts):
            other = aside or ("" if at == model.main else "another context: ")
            out += [
                _figure(places, buffer, other) for buffer in context.values() if not _is_sum(buffer, context)
            ]
    return tuple(out)


def _is_sum(buffer: Buffer, context: dict[tuple[str, str], Buffer]) -> bool:
    """Builds of 2023 print the compute buffers' sum beside the device's share of it."""
    return buffer.where == "total" and ("VRAM", buffer.kind) in context


def _figure(places: Places, buffer: Buffer, aside: str) -> Figure:
    where = "CPU" if buffer.where == "total" else buffer.where
    entries: tuple[str, ...] = (f"{aside}{_ENTRIES.get(buffer.kind, buffer.name)}",)
    if not aside and buffer.kind == "model" and where in ("CPU", "CPU_Mapped"):
        entries = ("CPU model buffer", "CPU_Mapped model buffer")
    size = ByteRange(max(buffer.size.low, 0), buffer.size.expected, buffer.size.high)
    formula = ""
    if where == "CPU_Mapped" and places.devices:
        size = ByteRange(0, size.expected, size.high)
        formula = "from the file's first tensor on the host to its last: at most this, tensors of devices may lie between"
    return Figure(
        owners=(_OWNERS[buffer.kind],),
        name=f"{aside}{buffer.name}",
        bytes=size,
        evidence=places.evidence(buffer.line, formula),
        entries=entries if where != "VRAM" else (),
        ranks=(0,) if where == "VRAM" else places.ranks(where),
        on_host=places.on_host(where),
    )


def measured_pools(places: Places) -> tuple[MeasuredPool, ...]:
    """The served model's caches: the full one is the pool, windows and states beside it."""
    if not places.state.models:
        return ()
    model: Loaded = places.state.models[0]
    if not model.caches:
        return ()
    out: dict[str, MeasuredPool] = {}
    for item, cache in model.caches[model.main]:
        if item.event is Event.STATE_POOL:
            out["recurrent states"] = MeasuredPool(
                evidence=places.evidence(item), bytes=size_of(item, "state_bytes"),
                num_blocks=counted(count_of(item, "sequences_count")), kind="recurrent states",
            )  # fmt: skip
            continue
        kind = {"windowed KV": "sliding window", "indexer key": "indexer keys"}.get(cache, "")
        known = out.get(kind)
        pool = _pool(places, item, kind)
        # The line of a sum without cells follows lines of parts in builds of 2025.
        if known is None or known.tokens is None or pool.tokens is not None:
            out[kind] = pool
    return tuple(out.values())


def _pool(places: Places, item: Observation, kind: str) -> MeasuredPool:
    cells = count_of(item, "cells_count")
    streams = count_of(item, "streams_count") or 1
    settings = places.state.settings
    tokens = None if cells is None else cells * streams
    if tokens is None and not kind:
        tokens = _number(settings.get("n_ctx"))
    context = _number(settings.get("n_ctx_seq") or settings.get("n_ctx_per_seq") or settings.get("n_ctx"))
    return MeasuredPool(
        evidence=places.evidence(item, "" if cells is None else f"{cells} cells x {streams} streams"),
        bytes=size_of(item, "kv_cache_bytes"),
        tokens=counted(tokens),
        context_len=None if kind else context,
        kind=kind,
    )


def free_states(places: Places) -> tuple[AllocatorState, ...]:
    """Free memory of devices: before the load, and of the table that is printed at the end or on request. A table that is
    printed while parameters are fitted, before anything is loaded, states no measured use."""
    out = []
    loaded = False
    for item in places.start.said:
        loaded = loaded or item.event is Event.BUFFER
        where, free = text_of(item, "where"), size_of(item, "free_bytes")
        if where is None or free is None or is_host(where):
            continue
        if item.event is Event.DEVICE:
            out.append(_state(places, item, where, "before the load", Phase.LOAD, used=False))
        elif item.event is Event.MEMORY and item.values.get("point") == "memory table":
            point = "memory table" if loaded else "memory table of a dry run"
            out.append(_state(places, item, where, point, None if loaded else Phase.LOAD, used=loaded))
    return tuple(out)


def _state(
    places: Places, item: Observation, where: str, point: str, phase: Phase | None, *, used: bool
) -> AllocatorState:
    return AllocatorState(
        evidence=places.evidence(item), phase=phase, point=point, ranks=places.ranks(where), at_s=item.at_s,
        allocated_bytes=_cut(size_of(item, "self_bytes")) if used else None,
        device_free_bytes=_cut(size_of(item, "free_bytes")),
        device_total_bytes=_cut(size_of(item, "total_bytes")),
        outside_bytes=_cut(size_of(item, "unaccounted_bytes")) if used else None,
    )  # fmt: skip


def _cut(size: ByteRange | None) -> ByteRange | None:
    """Whole MiB are printed without what is left over, not rounded; "unaccounted" may wrap around below 0."""
    if size is None or size.expected >= 2**63:
        return None
    return ByteRange(size.expected, size.expected + MIB // 2, size.expected + MIB - 1)


def prompt_cache(places: Places) -> tuple[Figure, ...]:
    """Finished prompts in host memory, as last printed."""
    item = places.start.last("prompt_cache_bytes", Event.MEMORY)
    size = size_of(item, "prompt_cache_bytes")
    if item is None or size is None:
        return ()
    return (
        Figure(
            owners=(Owner.KV_CACHE,), name="prompt cache", bytes=ByteRange(max(size.low, 0), size.expected, size.high),
            evidence=places.evidence(item), entries=("prompt cache",), phase=Phase.DECODE,
            ranks=() if places.devices else (0,), on_host=bool(places.devices),
        ),
    )  # fmt: skip


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 12 else None
