"""What one rank of SGLang printed, in the ledger's words.

Source: sglang srt/model_executor/model_runner.py (`load_model`: free before minus free after), mem_cache/memory_pool.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from vramledger.engines.log_facts import between, count_of, counted, said_by, size_of, sum_of, text_of
from vramledger.evidence import Evidence
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import AllocatorState, Figure, GraphCapture, MeasuredPool
from vramledger.observation import Event, Observation

_NAME = "sglang"
_POOLS = ("KV pool", "windowed layers' pool", "draft's KV pool", "KV beyond its charge", "padding pages")
_POINTS = {
    "distributed init": Phase.LOAD,
    "memory pool end": Phase.WARMUP,
    "adapter": None,
    "weight update": None,
}


class RankFindings(Struct, frozen=True, kw_only=True):
    figures: tuple[Figure, ...]
    pools: tuple[MeasuredPool, ...]
    allocator: tuple[AllocatorState, ...]
    graphs: tuple[GraphCapture, ...]
    notes: tuple[str, ...]


class _Reader:
    """One rank's lines, and where evidence of them points."""

    def __init__(
        self, said: Sequence[Observation], ranks: tuple[int, ...], version: str | None, page: int | None
    ) -> None:
        self.said, self.ranks, self.version, self.page = said, ranks, version, page

    def of(self, event: Event) -> list[Observation]:
        return [item for item in self.said if item.event is event]

    def evidence(self, item: Observation, formula: str = "") -> Evidence:
        return said_by(item, _NAME, self.version, formula)

    def figure(
        self, owners: tuple[Owner, ...], name: str, size: ByteRange, item: Observation, *,
        entries: tuple[str, ...] = (), without: tuple[str, ...] = (), formula: str = "",
    ) -> Figure:  # fmt: skip
        return Figure(
            owners=owners, name=name, bytes=size, evidence=self.evidence(item, formula), entries=entries, without=without,
            ranks=self.ranks,
        )  # fmt: skip


def rank_figures(
    said: Sequence[Observation], ranks: tuple[int, ...], version: str | None, page: int | None
) -> RankFindings:
    """Figures, pools, free memory at the printed points and captured sizes of one rank; `page` is the page size."""
    reader = _Reader(said, ranks, version, page)
    notes: list[str] = []
    figures = [
        *_collectives(reader),
        *_weights(reader, notes),
        *_pool_figures(reader),
        *_graph_figures(reader, notes),
    ]
    return RankFindings(
        figures=tuple(figures),
        pools=tuple(_pools(reader)),
        allocator=tuple(_free(reader)),
        graphs=tuple(_captures(reader)),
        notes=tuple(notes),
    )  # fmt: skip


def _collectives(reader: _Reader) -> list[Figure]:
    """What free memory lost while the process groups were made; the context was there before, torch had asked for the
    device's free memory."""
    out = []
    for item in reader.of(Event.MEMORY):
        size = size_of(item, "used_bytes")
        if size is not None and size.high > 0 and item.values.get("point") == "distributed init":
            out.append(
                reader.figure((Owner.COLLECTIVES,), "distributed init", _held(size), item, entries=("communicators",))
            )  # fmt: skip
    return out[-1:]


def _weights(reader: _Reader, notes: list[str]) -> list[Figure]:
    """The first load is the model, later ones are drafts."""
    out = []
    begins = reader.of(Event.LOAD_BEGIN)
    for position, item in enumerate(reader.of(Event.WEIGHTS)):
        size, formula = size_of(item, "weights_bytes"), ""
        free = size_of(item, "free_bytes")
        before = size_of(begins[position], "free_bytes") if position < len(begins) else None
        if size is None and before is not None and free is not None:
            size = between(before, free)
            formula = "free before the load - free after it"
        if size is None:
            continue
        if size.high <= 0:
            notes.append(
                f"{item.place}: the load is said to have taken {size.expected} bytes; another process freed memory"
            )
            continue
        if position == 0:
            out.append(
                reader.figure(
                    (Owner.WEIGHTS, Owner.ALLOCATOR), "weights", _held(size), item, without=("draft model",), formula=formula
                )
            )  # fmt: skip
        else:
            out.append(
                reader.figure((Owner.WEIGHTS,), "draft weights", _held(size), item, entries=("draft model",), formula=formula)
            )  # fmt: skip
    return out


