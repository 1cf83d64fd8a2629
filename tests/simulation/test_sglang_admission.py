"""SGLang's admission arithmetic: worked by hand, and beside the engine's own classes on random batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramledger.simulation.schedulers.sglang_admission import (
    Answer,
    Decoding,
    NewTokenRatio,
    PrefillPass,
    keep_order,
    reserved_tokens,
)
from vramledger.simulation.settings import SchedulerSettings, Scheduling

RECORD = json.loads((Path(__file__).parent / "data" / "sglang_admission.json").read_text(encoding="utf-8"))


def settings(**changes: object) -> SchedulerSettings:
    values: dict[str, object] = {
        "scheduling": Scheduling.SGLANG,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "max_model_len": 131_072,
    }
    return SchedulerSettings(**(values | changes))  # type: ignore[arg-type]


RUNNING = [Decoding(256, 0), Decoding(256, 128), Decoding(1024, 1000)]


def test_running_requests_hold_back_a_share_of_what_they_may_still_generate() -> None:
    assert reserved_tokens(RUNNING, 0.7, 4096) == pytest.approx(285.6)


def test_a_request_with_a_huge_bound_is_charged_the_clipped_one() -> None:
    # 3000 prompt + 4096 clipped + a page of one token = 7097 of 19,714.4: admitted, although 19,000 may be used in the end.
    budget = PrefillPass(
        settings(chunked_prefill=False), page_tokens=1, available_tokens=20_000, ratio=0.7, running=RUNNING
    )
    assert budget.left_in_all == pytest.approx(19_714.4)
    share = budget.add(
        prefix_tokens=0, extend_tokens=3000, max_output_tokens=16_000, generated_tokens=0, pinned_tokens=0
    )
    assert share == (3000, False, Answer.CONTINUE)
    assert budget.left_in_all == pytest.approx(19_714.4 - 7097)


def test_room_for_exactly_the_request_is_not_enough() -> None:
    def answer(available: int) -> Answer:
        budget = PrefillPass(settings(), page_tokens=1, available_tokens=available, ratio=0.7, running=[])
        return budget.add(
            prefix_tokens=0, extend_tokens=100, max_output_tokens=50, generated_tokens=0, pinned_tokens=0
        ).answer

    assert answer(151) is Answer.NO_TOKEN
    assert answer(152) is Answer.CONTINUE


def test_retraction_sets_the_share_to_what_was_used_and_twenty_steps() -> None:
    ratio = NewTokenRatio(settings())
    ratio.retracted([Decoding(256, 200), Decoding(256, 150), Decoding(1024, 900)])
    assert round(ratio.current, 3) == 0.852


def test_the_shortest_output_goes_first_and_of_equals_the_longest_prompt() -> None:
    order = keep_order([(200, 10), (150, 300), (150, 20), (900, 5)])
    assert order[::-1] == [1, 2, 0, 3]


def test_passes_decide_as_the_engines_own_adder() -> None:
    for case in RECORD["passes"]:
        assert decided(case) == (case["shares"], case["answer"], case["left"]), case


def decided(case: dict[str, Any]) -> tuple[list[list[int]], str, float]:
    budget = PrefillPass(
        settings(
            chunked_prefill=case["chunk"] is not None,
            max_num_batched_tokens=case["chunk"] or 1,
            max_prefill_tokens=case["max_prefill"],
            clip_max_new_tokens=case["clip"],
        ),
        page_tokens=case["page"],
        available_tokens=case["free"] + case["evictable"],
        ratio=case["ratio"],
        running=[Decoding(*row) for row in case["running"]],
    )
    shares = []
    if case["resumed"] is not None:
        extend, most = case["resumed"]
        share = budget.resume(extend_tokens=extend, max_output_tokens=most)
        shares.append([share.tokens, int(share.is_partial)])
    answer = budget.answer
    for known, cached, pinned, most, generated in case["candidates"]:
        if budget.answer is Answer.OTHER:
            break
        share = budget.add(
            prefix_tokens=cached,
            extend_tokens=known - cached,
            max_output_tokens=most,
            generated_tokens=generated,
            pinned_tokens=pinned,
        )
        answer = share.answer
        if share.tokens:
            shares.append([share.tokens, int(share.is_partial)])
        if answer is not Answer.CONTINUE:
            break
    return shares, answer.name, budget.left_in_all


def test_requests_are_kept_in_the_engines_order_and_leave_its_ratio() -> None:
    for case in RECORD["retractions"]:
        order = keep_order([(generated, prompt) for generated, prompt, _ in case["rows"]])
        assert order == case["order"]
        ratio = NewTokenRatio(settings())
        kept = [case["rows"][place] for place in order[: case["kept"]]]
        ratio.retracted([Decoding(most, generated) for generated, _, most in kept])
        assert ratio.current == case["ratio"]


def test_the_share_decays_as_the_engines_does() -> None:
    ratio = NewTokenRatio(settings())
    seen = []
    for step in range(701):
        if step in (0, 1, 100, 599, 700):
            seen.append(ratio.current)
        ratio.decay_step()
    assert seen == pytest.approx(RECORD["decays"], rel=1e-12)
    assert seen[0] == RECORD["decays"][0]
    ratio.reset()
    assert ratio.current == 0.7


def test_the_record_has_every_kind_of_answer() -> None:
    answers = {case["answer"] for case in RECORD["passes"]}
    assert answers == {"CONTINUE", "NO_TOKEN", "OTHER"}
    assert any(partial for case in RECORD["passes"] for _, partial in case["shares"])
    assert any(case["resumed"] for case in RECORD["passes"])
