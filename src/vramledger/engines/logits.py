"""Bytes of things as wide as the vocabulary: masks, log-probabilities, sorts."""

from __future__ import annotations

from vramledger.formats.dtypes import DType
from vramledger.units import ceil_div

INT32_BITS = 32


def bitmask_bytes(rows: int, vocab: int) -> int:
    """One bit a token in int32 words, each row in whole words: what grammar libraries (xgrammar, guidance, outlines)
    fill and engines apply."""
    return rows * ceil_div(vocab, INT32_BITS) * 4


def top_entries_bytes(rows: int, count: int, *, index_bytes: int, value_bytes: int = 4) -> int:
    """Returned log-probabilities: `count` of the likeliest tokens and the token itself, an index and a value
    each, and the token's rank (as an index)."""
    return rows * ((count + 1) * (index_bytes + value_bytes) + index_bytes)


def log_softmax_bytes(dtype: DType) -> int:
    """What torch takes for each logit of `dtype`, beside the logits, for `log_softmax(dtype=torch.float32)` on a GPU:
    the result, and before it an fp32 copy of everything that is neither fp16 nor fp32 (aten/src/ATen/native/SoftMax.cpp,
    whose kernel reads fp16 alone and writes fp32)."""
    return 4 if dtype in (DType.F16, DType.F32) else 8
