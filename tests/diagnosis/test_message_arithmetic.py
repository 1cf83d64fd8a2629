"""Pools and tables in messages: what they add up to."""

from __future__ import annotations

import pytest

from diagnosis.failure_texts import figures, observed
from vramledger.diagnosis.messages.executor_reading import executor_failure
from vramledger.diagnosis.messages.pool_reading import PoolBooks, pool_books, pool_shortage
from vramledger.diagnosis.messages.torch_reading import torch_oom
from vramledger.units import GIB


@pytest.mark.parametrize(
    "text",
    [
        (
            "Decode out of memory. Try to lower your batch size.\nTry to allocate 148 tokens.\nAvaliable tokens: 2048\n"
            "self.token_to_kv_pool_allocator.available_size()=2048\nself.tree_cache.evictable_size()=0\n"
        ),
        (
            "Decode out of memory. Try to lower your batch size.\nTry to allocate 148 tokens.\n"
            "Available tokens: 2048 (available_size=2048 + evictable_size=0)\n"
        ),
    ],
)
def test_a_step_of_decode_tells_what_it_asked_and_what_there_was(text: str) -> None:
    shortage = pool_shortage(observed(text))
    assert shortage is not None
    assert (shortage.requested_tokens, shortage.available_tokens) == (148, 2048)
    assert (shortage.free_tokens, shortage.evictable_tokens) == (2048, 0)


def test_a_hybrid_model_may_be_short_of_any_of_its_pools() -> None:
    shortage = pool_shortage(
        observed(
            "Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\nAvailable full tokens: 8070656 "
            "(full_available_size=7936 + full_evictable_size_=8062720)\nAvailable mamba: 760 (available_size=57 + "
            "component_evictable_size_=703)"
        )
    )
    assert shortage is not None
    assert (shortage.available_tokens, shortage.free_tokens, shortage.evictable_tokens) == (
        8070656,
        7936,
        8062720,
    )
    assert (shortage.available_states, shortage.swa_available_tokens) == (760, None)
    window = pool_shortage(
        observed(
            "Decode out of memory. Try to lower your batch size.\nTry to allocate 9 tokens.\nAvailable full tokens: 11 "
            "(full_available_size=4 + full_evictable_size=7)\nAvailable swa tokens: 5 (swa_available_size=2 + "
            "swa_evictable_size=3)\nFull LRU list evictable size: 7\nSWA LRU list evictable size: 3\n"
        )
    )
    assert window is not None
    assert (window.free_tokens, window.evictable_tokens, window.swa_available_tokens) == (4, 7, 5)


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        (  # 0.4.4 to 0.4.6: the first number is a sum of the last two
            (
                "token_to_kv_pool_allocator memory leak detected! available_size=3189424, protected_size=0, "
                "self.max_total_num_tokens=3185200\nself.token_to_kv_pool_allocator.available_size()=2864304\n"
                "self.tree_cache.evictable_size()=325120"
            ),
            {"full": 3185200 - 2864304 - 325120},
        ),
        (  # 0.5.2 on
            (
                "token_to_kv_pool_allocator memory leak detected! self.max_total_num_tokens=270331, available_size=644, "
                "evictable_size=269628, protected_size=0"
            ),
            {"full": 59},
        ),
        (  # two pools of a hybrid model
            (
                "token_to_kv_pool_allocator memory leak detected! full_available_size=6016, full_evictable_size=390685, "
                "self.token_to_kv_pool_allocator.size=396701, self.tree_cache.full_protected_size()=0\n"
                "mamba_available_size=315, mamba_evictable_size=138, self.req_to_token_pool.mamba_pool.size=454, "
                "self.tree_cache.mamba_protected_size()=0, leaked_full_pages=None, leaked_mamba_pages={191}"
            ),
            {"full": 0, "mamba": 1},
        ),
        (  # 0.5.18
            (
                "pool memory leak detected! [full] total=9116160, available=768, evictable=9115392, protected=0, "
                "session_held=0, uncached=0\n[swa] total=911616, available=235264, evictable=676096, protected=0, "
                "session_held=0, uncached=0"
            ),
            {"full": 0, "swa": 256},
        ),
    ],
)
def test_a_pools_books_miss_what_nobody_holds(text: str, loss: dict[str, int]) -> None:
    assert {books.pool: books.loss for books in pool_books(observed(text))} == loss


def test_books_that_are_not_told_have_no_loss() -> None:
    assert PoolBooks(pool="full", total=7).loss is None
    assert PoolBooks(pool="full", total=7, available=3).loss == 4


def test_the_executors_table_gives_each_components_bytes() -> None:
    failure = executor_failure(
        observed(
            "RuntimeError: Executor creation failed due to insufficient GPU memory.\n\nThe following component could not be "
            "created: Additional executor resources\nTotal GPU memory (GiB): 95.00\nFree GPU memory before component "
            "creation attempt (GiB): 16.95\n\nPreviously created components and free GPU memory before/after creation "
            "(GiB):\nModel: 94.30 / 47.83\nSampler: 47.83 / 47.83\nInitial KV cache (temporary for KV cache size "
            "estimation): 47.83 / 45.67\nDrafter: 45.67 / 45.67\n\nPlease refer to the documentation:\n  Model: 1.00 / 2.00"
        )
    )
    assert failure is not None
    assert failure.component == "Additional executor resources"
    assert failure.free is not None
    assert failure.free.low <= 16.95 * GIB <= failure.free.high
    names = [part.name for part in failure.components]
    assert names == [
        "Model",
        "Sampler",
        "Initial KV cache (temporary for KV cache size estimation)",
        "Drafter",
    ]
    taken = failure.components[0].taken
    assert taken.low <= (94.30 - 47.83) * GIB <= taken.high


def test_other_kinds_have_no_such_arithmetic() -> None:
    other = observed("EngineCore failed to start.")
    assert torch_oom(other) is None
    assert pool_shortage(other) is None
    assert pool_books(other) == ()
    assert executor_failure(other) is None


def test_the_own_process_may_stand_between_others() -> None:
    oom = torch_oom(
        observed(
            "CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 22.07 GiB of which 20.62 MiB is "
            "free. Process 157 has 270.00 MiB memory in use. Including non-PyTorch memory, this process has 1.12 GiB memory "
            "in use. Process 453 has 1.28 GiB memory in use. Of the allocated memory 880.00 MiB is allocated by PyTorch"
        )
    )
    assert oom is not None
    assert [item.pid for item in oom.processes] == [157, 453]
    assert oom.this_process is not None


def test_a_decimal_comma_is_no_mark_of_thousands() -> None:
    found = figures(
        "ggml_cuda_host_malloc: failed to allocate 1900,00 MiB of pinned memory: invalid argument"
    )
    assert found["requested_bytes"] == 1900 * 2**20
