"""Whether a vLLM plan holds, under what, or by how much not."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.vllm.budget import RankTerms
from vramledger.engines.vllm.kv_budget import blocks_per_request, unusable_blocks, usable_bytes
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.speculation import condition
from vramledger.evidence import EvidenceKind
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, Owner, Phase, RankLedger
from vramledger.models.checkpoint import Checkpoint
from vramledger.pool import KvPool
from vramledger.units import format_gib
from vramledger.verdict import Verdict


def judge(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    terms: Sequence[RankTerms],
    layout: Layout,
    available: Sequence[ByteRange],
    pool: KvPool | None,
    ranks: Sequence[RankLedger],
    *,
    concurrency: int = 1,
) -> Verdict:
    """The start-up checks of the engine, then the device's own limit, over low, expected and high.

    `concurrency` is how many requests of the full context have to be held at once.
    """
    assumptions = _assumptions(ranks, device)
    blocks = blocks_per_request(layout, settings.context_len, settings) * concurrency
    lacking = [
        ByteRange.exact(item.bytes_per_block * (blocks + unusable_blocks(settings))) - room
        for item, room in zip(terms, available, strict=True)
    ]
    # The rank that surely lacks memory, else one that may, else the one with least to spare.
    worst = max(
        range(len(terms)),
        key=lambda index: (lacking[index].low > 0, lacking[index].high > 0, lacking[index].expected),
    )
    room = available[worst]
    if pool is None:
        return _by_room(settings, device, room, assumptions)
    per_block = terms[worst].bytes_per_block
    need = per_block * blocks
    low, expected, high = (
        usable_bytes(end, per_block, settings) for end in (room.low, room.expected, room.high)
    )
    conditions = _conditions(checkpoint, settings, device, pool)
    remedies = _remedies(settings, pool, room, concurrency)
    if need > high:
        return Verdict(
            holds=False,
            summary=_shortage(settings, room, need, need - high, concurrency),
            shortfall_bytes=need - high,
            remedies=remedies,
            assumed=assumptions,
        )
    beyond = _beyond_device(ranks, device)
    if beyond.low > 0:
        return Verdict(
            holds=False,
            summary="does not fit: with what the engine leaves out of its budget the device is short of at least "
            f"{format_gib(beyond.low)}",
            shortfall_bytes=beyond.low,
            remedies=(f"--gpu-memory-utilization below {settings.gpu_memory_utilization}", *remedies),
            assumed=assumptions,
        )
    if beyond.high > 0:
        outside = "driver context, communicators, block tables, graphs"
        conditions += (
            f"what the engine does not charge ({outside}) stays {format_gib(beyond.high)} below its high end",
        )
    if need > low:
        left = f"{format_gib(low)} to {format_gib(high)} are left ({format_gib(expected)} expected)"
        return Verdict(
            holds=None,
            summary="cannot be told: the need lies inside the range of what is left",
            conditions=conditions,
            missing=(f"the start-up's own figure for KV memory: {format_gib(need)} are needed, {left}",),
            remedies=remedies,
            assumed=assumptions,
        )
    return Verdict(
        holds=True,
        summary=f"holds for {pool.max_concurrency.low:.2f} requests of {settings.context_len:,} tokens at once",
        conditions=conditions,
        assumed=assumptions,
    )


def _by_room(settings: Settings, device: Device, room: ByteRange, assumptions: tuple[str, ...]) -> Verdict:
    """For a model that keeps no KV cache: whether anything is left at all."""
    if room.high <= 0:
        return Verdict(
            holds=False,
            summary=f"does not fit: weights and activation exceed the budget by at least {format_gib(-room.high)}",
            shortfall_bytes=-room.high,
            assumed=assumptions,
        )
    return Verdict(
        holds=True if room.low > 0 else None,
        summary="holds: the model keeps no KV cache"
        if room.low > 0
        else "cannot be told: nothing may be left",
        conditions=(f"vllm {settings.version} on {device.name}",),
        missing=() if room.low > 0 else ("the start-up's own activation peak",),
        assumed=assumptions,
    )


def _shortage(settings: Settings, room: ByteRange, need: int, short: int, concurrency: int) -> str:
    if room.high <= 0:
        return (
            f"does not fit by at least {format_gib(short)}: weights and activation alone exceed the budget by "
            f"{format_gib(-room.high)}, and one request's KV cache comes on top"
        )
    many = "one request" if concurrency == 1 else f"{concurrency} requests"
    return (
        f"does not fit: {many} of {settings.context_len:,} tokens "
        f"{'needs' if concurrency == 1 else 'need'} {format_gib(need)} of KV cache, "
        f"at least {format_gib(short)} more than is left"
    )


def _remedies(settings: Settings, pool: KvPool, room: ByteRange, concurrency: int) -> tuple[str, ...]:
    out = []
    if concurrency > 1 and pool.max_concurrency.low >= 1:
        out.append(f"at most {int(pool.max_concurrency.low)} requests of this length at once")
    elif room.expected > 0 and pool.longest_context.expected:
        out.append(f"--max-model-len {pool.longest_context.low or pool.longest_context.expected}")
    if not pool.dtype.startswith(("fp8", "nvfp4", "int")):
        out.append("--kv-cache-dtype fp8 halves the KV cache")
    out.append(f"a larger --tensor-parallel-size than {settings.plan.tp}, or a larger device")
    if settings.max_num_seqs > 256:
        out.append(f"--max-num-seqs below {settings.max_num_seqs} shrinks the sampler's peak")
    if settings.gpu_memory_utilization < 0.95:
        out.append(f"--gpu-memory-utilization above {settings.gpu_memory_utilization}")
    return tuple(out)


def _beyond_device(ranks: Sequence[RankLedger], device: Device) -> ByteRange:
    """The largest peak of any rank less the device's memory, end by end; negative where it is held."""
    peaks = [rank.occupied(phase) for rank in ranks for phase in Phase]
    return ByteRange(
        max(peak.low for peak in peaks) - device.total_high_bytes,
        max(peak.expected for peak in peaks) - device.total_bytes,
        max(peak.high for peak in peaks) - device.total_low_bytes,
    )


def _conditions(checkpoint: Checkpoint, settings: Settings, device: Device, pool: KvPool) -> tuple[str, ...]:
    plan = settings.plan
    runner = "V2" if settings.v2_runner else "V1" if settings.v1 else "V0"
    limits = f"at most {settings.max_num_seqs} sequences and {settings.max_tokens:,} batched tokens a step"
    drafts = (condition(settings),) if settings.flags.speculative is not None else ()
    return (
        f"vllm {settings.version} ({runner} runner), tp {plan.tp}, pp {plan.pp}, dp {plan.dp}, ep {plan.ep}",
        f"{device.name} with {format_gib(device.total_bytes)} that nobody else uses",
        f"weights {checkpoint.quantization}, KV cache {pool.dtype}",
        f"max_model_len {settings.context_len:,}, {limits}",
        *drafts,
        f"more than {pool.max_concurrency.low:.2f} full-length requests at once are queued or preempted",
    )


def _assumptions(ranks: Sequence[RankLedger], device: Device) -> tuple[str, ...]:
    names = {
        f"{entry.owner.value}: {entry.name}"
        for rank in ranks
        for entry in rank.entries
        if entry.evidence.kind is EvidenceKind.ASSUMED and entry.owner is not Owner.KV_CACHE
    }
    if device.evidence.kind is EvidenceKind.ASSUMED:
        names.add(f"device memory: {device.evidence.source}")
    return tuple(sorted(names))
