"""What one engine instance has to give: its pool, its lengths and how many it runs at once. Pure.

From what the engine says of itself, or from what a person or a plan says of it; where both speak and differ, the smaller rules and the difference
is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines import engine_name, engine_names, find_full_pool
from vramledger.engines.full_pool import WhenFull
from vramledger.errors import InputError
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.measurement import MeasuredPool, Measurement

Settings = Mapping[str, str | int | float | bool]


class Given(Struct, frozen=True, kw_only=True):
    """What is known of an instance beforehand; each None where it is not.

    `layout` is a plan's pool, `pool_tokens` its size in tokens alone. `step_tokens` are the most that the engine computes in a step, and `lag_steps` how
    many steps it plans ahead. `kv_unified` is llama.cpp's: whether all slots draw from one pool, which its server does not say.
    """

    engine: str | None = None
    layout: PoolLayout | None = None
    pool_tokens: int | None = None
    max_model_len: int | None = None
    max_running: int | None = None
    step_tokens: int | None = None
    lag_steps: int | None = None
    kv_unified: bool | None = None


class Capacity(Struct, frozen=True, kw_only=True):
    """`when_full` is what the engine does when its pool is full (of one that is not known the worst is taken). `keeps_prefixes` is whether
    a prompt's blocks can be found again by others. `notes` say what was doubted or not known."""

    engine: str
    layout: PoolLayout
    max_model_len: int
    max_running: int
    step_tokens: int | None = None
    lag_steps: int = 0
    version: str | None = None
    model: str | None = None
    when_full: WhenFull = WhenFull.FAIL
    keeps_prefixes: bool = True
    notes: tuple[str, ...] = ()
    replicas: int = 1
    """Data-parallel ones behind one address: pool and sequences are those of all of them."""


def of_replicas(capacity: Capacity, replicas: int) -> Capacity:
    """So many of what one is. Which of them serves a request is the engine's to choose, so that one may be full while others are not."""
    if replicas <= 1:
        return capacity
    layout = capacity.layout
    return replace(
        capacity,
        layout=replace(
            layout, num_blocks=layout.num_blocks * replicas, reserved_blocks=layout.reserved_blocks * replicas
        ),
        max_running=capacity.max_running * replicas,
        notes=(*capacity.notes, f"{replicas} replicas with a pool each; their blocks are counted together"),
        replicas=replicas,
    )


def capacity_of(told: Measurement | None, given: Given, *, where: str) -> Capacity:
    """Raises InputError where neither the engine (`told` None: it was not reached) nor `given` says what the pool is."""
    engine = engine_name((told.engine if told is not None else None) or given.engine or "")
    read = _READERS.get(engine)
    live = read(told, given) if told is not None and read is not None else None
    layout = given.layout or _layout_of_tokens(given, live)
    if layout is None and live is None:
        raise InputError(
            f"{where} does not say how large its KV pool is: give it by a manifest or in tokens",
            upstream=where,
        )
    if live is None:
        assert layout is not None
        length = given.max_model_len or layout.usable_blocks * layout.key_tokens
        live = Capacity(
            engine=engine,
            layout=layout,
            max_model_len=length,
            max_running=given.max_running or layout.usable_blocks,
            step_tokens=given.step_tokens,
            lag_steps=given.lag_steps or 0,
            keeps_prefixes=engine != "llamacpp",
            notes=(f"{where} said nothing of its pool; what was given goes",),
        )
        return _with_identity(live, told, {})
    notes = [*live.notes]
    if layout is not None:
        live = replace(live, layout=_smaller_layout(live.layout, layout, notes))
    for name in ("max_model_len", "max_running"):
        own, other = getattr(live, name), getattr(given, name)
        if other is not None and other != own:
            is_known = not (name == "max_running" and own >= live.layout.usable_blocks)
            if is_known:
                notes.append(f"{name}: the engine says {own:,}, {other:,} was given; the smaller goes")
            live = replace(live, **{name: min(own, other)})
    if given.step_tokens is not None:
        live = replace(live, step_tokens=given.step_tokens)
    if given.lag_steps is not None:
        live = replace(live, lag_steps=given.lag_steps)
    settings = dict(told.settings) if told is not None else {}
    return _with_identity(replace(live, notes=tuple(notes)), told, settings)


def _with_identity(capacity: Capacity, told: Measurement | None, settings: Settings) -> Capacity:
    """Which engine it is, and so what it does when its pool is full."""
    when_full = WhenFull.FAIL
    if capacity.engine == "llamacpp":
        apart = capacity.max_running * capacity.max_model_len
        settings = {"kv_unified": capacity.layout.usable_blocks < apart, "parallel": capacity.max_running}
    if capacity.engine in engine_names():
        when_full = find_full_pool(capacity.engine)(settings).when_full
    return replace(
        capacity,
        version=told.engine_version if told is not None else None,
        model=told.model if told is not None else None,
        when_full=when_full,
    )


