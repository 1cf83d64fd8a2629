"""Third question: what the message's own numbers say, and fourth: which way things went before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.rule import Rule, Step
from vramledger.diagnosis.terms import (
    IN_SERVICE,
    LOADING,
    RECOVERING,
    WARMING,
    FailureClass,
    Stage,
    Weight,
)
from vramledger.ledger import ByteRange

LOAD, WARM, SPIKE = FailureClass.LOAD_TIME, FailureClass.WARM_UP, FailureClass.PREFILL_SPIKE
GROWTH, RECOVERY, FRAGMENTED = (
    FailureClass.DECODE_GROWTH,
    FailureClass.RECOVERY,
    FailureClass.FRAGMENTATION,
)
DECIDES, STRONG, SUGGESTS, HINTS, AGAINST = (
    Weight.DECIDES,
    Weight.STRONG,
    Weight.SUGGESTS,
    Weight.HINTS,
    Weight.AGAINST,
)
# A process with less than this share of a full device is not what filled it.
TINY_SHARE = 0.25
MUCH_HELD_BY_OTHERS = 0.25
HOURS_OF_A_TREND = 0.5
_AT_THE_START = frozenset({"lmdeploy-oom", "tensorrt-out-of-memory", "tensorrt-request-refused"})
SMALL_SEGMENT_BYTES = 2 * 2**20


def _end(size: ByteRange | None) -> int:
    return 0 if size is None else size.expected


def _mapped_wrongly(facts: Facts) -> bool:
    return (facts.siblings_alike or 0) >= 1


def slack_covers(facts: Facts) -> bool:
    """What is free on the device misses the request, what the allocator has reserved and not handed out covers it."""
    if facts.requested_bytes is None or facts.free_bytes is None or facts.slack_bytes is None:
        return False
    return facts.free_bytes.expected < facts.requested_bytes.expected <= facts.slack_bytes.expected


def _sum_covers(facts: Facts) -> bool:
    if facts.requested_bytes is None or facts.free_bytes is None or facts.slack_bytes is None:
        return False
    wanted, free, slack = (
        size.expected for size in (facts.requested_bytes, facts.free_bytes, facts.slack_bytes)
    )
    return free < wanted <= free + slack and slack < wanted


def _slack_small(facts: Facts) -> bool:
    return _end(facts.free_bytes) + _end(facts.slack_bytes) < _end(facts.requested_bytes)


def free_covers(facts: Facts) -> bool:
    """More is surely free than was asked for."""
    return (
        facts.free_bytes is not None
        and facts.requested_bytes is not None
        and facts.free_bytes.low >= facts.requested_bytes.high
    )


def _piece_too_small(facts: Facts) -> bool:
    return facts.largest_free_run_bytes is not None and facts.largest_free_run_bytes < _end(
        facts.requested_bytes
    ) <= _end(facts.slack_bytes)


def _others_hold_much(facts: Facts) -> bool:
    total = _end(facts.total_bytes)
    others, own = facts.others_bytes, facts.own_bytes
    if total <= 0 or others is None:
        return False
    tiny = own is not None and own.expected < TINY_SHARE * total and others.low > own.expected
    return facts.stage not in IN_SERVICE and (others.low > MUCH_HELD_BY_OTHERS * total or tiny)


def _before_pool(facts: Facts) -> bool:
    """An engine that fills a share of the device holds far less than that share: its pool is not there yet."""
    share = facts.settings.get("gpu_memory_utilization")
    share = share if isinstance(share, float) and 0 < share <= 1 else 0.9
    return (
        facts.engine == "vllm"
        and facts.allocated_bytes is not None
        and facts.total_bytes is not None
        and facts.stage in (None, Stage.STARTING)
        and facts.allocated_bytes.expected < 0.8 * share * facts.total_bytes.expected
        and not _others_hold_much(facts)
    )


def _brim(facts: Facts) -> bool:
    """A small tensor found no room for one more small segment on a device full to the brim."""
    return (
        facts.stage in (None, Stage.STARTING)
        and facts.requested_bytes is not None
        and facts.requested_bytes.low <= SMALL_SEGMENT_BYTES
        and facts.total_bytes is not None
        and _end(facts.free_bytes) < facts.total_bytes.expected // 1000
        and facts.engine in {"vllm", "sglang"}
        and facts.graphs_off is not True
    )


def _rising(facts: Facts, slope: float | None) -> bool:
    return slope is not None and slope > 0 and (facts.slope_hours or 0) >= HOURS_OF_A_TREND


def _rule(
    name: str,
    needs: tuple[str, ...],
    when: Callable[[Facts], bool],
    says: Mapping[FailureClass, Weight],
    why: str,
    *,
    step: Step = Step.ARITHMETIC,
    by_words: bool = False,
) -> Rule:
    return Rule(name=name, step=step, needs=needs, when=when, says=says, why=why, by_words=by_words)


_REQUEST = ("requested_bytes", "free_bytes", "slack_bytes")

RULES: tuple[Rule, ...] = (
    _rule(
        "slack-covers-request",
        _REQUEST,
        lambda facts: slack_covers(facts) and not _mapped_wrongly(facts),
        {FRAGMENTED: STRONG},
        "the allocator holds more than the request reserved and unallocated, and could not use it",
    ),
    _rule(
        "free-and-slack-cover-request",
        _REQUEST,
        lambda facts: _sum_covers(facts) and not _mapped_wrongly(facts),
        {FRAGMENTED: STRONG},
        "free and reserved-but-unallocated together cover the request, neither does alone",
    ),
    _rule(
        "slack-small",
        _REQUEST,
        _slack_small,
        {FRAGMENTED: AGAINST},
        "free and reserved-but-unallocated together do not cover the request, whatever the hint of the message says",
    ),
    _rule(
        "largest-piece-too-small",
        ("requested_bytes", "slack_bytes", "largest_free_run_bytes"),
        _piece_too_small,
        {FRAGMENTED: DECIDES},
        "the snapshot's largest free piece is smaller than the request, all pieces together are larger",
    ),
    _rule(
        "free-covers-request",
        ("requested_bytes", "free_bytes"),
        free_covers,
        {FRAGMENTED: AGAINST},
        "more is free than was asked for: neither exhaustion nor fragmentation, but a limit on one allocation, "
        "unified memory that is not all allocatable, or another allocator",
    ),
    _rule(
        "others-hold-much",
        ("total_bytes", "others_bytes"),
        _others_hold_much,
        {LOAD: STRONG, RECOVERY: SUGGESTS},
        "other processes, not this one, hold the device",
    ),
    _rule(
        "siblings-on-one-device",
        ("siblings_alike",),
        lambda facts: _mapped_wrongly(facts) and facts.stage not in IN_SERVICE,
        {LOAD: DECIDES, FRAGMENTED: AGAINST},
        "several processes that hold about as much as this one are on its device: ranks are mapped to the wrong devices",
    ),
    _rule(
        "allocated-at-the-start",
        ("kind",),
        lambda facts: facts.kind in _AT_THE_START and facts.stage in (None, Stage.STARTING),
        {LOAD: SUGGESTS, WARM: HINTS},
        "this engine takes weights, pool and buffers from the driver when it starts, and little later",
    ),
    _rule(
        "before-the-pool",
        ("engine", "allocated_bytes", "total_bytes"),
        _before_pool,
        {WARM: SUGGESTS, LOAD: HINTS},
        "the process holds far less than its share of the device: its KV pool is not there, so it failed before, "
        "in loading or in the profile",
    ),
    _rule(
        "small-segment-at-the-brim",
        ("requested_bytes", "free_bytes", "total_bytes", "engine"),
        _brim,
        {WARM: SUGGESTS},
        "a small tensor found no room for one segment: the share was spent on the pool and what comes after it "
        "(private pools of graphs cannot use others' free blocks) had none",
    ),
    _rule(
        "pool-without-virtual-memory",
        ("buffer",),
        lambda facts: facts.buffer == "fallback-pool",
        {FRAGMENTED: STRONG, SPIKE: SUGGESTS},
        "the pool that failed has no virtual memory: it keeps every buffer that is too small for the next request",
    ),
    _rule(
        "pool-with-virtual-memory",
        ("buffer",),
        lambda facts: facts.buffer == "vmm-pool",
        {SPIKE: SUGGESTS, GROWTH: HINTS},
        "the virtual-memory pool grew past what was left: a step's temporaries, more of them the longer the context",
    ),
    _rule(
        "device-grows",
        ("device_slope_bytes_per_h",),
        lambda facts: _rising(facts, facts.device_slope_bytes_per_h) and facts.stage not in LOADING | WARMING,
        {GROWTH: DECIDES},
        "device memory rose over hours of constant load",
        step=Step.TREND,
    ),
    _rule(
        "host-grows",
        ("host_slope_bytes_per_h",),
        lambda facts: (
            _rising(facts, facts.host_slope_bytes_per_h)
            and facts.domain in (Domain.HOST, None)
            and facts.stage not in LOADING | WARMING
        ),
        {GROWTH: DECIDES},
        "resident memory rose over hours of constant load",
        step=Step.TREND,
    ),
    _rule(
        "preempted-before",
        ("preemptions",),
        lambda facts: (
            (facts.preemptions or 0) > 0
            and facts.stage in IN_SERVICE
            and facts.domain in (Domain.KV_POOL, Domain.DEVICE)
        ),
        {GROWTH: SUGGESTS},
        "requests were preempted or retracted before",
        step=Step.TREND,
    ),
    _rule(
        "killed-in-service",
        ("stage", "domain"),
        lambda facts: (
            facts.domain is Domain.HOST and facts.stage in IN_SERVICE and facts.standing is Standing.CAUSE
        ),
        {GROWTH: STRONG},
        "host memory ran out in service: it grows with time or load, what loading needs is long past",
        step=Step.TREND,
    ),
    _rule(
        "host-without-phase",
        ("domain",),
        lambda facts: (
            facts.domain is Domain.HOST
            and facts.stage in (None, Stage.STARTING)
            and not facts.served
            and facts.ready is not True
            and facts.standing is Standing.CAUSE
        ),
        {LOAD: SUGGESTS},
        "host memory ran out and nothing says that the instance was ready: host memory peaks while weights are read",
        step=Step.TREND,
    ),
    _rule(
        "words-growth",
        ("symptoms",),
        lambda facts: "growth" in facts.symptoms and facts.stage not in LOADING | WARMING | RECOVERING,
        {GROWTH: DECIDES},
        "the description has memory rise with time, requests or turns",
        step=Step.TREND,
        by_words=True,
    ),
    _rule(
        "words-fragmented",
        ("symptoms",),
        lambda facts: "fragmented" in facts.symptoms,
        {FRAGMENTED: STRONG},
        "the description names split, pinned or scattered pieces",
        by_words=True,
    ),
    _rule(
        "words-no-virtual-memory",
        ("symptoms",),
        lambda facts: "no-virtual-memory" in facts.symptoms,
        {FRAGMENTED: STRONG},
        "the backend's pool has no virtual memory: it keeps every buffer that is too small for the next request",
    ),
)
