"""State beside KV, full logits, held contexts and beams of vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    DEEPSEEK_V3,
    H100,
    LLAMA_3_1_8B,
    TINY_LLAMA,
    checkpoint,
    layout,
    planned,
    settings,
    terms,
)
from vramledger.engines.requests import Requests
from vramledger.engines.vllm.held_contexts import held_blocks
from vramledger.engines.vllm.names import check_names
from vramledger.engines.vllm.request_state import block_table_bytes
from vramledger.errors import FlagError
from vramledger.evidence import EvidenceKind
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Entry, Lifetime, Owner, Phase
from vramledger.units import GIB

LLAMA = checkpoint(LLAMA_3_1_8B)


def found(name: str, subject: Any = LLAMA, **values: Any) -> Entry | None:
    """The entry whose name begins so, on the last kind of rank."""
    entries = [item for item in planned(subject, **values).ranks[-1].entries if item.name.startswith(name)]
    return entries[0] if entries else None


def on_host(name: str, subject: Any = LLAMA, **values: Any) -> Entry | None:
    entries = [item for item in planned(subject, **values).host if item.name.startswith(name)]
    return entries[0] if entries else None


# Tables. The numbers are what vllm 0.32.0's own RequestState, PenaltiesState, LogitBiasState, BadWordsState,
# LogprobTokenIdsState and BlockTables hold on the CPU for 7 and for 5 requests.


@pytest.mark.parametrize(
    ("seqs", "context", "tokens", "vocab", "penalties", "tables", "blocks"),
    [(7, 300, 64, 1009, 29_148, 125_468, 2_648), (5, 640, 128, 32_003, 660_080, 89_620, 4_448)],
)
def test_tables_are_those_of_the_engines_own_classes(
    seqs: int, context: int, tokens: int, vocab: int, penalties: int, tables: int, blocks: int
) -> None:
    subject = checkpoint(TINY_LLAMA, vocab_size=vocab)
    values: dict[str, Any] = {
        "version": "0.32.0",
        "max_num_seqs": seqs,
        "max_model_len": context,
        "max_num_batched_tokens": tokens,
    }
    held = {item.name: item.bytes.expected for item in terms(subject, **values)[0].extras}
    assert held["penalty counts and prompt masks"] == penalties
    assert held["sampling tables"] == tables
    assert block_table_bytes(settings(subject, **values), [16, 32]) == blocks
    ids = on_host("token ids of requests (pinned)", subject, **values)
    assert ids is not None and ids.bytes.expected == seqs * context * 4


def test_the_first_runner_keeps_one_block_table_on_the_device_and_one_on_the_host() -> None:
    old, new = (settings(LLAMA, H100, version) for version in ("0.20.2", "0.33.0"))
    slots = 8 * 8192
    assert 2 * (block_table_bytes(old, [16]) - slots) == block_table_bytes(new, [16]) - slots
    host = on_host("block tables", version="0.20.2", tp=2)
    assert host is not None and host.bytes.expected == 2 * 1024 * 8192 * 4
    assert on_host("block tables", tp=2) is None


def test_only_the_last_stage_has_tables_of_the_sampler() -> None:
    first, last = planned(LLAMA, pp=2).ranks
    assert not [item for item in first.entries if item.name == "grammar bitmask"]
    assert [item for item in last.entries if item.name == "grammar bitmask"]


def test_a_grammar_has_rows_for_drafts_and_compiled_ones_lie_on_the_host() -> None:
    mask = found("grammar bitmask")
    assert mask is not None and mask.bytes.expected == 1024 * 4008 * 4
    assert on_host("compiled grammars") is None
    few, many = (on_host("compiled grammars", requests=Requests(grammars=count)) for count in (10, 10**6))
    assert few is not None and few.bytes.low == 356_120 and few.evidence.kind is EvidenceKind.MEASURED
    assert few.lifetime is Lifetime.REQUEST
    assert many is not None and many.bytes.high == GIB // 2, "the compiler's cache ends at 512 MiB"


def test_prompts_of_embeddings_stay_where_the_runner_keeps_them() -> None:
    asked: dict[str, Any] = {
        "max_model_len": 4096,
        "requests": Requests(prompt_embeds=3),
        "enable_prompt_embeds": True,
    }
    device, host = found("embeddings of prompts", **asked), on_host("embeddings of prompts", **asked)
    assert device is not None and host is None and not device.inside_budget
    assert device.bytes.expected == 3 * 4096 * (4096 * 2 + 1)
    old = {"version": "0.20.2", **asked}
    device, host = found("embeddings of prompts", **old), on_host("embeddings of prompts", **old)
    assert device is None and host is not None
    assert (host.bytes.low, host.bytes.high) == (3 * 4096 * 4096 * 2, 3 * 4096 * 4096 * 4)
    plain, with_inputs = (terms(LLAMA, enable_prompt_embeds=given)[0].buffer_bytes for given in (False, True))
    assert with_inputs - plain == 8192 * 4096 * 2


# Full logits


def test_prompt_log_probabilities_of_a_whole_step() -> None:
    """8192 prompt tokens x 128,256 x (2 B of logits + 4 B of them in fp32 + 4 B of log-softmax) are 9.79 GiB, of which
    the sampler's profile had left room for 1.77."""
    spike = found("log-probabilities of a prompt", version="0.20.2", requests=Requests(prompt_logprobs=5))
    assert spike is not None and not spike.inside_budget
    assert spike.phases == {Phase.PREFILL, Phase.RECOVERY}
    returned = 8192 * (6 * 12 + 8)
    profiled = 14 * 1024 * 128_256
    assert spike.bytes.expected == 10 * 8192 * 128_256 + returned - profiled


