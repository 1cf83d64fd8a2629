"""Whether a plan of continuous batching holds, under what, or by how much not."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.findings import Finding, assumptions, beyond_device, device_limit, verdict_of
from vramledger.engines.transformers.cache import Sized, guaranteed, needed_units
from vramledger.engines.transformers.settings import Settings
from vramledger.engines.transformers.version import rules_note
from vramledger.hardware.catalogue import Device
from vramledger.ledger import RankLedger
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import counted, format_bytes, format_gib
from vramledger.verdict import Verdict

_NO_LIMIT = 1 << 60
OUTSIDE = "weights, the driver's context and what the handler does not count"


def judge(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    sized: Sized,
    ranks: Sequence[RankLedger],
    *,
    concurrency: int,
) -> Verdict:
    """The library's own check at start, then the cache for `concurrency` requests, then the device."""
    beyond = beyond_device(ranks, device)
    findings = [
        *_start(settings, sized),
        *_requests(settings, sized, concurrency),
        *device_limit(beyond, OUTSIDE),
    ]
    count = guaranteed(sized, settings, sized.units.low)
    requests = "request" if count == 1 else "requests"
    holds = f"holds for {count:,} {requests} of {settings.context_len:,} tokens at once"
    return verdict_of(
        findings,
        holds=holds,
        conditions=_conditions(checkpoint, settings, device, sized, count),
        assumed=assumptions(ranks, device),
    )


def _start(settings: Settings, sized: Sized) -> list[Finding]:
    """MemoryError where the footprint is above the share, ValueError where no sector is left."""
    if sized.low.fits:
        return []
    best = sized.high
    if not sized.free.high:
        return [
            Finding(certain=True, text="weights and the driver's context leave nothing of the device free")
        ]
    stated = settings.flags.num_blocks is not None
    least = best.units if stated else 1
    batch = max(best.batch_tokens, 1)
    short = max(sized.rules.footprint(batch, max(least, 1)) - best.available_bytes, 1)
    what = (
        f"{settings.flags.num_blocks} blocks"
        if stated
        else "one sector"
        if settings.version.since(18)
        else "one block"
    )
    if not best.fits:
        text = (
            f"{what} and a batch of {counted(batch, 'token')} need {format_bytes(short)} more than the share "
            f"{settings.memory_percent:g} of free memory: the library raises at start"
        )
        return [Finding(certain=True, text=text, shortfall_bytes=short)]
    text = (
        f"whether {what} and a batch of {counted(batch, 'token')} fit the share {settings.memory_percent:g} of free "
        f"memory, {format_gib(sized.available.low)} to {format_gib(sized.available.high)}"
    )
    return [Finding(certain=False, text=text)]


def _requests(settings: Settings, sized: Sized, requests: int) -> list[Finding]:
    if not sized.high.fits:
        return []
    most = min(settings.max_requests, sized.high.batch_tokens)
    if requests > most:
        return [
            Finding(certain=True, text=f"a batch has at most {most:,} requests, {requests:,} are asked for")
        ]
    need, units = needed_units(sized, settings, requests), sized.units
    word = "sectors" if settings.version.since(18) else "blocks"
    many = "one request" if requests == 1 else f"{requests:,} requests"
    if need > units.high:
        short = (need - units.high) * sized.rules.unit_bytes
        text = f"{many} of {settings.context_len:,} tokens fill {need:,} {word} of the cache, at most {units.high:,} are there"
        if sized.rules.solve(_NO_LIMIT).units < need:
            limit = (
                f"--cb-num-blocks {settings.flags.num_blocks}"
                if settings.flags.num_blocks is not None
                else f"transformers {settings.version}"
            )
            return [Finding(certain=True, text=f"{text}, limited by {limit} whatever the memory")]
        return [Finding(certain=True, text=text, shortfall_bytes=short)]
    if need > units.low:
        text = f"{many} of {settings.context_len:,} tokens fill {need:,} {word}, {units.low:,} to {units.high:,} are there"
        return [Finding(certain=False, text=text)]
    return []


def _conditions(
    checkpoint: Checkpoint, settings: Settings, device: Device, sized: Sized, count: int
) -> tuple[str, ...]:
    note = rules_note(settings.version)
    batches = "two sets of inputs" if settings.is_async else "one set of inputs"
    limits = f"batches of {sized.expected.batch_tokens:,} tokens and {settings.max_requests:,} requests"
    out = [
        f"transformers {settings.version}, tp_size {settings.flags.tp_size}",
        f"{device.name} with {format_gib(device.total_bytes)} that nobody else uses",
        f"weights {checkpoint.quantization}, run and cached in {settings.dtype.value}",
        f"attention {settings.attention}, {batches}, {limits}",
        f"nothing is reserved for answers: beyond {count:,} full-length requests the newest are evicted and restarted",
    ]
    return (*out, note) if note else tuple(out)
