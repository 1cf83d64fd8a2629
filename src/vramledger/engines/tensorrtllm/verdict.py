"""Whether a TensorRT-LLM plan holds, under what, or by how much not."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vramledger.engines.findings import Finding, assumptions, beyond_device, device_limit, verdict_of
from vramledger.engines.spikes import outside_names, spike_conditions
from vramledger.engines.tensorrtllm.admission import Request, blocks_to_completion
from vramledger.engines.tensorrtllm.budget import RankTerms
from vramledger.engines.tensorrtllm.capacity import Capacity, guaranteed, need
from vramledger.engines.tensorrtllm.held_contexts import beside_held, held_blocks, held_conditions
from vramledger.engines.tensorrtllm.pools import RankPools, fill, stranded_blocks
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.engines.tensorrtllm.spikes import ASKED_FOR, SIZED_WITHOUT
from vramledger.engines.tensorrtllm.version import rules_note
from vramledger.hardware.catalogue import Device
from vramledger.ledger import RankLedger
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import format_bytes, format_gib
from vramledger.verdict import Verdict

_NO_LIMIT = 1 << 60
OUTSIDE = "what is measured before the pool is sized, or never (graphs, sampling)"


def judge(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    terms: Sequence[RankTerms],
    found: Capacity,
    ranks: Sequence[RankLedger],
    *,
    concurrency: int,
) -> Verdict:
    """Room for a pool at all, the asked length, `concurrency` requests of it, then the device."""
    beyond = beyond_device(ranks, device)
    beside = beside_held(found, settings)
    findings = [
        *_room(settings, terms, found),
        *_length(settings, terms, found),
        *_requests(settings, terms, found, beside, concurrency),
        *device_limit(beyond, OUTSIDE + outside_names(ranks[-1].entries, ASKED_FOR)),
    ]
    index = found.widest
    low = found.low[index]
    share = _dealt(settings)
    count = guaranteed(beside.low[index], settings)
    where = f" on each of {share} ranks" if share > 1 else ""
    requests = "request" if count == 1 else "requests"
    lowered = (
        ""
        if low.reached_len >= settings.asked_len
        else f", to which max_seq_len {settings.asked_len:,} is lowered"
    )
    if not low.pools:
        holds = "holds: the model keeps no KV cache"
    elif settings.flags.capacity_scheduler_policy == "MAX_UTILIZATION":
        holds = (
            f"holds for {count:,} {requests} of {low.reached_len:,} tokens at once{where}{lowered}; MAX_UTILIZATION admits "
            "more and pauses the last when blocks run out"
        )
    else:
        holds = f"holds for {count:,} {requests} of {low.reached_len:,} tokens at once{where}{lowered}, none evicted"
    return verdict_of(
        findings,
        holds=holds,
        conditions=(
            *_conditions(checkpoint, settings, device, found, count),
            *held_conditions(found, beside, settings),
            *spike_conditions(ranks[-1].entries, ASKED_FOR, SIZED_WITHOUT),
        ),
        assumed=assumptions(ranks, device),
    )


def _dealt(settings: Settings) -> int:
    """Ranks that requests are dealt to, each with a cache of its own."""
    return settings.flags.tp_size if settings.flags.enable_attention_dp else 1


def _largest(settings: Settings, item: RankTerms) -> RankPools:
    """What held contexts leave of the pools of a rank that has all the memory it could use."""
    pools = (fill(item.layers, settings, _NO_LIMIT),)
    return beside_held(Capacity(low=pools, expected=pools, high=pools), settings).high[0]


def _limits(settings: Settings) -> str:
    """The flags that may hold a pool down where memory does not."""
    flags = settings.flags
    given = {
        "--max-tokens": flags.max_tokens,
        "--max-gpu-total-bytes": flags.max_gpu_total_bytes,
        "--max-attention-window": flags.max_attention_window,
    }
    return " and ".join(f"{name} {value}" for name, value in given.items() if value) or "windows and batch"


def _room(settings: Settings, terms: Sequence[RankTerms], found: Capacity) -> list[Finding]:
    """A pool of no block is an error at start."""
    index = found.widest
    low, _, high = found.ends(index)
    if not high.pools:
        return []
    if not all(pool.blocks for pool in high.pools):
        least = min(terms, key=lambda item: item.available.high)
        states = settings.max_batch * settings.flags.pp_size * high.state_bytes
        budget = int(least.available.high * settings.fraction)
        short = max(high.pools[0].block_bytes(settings.tokens_per_block) + states - budget, 1)
        beside = (
            f", of which the states of {settings.max_batch:,} requests take {format_gib(states)}"
            if states
            else ""
        )
        text = (
            f"{format_gib(least.available.high)} at most are left beside weights and activation, and the share "
            f"{settings.fraction:g} of it{beside} holds no KV block in some pool"
        )
        return [Finding(certain=True, text=text, shortfall_bytes=short)]
    if not all(pool.blocks for pool in low.pools):
        text = f"whether anything is left for KV: 0 to {format_gib(terms[index].available.high)}"
        return [Finding(certain=False, text=text)]
    return []


def _length(settings: Settings, terms: Sequence[RankTerms], found: Capacity) -> list[Finding]:
    """An asked length that the pool does not hold is lowered without an error: a failure where somebody asked for it."""
    index = found.widest
    low, _, high = found.ends(index)
    if settings.flags.max_seq_len is None or not high.pools or not high.reached_len:
        return []
    asked = settings.asked_len
    request = Request(prompt=1, new_tokens=asked - 1, beams=settings.flags.max_beam_width)
    pool = high.binding
    need = blocks_to_completion(request, tokens_per_block=settings.tokens_per_block)
    short = max(need - pool.blocks, 0) * pool.block_bytes(settings.tokens_per_block)
    if high.reached_len < asked:
        text = (
            f"the engine would silently lower max_seq_len from {asked:,} to at most {high.reached_len:,} tokens, what one "
            "request finds in the pool"
        )
        if _largest(settings, terms[index]).reached_len < asked:
            return [Finding(certain=True, text=f"{text}, limited by {_limits(settings)} whatever the memory")]
        text += f"; {format_bytes(short)} more of it would hold the asked length"
        return [Finding(certain=True, text=text, shortfall_bytes=short)]
    if low.reached_len < asked:
        text = f"whether max_seq_len {asked:,} stays or is lowered, to {low.reached_len:,} at worst: 'Adjusted max_seq_len'"
        return [Finding(certain=False, text=text)]
    return []


def _requests(
    settings: Settings, terms: Sequence[RankTerms], found: Capacity, beside: Capacity, concurrency: int
) -> list[Finding]:
    """`beside` is what held contexts leave of `found`."""
    share = -(-concurrency // _dealt(settings))
    index = found.widest
    low, _, high = found.ends(index)
    if share > settings.max_batch:
        text = f"a batch has at most {settings.max_batch:,} requests, {share:,} are asked for"
        return [Finding(certain=True, text=text)]
    most, least = (guaranteed(end[index], settings) for end in (beside.high, beside.low))
    if not high.pools or not all(pool.blocks for pool in high.pools):
        return []
    many = "one request" if share == 1 else f"{share:,} requests"
    if share > most:
        asked = replace(high, reached_len=settings.asked_len)
        pool = high.binding
        blocks = need(pool, asked, settings) * share + held_blocks(pool, high, settings)
        short = max(blocks - pool.blocks, 1) * pool.block_bytes(settings.tokens_per_block)
        lowered = (
            ""
            if high.reached_len >= settings.asked_len
            else f", to which the engine lowers {settings.asked_len:,},"
        )
        text = (
            f"{many} of {high.reached_len:,} tokens{lowered} are never held together: {most:,} at most "
            f"{'is' if most == 1 else 'are'} admitted at once"
        )
        largest = replace(_largest(settings, terms[index]), reached_len=settings.asked_len)
        if guaranteed(largest, settings) < share:
            return [Finding(certain=True, text=f"{text}, limited by {_limits(settings)} whatever the memory")]
        return [Finding(certain=True, text=text, shortfall_bytes=short)]
    if share > least:
        text = f"{many} of {low.reached_len:,} tokens: {least:,} to {most:,} are admitted at once"
        return [Finding(certain=False, text=text)]
    return []


def _conditions(
    checkpoint: Checkpoint, settings: Settings, device: Device, found: Capacity, count: int
) -> tuple[str, ...]:
    flags = settings.flags
    spread = ", attention dp" if flags.enable_attention_dp else ""
    limits = f"at most {settings.max_batch:,} requests and {settings.max_tokens_a_step:,} tokens a step"
    out = [
        (
            f"tensorrt-llm {settings.version}, {settings.backend} back end, tp {flags.tp_size}, pp {flags.pp_size}, "
            f"ep {flags.ep}{spread}"
        ),
        (
            f"{device.name} with {format_gib(device.total_bytes)} that nobody else uses: other processes' memory counts as "
            "the engine's own"
        ),
        (
            f"weights {checkpoint.quantization if flags.quantization is None else flags.quantization}, KV cache "
            f"{settings.cache} in blocks of {settings.tokens_per_block}"
        ),
        limits,
    ]
    low = found.low[found.widest]
    if low.pools and low.reached_len < settings.asked_len:
        out.append(
            f"max_seq_len is lowered from {settings.asked_len:,} to {low.reached_len:,} tokens: longer requests are refused"
        )
    if flags.capacity_scheduler_policy != "MAX_UTILIZATION":
        out.append(
            f"every request reserves the blocks of its whole max_tokens: beyond {count:,} full-length ones the queue waits"
        )
    if flags.speculative is not None:
        out.append(f"speculative decoding: {flags.speculative}")
    note = rules_note(settings.version)
    return (*out, note) if note else tuple(out)


def stranded_notes(settings: Settings, found: Capacity) -> list[str]:
    """What equal shares of windows leave where no sequence of a batch ever reaches it."""
    middle = found.expected[found.widest]
    out = []
    for pool in middle.pools:
        idle = stranded_blocks(middle, settings, pool)
        if idle:
            size = idle * pool.block_bytes(settings.tokens_per_block)
            out.append(
                f"the pool of window {pool.window} gets an equal share of the KV bytes; {format_gib(size)} of it are beyond "
                f"what {settings.max_batch:,} sequences hold and serve no longer window (TRTLLM_WINDOW_SIZE_SHARES moves them)"
            )
    return out
