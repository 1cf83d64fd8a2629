"""What requests ask for, and sizes as wide as a vocabulary, for any engine."""

from __future__ import annotations

from typing import Any

import pytest

from vramledger.engines.logits import bitmask_bytes, log_softmax_bytes, top_entries_bytes
from vramledger.engines.requests import NO_REQUESTS, REQUEST_OPTIONS, Requests, requests_of
from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType


def test_nothing_asked_is_one_value() -> None:
    assert requests_of({}) is NO_REQUESTS
    assert requests_of({"beams": 4}) == Requests(beams=4)
    assert {option.name for option in REQUEST_OPTIONS} == set(Requests.__struct_fields__)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"prompt_logprobs": -2}, "--prompt-logprobs is -2"),
        ({"logprobs": 2**41}, "--logprobs is"),
        ({"beams": 0}, "--beams is 0"),
        ({"held_contexts": -1}, "--held-contexts is -1"),
        ({"held_contexts": 2, "held_tokens": 0}, "--held-tokens is 0"),
        ({"held_tokens": 100}, "--held-contexts says how many"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        Requests(**values)


@pytest.mark.parametrize(
    ("rows", "vocab", "expected"), [(1, 1, 4), (1, 32, 4), (1, 33, 8), (1024, 131_072, 16_777_216)]
)
def test_a_bitmask_has_a_bit_a_token_in_whole_words(rows: int, vocab: int, expected: int) -> None:
    """The last is what xgrammar 0.2.8 allocates for 1024 rows of 131,072 tokens."""
    assert bitmask_bytes(rows, vocab) == expected


def test_returned_log_probabilities_are_the_token_and_the_likeliest() -> None:
    assert top_entries_bytes(7, 0, index_bytes=8) == 7 * (8 + 4 + 8)
    assert top_entries_bytes(7, 5, index_bytes=4) == 7 * (6 * 8 + 4)


@pytest.mark.parametrize(("dtype", "expected"), [(DType.BF16, 8), (DType.F16, 4), (DType.F32, 4)])
def test_a_log_softmax_in_fp32_copies_what_its_kernel_does_not_read(dtype: DType, expected: int) -> None:
    assert log_softmax_bytes(dtype) == expected
