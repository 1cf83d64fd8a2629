"""Rules one by one: what each needs, and what it says of the evidence that it is for."""

from __future__ import annotations

import pytest
from msgspec.structs import fields
from tools.diagnosis_page import PAGE, page

from vramledger.diagnosis.classify import RULES, classify
from vramledger.diagnosis.facts import HOW_TO_LEARN, Facts, told
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.rule import ask
from vramledger.diagnosis.terms import Confidence, FailureClass, Stage
from vramledger.ledger import ByteRange
from vramledger.units import GIB, MIB

NAMES = {field.name for field in fields(Facts)}


def size(count: float) -> ByteRange:
    return ByteRange.exact(int(count))


def on_device(**known: object) -> Facts:
    return Facts(kind="torch-oom", domain=Domain.DEVICE, **known)  # type: ignore[arg-type]


def test_rules_are_told_apart_and_need_facts_that_exist() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert all(set(rule.needs) <= NAMES for rule in RULES)
    assert all(rule.why and rule.says for rule in RULES)
    assert HOW_TO_LEARN.keys() <= NAMES


def test_without_evidence_no_rule_speaks_and_the_answer_is_none() -> None:
    spoken = ask(RULES, Facts())
    assert spoken.applied == ()
    assert {rule.name for rule, _ in spoken.unasked} == {rule.name for rule in RULES if rule.needs}
    assert all(not told(Facts(), name) for _, lacking in spoken.unasked for name in lacking)
    assert classify(Facts()).failure_class is None


def test_domain_comes_before_phase_and_arithmetic() -> None:
    facts = Facts(
        kind="triton-out-of-resources",
        domain=Domain.SHARED_MEMORY_PER_BLOCK,
        stage=Stage.WEIGHT_LOAD,
        stage_told_by="log",
        ready=False,
    )
    answer = classify(facts)
    assert answer.failure_class is FailureClass.NONE
    assert answer.confidence is Confidence.HIGH


@pytest.mark.parametrize(
    ("facts", "expected", "rule"),
    [
        (on_device(stage=Stage.DECODE, stage_told_by="frame"), FailureClass.DECODE_GROWTH, "in-decode"),
        (
            on_device(stage=Stage.SERVING, stage_told_by="log", engine="llamacpp", buffer="vmm-pool", prefill_just_before=True),
            FailureClass.PREFILL_SPIKE,
            "pool-with-virtual-memory",
        ),
        (
            on_device(ready=False, private_pool_bytes=size(GIB)),
            FailureClass.WARM_UP,
            "graph-pools-before-service",
        ),
        (
            Facts(
                kind="vllm-kv-none",
                domain=Domain.DEVICE,
                stage=Stage.KV_SIZING,
                stage_told_by="message",
                activation_bytes=size(30 * GIB),
                weights_bytes=size(15 * GIB),
                needed_bytes=size(4 * GIB),
                available_bytes=size(GIB),
            ),
            FailureClass.WARM_UP,
            "refused-for-activation",
        ),
        (
            Facts(
                kind="vllm-kv-none",
                domain=Domain.DEVICE,
                stage=Stage.KV_SIZING,
                stage_told_by="message",
                activation_bytes=size(2 * GIB),
                weights_bytes=size(15 * GIB),
                needed_bytes=size(4 * GIB),
                available_bytes=size(GIB),
            ),
            FailureClass.LOAD_TIME,
            "while-loading",
        ),
        (
            on_device(
                stage=Stage.WEIGHT_LOAD,
                stage_told_by="log",
                requested_bytes=size(96 * MIB),
                free_bytes=size(40 * MIB),
                slack_bytes=size(500 * MIB),
                siblings=3,
                siblings_alike=3,
            ),
            FailureClass.LOAD_TIME,
            "siblings-on-one-device",
        ),
        (
            on_device(stage=Stage.SERVING, stage_told_by="log", engine="vllm", device_slope_bytes_per_h=50.0 * MIB, slope_hours=6.0),
            FailureClass.DECODE_GROWTH,
            "device-grows",
        ),
        (
            Facts(kind="sglang-pool", domain=Domain.KV_POOL, stage=Stage.PREFILL, stage_told_by="message"),
            FailureClass.PREFILL_SPIKE,
            "pool-in-prefill",
        ),
        (
            Facts(kind="unnamed", domain=Domain.KV_POOL, stage=Stage.TRANSFER, stage_told_by="message"),
            FailureClass.RECOVERY,
            "pool-held-by-transfer",
        ),
        (
            Facts(
                kind="flashinfer-workspace",
                domain=Domain.WORKSPACE,
                buffer="batch_decode_tmp_v",
            ),
            FailureClass.DECODE_GROWTH,
            "workspace-of-decode",
        ),
    ],
)  # fmt: skip
def test_evidence_names_its_class(facts: Facts, expected: FailureClass, rule: str) -> None:
    answer = classify(facts)
    assert answer.failure_class is expected
    assert rule in {item.name for item in answer.spoken.applied}


def test_siblings_override_fragmentation() -> None:
    alone = on_device(
        ready=False,
        requested_bytes=size(96 * MIB),
        free_bytes=size(40 * MIB),
        slack_bytes=size(500 * MIB),
    )
    assert classify(alone).failure_class is FailureClass.FRAGMENTATION


def test_what_is_not_proven_and_what_is_an_echo_is_never_sure() -> None:
    known = {"stage": Stage.WEIGHT_LOAD, "stage_told_by": "log", "ready": False}
    killed = Facts(kind="killed", domain=Domain.HOST, is_proven=False, **known)  # type: ignore[arg-type]
    assert classify(killed).failure_class is FailureClass.LOAD_TIME
    assert classify(killed).confidence is Confidence.MEDIUM
    echo = Facts(kind="nccl-unhandled", domain=Domain.DEVICE, standing=Standing.CONSEQUENCE, **known)  # type: ignore[arg-type]
    assert classify(echo).confidence is Confidence.LOW


def test_words_alone_are_never_sure() -> None:
    answer = classify(Facts(symptoms=frozenset({"growth"})))
    assert answer.failure_class is FailureClass.DECODE_GROWTH
    assert answer.confidence is not Confidence.HIGH


def test_the_page_shows_these_rules() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tools.diagnosis_page`"
