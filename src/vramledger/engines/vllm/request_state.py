"""Tables of per-request state beside KV: penalties, masks, sampling tables, block tables, token ids.

Source: vllm v1/worker/gpu (V2 runner: states.py, block_table.py, structured_outputs.py, sample/penalties.py,
logit_bias.py, bad_words.py, logprob.py) and v1/worker/gpu_input_batch.py, block_table.py (V1), release by release
from 0.22.1 and 0.8.0. Every table has a slot for each of `max_num_seqs` requests, made when the worker starts and
kept until it ends, whether or not a request uses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.logits import bitmask_bytes
from vramledger.engines.vllm.extras import Extra, extra
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.evidence import calculated
from vramledger.ledger import ALL_PHASES, SERVING, Lifetime, Owner
from vramledger.models.model import Model
from vramledger.units import ceil_div

BIAS_TOKENS = 1024  # MAX_NUM_ALLOWED_TOKEN_IDS and MAX_NUM_LOGIT_BIAS_TOKENS
STOP_TOKENS = 128  # MAX_NUM_STOP_TOKEN_IDS
BAD_WORD_TOKENS, BAD_WORDS = 1024, 128  # VLLM_MAX_BAD_WORDS_TOTAL_TOKENS, VLLM_MAX_NUM_BAD_WORDS
LOGPROB_TOKENS = 128  # MAX_LOGPROB_TOKEN_IDS
SLOT_BYTES = 4 * (3 * BIAS_TOKENS + STOP_TOKENS + BAD_WORD_TOKENS + BAD_WORDS + 1 + LOGPROB_TOKENS)
"""A request's rows of allowed ids, bias ids, bias values (fp32), stop ids, bad words and their offsets, ids whose
log-probabilities are wanted."""
DENSE_TOKEN_IDS_SINCE = 32


def state_extras(model: Model, settings: Settings, kind: RankKind, *, charged: bool) -> tuple[Extra, ...]:
    """Device tables that the V2 runner makes with itself; the V1 runner keeps a few bytes a request instead and
    makes what a request needs in the step (see `spikes`). `charged` is whether the budget pays for them."""
    if not settings.v2_runner:
        return ()
    seqs, vocab, drafts = settings.max_num_seqs, model.vocab_size, settings.num_speculative_tokens
    out: list[Extra] = []
    if _keeps_ids_on_device(settings):
        out.append(
            extra(
                Owner.WORKSPACE, "token ids of requests", ALL_PHASES, seqs * settings.context_len * 4,
                calculated(
                    "vllm v1/worker/gpu/states.py: on the device for ngram_gpu",
                    f"max_num_seqs {seqs} x max_model_len {settings.context_len} x 4 B",
                ),
                charged=charged,
            )
        )  # fmt: skip
    count = settings.flags.requests.prompt_embeds
    if count and kind.is_first:
        row = model.hidden_size * settings.dtype.bits // 8 + 1
        out.append(
            extra(
                Owner.WORKSPACE, "embeddings of prompts", SERVING, count * settings.context_len * row,
                calculated(
                    "vllm v1/worker/gpu/model_states/prompt_embeds.py: on the device from a request's start to its end",
                    f"{count} requests x {settings.context_len} tokens x {row} B",
                ),
                charged=False,
                lifetime=Lifetime.REQUEST,
            )
        )  # fmt: skip
    if not kind.is_last or model.is_pooling:
        return tuple(out)
    mask = bitmask_bytes(seqs, vocab)
    bits = bitmask_bytes(seqs * (1 + drafts), vocab)
    out += [
        extra(
            Owner.WORKSPACE, "penalty counts and prompt masks", ALL_PHASES, seqs * vocab * 4 + mask,
            calculated(
                "vllm v1/worker/gpu/sample/penalties.py", f"counts {seqs} x {vocab} x 4 B + a bit a token {mask} B"
            ),
            charged=charged,
        ),
        extra(
            Owner.WORKSPACE, "grammar bitmask", ALL_PHASES, bits,
            calculated(
                "vllm v1/worker/gpu/structured_outputs.py",
                f"{seqs} x {1 + drafts} rows x ceil({vocab} / 32) x 4 B",
            ),
            charged=charged,
        ),
        extra(
            Owner.WORKSPACE, "sampling tables", ALL_PHASES, seqs * SLOT_BYTES,
            calculated(
                "vllm v1/worker/gpu/sample: logit_bias.py, bad_words.py, logprob.py",
                f"{seqs} requests x {SLOT_BYTES} B of bias, allowed, stop, bad-word and log-probability ids",
            ),
            charged=charged,
        ),
    ]  # fmt: skip
    return tuple(out)


def _keeps_ids_on_device(settings: Settings) -> bool:
    speculation = settings.flags.speculative
    return (
        speculation is not None
        and speculation.method == "ngram_gpu"
        and settings.version.since(DENSE_TOKEN_IDS_SINCE)
    )


def block_table_bytes(settings: Settings, block_sizes: Sequence[int]) -> int:
    """Block tables and slot mappings on the device, made after the pool and charged to nobody: for each group int32
    tables of [max_num_seqs, blocks of a full context] (the V2 runner keeps one for the state and one for the
    step) and an int64 slot for every batched token."""
    tables = 2 if settings.v2_runner else 1
    total = 0
    for block_size in block_sizes:
        blocks = ceil_div(settings.context_len, block_size)
        total += tables * 4 * settings.max_num_seqs * blocks + 8 * settings.max_tokens
    return total
