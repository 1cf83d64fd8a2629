"""Single messages: the class that their own words and numbers tell."""

from __future__ import annotations

import pytest

from diagnosis.diagnosed import one, told
from vramledger.diagnosis.messages.kind import Domain
from vramledger.diagnosis.terms import Confidence, FailureClass

TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of 79.18 GiB of which "
    "{free} is free. Including non-PyTorch memory, this process has 78.09 GiB memory in use. Of the allocated memory 75.31 GiB "
    "is allocated by PyTorch, and {slack} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
    "try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                "ValueError: Free memory on device cuda:0 (22.76/24.0 GiB) on startup is less than desired GPU memory "
                "utilization (0.97, 23.28 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
            ),
            FailureClass.LOAD_TIME,
        ),
        (
            (
                "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
                "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
            ),
            FailureClass.WARM_UP,
        ),
        (
            (
                "Prefill out of memory. Try to lower your batch size.\nTry to allocate 9000 tokens.\n"
                "Available tokens: 8064 (available_size=8064 + evictable_size=0)"
            ),
            FailureClass.PREFILL_SPIKE,
        ),
        (
            (
                "Decode out of memory. Try to lower your batch size.\nTry to allocate 363 tokens.\n"
                "Available tokens: 8064 (available_size=8064 + evictable_size=0)"
            ),
            FailureClass.DECODE_GROWTH,
        ),
        ("failed to find available cells in kv cache", FailureClass.FRAGMENTATION),
        (
            (
                "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 66560, Hardware limit: 65536. "
                "Reducing block sizes or `num_stages` may help."
            ),
            FailureClass.NONE,
        ),
        (
            (
                "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. "
                "self.req_to_token_pool.available_size()=1, num_reqs=2,"
            ),
            FailureClass.NONE,
        ),
    ],
)
def test_a_message_that_tells_its_class(text: str, expected: FailureClass) -> None:
    found = one(text)
    assert found.answer.failure_class is expected
    assert found.answer.confidence is Confidence.HIGH


def test_the_hint_of_the_allocator_is_no_evidence_of_fragmentation() -> None:
    found = one(TORCH.format(wanted="1.96 GiB", free="1.08 GiB", slack="12.00 MiB"))
    assert found.answer.failure_class is not FailureClass.FRAGMENTATION
    assert "slack-small" in {rule.name for rule in found.answer.spoken.applied}


def test_free_and_reserved_pieces_that_cover_the_request_are_fragmentation() -> None:
    found = one(TORCH.format(wanted="1.96 GiB", free="1.08 GiB", slack="1.83 GiB"))
    assert found.answer.failure_class is FailureClass.FRAGMENTATION
    # A snapshot would confirm it; the message alone does not make it sure.
    assert found.answer.confidence is Confidence.MEDIUM
    assert any("snapshot" in text for text in found.answer.surer)


def test_more_free_than_wanted_is_neither_exhaustion_nor_fragmentation() -> None:
    found = one(TORCH.format(wanted="1.00 GiB", free="1.08 GiB", slack="1.83 GiB"))
    assert found.answer.failure_class is not FailureClass.FRAGMENTATION
    assert any("not exhaustion" in text for text in found.arithmetic.lines)


def test_books_that_sum_to_less_are_a_leak_and_to_more_an_error_of_counting() -> None:
    line = (
        "ValueError: token_to_kv_pool_allocator memory leak detected! self.max_total_num_tokens=270331, available_size={}, "
        "evictable_size=269628, protected_size=0"
    )
    lost, surplus = one(line.format(644)), one(line.format(5000))
    assert lost.answer.failure_class is FailureClass.DECODE_GROWTH
    assert lost.facts.pool_loss_tokens == 59
    assert surplus.answer.failure_class is FailureClass.NONE
    assert surplus.facts.pool_loss_tokens == 270331 - 5000 - 269628


def test_preemptions_are_a_warning_not_a_crash() -> None:
    found = one(
        "Sequence group 221 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. "
        "This can affect the end-to-end performance. total_num_cumulative_preemption=101"
    )
    assert not found.is_failure
    assert found.facts.domain is Domain.KV_POOL
    assert found.answer.failure_class is FailureClass.DECODE_GROWTH


def test_a_log_without_a_failure_tells_none() -> None:
    assert told("INFO 11-30 00:00:01 [api_server.py:1] Starting\n") == []
    assert told("") == []