def spiked(version: str, **values: Any) -> int:
    spike = found(
        "log-probabilities of a prompt", version=version, max_num_seqs=8, requests=Requests(prompt_logprobs=0), **values
    )  # fmt: skip
    assert spike is not None
    return spike.bytes.expected


def test_torch_copies_bfloat16_before_a_log_softmax_and_not_float16() -> None:
    assert spiked("0.20.2") - spiked("0.20.2", dtype="float16") == 4 * 8192 * 128_256
    assert spiked("0.20.2", logprobs_mode="raw_logits") == spiked("0.20.2", dtype="float16")


def test_ranks_were_counted_with_booleans_before_0_10() -> None:
    assert spiked("0.9.2", dtype="float16") - spiked("0.10.0", dtype="float16") == 8192 * 128_256
    assert spiked("0.9.2") == spiked("0.10.0"), "the copy of bfloat16 was larger and is gone by then"


def test_the_second_runner_takes_a_thousand_prompt_tokens_at_a_time() -> None:
    assert found("log-probabilities of a prompt", requests=Requests(prompt_logprobs=5)) is None
    small = found("log-probabilities of a prompt", max_num_seqs=8, requests=Requests(prompt_logprobs=5))
    assert small is None, "the forward left room for 1024 rows"
    every = found("log-probabilities of a prompt", max_logprobs=-1, requests=Requests(prompt_logprobs=-1))
    assert every is not None and every.bytes.expected > 131_072 * 128_256 * 12, (
        "ids and values stay on the device"
    )


def test_a_prompts_log_probabilities_that_do_not_fit_beside_the_share_are_told() -> None:
    asked = Requests(prompt_logprobs=5)
    tight = planned(LLAMA, version="0.20.2", requests=asked).verdict
    assert tight.holds is False and "log-probabilities of a prompt" in tight.summary
    roomy = planned(
        LLAMA, version="0.20.2", requests=asked, gpu_memory_utilization=0.8, max_model_len=8192
    ).verdict
    assert roomy.holds
    assert any("log-probabilities of a prompt: 8.0" in text for text in roomy.conditions)


@pytest.mark.parametrize(("version", "beyond"), [("0.22.1", False), ("0.26.0", True), ("0.33.0", False)])
def test_a_greedy_dummy_run_leaves_no_room_for_sampling(version: str, beyond: bool) -> None:
    """The V2 runner profiled argmax alone up to 0.32 and samples with 14 B a logit."""
    spike = found("sampling with top-k", version=version)
    assert (spike is not None) is beyond
    if spike is not None:
        forward = 2 * 8192 * 3 * (4096 + 14336)
        assert spike.bytes.low == 0
        assert spike.bytes.high == 2 * 8192 * 4096 + 14 * 1024 * 128_256 - forward


def test_penalties_of_the_first_runner_count_every_token_twice_in_int64() -> None:
    plain = found("penalties", version="0.20.2")
    spike = found("penalties", version="0.20.2", requests=Requests(penalties=True))
    assert plain is None and spike is not None
    assert spike.bytes.expected == (2 + 4 + 16 + 2 + 4 - 14) * 1024 * 128_256
    assert found("penalties", requests=Requests(penalties=True)) is None, "the second runner keeps its counts"


def test_processed_log_probabilities_need_no_copy_of_raw_ones() -> None:
    def size(mode: str) -> int:
        spike = found(
            "log-probabilities beyond", version="0.20.2", logprobs_mode=mode, requests=Requests(logprobs=20)
        )
        return 0 if spike is None else spike.bytes.expected

    assert size("raw_logprobs") == size("raw_logits") == size("processed_logprobs")
    assert size("raw_logprobs") - size("processed_logits") == 4 * 1024 * 128_256


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"requests": Requests(logprobs=21)}, "--logprobs 21: 21 are above --max-logprobs 20"),
        ({"requests": Requests(prompt_logprobs=-1)}, "--max-logprobs 128256"),
        ({"requests": Requests(beams=11)}, "--beams 11: two log-probabilities a beam"),
        ({"requests": Requests(prompt_embeds=1)}, "--enable-prompt-embeds"),
        ({"requests": Requests(logprobs=5), "max_logprobs": 4}, "above --max-logprobs 4"),
    ],
)
def test_requests_that_the_engine_refuses_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        check_names(LLAMA, settings(LLAMA, **values), H100)