def _layout_of_tokens(given: Given, live: Capacity | None) -> PoolLayout | None:
    if given.pool_tokens is None:
        return None
    block_tokens = live.layout.key_tokens if live is not None else 1
    return _plain(max(1, given.pool_tokens // block_tokens), block_tokens)


def _smaller_layout(live: PoolLayout, given: PoolLayout, notes: list[str]) -> PoolLayout:
    """A plan knows the groups of layers, which no engine tells; blocks are the smaller of the two where they are of one size."""
    if given.is_plain and live.is_plain:
        tokens = (live.usable_blocks * live.key_tokens, given.usable_blocks * given.key_tokens)
        if tokens[0] != tokens[1]:
            notes.append(
                f"the pool: the engine says {tokens[0]:,} tokens, {tokens[1]:,} were given; the smaller goes"
            )
        return live if tokens[0] <= tokens[1] else given
    if given.num_blocks != live.num_blocks:
        notes.append(
            f"the pool: the engine says {live.num_blocks:,} blocks, {given.num_blocks:,} were given; the smaller goes"
        )
    return replace(given, num_blocks=min(given.num_blocks, live.num_blocks))


def _plain(num_blocks: int, block_tokens: int, reserved_blocks: int = 0) -> PoolLayout:
    return PoolLayout(
        num_blocks=num_blocks,
        groups=(BlockGroup(block_tokens=block_tokens),),
        reserved_blocks=reserved_blocks,
    )


def _vllm(told: Measurement, given: Given) -> Capacity | None:
    """Block 0 is the null block: never given out (v1/core/block_pool.py). Where layers form several groups, only the tokens are comparable:
    the blocks that one group would need of them are counted."""
    settings, pool = dict(told.settings), _pool(told)
    if pool is None or pool.num_blocks is None or not pool.block_size:
        return None
    blocks, size = pool.num_blocks.expected, pool.block_size
    notes = []
    if pool.tokens is not None and 0 < pool.tokens.expected < blocks * size and given.layout is None:
        notes.append(
            f"the pool holds {pool.tokens.expected:,} tokens in {blocks:,} blocks of {size}: several groups of layers, whose shares "
            "a manifest tells; requests are counted by tokens alone"
        )
        blocks = pool.tokens.expected // size
    usable = blocks - 1
    length = _count(settings, "max_model_len") or usable * size
    return Capacity(
        engine="vllm",
        layout=_plain(blocks, size, 1),
        max_model_len=length,
        max_running=_count(settings, "max_num_seqs") or usable,
        step_tokens=_count(settings, "max_num_batched_tokens"),
        lag_steps=1 if settings.get("async_scheduling") is True else 0,
        keeps_prefixes=settings.get("enable_prefix_caching") is not False,
        notes=tuple(notes),
    )


def _sglang(told: Measurement, given: Given) -> Capacity | None:
    settings, pool = dict(told.settings), _pool(told)
    page = (pool.block_size if pool is not None else None) or _count(settings, "page_size") or 1
    tokens = pool.tokens.expected if pool is not None and pool.tokens is not None else None
    tokens = tokens or _count(settings, "max_total_num_tokens") or _count(settings, "max_total_tokens")
    if not tokens:
        return None
    running = _count(settings, "effective_max_running_requests") or _count(settings, "max_running_requests")
    length = _count(settings, "context_length") or _count(settings, "context_len") or tokens
    return Capacity(
        engine="sglang",
        layout=_plain(tokens // page, page),
        max_model_len=min(length, tokens),
        max_running=running or tokens // page,
        keeps_prefixes=settings.get("disable_radix_cache") is not True,
    )


def _llamacpp(told: Measurement, given: Given) -> Capacity | None:
    """Cells are tokens. A slot's cells are found again by its own next prompt only (server-context.cpp)."""
    settings = dict(told.settings)
    slots, length = _count(settings, "total_slots"), _count(settings, "n_ctx_slot")
    if not slots or not length:
        return None
    notes = []
    is_unified = given.kv_unified
    if is_unified is None:
        is_unified = slots > 1 and (given.pool_tokens is None or given.pool_tokens < slots * length)
        if is_unified and given.pool_tokens is None:
            notes.append(
                f"the server does not say whether its {slots} slots share {length:,} cells or have as many each; as though they shared them, until they "
                "hold more than that (kv_unified in [[upstream]] settles it)"
            )
    return Capacity(
        engine="llamacpp",
        layout=_plain(length if is_unified else slots * length, 1),
        max_model_len=length,
        max_running=slots,
        keeps_prefixes=False,
        notes=tuple(notes),
    )


def _tensorrt_llm(told: Measurement, given: Given) -> Capacity | None:
    settings, pool = dict(told.settings), _pool(told)
    if pool is None or pool.num_blocks is None or not pool.block_size:
        return None
    blocks, size = pool.num_blocks.expected, pool.block_size
    return Capacity(
        engine="tensorrt-llm",
        layout=_plain(blocks, size),
        max_model_len=_count(settings, "max_seq_len") or blocks * size,
        max_running=_count(settings, "max_batch_size") or blocks,
        keeps_prefixes=settings.get("enable_block_reuse") is not False,
    )


_READERS: Mapping[str, Callable[[Measurement, Given], Capacity | None]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
    "tensorrt-llm": _tensorrt_llm,
}


def _pool(told: Measurement) -> MeasuredPool | None:
    return next((pool for pool in told.pools if not pool.kind), None)


def _count(settings: Settings, name: str) -> int | None:
    value = settings.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
