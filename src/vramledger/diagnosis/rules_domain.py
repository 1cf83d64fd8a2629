"""First question: which memory ran short, or none at all."""

from __future__ import annotations

from collections.abc import Callable

from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.rule import Rule, Step
from vramledger.diagnosis.terms import FailureClass, Stage, Weight

NONE, GROWTH, SPIKE = FailureClass.NONE, FailureClass.DECODE_GROWTH, FailureClass.PREFILL_SPIKE
FRAGMENTED, RECOVERY, LOAD = FailureClass.FRAGMENTATION, FailureClass.RECOVERY, FailureClass.LOAD_TIME
DECIDES, STRONG, SUGGESTS = Weight.DECIDES, Weight.STRONG, Weight.SUGGESTS


def _is(domain: Domain, *stages: Stage) -> Callable[[Facts], bool]:
    return lambda facts: facts.domain is domain and (not stages or facts.stage in stages)


def _pool_in(*stages: Stage) -> Callable[[Facts], bool]:
    return lambda facts: (
        facts.domain in (Domain.KV_POOL, Domain.WORKSPACE)
        and facts.stage in stages
        and facts.pool_loss_tokens is None
        and not _scattered(facts)
    )


def _lost(facts: Facts) -> bool:
    return facts.pool_loss_tokens is not None and facts.pool_loss_tokens > 0


def _surplus(facts: Facts) -> bool:
    return facts.pool_loss_tokens is not None and facts.pool_loss_tokens < 0


def _scattered(facts: Facts) -> bool:
    return (
        facts.domain is Domain.KV_POOL
        and facts.free_cells is not None
        and facts.wanted_tokens is not None
        and facts.free_cells >= facts.wanted_tokens > 0
    )


def _rule(
    name: str,
    needs: tuple[str, ...],
    when: Callable[[Facts], bool],
    says: dict[FailureClass, Weight],
    why: str,
) -> Rule:
    return Rule(name=name, step=Step.DOMAIN, needs=needs, when=when, says=says, why=why)


RULES: tuple[Rule, ...] = (
    _rule(
        "on-chip-limit",
        ("domain",),
        _is(Domain.SHARED_MEMORY_PER_BLOCK),
        {NONE: DECIDES},
        "a kernel asks for more on-chip memory per block than the hardware has; no device memory is involved",
    ),
    _rule(
        "not-memory",
        ("domain",),
        lambda facts: facts.domain is Domain.NONE and facts.standing is Standing.CAUSE,
        {NONE: DECIDES},
        "the first cause is not a lack of memory",
    ),
    _rule(
        "request-slots",
        ("domain",),
        _is(Domain.REQUEST_SLOTS),
        {NONE: DECIDES, GROWTH: Weight.HINTS},
        "the table of request slots is full; slots are counted, not bytes",
    ),
    _rule(
        "shared-segment-at-start",
        ("domain",),
        lambda facts: facts.domain is Domain.SHARED_SEGMENT and not facts.served and facts.ready is not True,
        {LOAD: STRONG},
        "the shared-memory mount is full, not the device: its segments are made when processes start",
    ),
    _rule(
        "shared-segment-in-service",
        ("domain",),
        lambda facts: facts.domain is Domain.SHARED_SEGMENT and (facts.served or facts.ready is True),
        {GROWTH: STRONG},
        "the shared-memory mount is full, not the device, and the instance was in service: what is kept there grew",
    ),
    _rule(
        "benign-alone",
        ("domain",),
        lambda facts: facts.standing is Standing.BENIGN,
        {NONE: DECIDES},
        "the program goes on by another way after this message",
    ),
    _rule(
        "pool-loss",
        ("pool_loss_tokens",),
        _lost,
        {GROWTH: DECIDES},
        "available + evictable + protected is less than the pool: what is missing leaked",
    ),
    _rule(
        "pool-surplus",
        ("pool_loss_tokens",),
        _surplus,
        {NONE: DECIDES, GROWTH: Weight.HINTS},
        "available + evictable + protected is more than the pool: counted twice, nothing is lost",
    ),
    _rule(
        "pool-in-prefill",
        ("domain", "stage"),
        _pool_in(Stage.PREFILL, Stage.FIRST_REQUEST),
        {SPIKE: DECIDES, GROWTH: Weight.HINTS},
        "a prompt asked the engine's own pool for more at once than it had",
    ),
    _rule(
        "pool-in-decode",
        ("domain", "stage"),
        _pool_in(Stage.DECODE, Stage.IDLE_CHECK),
        {GROWTH: DECIDES, SPIKE: Weight.HINTS},
        "running requests outgrew the engine's own pool while they generated",
    ),
    _rule(
        "pool-full",
        ("domain",),
        lambda facts: (
            facts.domain is Domain.KV_POOL
            and facts.stage in (None, Stage.SERVING)
            and facts.pool_loss_tokens is None
            and not _scattered(facts)
        ),
        {GROWTH: STRONG, SPIKE: SUGGESTS},
        "the engine's own pool ran full in service: requests fill it while they generate, long prompts at once",
    ),
    _rule(
        "workspace-of-one-step",
        ("domain", "buffer"),
        lambda facts: facts.domain is Domain.WORKSPACE and "decode" not in (facts.buffer or ""),
        {SPIKE: DECIDES},
        "a workspace of fixed size is too small for one batch, most of it prompts; the device is not full",
    ),
    _rule(
        "workspace-of-decode",
        ("domain", "buffer"),
        lambda facts: facts.domain is Domain.WORKSPACE and "decode" in (facts.buffer or ""),
        {GROWTH: DECIDES},
        "the workspace of generation, of fixed size, is too small for the running requests",
    ),
    _rule(
        "pool-cells-scattered",
        ("domain", "free_cells", "wanted_tokens"),
        _scattered,
        {FRAGMENTED: DECIDES},
        "as many cells are free as were wanted: they are not in one piece",
    ),
    _rule(
        "pool-restore",
        ("domain", "stage"),
        _is(Domain.KV_POOL, Stage.RESTORE),
        {FRAGMENTED: Weight.DECIDES, RECOVERY: STRONG},
        "a saved sequence goes back into one run of cells: contiguity, not capacity",
    ),
    _rule(
        "pool-held-by-transfer",
        ("domain", "stage"),
        _is(Domain.KV_POOL, Stage.TRANSFER),
        {RECOVERY: STRONG, GROWTH: Weight.HINTS},
        "blocks of finished requests are held by a transfer between instances",
    ),
)
