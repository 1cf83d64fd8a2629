"""Buffers a model runner keeps from its construction on, and those made after the KV pool.

Source: vllm v1/worker/gpu (V2 runner) and v1/worker/gpu_input_batch.py, gpu_model_runner.py (V1).
"""

from __future__ import annotations

from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.engines.vllm.speculation import draft_buffers
from vramledger.models.model import Model
from vramledger.units import ceil_div


def runner_buffers(model: Model, settings: Settings, kind: RankKind) -> tuple[int, str]:
    """Bytes of persistent input and sampler buffers on one rank and their formula.

    The V2 runner keeps an int32 count of every vocabulary entry for every sequence (penalties), a prompt mask
    and a grammar bitmask; both runners keep inputs of some 40 bytes a token.
    """
    element = settings.dtype.bits // 8
    tokens, seqs, vocab = settings.max_tokens, settings.max_num_seqs, model.vocab_size
    inputs = tokens * 40
    formula = f"inputs {tokens} x 40 B"
    if model.towers and not settings.flags.language_model_only:
        inputs += element * tokens * model.hidden_size
        formula += f" + embeddings {tokens} x {model.hidden_size} x {element} B"
    if kind.stage > 0:
        inputs += 2 * element * tokens * model.hidden_size
        formula += f" + received states {tokens} x {model.hidden_size} x {2 * element} B"
    drafting, draft_formula = draft_buffers(model, settings, kind)
    if drafting:
        inputs, formula = inputs + drafting, f"{formula} + {draft_formula}"
    if not settings.v2_runner or not kind.is_last or model.is_pooling:
        return inputs, formula
    words = ceil_div(vocab, 32) * 4
    counts = seqs * vocab * 4
    masks = seqs * words + seqs * (1 + settings.num_speculative_tokens) * words
    return inputs + counts + masks, (
        f"{formula} + penalty counts {seqs} x {vocab} x 4 B + prompt mask and grammar bitmask {masks} B"
    )


def block_table_bytes(settings: Settings, block_sizes: list[int]) -> int:
    """Block tables and slot mappings, made after the pool and charged to nobody: for each group two int32
    tables of [max_num_seqs, blocks of a full context] and an int64 slot for every batched token."""
    total = 0
    for block_size in block_sizes:
        blocks = ceil_div(settings.context_len, block_size)
        total += 2 * 4 * settings.max_num_seqs * blocks + 8 * settings.max_tokens
    return total