def _kv_lines(reader: _Reader) -> list[Observation]:
    """Lines of pools that hold memory: those of the sizing after capture where there is one."""
    lines = [
        item
        for item in reader.of(Event.KV_POOL)
        if "kv_cache_bytes" in item.values or "key_bytes" in item.values
    ]
    late = [item for item in lines if str(item.values.get("pool", "")).endswith("after capture")]
    return late or lines


def _line_bytes(item: Observation) -> ByteRange | None:
    return size_of(item, "kv_cache_bytes") or sum_of(
        [size_of(item, "key_bytes"), size_of(item, "value_bytes")]
    )


def _pool_figures(reader: _Reader) -> list[Figure]:
    """All pools of keys and values together, a draft's too: which entry holds a draft's share depends on the release."""
    out = []
    lines = _kv_lines(reader)
    size = sum_of([_line_bytes(item) for item in lines])
    if size is not None:
        formula = " + ".join(f"{item.place.line}: {item.values.get('kv_tokens')} tokens" for item in lines)
        out.append(
            reader.figure(
                (Owner.KV_CACHE,), "KV pools", _held(size), lines[-1], entries=_POOLS, formula=formula
            )
        )
    for line in _state_lines(reader)[-1:]:
        names = ("conv_bytes", "ssm_bytes", "draft_ssm_bytes", "draft_conv_bytes")
        states = sum_of([size_of(line, name) for name in names if name in line.values])
        if states is not None:
            out.append(
                reader.figure((Owner.KV_CACHE,), "recurrent states", _held(states), line, entries=("recurrent states",))
            )  # fmt: skip
    return out


def _state_lines(reader: _Reader) -> list[Observation]:
    return [item for item in reader.of(Event.STATE_POOL) if "conv_bytes" in item.values]


def _pools(reader: _Reader) -> list[MeasuredPool]:
    window = {
        count
        for item in reader.said
        if item.event in (Event.KV_BUDGET, Event.STATE_POOL)
        and (count := count_of(item, "window_tokens")) is not None
    }
    out: dict[str, MeasuredPool] = {}
    for item in _kv_lines(reader):
        kind = _kind(item, window, out)
        size = _line_bytes(item)
        out[kind] = _pool(reader, item, kind, None if size is None else _held(size))
    limits = [item for item in reader.of(Event.KV_POOL) if "context_len" in item.values]
    if limits:
        known = out.get("")
        out[""] = _pool(reader, limits[-1], "", known.bytes if known is not None else None)
    for item in _state_lines(reader):
        slots = count_of(item, "state_slots_count")
        if slots is not None:
            sizes = [size_of(item, name) for name in ("conv_bytes", "ssm_bytes")]
            out["recurrent states"] = MeasuredPool(
                evidence=reader.evidence(item), bytes=sum_of(sizes), num_blocks=counted(slots), kind="recurrent states"
            )  # fmt: skip
    return list(out.values())


def _pool(reader: _Reader, item: Observation, kind: str, size: ByteRange | None) -> MeasuredPool:
    tokens, page = count_of(item, "kv_tokens"), reader.page
    pages = tokens // page if page is not None and tokens is not None and tokens % page == 0 else None
    return MeasuredPool(
        evidence=reader.evidence(item), bytes=size, num_blocks=counted(pages), block_size=page, tokens=counted(tokens),
        context_len=count_of(item, "context_len"), kind=kind,
    )  # fmt: skip


def _kind(item: Observation, window: set[int], known: dict[str, MeasuredPool]) -> str:
    """ "" for the pool that the token budget counts, "sliding window", "draft"."""
    name = text_of(item, "pool") or ""
    tokens = count_of(item, "kv_tokens")
    if name.startswith("draft"):
        return "draft"
    if name.endswith("index"):
        return "indexer keys"
    if name == "SWA" or (not name and tokens in window and "sliding window" not in known):
        return "sliding window"
    return "draft" if "" in known else ""


