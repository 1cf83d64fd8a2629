"""Settings with one thing changed: what relieves a load that is not met, and what a capacity is sensitive to."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.search.capacity.study import Case
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_model import StepModel

MORE = 1.25
POOL, ACTIVATION, SLOTS, LATENCY = "pool", "activation", "max_num_seqs", "latency"


def reliefs(settings: SimulationSettings) -> Iterator[tuple[str, str, SimulationSettings]]:
    """(resource, change, settings) with a quarter more of each resource and nothing else changed."""
    layout, scheduler = settings.layout, settings.scheduler
    more = f"+{MORE - 1:.0%}"
    yield POOL, f"blocks {more}", replace(settings, layout=_with_blocks(layout, MORE))
    tokens = round(scheduler.max_num_batched_tokens * MORE)
    yield (
        ACTIVATION,
        f"tokens a step {more}",
        replace(settings, scheduler=replace(scheduler, max_num_batched_tokens=tokens)),
    )
    yield (
        SLOTS,
        f"max_num_seqs {more}",
        replace(
            settings, scheduler=replace(scheduler, max_num_seqs=max(round(scheduler.max_num_seqs * MORE), 2))
        ),
    )
    yield LATENCY, f"steps {MORE:g}x as fast", replace(settings, step=with_step(settings.step, 1 / MORE))


def changes(settings: SimulationSettings) -> Iterator[tuple[str, str, Case]]:
    """(factor, change, case) of what a capacity is sensitive to and these settings can tell of alone."""
    layout, scheduler = settings.layout, settings.scheduler
    for scale in (0.8, MORE):
        yield "output length", f"x {scale:g}", Case(settings=settings, output_scale=scale)
    if scheduler.prefix_caching:
        without = replace(settings, scheduler=replace(scheduler, prefix_caching=False))
        yield "prefix hit", "no prefix cache", Case(settings=without)
    if layout.is_plain:
        size = layout.groups[0].block_tokens
        for tokens in (size // 2, size * 2, size * 4):
            if tokens:
                changed = replace(settings, layout=with_block_tokens(layout, tokens))
                yield "block size", f"{size} -> {tokens}", Case(settings=changed)
    for watermark in (0.0, 0.01, 0.05):
        if watermark != scheduler.watermark:
            changed = replace(settings, scheduler=replace(scheduler, watermark=watermark))
            yield "watermark", f"{scheduler.watermark:g} -> {watermark:g}", Case(settings=changed)
    for scale in (0.9, 1.1):
        yield "pool", f"x {scale:g}", Case(settings=replace(settings, layout=_with_blocks(layout, scale)))
    for scale in (0.9, 1.1):
        yield (
            "step time",
            f"x {scale:g}",
            Case(settings=replace(settings, step=with_step(settings.step, scale))),
        )


def with_step(step: StepModel, scale: float) -> StepModel:
    """Every step `scale` times as long."""
    return replace(
        step,
        overhead_ps=round(step.overhead_ps * scale),
        floor_ps=round(step.floor_ps * scale),
        token_ps=round(step.token_ps * scale),
        decode_seq_ps=round(step.decode_seq_ps * scale),
        kv_token_ps=round(step.kv_token_ps * scale),
        pair_ps_per_1024=round(step.pair_ps_per_1024 * scale),
    )


def with_block_tokens(layout: PoolLayout, tokens: int) -> PoolLayout:
    """The same bytes in blocks of another length, of a pool with one block table."""
    old = layout.groups[0]
    return replace(
        layout,
        groups=(BlockGroup(kind=GroupKind.FULL, block_tokens=tokens),),
        num_blocks=layout.reserved_blocks + layout.usable_blocks * old.block_tokens // tokens,
        block_bytes=layout.block_bytes * tokens // old.block_tokens,
    )


def _with_blocks(layout: PoolLayout, scale: float) -> PoolLayout:
    return replace(layout, num_blocks=layout.reserved_blocks + max(round(layout.usable_blocks * scale), 1))