def test_pooling_has_no_logits() -> None:
    subject = checkpoint(
        LLAMA_3_1_8B | {"architectures": ["LlamaModel"]},
    )
    assert subject.model.is_pooling
    (rank,) = planned(subject, requests=Requests(prompt_logprobs=5)).ranks
    assert not [item for item in rank.entries if "log-probabilities" in item.name or "top-k" in item.name]


# Held contexts and beams


def test_held_contexts_take_their_blocks_from_the_pool() -> None:
    asked = Requests(held_contexts=6, held_tokens=32_000)
    groups = layout(LLAMA)
    assert held_blocks(groups, settings(LLAMA, requests=asked)) == 6 * 2000
    assert held_blocks(groups, settings(LLAMA, requests=asked, dp=4)) == 2 * 2000
    free, held = planned(LLAMA), planned(LLAMA, requests=asked)
    entry = found("contexts held for tools", requests=asked)
    assert entry is not None and entry.bytes.expected == 6 * 32_000 * 131_072
    assert entry.lifetime is Lifetime.REQUEST
    owned = [plan.ranks[0].owned(Owner.KV_CACHE) for plan in (free, held)]
    assert owned[0] == owned[1], "they lie in the pool"
    assert free.kv_pool == held.kv_pool, "the engine prints what it printed"
    assert "3 requests" in free.verdict.summary and "1 request " in held.verdict.summary
    assert any("6 contexts of 32,000 tokens" in text for text in held.verdict.conditions)


def test_more_held_than_the_pool_has_leaves_no_request() -> None:
    verdict = planned(LLAMA, requests=Requests(held_contexts=4)).verdict
    assert verdict.holds is False
    assert "4 held contexts and one request of 131,072 tokens need" in verdict.summary


def test_beams_are_sequences() -> None:
    plan = planned(LLAMA, max_num_seqs=8, max_model_len=2048, requests=Requests(beams=4))
    assert "2 requests of 2,048 tokens" in plan.verdict.summary
    assert any("4 sequences of the 8" in text for text in plan.verdict.conditions)
    few = planned(LLAMA, max_num_seqs=3, max_model_len=2048, requests=Requests(beams=4)).verdict
    assert few.holds is False and "at most 3 sequences" in few.summary


def test_what_latents_split_over_the_kv_take_is_charged_only_since_0_33() -> None:
    """The Triton kernel of latents splits a context of 163,840 tokens into 216 parts on 108 multiprocessors, as vllm's
    own _compute_num_kv_splits answers, for each of 256 sequences."""
    a100 = find_device("A100-80GB")
    subject = checkpoint(DEEPSEEK_V3)
    sizes = []
    for version, charged in (("0.32.0", False), ("0.33.0", True)):
        held = terms(subject, a100, version, tp=8)[0]
        assert held.attention_backend == "TRITON_MLA"
        assert held.attention_workspace.charged is charged
        assert held.moe is not None
        sizes.append(held.attention_workspace.bytes.expected + held.moe.buffer_bytes)
    assert sizes == [256 * 16 * 216 * 513 * 4] * 2


ASKED = (
    Requests(prompt_logprobs=5),
    Requests(logprobs=20, penalties=True),
    Requests(grammars=100),
    Requests(beams=8),
    Requests(held_contexts=2, held_tokens=1000),
)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("version", ["0.8.5", "0.12.0", "0.20.2", "0.26.0", "0.33.0"])
def test_what_is_asked_changes_no_start_up(version: str, asked: Requests) -> None:
    """The engine learns of it with the first request: pool, printed lines and what is charged stay."""
    plain, plan = (planned(LLAMA, version=version, requests=given) for given in (Requests(), asked))
    assert (plan.kv_pool, plan.printed, plan.budget_bytes) == (
        plain.kv_pool,
        plain.printed,
        plain.budget_bytes,
    )
    for phase in Phase:
        before, after = (item.ranks[0].peak(phase) for item in (plain, plan))
        assert before.expected <= after.expected, "asking frees nothing"
    charged = [
        sum(entry.bytes.expected for entry in item.ranks[0].entries if entry.inside_budget)
        for item in (plain, plan)
    ]
    assert charged[0] == charged[1]
