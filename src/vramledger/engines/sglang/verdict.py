"""Whether an SGLang plan holds, under what, or by how much not."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.findings import Finding, assumptions, beyond_device, device_limit, verdict_of
from vramledger.engines.sglang.budget import Free, RankTerms, Sized
from vramledger.engines.sglang.capacity import guaranteed, missing_bytes, request_tokens
from vramledger.engines.sglang.held_contexts import beside_held, held_bytes, held_conditions
from vramledger.engines.sglang.pools import slots_per_request
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.spikes import ASKED_FOR, SIZED_WITHOUT
from vramledger.engines.sglang.version import rules_note
from vramledger.engines.spikes import outside_names, spike_conditions
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, RankLedger
from vramledger.models.checkpoint import Checkpoint
from vramledger.pool import KvPool
from vramledger.units import ceil_div, format_bytes, format_gib
from vramledger.verdict import Verdict

NEW_TOKEN_RATIO = 0.7
RATIO_UNDER_DP_ATTENTION = 0.3


def judge(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    terms: Sequence[RankTerms],
    free: Free,
    sized: Sized,
    pool: KvPool | None,
    ranks: Sequence[RankLedger],
    *,
    unknown: str,
    concurrency: int,
) -> Verdict:
    """The start-up's checks, the caps on requests, then the device's own limit, over low, expected and high.

    `concurrency` requests of the full context have to be held at once over all replicas and attention groups;
    `unknown` is why the pool is not known, "" where it is.
    """
    share = ceil_div(concurrency, settings.flags.dp_size)
    beyond = beyond_device(ranks, device)
    found = _weights_fit(settings, free, sized)
    beside = beside_held(sized, terms[0], settings)
    if not unknown:
        found += _requests(settings, terms[0], beside, pool, share)
    found += device_limit(
        beyond, f"what is outside the static part ({OUTSIDE}{outside_names(ranks[-1].entries, ASKED_FOR)})"
    )
    conditions = (
        *_conditions(checkpoint, settings, device, terms, beside, pool, beyond),
        *held_conditions(pool, beside, terms[0], settings),
        *spike_conditions(ranks[-1].entries, ASKED_FOR, SIZED_WITHOUT),
    )
    assumed = assumptions(ranks, device)
    if unknown and not any(item.certain for item in found):
        return Verdict(
            holds=None,
            summary="cannot be told: how many tokens the pool holds",
            conditions=conditions,
            missing=(unknown, *(item.text for item in found)),
            assumed=assumed,
        )
    holds = _holds(settings, terms[0], beside, pool)
    return verdict_of(found, holds=holds, conditions=conditions, assumed=assumed)


def _holds(settings: Settings, item: RankTerms, sized: Sized, pool: KvPool | None) -> str:
    if pool is None:
        return "holds: the model keeps no KV cache"
    count, why = guaranteed(sized.low, item, settings)
    groups = f" in each of {settings.flags.dp_size} groups" if settings.flags.dp_size > 1 else ""
    requests = "request" if int(count) == 1 else "requests"
    return f"holds for {int(count):,} {requests} of {settings.context_len:,} tokens at once{groups}; {why} set that"


def _weights_fit(settings: Settings, free: Free, sized: Sized) -> list[Finding]:
    """The start-up fails where weights leave nothing of the static part."""
    if sized.high.rest_bytes <= 0 or (sized.high.static_bytes <= 0):
        short = max(-sized.high.rest_bytes, -sized.high.static_bytes, 1)
        text = (
            f"what is loaded leaves nothing of the static part, mem_fraction_static {settings.mem_fraction_static:.3f} of "
            f"{format_gib(free.pre.expected)}, by at least {format_gib(short)}"
        )
        return [Finding(certain=True, text=text, shortfall_bytes=short)]
    if sized.low.rest_bytes <= 0:
        return [Finding(certain=False, text="whether weights leave a pool: 'Load weight end' in the log")]
    return []


def _requests(
    settings: Settings, item: RankTerms, sized: Sized, pool: KvPool | None, share: int
) -> list[Finding]:
    if pool is None or sized.high.rest_bytes <= 0:
        return []
    many = "one request" if share == 1 else f"{share:,} requests"
    each = " in one attention group" if settings.flags.dp_size > 1 else ""
    highest, why = guaranteed(sized.high, item, settings)
    if int(highest) < share:
        if sized.high.max_running_requests < share and highest >= sized.high.max_running_requests:
            text = (
                f"max_running_requests is {sized.high.max_running_requests}, set by {why}; {share:,} requests are "
                f"asked for{each}"
            )
            return [Finding(certain=True, text=text)]
        need = request_tokens(settings.context_len, settings) * share
        text = f"{many} of {settings.context_len:,} tokens{each} may come to need {need:,} tokens; at most {why} are there"
        limit = settings.flags.max_total_tokens
        if limit is not None and need > limit >= sized.high.tokens:
            return [
                Finding(
                    certain=True, text=f"{text}, as --max-total-tokens {limit:,} has it whatever the memory"
                )
            ]
        if not item.cells.plain_cell:
            text += ", one context's worth, as no layer keeps tokens; --max-total-tokens sets another number"
            return [Finding(certain=True, text=text)]
        short = missing_bytes(sized.high, item, settings, share)
        short += max(held_bytes(pool, item, settings) - pool.bytes.high, 0)
        return [
            Finding(certain=True, text=f"{text}, {format_bytes(short)} less at least", shortfall_bytes=short)
        ]
    lowest, why = guaranteed(sized.low, item, settings)
    if int(lowest) < share:
        text = (
            f"the start-up's own max_total_num_tokens: {pool.tokens.low:,} to {pool.tokens.high:,} are left for {many} of "
            f"{settings.context_len:,} tokens"
        )
        return [Finding(certain=False, text=text)]
    return []


OUTSIDE = "context, communicators, request table, workspaces, graphs, activations"


# disaggregation/prefill.py and decode.py; keys and values are moved from pool to pool, without buffers of their own
# unless SGLANG_DISAGG_STAGING_BUFFER is set.
_ROLES = {
    "prefill": "a prompt's KV stays in the pool after its prefill until a decode instance has taken it",
    "decode": "a request enters with room for its prompt and 512 more tokens (num_reserved_decode_tokens), "
    "before its KV arrives",
}


def _conditions(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    terms: Sequence[RankTerms],
    sized: Sized,
    pool: KvPool | None,
    beyond: ByteRange,
) -> tuple[str, ...]:
    flags = settings.flags
    groups = f", {flags.attn_dp} attention groups" if flags.attn_dp > 1 else ""
    cache = f", KV cache {settings.kv_dtype}, page {settings.page_size}" if pool is not None else ""
    fraction = "given" if flags.mem_fraction_static is not None else f"the default of {settings.version}"
    out = [
        f"sglang {settings.version}, tp {flags.tp_size}, pp {flags.pp_size}, dp {flags.dp_size}, ep {flags.ep_size}{groups}",
        f"{device.name} with {format_gib(device.total_bytes)} that nobody else uses",
        f"weights {checkpoint.quantization}{cache}, attention {settings.attention_backend}",
        (
            f"mem_fraction_static {settings.mem_fraction_static:.3f} ({fraction}), "
            f"context_len {settings.context_len:,}, {settings.step_tokens:,} tokens a prefill step"
        ),
    ]
    note = rules_note(settings.version)
    if note is not None:
        out.append(note)
    if flags.disaggregation_mode in _ROLES:
        out.append(_ROLES[flags.disaggregation_mode])
    if flags.has_draft_model and terms[0].draft is None:
        out.append("the draft's weights come on top: its checkpoint is not read here")
    if pool is not None and sized.low.tokens:
        count, why = guaranteed(sized.low, terms[0], settings)
        ratio = NEW_TOKEN_RATIO * (RATIO_UNDER_DP_ATTENTION if flags.enable_dp_attention else 1)
        out.append(
            f"{int(count):,} full-length requests at once are guaranteed ({why}); admission reserves {ratio:.2f} of what "
            "running requests may still generate, so more may run and the shortest are retracted when the pool is full"
        )
        if sized.expected.slots is not None:
            out.append(
                f"{sized.expected.slots} recurrent states, {slots_per_request(settings)} a request, allow "
                f"{sized.expected.slots // max(slots_per_request(settings), 1)} requests"
            )
    if beyond.high > 0:
        out.append(
            f"what the engine does not charge ({OUTSIDE}) stays {format_gib(beyond.high)} below its high end"
        )
    return tuple(out)
