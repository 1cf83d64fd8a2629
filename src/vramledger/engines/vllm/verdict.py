"""Whether a vLLM plan holds, under what, or by how much not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vramledger.engines.findings import Finding, assumptions, beyond_device
from vramledger.engines.vllm.budget import RankTerms, requested_bytes
from vramledger.engines.vllm.held_contexts import held_blocks, held_conditions, requests_beside
from vramledger.engines.vllm.kv_budget import blocks_per_request, unusable_blocks
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.speculation import condition
from vramledger.engines.vllm.spikes import BEYOND_PEAK
from vramledger.engines.vllm.support import support_problems
from vramledger.engines.vllm.version import rules_note
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, Owner, RankLedger, total
from vramledger.models.checkpoint import Checkpoint
from vramledger.pool import KvPool
from vramledger.units import ceil_div, format_bytes, format_gib
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
    refusals: Sequence[str] = (),
) -> Verdict:
    """The engine's start-up checks, its limit on sequences, then the device's own, over low, expected and high.

    `concurrency` is how many requests of the full context all replicas together have to hold at once, `refusals`
    are why an adapter that is served would not load. Remedies
    are the planner's to add: each has to be planned before it is named.
    """
    replica_share = ceil_div(concurrency, settings.plan.dp)
    beyond = beyond_device(ranks, device)
    spikes = _spikes(ranks)
    found = [
        *_start_up(settings, device, terms),
        *_kv_memory(settings, terms, layout, available, pool, replica_share),
        *_sequences(settings, replica_share * settings.flags.requests.beams),
        *_device_limit(beyond, spikes),
    ]
    failures = [item for item in found if item.certain]
    unknown = [item for item in found if not item.certain]
    unlisted = support_problems(checkpoint, settings, device)
    conditions = (
        *_conditions(checkpoint, settings, device, beyond, pool),
        *held_conditions(pool, layout, settings),
        *(
            f"{name}: {format_bytes(size)} that the start-up left no room for, in what is above "
            f"gpu_memory_utilization"
            for name, size in spikes.items()
        ),
    )
    assumed = assumptions(ranks, device)
    refused = [*(problem.text for problem in unlisted if problem.certain), *refusals]
    if refused:
        return Verdict(
            holds=False,
            summary=f"does not load: {refused[0]}",
            missing=(*refused[1:], *(item.text for item in failures + unknown)),
            assumed=assumed,
        )
    doubts = tuple(problem.text for problem in unlisted)
    if failures:
        return Verdict(
            holds=False,
            summary=f"does not fit: {failures[0].text}",
            shortfall_bytes=max(item.shortfall_bytes for item in failures),
            missing=(*doubts, *(item.text for item in failures[1:] + unknown)),
            assumed=assumed,
        )
    if doubts:
        return Verdict(
            holds=None,
            summary="cannot be told: whether this version loads the model",
            conditions=conditions,
            missing=(*doubts, *(item.text for item in unknown)),
            assumed=assumed,
        )
    if unknown:
        return Verdict(
            holds=None,
            summary="cannot be told: "
            + ("one figure lies" if len(unknown) == 1 else "figures lie")
            + " inside the range of what is left",
            conditions=conditions,
            missing=tuple(item.text for item in unknown),
            assumed=assumed,
        )
    return Verdict(holds=True, summary=_holds(settings, pool, layout), conditions=conditions, assumed=assumed)


def _holds(settings: Settings, pool: KvPool | None, layout: Layout) -> str:
    if pool is None:
        return "holds: the model keeps no KV cache"
    if settings.auto_context:
        longest = pool.longest_context
        return f"holds: the engine takes a context of {longest.low:,} to {longest.high:,} tokens"
    beams = settings.flags.requests.beams
    count = min(int(requests_beside(pool, layout, settings)), settings.max_num_seqs // beams)
    replicas = f" in each of {settings.plan.dp} replicas" if settings.plan.dp > 1 else ""
    requests = "request" if count == 1 else "requests"
    return f"holds for {count:,} {requests} of {settings.context_len:,} tokens at once{replicas}"


def _start_up(settings: Settings, device: Device, terms: Sequence[RankTerms]) -> list[Finding]:
    """The engine refuses to start where less is free than its share asks for (since 0.9, v1/worker/gpu_worker.py);
    context and communicators are there before it looks."""
    if not settings.version.since(9) or not settings.v1 or device.vendor == "cpu":
        return []
    held = total(item.bytes for item in (terms[0].context, terms[0].collectives) if item is not None)
    share = settings.gpu_memory_utilization
    short = ByteRange(
        requested_bytes(device.total_high_bytes, settings) - device.total_high_bytes + held.low,
        requested_bytes(device.total_bytes, settings) - device.total_bytes + held.expected,
        requested_bytes(device.total_low_bytes, settings) - device.total_low_bytes + held.high,
    )
    if short.low > 0:
        text = (
            f"the driver's context and communicators leave less than the share of {share} that the engine asks "
            f"for at start-up, by at least {format_gib(short.low)}"
        )
        return [Finding(certain=True, text=text, shortfall_bytes=short.low)]
    if short.expected > 0:
        text = f"whether the device is free enough at start-up for a share of {share}: 'Free memory on device' in the log"
        return [Finding(certain=False, text=text)]
    return []


def _kv_memory(
    settings: Settings,
    terms: Sequence[RankTerms],
    layout: Layout,
    available: Sequence[ByteRange],
    pool: KvPool | None,
    requests: int,
) -> list[Finding]:
    """Whether every rank holds the KV cache of `requests` full-length requests (one token with `auto`)."""
    length = 1 if settings.auto_context and requests == 1 else settings.context_len
    blocks = 0
    if pool is not None:
        blocks = blocks_per_request(layout, length, settings) * requests + held_blocks(layout, settings)
    reserve = unusable_blocks(settings) if pool is not None else 0
    needs = [item.bytes_per_block * (blocks + reserve) for item in terms]
    lacking = [ByteRange.exact(need) - room for need, room in zip(needs, available, strict=True)]
    # The rank that surely lacks memory, else one that may, else the one with least to spare.
    worst = max(
        range(len(terms)),
        key=lambda index: (lacking[index].low > 0, lacking[index].high > 0, lacking[index].expected),
    )
    room, need = available[worst], terms[worst].bytes_per_block * blocks
    if lacking[worst].low > 0:
        text = _shortage(settings, room, need, lacking[worst].low, length, requests)
        fixed = _fixed(settings)
        if fixed:
            return [Finding(certain=True, text=f"{text}, as {fixed} has it whatever the memory")]
        return [Finding(certain=True, text=text, shortfall_bytes=lacking[worst].low)]
    if lacking[worst].high > 0 or room.low <= 0:
        left = f"{format_gib(room.low)} to {format_gib(room.high)} are left ({format_gib(room.expected)} expected)"
        text = f"the start-up's own figure for KV memory: {format_gib(need)} are needed, {left}"
        return [Finding(certain=False, text=text)]
    return []


def _fixed(settings: Settings) -> str:
    """The flag that sets the pool, "" where memory does."""
    flags = settings.flags
    if flags.num_gpu_blocks_override is not None:
        return f"--num-gpu-blocks-override {flags.num_gpu_blocks_override}"
    if flags.kv_cache_memory_bytes is not None:
        return f"--kv-cache-memory-bytes {flags.kv_cache_memory_bytes}"
    return ""


def _shortage(settings: Settings, room: ByteRange, need: int, short: int, length: int, requests: int) -> str:
    if room.high <= 0:
        alone = f"weights and activation alone exceed the budget by at least {format_gib(-room.high)}"
        return alone if not need else f"{alone}, and {format_gib(need)} of KV cache come on top"
    many = "one request" if requests == 1 else f"{requests:,} requests"
    held = settings.flags.requests.held_contexts
    if held:
        many = f"{held:,} held contexts and {many}"
    each = " in one replica" if settings.plan.dp > 1 else ""
    return (
        f"{many} of {length:,} tokens{each} {'needs' if requests == 1 and not held else 'need'} {format_gib(need)} of KV cache, "
        f"at least {format_gib(short)} more than is left"
    )


def _sequences(settings: Settings, requests: int) -> list[Finding]:
    if requests <= settings.max_num_seqs:
        return []
    text = f"a replica runs at most {settings.max_num_seqs} sequences at once, {requests} are asked for"
    return [Finding(certain=True, text=text)]


def _spikes(ranks: Sequence[RankLedger]) -> dict[str, int]:
    """What steps take beyond the profiled peak, by name, on the rank that takes most."""
    out: dict[str, int] = {}
    for rank in ranks:
        for item in rank.entries:
            if item.owner is Owner.ACTIVATION and not item.inside_budget:
                name = item.name.removesuffix(BEYOND_PEAK)
                out[name] = max(out.get(name, 0), item.bytes.high)
    return out


def _device_limit(beyond: ByteRange, spikes: Collection[str]) -> list[Finding]:
    """What the engine leaves out of its budget still has to be on the device."""
    outside = ", ".join([OUTSIDE, *spikes])
    if beyond.low > 0:
        text = (
            f"with what the engine leaves out of its budget ({outside}) the device is short of at least "
            f"{format_gib(beyond.low)}"
        )
        return [Finding(certain=True, text=text, shortfall_bytes=beyond.low)]
    if beyond.expected > 0:
        text = (
            f"what the engine leaves out of its budget ({outside}): {format_gib(beyond.expected)} more than the "
            "device has are expected"
        )
        return [Finding(certain=False, text=text)]
    return []


OUTSIDE = "driver context, communicators, block tables, graphs"


def _conditions(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    beyond: ByteRange,
    pool: KvPool | None,
) -> tuple[str, ...]:
    plan = settings.plan
    runner = "V2" if settings.v2_runner else "V1" if settings.v1 else "V0"
    limits = f"at most {settings.max_num_seqs} sequences and {settings.max_tokens:,} batched tokens a step"
    cache = f", KV cache {pool.dtype}" if pool is not None else ""
    out = [
        f"vllm {settings.version} ({runner} runner), tp {plan.tp}, pp {plan.pp}, dp {plan.dp}, ep {plan.ep}",
        f"{device.name} with {format_gib(device.total_bytes)} that nobody else uses",
        f"weights {checkpoint.quantization}{cache}",
        f"max_model_len {settings.context_len:,}, {limits}",
    ]
    note = rules_note(settings.version)
    if note is not None:
        out.append(note)
    if settings.flags.speculative is not None:
        out.append(condition(settings))
    if pool is not None:
        out.append(
            f"more than {pool.max_concurrency.low:.2f} full-length requests at once are queued or preempted"
        )
    if beyond.high > 0:
        out.append(
            f"what the engine does not charge ({OUTSIDE}) stays {format_gib(beyond.high)} below its high end"
        )
    return tuple(out)
