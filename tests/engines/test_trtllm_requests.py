"""What requests ask of TensorRT-LLM beside tokens: logits of prompts, penalties, grammars, beams, held contexts."""

from __future__ import annotations

from typing import Any

import pytest

from support import H100, LLAMA_3_1_8B, checkpoint
from vramledger.answer import Plan
from vramledger.engines.tensorrtllm.options import plan_with
from vramledger.errors import FlagError
from vramledger.ledger import Entry, Phase

VOCAB, HIDDEN = 128_256, 4096
EVERYTHING: dict[str, Any] = {
    "prompt_logprobs": 20,
    "logprobs": -1,
    "penalties": True,
    "grammars": 8,
    "held_contexts": 2,
    "held_tokens": 3000,
}


def planned(version: str = "1.3.0", concurrency: int = 1, **values: Any) -> Plan:
    subject = checkpoint(LLAMA_3_1_8B)
    return plan_with(subject, H100, version=version, values=values, concurrency=concurrency)


def found(name: str, version: str = "1.3.0", **values: Any) -> Entry:
    entries = planned(version, **values).ranks[-1].entries
    return next(entry for entry in entries if entry.name.startswith(name))


@pytest.mark.parametrize(
    ("version", "backend"), [("0.17.0", "tensorrt"), ("1.0.0", "pytorch"), ("1.3.0", "pytorch")]
)
def test_asking_changes_no_start_up(version: str, backend: str) -> None:
    plain, asked = planned(version, backend=backend), planned(version, backend=backend, **EVERYTHING)
    assert asked.kv_pool == plain.kv_pool
    assert asked.printed == plain.printed
    assert asked.budget_bytes == plain.budget_bytes
    before, after = plain.ranks[-1], asked.ranks[-1]
    assert set(before.entries) < set(after.entries)
    assert set(plain.host) < set(asked.host)
    for phase in Phase:
        assert after.occupied(phase).expected >= before.occupied(phase).expected


def test_a_prompts_logits_stand_three_times() -> None:
    """8192 tokens x 128,256 x (2 B of the head + 4 B in fp32 + 4 B that the request keeps) are 9.79 GiB."""
    values: dict[str, Any] = {"prompt_logprobs": 0, "max_num_tokens": 8192}
    activation = found("activation of a full step", **values).bytes.expected
    spike = found("logits of a prompt", **values)
    assert spike.phases == {Phase.PREFILL, Phase.RECOVERY}
    returned = 8192 * (8 + 4 + 8)
    assert spike.bytes.expected + activation == 8192 * (HIDDEN * 2 + 10 * VOCAB) + returned
    shorter = found("logits of a prompt", **values, max_seq_len=4096).bytes.expected
    assert spike.bytes.expected - shorter == 4096 * (HIDDEN * 2 + 10 * VOCAB + 20)
    # A tenth of what is left does not hold it: the out-of-memory error of a server that started well.
    refused = planned(**values).verdict
    assert refused.holds is False and "logits of a prompt" in refused.summary
    conditions = planned(**values, free_gpu_memory_fraction=0.7).verdict.conditions
    assert any(
        text.startswith("logits of a prompt") and "the pool is sized without" in text for text in conditions
    )


def test_the_trt_back_end_copies_a_prompts_logits_to_the_host() -> None:
    values: dict[str, Any] = {"backend": "tensorrt", "prompt_logprobs": 0, "max_num_tokens": 4096}
    host = {entry.name: entry.bytes.expected for entry in planned("0.17.0", **values).host}
    assert host["logits of a prompt (pinned)"] == 4096 * VOCAB * 4
    assert "logits of a prompt (pinned)" not in {entry.name for entry in planned(prompt_logprobs=0).host}


def test_the_first_penalty_makes_counts_for_every_slot_and_beam() -> None:
    counts = found("penalty counts", penalties=True, max_batch_size=64, max_beam_width=4, max_seq_len=4096)
    assert counts.bytes.low == counts.bytes.expected == 64 * 4 * VOCAB * 4
    assert counts.bytes.high - counts.bytes.low == 64 * VOCAB
    before = found("penalty counts", "1.1.0", penalties=True, max_batch_size=64)
    assert (before.bytes.low, before.bytes.expected) == (0, 64 * VOCAB * 4)


def test_a_grammar_masks_every_slot_on_both_sides() -> None:
    values: dict[str, Any] = {"grammars": 1, "max_batch_size": 64, "tp_size": 2}
    size = 64 * (4008 + 1) * 4
    assert found("grammar bitmask", **values).bytes.expected == size
    host = {entry.name: entry.bytes.expected for entry in planned(**values).host}
    assert host["grammar bitmask"] == 2 * size


def test_only_the_last_stage_makes_logits() -> None:
    first, last = planned(pp_size=2, **EVERYTHING).ranks
    assert "grammar bitmask" not in {entry.name for entry in first.entries}
    assert "grammar bitmask" in {entry.name for entry in last.entries}


def test_tables_of_beams_follow_the_flag_and_shrink_the_pool() -> None:
    """They stand before the dummy workload is measured."""
    values: dict[str, Any] = {"max_batch_size": 16, "max_seq_len": 8192}
    narrow, wide = planned(**values), planned(**values, max_beam_width=4)
    size = 4 * 4 * 8192 * (16 + 3 * 16)
    assert found("tables of beams", **values, max_beam_width=4).bytes.expected == size
    assert found("tables of beams", "1.1.0", **values, max_beam_width=4).bytes.expected == size * 3 // 4
    assert abs(narrow.budget_bytes - wide.budget_bytes - int(size * 0.9)) <= 1
    assert planned(**values, max_beam_width=4, beams=4).kv_pool == wide.kv_pool


def test_held_contexts_leave_others_less_of_the_pool() -> None:
    pool = planned(max_seq_len=8192).kv_pool
    assert pool is not None
    most = int(pool.max_concurrency.low)
    assert planned(concurrency=most, max_seq_len=8192).verdict.holds
    held = planned(concurrency=most, max_seq_len=8192, held_contexts=most // 2)
    assert held.verdict.holds is False and held.verdict.shortfall_bytes and held.kv_pool == pool
    all_of_it = planned(max_seq_len=8192, held_contexts=10 * most)
    assert all_of_it.verdict.holds is False
    fine = planned(max_seq_len=8192, held_contexts=10, held_tokens=4000).verdict
    assert fine.holds
    assert any("10 contexts of 4,000 tokens" in text and "4.88 GiB" in text for text in fine.conditions)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"beams": 4}, "--max-beam-width 1"),
        ({"held_contexts": 1, "enable_block_reuse": False}, "block reuse"),
        ({"prompt_embeds": 1}, "prompt"),
        ({"held_tokens": 10}, "--held-contexts"),
    ],
)
def test_what_the_flags_leave_no_room_for_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        planned(**values)
