"""A release of a small model, whole: planned, measured, declared and tested, so that a test takes one thing away."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec.structs import replace

from five_kinds import checkpoint, planned
from vramledger.answer import Plan
from vramledger.evidence import measured, reported
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.manifest.build import Given, build
from vramledger.manifest.declared import (
    AdmissionPolicy,
    CapacityResult,
    CommunicationOverlap,
    Facts,
    Latency,
    PrefixSharingBoundary,
    ToolWaitPolicy,
    Trial,
)
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.identity import EngineIdentity, engine_identity, hub_identity
from vramledger.measurement import (
    AllocatorState,
    Figure,
    GraphCapture,
    MeasuredPool,
    Measurement,
    MeasurementSource,
)
from vramledger.pool import IntRange
from vramledger.reconciliation.coverage import predicted

AT = "2026-11-30T01:02:03Z"
COMMIT = "8c22764a7e3675c50d4c7c9a4edb474456022b16"
STARTED_S = 1_796_000_000.0


def engine(plan: Plan) -> EngineIdentity:
    return engine_identity(
        plan.inputs.engine, plan.inputs.engine_version, f"git:{COMMIT}", allow_unpinned=False
    )


def exactly(plan: Plan, name: str, *owners: Owner, phase: Phase | None = None) -> Figure:
    """A figure just as the plan has it, of all ranks."""
    figure = Figure(
        owners=owners,
        name=name,
        bytes=ByteRange.exact(0),
        evidence=reported(f"start-up log, {name}"),
        phase=phase,
        ranks=plan.ranks[0].ranks,
    )
    size = predicted(figure, plan.ranks[0].entries)
    assert size is not None
    return replace(figure, bytes=ByteRange.exact(size.expected))


def measurement(plan: Plan, **changes: Any) -> Measurement:
    """An instance that came out just as it was planned."""
    total = ByteRange.exact(plan.inputs.device_total_bytes)
    pool = plan.kv_pool
    assert pool is not None
    found = Measurement(
        sources=(
            MeasurementSource(
                name="startup.log", kind="log", sha256="ab" * 32, from_s=STARTED_S, until_s=STARTED_S + 60
            ),
        ),
        engine=plan.inputs.engine,
        engine_version=plan.inputs.engine_version,
        tp=plan.inputs.tp,
        figures=(
            exactly(plan, "weights", Owner.WEIGHTS),
            exactly(plan, "activation peak", Owner.ACTIVATION, phase=Phase.PREFILL),
            exactly(plan, "workspaces", Owner.WORKSPACE),
            exactly(plan, "collectives", Owner.COLLECTIVES),
            exactly(plan, "graphs", Owner.GRAPH_POOL),
        ),
        pools=(
            MeasuredPool(
                evidence=reported("start-up log, KV pool"),
                bytes=ByteRange.exact(pool.bytes.expected),
                num_blocks=IntRange(*[pool.num_blocks.expected] * 3),
                tokens=IntRange(*[pool.tokens.expected] * 3),
            ),
        ),
        allocator=(
            AllocatorState(
                evidence=measured("nvml and the allocator's counters"),
                phase=Phase.DECODE,
                point="steady",
                ranks=plan.ranks[0].ranks,
                at_s=STARTED_S + 50,
                allocated_bytes=ByteRange.exact(130 * 2**30),
                reserved_bytes=ByteRange.exact(131 * 2**30),
                device_free_bytes=ByteRange.exact(7 * 2**30),
                device_total_bytes=total,
            ),
        ),
        graphs=(
            GraphCapture(
                shape="512", increment_bytes=ByteRange.exact(40 * 2**20), evidence=measured("device free")
            ),
        ),
    )
    return replace(found, **changes)


def facts(**changes: Any) -> Facts:
    """Everything declared and every test passed."""
    point = {
        "requests_per_s": 12.5,
        "slo": "ttft p99 2 s",
        "goodput_requests_per_s": 12.0,
        "latencies": (
            Latency(metric="ttft", percentile=95, seconds=0.8, limit_s=1.5),
            Latency(metric="ttft", percentile=99, seconds=1.1, limit_s=2.0),
        ),
        "source": "load test 17",
        "at": AT,
    }
    found = Facts(
        schema_version="1.0",
        kind="facts",
        prefix_sharing_boundary=PrefixSharingBoundary(
            tenant="salted by tenant",
            model="one model an instance",
            tokenizer="the model's own",
            template="the model's own",
            adapter="no adapters",
            source="design 12",
            at=AT,
        ),
        tool_wait_policy=ToolWaitPolicy(action="hold", limit_s=30.0, source="design 13", at=AT),
        admission=AdmissionPolicy(by_free_blocks=True, by_future_growth=True, source="design 14", at=AT),
        communication_overlap=CommunicationOverlap(overlapped="none", source="engine flags", at=AT),
        adapters=(),
        tests=(
            Trial(
                name="kv_returned_after_cancellation",
                passed=True,
                source="soak 3",
                at=AT,
                free_blocks_before=1000,
                free_blocks_after=1000,
            ),
            Trial(name="rolling_update", passed=True, source="drill 5", at=AT),
            Trial(
                name="recovery_headroom",
                passed=True,
                source="drill 6",
                at=AT,
                smallest_headroom_bytes=3 * 2**30,
            ),
        ),
        capacity_results=(
            CapacityResult(arrival="poisson", **point),  # type: ignore[arg-type]
            CapacityResult(arrival="burst", **point),  # type: ignore[arg-type]
        ),
    )
    return replace(found, **changes)


def given(kind: str = "dense", flags: dict[str, Any] | None = None, **changes: Any) -> Given:
    """What a whole release of one of the five kinds of model is made from."""
    plan = planned(kind, **(flags or {}))
    found = Given(
        plan=plan,
        model=hub_identity("org/model", COMMIT, ()),
        engine=engine(plan),
        at=AT,
        made_by="vramledger 0.1.0",
        checkpoint=checkpoint(kind),
        measurement=measurement(plan),
        facts=facts(),
    )
    return replace(found, **changes)


@cache
def whole(kind: str = "dense") -> ManifestDocument:
    """A release of which everything is evidenced."""
    return build(given(kind))


@cache
def bare(kind: str = "dense") -> ManifestDocument:
    """A plan and nothing else: no checkpoint, no measurement, nothing declared."""
    return build(
        given(kind, checkpoint=None, measurement=None, facts=Facts(schema_version="1.0", kind="facts"))
    )