def _free(reader: _Reader) -> list[AllocatorState]:
    """Free memory of the device wherever it was printed."""
    out = []
    for item in reader.said:
        free = size_of(item, "free_bytes")
        if free is None or item.event is Event.GRAPH_SHAPE:
            continue
        point, phase = _point(item)
        out.append(
            AllocatorState(
                evidence=reader.evidence(item), phase=phase, point=point, ranks=reader.ranks, at_s=item.at_s,
                device_free_bytes=free,
            )
        )  # fmt: skip
    return out


def _point(item: Observation) -> tuple[str, Phase | None]:
    if item.event is Event.LOAD_BEGIN:
        return "before the load", Phase.LOAD
    if item.event is Event.WEIGHTS:
        return "after the load", Phase.LOAD
    if item.event is Event.WARMUP:
        return f"before capture of {item.values.get('capture')}", Phase.WARMUP
    if item.event is Event.GRAPHS:
        return f"after capture of {item.values.get('capture')}", Phase.WARMUP
    point = str(item.values.get("point", item.event.value))
    if point == "memory pool end":
        return "after the pools", Phase.WARMUP
    if point == "start-up ends":
        return point, Phase.WARMUP
    return point, _POINTS.get(point)


def _graph_figures(reader: _Reader, notes: list[str]) -> list[Figure]:
    """All captures together: the ledger has one entry for them."""
    sizes = [
        (item, size) for item in reader.of(Event.GRAPHS) if (size := size_of(item, "graph_bytes")) is not None
    ]
    total = sum_of([size for _, size in sizes])
    if total is None:
        return []
    if total.high <= 0:
        notes.append(f"{sizes[-1][0].place}: captures are said to have taken {total.expected} bytes")
        return []
    formula = " + ".join(f"{item.values.get('capture')} {size.expected} B" for item, size in sizes)
    return [
        reader.figure((Owner.GRAPH_POOL,), "captured graphs", _held(total), sizes[-1][0], formula=formula)
    ]


def _captures(reader: _Reader) -> list[GraphCapture]:
    """Free memory is printed before a size is captured, so a size took what the next print lacks; all sizes of one
    capture share a pool. Graphs of single row counts say what they took."""
    out = []
    shapes: list[Observation] = []
    for item in reader.said:
        taken = size_of(item, "graph_bytes")
        if item.event is Event.GRAPH_SHAPE and taken is not None:
            shape = f"{item.values.get('axis')} {item.values.get('shape_size')}"
            out.append(GraphCapture(shape=shape, increment_bytes=taken, evidence=reader.evidence(item)))
        elif item.event is Event.GRAPH_SHAPE:
            shapes.append(item)
        elif item.event is Event.GRAPHS:
            out += _increments(reader, [*_unique(shapes), item])
            shapes = []
    return out


def _unique(shapes: Sequence[Observation]) -> list[Observation]:
    """The first print of each size: a progress bar repeats its text."""
    found: dict[object, Observation] = {}
    for item in shapes:
        found.setdefault((item.values.get("axis"), item.values.get("shape_size")), item)
    return list(found.values())


def _increments(reader: _Reader, points: Sequence[Observation]) -> list[GraphCapture]:
    out = []
    for item, following in pairwise(points):
        before, after = size_of(item, "free_bytes"), size_of(following, "free_bytes")
        if before is None or after is None:
            continue
        unit = "batch" if item.values.get("axis") == "bs" else "tokens"
        out.append(
            GraphCapture(
                shape=f"{unit} {item.values.get('shape_size')}", increment_bytes=before - after,
                evidence=reader.evidence(item, "free before it - free before the next"), shared_pool=True,
            )
        )  # fmt: skip
    return out


def _held(size: ByteRange) -> ByteRange:
    """Bytes held are not below 0, however a print was rounded."""
    return ByteRange(max(size.low, 0), max(size.expected, 0), max(size.high, 0))
