"""What requests ask of SGLang beside tokens: logits of prompts, penalties, grammars, beams, contexts that are held."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_support import planned, settings
from support import GPT_OSS_20B, H100, LLAMA_3_1_8B
from vramledger.engines.sglang.spikes import chunk_rows
from vramledger.errors import FlagError
from vramledger.ledger import Entry, Lifetime, Phase

VOCAB, HIDDEN = 128_256, 4096
EVERYTHING: dict[str, Any] = {
    "prompt_logprobs": 20,
    "logprobs": -1,
    "penalties": True,
    "grammars": 8,
    "held_contexts": 2,
    "held_tokens": 3000,
}


def found(name: str, version: str = "0.5.23", config: Any = LLAMA_3_1_8B, **values: Any) -> Entry | None:
    """The entry whose name begins so, on the last kind of rank."""
    entries = planned(config, version=version, **values).ranks[-1].entries
    return next((entry for entry in entries if entry.name.startswith(name)), None)


def expected(name: str, version: str = "0.5.23", **values: Any) -> int:
    entry = found(name, version, **values)
    assert entry is not None and not entry.inside_budget
    return entry.bytes.expected


@pytest.mark.parametrize("version", ["0.3.0", "0.4.5", "0.5.4", "0.5.15", "0.5.23"])
@pytest.mark.parametrize("config", [LLAMA_3_1_8B, GPT_OSS_20B])
def test_asking_changes_no_start_up(version: str, config: Any) -> None:
    plain, asked = planned(config, version=version), planned(config, version=version, **EVERYTHING)
    assert asked.kv_pool == plain.kv_pool
    assert asked.printed == plain.printed
    assert asked.budget_bytes == plain.budget_bytes
    before, after = plain.ranks[-1], asked.ranks[-1]
    assert set(before.entries) < set(after.entries)
    for phase in Phase:
        assert after.occupied(phase).expected >= before.occupied(phase).expected
    assert after.occupied(Phase.LOAD) == before.occupied(Phase.LOAD)


def test_a_step_of_prompt_tokens_has_its_logits_twice_in_fp32() -> None:
    """0.5.15 takes all 16,384 tokens of a step at once: 8 B x 16,384 x 128,256 are 15.7 GiB."""
    values: dict[str, Any] = {"chunked_prefill_size": 16_384, "prompt_logprobs": 0}
    activation = expected("activation of a prefill step", "0.5.15", **values)
    hidden = 2 * 16_384 * HIDDEN * 2
    spike = expected("log-probabilities of a prompt", "0.5.15", **values)
    assert spike + activation == hidden + 8 * 16_384 * VOCAB + 4 * 16_384
    conditions = planned(LLAMA_3_1_8B, version="0.5.15", **values).verdict.conditions
    assert any(text.startswith("log-probabilities of a prompt") and "GiB" in text for text in conditions)


def test_a_shorter_context_is_all_there_is_of_a_prompt() -> None:
    whole, short = (
        expected("log-probabilities of a prompt", "0.5.15", prompt_logprobs=0, context_length=length)
        for length in (8192, 4096)
    )
    assert whole - short == 4096 * (8 * VOCAB + 2 * HIDDEN * 2 + 4)


def test_chunks_of_2048_tokens_bound_it_since_0_5_18() -> None:
    assert [
        chunk_rows(settings(LLAMA_3_1_8B, H100, version)) for version in ("0.5.4", "0.5.15", "0.5.18")
    ] == [None, None, 2048]
    chunked, whole = (
        expected("log-probabilities of a prompt", prompt_logprobs=0, logprob_chunk_size=size)
        for size in (None, -1)
    )
    assert whole - chunked == 8 * (8192 - 2048) * VOCAB
    # Until 0.5.15 a chunk's two tensors are there when the next one's logits come, in two bytes and then in four.
    older = expected("log-probabilities of a prompt", "0.5.15", prompt_logprobs=0, logprob_chunk_size=4096)
    newer = expected("log-probabilities of a prompt", "0.5.18", prompt_logprobs=0, logprob_chunk_size=4096)
    assert older - newer == 6 * 4096 * VOCAB


def test_logits_of_a_prompt_may_lie_in_the_graphs_pool() -> None:
    borrowed = found("log-probabilities of a prompt", prompt_logprobs=5)
    owned = found("log-probabilities of a prompt", prompt_logprobs=5, disable_cuda_graph=True)
    assert borrowed is not None and (borrowed.bytes.low, borrowed.bytes.high > 0) == (0, True)
    assert owned is not None and owned.bytes.is_exact
    before = found("log-probabilities of a prompt", "0.5.20", prompt_logprobs=5)
    assert before is not None and before.bytes.is_exact


def test_attention_groups_gather_all_their_rows_where_the_head_is_cut_over_all_ranks() -> None:
    wide: dict[str, Any] = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True, "prompt_logprobs": 0}
    gathered = expected("log-probabilities of a prompt", **wide)
    apart = expected("log-probabilities of a prompt", **wide, enable_dp_lm_head=True)
    assert gathered > 3 * apart


@pytest.mark.parametrize(
    ("version", "kinds", "sums"), [("0.4.9", 2, 1), ("0.5.9", 2, 1), ("0.5.10", 3, 2), ("0.5.23", 3, 2)]
)
def test_each_kind_of_penalty_is_a_row_of_the_vocabulary_for_each_request(
    version: str, kinds: int, sums: int
) -> None:
    values: dict[str, Any] = {"penalties": True, "max_running_requests": 64, "cuda_graph_max_bs": 64}
    overlapped = found("penalties of requests", version, **values)
    assert overlapped is not None and overlapped.lifetime is Lifetime.REQUEST
    assert overlapped.bytes.expected == 4 * (kinds + 2 * sums) * 64 * VOCAB
    alone = expected("penalties of requests", version, disable_overlap_schedule=True, **values)
    assert alone == 4 * kinds * 64 * VOCAB


def test_a_grammar_has_a_bit_a_token_and_outlines_had_a_byte() -> None:
    values: dict[str, Any] = {"grammars": 1, "max_running_requests": 64, "cuda_graph_max_bs": 64}
    assert expected("grammar bitmask", **values) == 64 * 4008 * 4
    assert expected("grammar bitmask", "0.4.3.post4", **values) == 64 * VOCAB
    drafts = expected(
        "grammar bitmask", speculative_algorithm="NGRAM", speculative_num_draft_tokens=4, **values
    )
    assert drafts == 4 * 64 * 4008 * 4


def test_only_ranks_that_make_logits_have_any_of_it() -> None:
    first, last = planned(LLAMA_3_1_8B, pp_size=2, **EVERYTHING).ranks
    names = {"penalties of requests", "grammar bitmask"}
    assert not names & {entry.name for entry in first.entries}
    assert names <= {entry.name for entry in last.entries}


def test_beams_keep_raw_logits_and_take_the_place_of_requests() -> None:
    values: dict[str, Any] = {"max_running_requests": 64, "cuda_graph_max_bs": 64, "context_length": 2048}
    assert expected("logits of beams", beams=4, **values) == 4 * 16 * VOCAB + 8 * 4 * VOCAB
    few = planned(LLAMA_3_1_8B, concurrency=17, beams=4, **values).verdict
    assert few.holds is False and "17 requests" in few.summary
    assert planned(LLAMA_3_1_8B, concurrency=16, beams=4, **values).verdict.holds


def test_held_contexts_leave_others_less_of_the_pool() -> None:
    pool = planned(LLAMA_3_1_8B).kv_pool
    assert pool is not None
    most = int(pool.max_concurrency.low)
    assert planned(LLAMA_3_1_8B, concurrency=most).verdict.holds
    held = planned(LLAMA_3_1_8B, concurrency=most, held_contexts=most, held_tokens=131_072 // 2)
    assert held.verdict.holds is False and held.verdict.shortfall_bytes
    assert held.kv_pool == pool
    fine = planned(LLAMA_3_1_8B, held_contexts=10, held_tokens=8000).verdict
    assert fine.holds
    assert any("10 contexts of 8,000 tokens" in text and "9.77 GiB" in text for text in fine.conditions)


@pytest.mark.parametrize(
    ("version", "values", "said"),
    [
        ("0.5.18", {"beams": 2}, "no beam search"),
        ("0.5.23", {"beams": 2, "speculative_algorithm": "NGRAM"}, "under speculation"),
        ("0.5.23", {"held_contexts": 1, "disable_radix_cache": True}, "--disable-radix-cache"),
        ("0.5.4", {"logprob_chunk_size": 512}, "0.5.6 has chunks"),
        ("0.5.23", {"logprob_chunk_size": 0}, "-1 for off"),
        ("0.5.23", {"prompt_embeds": 1}, "prompt_embeds|prompt-embeds"),
    ],
)
def test_what_a_version_cannot_do_is_refused(version: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        planned(LLAMA_3_1_8B, version=version, **values)
