"""What a capacity is sensitive to beyond its settings: the ends of the plan's interval, other KV formats, other treatments of tool
waits, other prefix hits.

Imports what searches, so import this module late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from vramledger.cli.load_setup import setup_of
from vramledger.cli.load_workload import resampled
from vramledger.errors import VramledgerError
from vramledger.search.capacity.capacity import Extra
from vramledger.search.capacity.study import Case
from vramledger.search.terms import terms_of
from vramledger.simulation.settings import ToolWait

if TYPE_CHECKING:
    from vramledger.cli.load_setup import Asked, Setup
    from vramledger.cli.load_workload import Sent

KV_FORMATS = ("fp8", "bf16")


def kv_formats(asked: Asked, setup: Setup) -> Iterator[Extra]:
    """The same model planned with other KV formats, where a plan is made here."""
    if setup.plan is None or setup.plan.kv_pool is None:
        return
    stored = setup.plan.kv_pool.dtype
    if asked.model is None or asked.plan_file is not None or asked.manifest_file is not None:
        yield Extra(factor="KV format", change="another", refusal="needs MODEL and --device, to plan it anew")
        return
    terms = terms_of(asked.engine)
    for name in KV_FORMATS:
        word = terms.kv_names.get(name)
        if word is None or not terms.kv:
            continue
        changed = replace(asked, flags={**asked.flags, **dict.fromkeys(terms.kv, word)}, blocks=None)
        try:
            other = setup_of(changed, follow_parents=setup.settings.follow_parents)
        except VramledgerError as problem:
            yield Extra(factor="KV format", change=f"{stored} -> {name}", refusal=problem.message)
            continue
        if other.plan is not None and other.plan.kv_pool is not None and other.plan.kv_pool.dtype != stored:
            scheduler = replace(
                other.settings.scheduler, async_scheduling=setup.settings.scheduler.async_scheduling
            )
            yield Extra(
                factor="KV format",
                change=f"{stored} -> {other.plan.kv_pool.dtype}",
                case=Case(settings=replace(other.settings, scheduler=scheduler)),
            )


def pool_ends(asked: Asked, setup: Setup) -> Iterator[Extra]:
    """The least and the most blocks that the plan may leave."""
    pool, layout = None if setup.plan is None else setup.plan.kv_pool, setup.settings.layout
    if pool is None or asked.blocks is not None or layout.num_blocks != pool.num_blocks.expected:
        return
    for name, blocks in (("low", pool.num_blocks.low), ("high", pool.num_blocks.high)):
        if blocks not in (0, layout.num_blocks):
            settings = replace(setup.settings, layout=replace(layout, num_blocks=blocks))
            yield Extra(
                factor="pool", change=f"plan's {name}, {blocks:,} blocks", case=Case(settings=settings)
            )


def tool_waits(setup: Setup, *, is_compiled: bool) -> Iterator[Extra]:
    """Other ways to treat a conversation's KV between its turns."""
    settings = setup.settings
    for policy in ToolWait:
        if policy is settings.tool_wait:
            continue
        change = f"{settings.tool_wait.value} -> {policy.value}"
        if policy is ToolWait.SWAP and not (settings.host_link_bytes_per_s and settings.host_swap_bytes):
            yield Extra(factor="tool wait", change=change, refusal="needs --host-link and --host-swap")
        elif is_compiled:
            yield Extra(factor="tool wait", change=change, refusal="needs --how reference")
        else:
            yield Extra(
                factor="tool wait", change=change, case=Case(settings=replace(settings, tool_wait=policy))
            )


def prefix_hits(
    sent: Sent, setup: Setup, requests: int, seed: int
) -> tuple[tuple[Extra, ...], dict[str, tuple[Any, ...]]]:
    """The cohorts with a prefix hit a quarter higher and a quarter lower."""
    extras, tables = [], {}
    if not any(cohort.prefix_hit is not None and 0 < cohort.hit_share < 1 for cohort in sent.cohorts):
        return (), {}
    for scale in (0.75, 1.25):
        cohorts = [
            cohort
            if cohort.prefix_hit is None
            else replace(cohort, prefix_hit=min(cohort.hit_share * scale, 0.99))
            for cohort in sent.cohorts
        ]
        name = f"prefix hit x {scale:g}"
        tables[name] = tuple(
            workload.table() for workload in resampled(cohorts, requests, seed, len(sent.workloads))
        )
        extras.append(
            Extra(factor="prefix hit", change=f"x {scale:g}", case=Case(settings=setup.settings, tables=name))
        )
    return tuple(extras), tables
