"""Engines side by side: nothing is lost between two columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import GEMMA_3_27B, GPT_OSS_20B, LLAMA_3_1_8B, MIXTRAL_8X7B, checkpoint
from vramledger.engines import find_engine
from vramledger.engines.vllm.version import NEWEST
from vramledger.errors import FlagError
from vramledger.ledger import Owner
from vramledger.models.checkpoint import Checkpoint
from vramledger.search.comparison import Comparison, compare
from vramledger.search.evaluation import Status, Subject, evaluate
from vramledger.search.grid import Grid
from vramledger.search.terms import (
    KV_LOSS,
    Question,
    asked_engines,
    flags_of,
    read_engine_flags,
    terms_of,
)

MODELS = tuple(checkpoint(config) for config in (LLAMA_3_1_8B, MIXTRAL_8X7B, GEMMA_3_27B, GPT_OSS_20B))


def compared(model: Checkpoint, device: str, *engines: str, **question: object) -> Comparison:
    grid = Grid(devices=(device,), engines=engines, **question)  # type: ignore[arg-type]
    return compare(list(grid.questions()), Subject((model,)))


@settings(max_examples=25)
@given(
    st.integers(0, len(MODELS) - 1),
    st.sampled_from(("H100 SXM 80GB", "L40S", "B200", "MI300X", "custom:30GiB")),
    st.lists(
        st.sampled_from(("0.8.5", "0.11.0", "0.20.2", "0.27.1", "0.33.0")),
        min_size=2,
        max_size=3,
        unique=True,
    ),
    st.sampled_from((1, 2, 4)),
)
def test_terms_of_a_difference_sum_to_it(number: int, device: str, versions: list[str], tp: int) -> None:
    found = compared(
        MODELS[number], device, *(f"vllm=={version}" for version in versions), tp=(tp,), contexts=(8192,)
    )
    for column in found.columns:
        if column.held is not None:
            assert sum(column.held.by_owner.values()) == column.held.peak_bytes
    for item in found.differences:
        here, there = found.columns[item.column], found.columns[item.against]
        assert here.plan is not None and there.plan is not None
        assert here.plan.kv_pool is not None and there.plan.kv_pool is not None
        assert here.held is not None and there.held is not None
        assert item.tokens == here.plan.kv_pool.tokens.expected - there.plan.kv_pool.tokens.expected
        assert sum(term.tokens for term in item.terms) == item.tokens
        assert sum(term.bytes for term in item.terms) == item.bytes
        assert item.bytes == here.held.by_owner[Owner.KV_CACHE] - there.held.by_owner[Owner.KV_CACHE]
        sizes = [abs(term.tokens) for term in item.terms]
        assert sizes == sorted(sizes, reverse=True)


def test_the_same_engine_twice_differs_in_nothing() -> None:
    found = compared(MODELS[0], "L40S", "vllm", f"vllm=={NEWEST}", contexts=(8192,))
    (item,) = found.differences
    assert (item.tokens, item.bytes, item.terms) == (0, 0, ())


def test_a_refusal_is_a_column_with_its_reason() -> None:
    found = compared(MODELS[0], "MI300X", "tensorrt-llm", "vllm", contexts=(8192,))
    refused, answered = found.columns
    assert refused.plan is None
    assert refused.outcome.status is Status.REFUSED
    assert "NVIDIA" in refused.outcome.reason and "MI300X" in refused.outcome.reason
    assert answered.outcome.status is Status.HOLDS
    assert found.differences == ()


@pytest.mark.parametrize(
    "engine", ["vllm==99", "sglang==x", "llamacpp==b1", "trtllm==9", "transformers==one"]
)
def test_a_version_without_rules_is_wrong_input_not_an_answer(engine: str) -> None:
    with pytest.raises(FlagError, match=engine.partition("==")[2]):
        compared(MODELS[0], "L40S", engine, "vllm")


@pytest.mark.parametrize(
    ("engine", "flags", "taken"),
    [
        ("vllm", {"tensor_parallel_size": "2"}, 2),
        ("vllm", {"data_parallel_size": "4"}, 4),
        ("llamacpp", {"gpus": "3"}, 3),
    ],
)
def test_flags_of_an_engine_do_not_change_how_many_devices_are_asked_about(
    engine: str, flags: dict[str, object], taken: int
) -> None:
    outcome = evaluate(Question(device="H200", engine=engine), Subject((MODELS[0],), {engine: flags}))
    assert outcome.status is Status.REFUSED
    assert f"take {taken} devices, not the 1" in outcome.reason
    same = evaluate(Question(device="H200", engine="vllm", tp=2), Subject((MODELS[0],), {"vllm": {"tp": 2}}))
    assert same.plan is not None


def test_common_questions_become_the_engines_own_flags() -> None:
    asked = Question(device="L4", tp=4, pp=2, ep=True, kv="bf16", context_tokens=8192, concurrency=200)
    assert flags_of(asked) == {
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 2,
        "enable_expert_parallel": True,
        "max_model_len": 8192,
        "max_num_seqs": 200,
        "kv_cache_dtype": "bfloat16",
    }
    assert flags_of(Question(device="L4", concurrency=100)) == {}


@pytest.mark.parametrize("engine", asked_engines())
def test_every_common_question_is_a_flag_the_engine_has(engine: str) -> None:
    terms, names = terms_of(engine), {option.name for option in find_engine(engine)[0].OPTIONS}
    words = {terms.tp, terms.pp, terms.ep, terms.context, terms.sequences, terms.file_type, *terms.kv}
    assert words - {None} <= names
    assert set(terms.kv_names) < set(KV_LOSS)


@pytest.mark.parametrize("engine", asked_engines())
def test_every_engine_answers_the_common_questions(engine: str) -> None:
    """One device, then two; a short context and one that lasts; each KV format the engine has a word for."""
    terms = terms_of(engine)
    kinds = ("auto", *terms.kv_names)
    found = [
        evaluate(question, Subject((MODELS[0],)))
        for question in Grid(
            devices=("B200",),
            engines=(engine,),
            tp=(1, 2) if terms.tp else (1,),
            pp=(1, 2) if terms.pp else (1,),
            kv=kinds,
            contexts=(4096, 16384),
            concurrency=(4,),
        ).questions()
    ]
    for outcome in found:
        assert outcome.plan is not None, outcome.reason
        assert outcome.plan.inputs.engine == engine
        assert outcome.plan.kv_pool is not None
    lengths = {outcome.plan.kv_pool.context_len for outcome in found if outcome.plan and outcome.plan.kv_pool}
    assert lengths == {4096, 16384}


def test_engines_of_another_kind_differ_by_terms_that_sum() -> None:
    others = [name for name in asked_engines() if name != "vllm"]
    found = compared(MODELS[0], "H100 SXM 80GB", "vllm", *others, contexts=(16384,), concurrency=(4,))
    assert [column.outcome.question.engine for column in found.columns] == ["vllm", *others]
    assert len(found.differences) == len(others)
    for item in found.differences:
        assert sum(term.tokens for term in item.terms) == item.tokens
        assert sum(term.bytes for term in item.terms) == item.bytes


def test_flags_of_one_engine_are_checked_before_anything_is_planned() -> None:
    asked = ("vllm==0.11.0", "vllm")
    assert read_engine_flags(["vllm:gpu-memory-utilization=0.95", "vllm:tp=2"], asked) == {
        engine: {"gpu_memory_utilization": "0.95", "tensor_parallel_size": "2"} for engine in asked
    }
    assert read_engine_flags(["vllm==0.11.0:enforce_eager"], asked) == {
        "vllm==0.11.0": {"enforce_eager": "true"}
    }
    for wrong, says in (
        ("gpu_memory_utilization=0.9", "ENGINE:FLAG=VALUE"),
        ("vllm", "ENGINE:FLAG=VALUE"),
        ("sglang:mem_fraction_static=0.8", "not asked"),
        ("vllm:max_num_seq=3", "max_num_seqs"),
    ):
        with pytest.raises(FlagError, match=says):
            read_engine_flags([wrong], asked)


def test_an_engine_that_shares_layers_out_says_how() -> None:
    outcome = evaluate(Question(device="H200", engine="llamacpp", tp=2), Subject((MODELS[0],)))
    assert outcome.status is Status.REFUSED
    assert "pp shares layers out" in outcome.reason
    shared = evaluate(Question(device="H200", engine="llamacpp", pp=2), Subject((MODELS[0],)))
    assert shared.plan is not None and len(shared.plan.ranks) == 2
