"""What requests ask of llama-server beside tokens, and contexts that wait in its slots and its prompt cache."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools.accuracy.data import ModelSet

from vramledger.answer import Plan
from vramledger.engines.llamacpp.options import plan_with
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source

MODELS = ModelSet(Path(__file__).resolve().parents[2] / "data")
LLAMA, GEMMA = "meta-llama__Llama-3.1-8B-Instruct", "google__gemma-3-12b-it"
VOCAB = 128_256
SPLIT: dict[str, Any] = {"ctx_size": 32_768, "parallel": 4}


@cache
def checkpoint(name: str) -> Checkpoint:
    return checkpoint_from_source(MODELS.source(name))


def planned(name: str = LLAMA, device: str = "H100", concurrency: int = 1, **values: Any) -> Plan:
    return plan_with(
        checkpoint(name), find_device(device), version=None, values=values, concurrency=concurrency
    )


def on_host(**values: Any) -> dict[str, Any]:
    return {entry.name: entry.bytes for entry in planned(**values).host}


@pytest.mark.parametrize("device", ["H100", "cpu:64GiB"])
@pytest.mark.parametrize("name", [LLAMA, GEMMA])
def test_asking_changes_no_start_up(name: str, device: str) -> None:
    asked: dict[str, Any] = {"logprobs": 5, "grammars": 1, "penalties": True, "held_contexts": 1}
    plain, with_them = planned(name, device, **SPLIT), planned(name, device, **SPLIT, **asked)
    assert with_them.kv_pool == plain.kv_pool
    assert with_them.printed == plain.printed
    more = {entry.name for entry in (*with_them.ranks[0].entries, *with_them.host)}
    less = {entry.name for entry in (*plain.ranks[0].entries, *plain.host)}
    assert more - less == {"log-probabilities of sampled tokens", "candidates of a grammar"}


def test_log_probabilities_stay_on_the_host_until_a_request_ends() -> None:
    found = on_host(**SPLIT, logprobs=5)["log-probabilities of sampled tokens"]
    assert (found.low, found.high) == (VOCAB * 12, VOCAB * 12 + 4 * 8192 * 5 * 48)
    whole = on_host(**SPLIT, logprobs=-1)["log-probabilities of sampled tokens"]
    assert whole.high == VOCAB * 12 + 4 * 8192 * VOCAB * 48


def test_a_grammar_looks_at_every_token_only_where_the_sampled_one_is_not_allowed() -> None:
    found = on_host(**SPLIT, grammars=1)["candidates of a grammar"]
    assert (found.low, found.expected) == (0, VOCAB * 56)


def test_held_contexts_stay_in_slots_and_then_in_the_prompt_cache() -> None:
    """A context of 8192 tokens is 1 GiB; the prompt cache has 8 GiB unless told."""
    in_slots = planned(**SPLIT, held_contexts=3).verdict
    assert in_slots.holds and "holds for 4 requests" in in_slots.summary
    assert any("3 held contexts of 8,192 tokens stay in idle slots" in text for text in in_slots.conditions)
    both = planned(**SPLIT, concurrency=2, held_contexts=10).verdict
    assert both.holds and "holds for 2 requests" in both.summary
    assert any("8 in the prompt cache on the host, 8.00 GiB" in text for text in both.conditions)
    lost = planned(**SPLIT, concurrency=3, held_contexts=10).verdict
    assert lost.holds is False and "9 of the held contexts find no idle slot" in lost.summary
    assert planned(**SPLIT, concurrency=3, held_contexts=10, cache_ram=-1).verdict.holds
    assert planned(**SPLIT, concurrency=3, held_contexts=2, cache_ram=0).verdict.holds is False


def test_a_request_may_take_every_cell_of_a_unified_pool() -> None:
    pool: dict[str, Any] = {
        "ctx_size": 32_768,
        "parallel": 4,
        "kv_unified": True,
        "held_contexts": 1,
        "held_tokens": 1000,
    }
    assert planned(**pool, cache_ram=0).verdict.holds is False
    cached = planned(**pool).verdict
    assert cached.holds
    assert any("0 held contexts" in text and "1 in the prompt cache" in text for text in cached.conditions)


def test_windows_of_a_held_context_are_counted_once() -> None:
    plan = planned(GEMMA, **SPLIT, held_contexts=8, concurrency=4)
    pool = plan.kv_pool
    assert pool is not None and plan.verdict.holds
    windows = next(group for group in pool.groups if group.kind == "kv_swa")
    each = 8192 * pool.bytes_per_token + windows.page_bytes * windows.num_layers * windows.blocks_per_request
    assert each == pool.steady_bytes_per_request
    assert any(f"{8 * each / 2**30:.2f} GiB" in text for text in plan.verdict.conditions)


def test_embeddings_have_a_row_of_output_for_every_token_of_a_batch() -> None:
    found = on_host(**SPLIT, embedding=True)["CUDA_Host output buffer"]
    row = (VOCAB + 4096) * 4
    assert (found.low, found.expected, found.high) == (4 * row, 4 * row, 2048 * row)
    assert on_host(**SPLIT)["CUDA_Host output buffer"].high == 4 * VOCAB * 4


@pytest.mark.parametrize("values", [{"prompt_logprobs": 5}, {"beams": 4}, {"prompt_embeds": 1}])
def test_what_the_server_does_for_no_request_is_no_flag(values: dict[str, Any]) -> None:
    with pytest.raises(FlagError):
        planned(**SPLIT, **values)
