"""What is let in, what waits, what is refused, and why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from vramledger.admission.books import Pace
from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission, Decision, Rule
from vramledger.admission.policy import Policy
from vramledger.admission.service_time import PS_PER_S, MeasuredTimes
from vramledger.admission.settings import PolicySettings, QueueBounds, Reservation
from vramledger.errors import InputError
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout

MS = PS_PER_S // 1000
RATES = MeasuredTimes(prefill_tokens_per_s=1000, decode_token_ps=10 * MS)


class View:
    """An instance that holds what it is said to hold."""

    def __init__(self, blocks: int, used: int = 0) -> None:
        self.blocks = blocks
        self.used_blocks = used
        self.running_count = 0
        self.waiting_count = 0

    @property
    def free_blocks(self) -> int:
        return self.blocks - self.used_blocks

    is_reconciled = False

    def cached_tokens(self, candidate: Candidate) -> int:
        return 0


def policy(blocks: int = 20, *, times: MeasuredTimes | None = None, **changes: object) -> Policy:
    return Policy(policy_settings(blocks, **changes), times)


def policy_settings(blocks: int, **changes: object) -> PolicySettings:
    values: dict[str, object] = {
        "layout": PoolLayout(num_blocks=blocks, groups=(BlockGroup(block_tokens=4),)),
        "max_model_len": 100,
        "max_running": 8,
        "pace": Pace(step_tokens=64, max_running=8),
    }
    return PolicySettings(**(values | changes))  # type: ignore[arg-type]


def candidate(identity: int, prompt: int = 16, bound: int = 9, **fields: object) -> Candidate:
    values: dict[str, object] = {"identity": identity, "prompt_tokens": prompt, "max_output_tokens": bound}
    return Candidate(**(values | fields))  # type: ignore[arg-type]


def answers(decisions: list[Decision]) -> list[tuple[int, Admission, Rule]]:
    return [(one.identity, one.answer, one.rule) for one in decisions]


def test_it_is_let_in_with_the_numbers_used() -> None:
    decision = policy().at_arrival(candidate(1), View(20), 5)
    # 16 tokens and 8 more are 6 blocks; the prompt needs 5 with the first token's.
    assert decision == Decision(
        identity=1, answer=Admission.ACCEPT, rule=Rule.FITS, at_ps=5, uncached_tokens=16, reserved_output_tokens=9,
        need_blocks=6, free_blocks=20, peak_blocks=6, limit_blocks=20,
    )  # fmt: skip
    assert decision.why() == "needs 6 blocks, 20 blocks free; all that runs holds 6 blocks at the most of 20"


def test_who_does_not_fit_waits_and_goes_in_when_enough_has_ended() -> None:
    front, view = policy(times=RATES), View(20)
    for identity in range(3):
        assert front.at_arrival(candidate(identity), view, 0).answer is Admission.ACCEPT
    fourth = front.at_arrival(candidate(3), view, 0)
    assert (fourth.answer, fourth.rule, fourth.peak_blocks, fourth.limit_blocks) == (
        Admission.QUEUE, Rule.FUTURE_PEAK, 24, 20,
    )  # fmt: skip
    assert fourth.retry_at_ps is not None and fourth.retry_at_ps > 0
    fifth = front.at_arrival(candidate(4, prompt=1, bound=2), view, 0)
    assert (fifth.answer, fifth.rule, fifth.queued_requests) == (Admission.QUEUE, Rule.TURN, 2)
    assert list(front.at_scheduling(view, 1)) == []
    front.at_end(0, 9, is_finished=True, now_ps=2)
    assert answers(list(front.at_scheduling(view, 2))) == [
        (3, Admission.ACCEPT, Rule.FITS), (4, Admission.ACCEPT, Rule.FITS),
    ]  # fmt: skip
    assert (front.admitted_count, front.queued_count, front.queued_tokens) == (4, 0, 0)


def test_one_that_ends_soon_makes_room_for_one_that_grows_late() -> None:
    # 24 blocks by a sum of maxima; the short one's 10 are back before the long one has grown to its 14.
    front = policy(blocks=20, max_model_len=200)
    assert front.at_arrival(candidate(1, prompt=36, bound=4), View(20), 0).answer is Admission.ACCEPT
    assert front.at_arrival(candidate(2, prompt=8, bound=48), View(20), 0).answer is Admission.ACCEPT
    unsure = policy(blocks=20, max_model_len=200, pace=Pace())
    assert unsure.at_arrival(candidate(1, prompt=36, bound=4), View(20), 0).answer is Admission.ACCEPT
    assert unsure.at_arrival(candidate(2, prompt=8, bound=48), View(20), 0).rule is Rule.FUTURE_PEAK


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            candidate(1, prompt=100),
            "its prompt has 100 tokens, and the model takes 100, of which the answer needs one at least",
        ),
        (candidate(1, prompt=60, bound=30), "needs 23 blocks, and there are 20 in all"),
        (
            candidate(1, prompt=4, bound=4, branches=9),
            "asks for 9 sequences at once, and the engine runs 8 at the most",
        ),
        (candidate(1, prompt=30, bound=8, branches=3), "needs 30 blocks, and there are 20 in all"),
    ],
)
def test_what_never_fits_is_refused_at_once(asked: Candidate, why: str) -> None:
    decision = policy().at_arrival(asked, View(20), 0)
    assert (decision.answer, decision.rule, decision.retry_at_ps) == (Admission.REJECT, Rule.NEVER_FITS, None)
    assert decision.why() == why


@pytest.mark.parametrize("reservation", list(Reservation))
def test_a_bound_beyond_the_model_is_that_of_the_model(reservation: Reservation) -> None:
    front = policy(blocks=40, reservation=reservation)
    decision = front.at_arrival(candidate(1, prompt=40, bound=10**18), View(40), 0)
    # 100 tokens are all that the model allows: 99 in the pool.
    assert (decision.answer, decision.reserved_output_tokens, decision.need_blocks) == (
        Admission.ACCEPT, 60, 25,
    )  # fmt: skip


def test_beams_that_share_their_prompt_need_it_once() -> None:
    asked = candidate(1, prompt=30, bound=8, branches=3, branches_share_prompt=True)
    # 7 full blocks in common; 37 tokens are 10 blocks, 3 of its own for each beam.
    decision = policy().at_arrival(asked, View(20), 0)
    assert (decision.answer, decision.need_blocks) == (Admission.ACCEPT, 7 + 3 * 3)


def test_blocks_that_the_books_know_nothing_of_stay_held() -> None:
    decision = policy().at_arrival(candidate(1), View(20, used=15), 0)
    assert (decision.answer, decision.rule, decision.limit_blocks) == (Admission.QUEUE, Rule.FUTURE_PEAK, 5)
    assert (
        policy(safety_blocks=15).at_arrival(candidate(1, prompt=12, bound=9), View(20), 0).answer
        is Admission.ACCEPT
    )
    assert policy(safety_blocks=15).at_arrival(candidate(1), View(20), 0).rule is Rule.NEVER_FITS


def test_who_was_let_in_and_holds_nothing_yet_does_not_hide_blocks_that_somebody_else_holds() -> None:
    front, view = policy(), View(20, used=10)
    assert front.at_arrival(candidate(1), view, 0).answer is Admission.ACCEPT
    # The first will hold 6 of the 10 that are left; the engine has given it none so far.
    second = front.at_arrival(candidate(2), view, 0)
    assert (second.rule, second.limit_blocks, second.peak_blocks) == (Rule.FUTURE_PEAK, 10, 12)
    # It was given its 4 blocks, and shows a token: what is beyond them is somebody else's.
    view.used_blocks = 15
    front.at_progress(1, 1, 1)
    assert front.would(candidate(3), view, 1).limit_blocks == 10


def test_a_first_token_that_comes_too_late_is_refused_with_what_would_have_been_possible() -> None:
    # 16 tokens at 1,000 a second are 16 ms.
    in_time = candidate(1, first_token_deadline_ps=16 * MS)
    assert policy(times=RATES).at_arrival(in_time, View(20), 0).answer is Admission.ACCEPT
    late = policy(times=RATES).at_arrival(candidate(1, first_token_deadline_ps=15 * MS), View(20), 0)
    assert (late.answer, late.rule, late.possible_first_token_ps) == (
        Admission.REJECT, Rule.FIRST_TOKEN_DEADLINE, 16 * MS,
    )  # fmt: skip
    assert "first token 0.016 s from now" in late.why()
    # Without times only what is past is known to be missed.
    assert (
        policy().at_arrival(candidate(1, first_token_deadline_ps=15 * MS), View(20), 0).answer
        is Admission.ACCEPT
    )
    assert (
        policy().at_arrival(candidate(1, first_token_deadline_ps=15 * MS), View(20), 16 * MS).answer
        is Admission.REJECT
    )


def test_an_end_is_judged_by_the_outputs_that_were_learned() -> None:
    front = policy(blocks=400, times=RATES, max_running=200)
    due = candidate(1000, bound=50, deadline_ps=100 * MS)
    # Nothing learned: a single token would be done after 16 ms.
    assert front.at_arrival(due, View(400), 0).answer is Admission.ACCEPT
    front.at_end(1000, 1, is_finished=False, now_ps=0)
    for identity in range(40):
        front.at_arrival(candidate(identity, bound=50), View(400), 0)
        front.at_end(identity, 20, is_finished=True, now_ps=0)
    late = front.at_arrival(structs.replace(due, identity=1001), View(400), 0)
    # 16 ms, and 19 tokens more at 10 ms; by then 1 + 84 // 10 could be there.
    assert (late.rule, late.possible_end_ps, late.possible_output_tokens) == (Rule.DEADLINE, 206 * MS, 9)
    assert "end 0.206 s from now, 9 output tokens by then" in late.why()


def test_what_is_not_known_is_not_told_as_possible_at_once() -> None:
    late = policy().at_arrival(candidate(1, first_token_deadline_ps=5), View(20), 6)
    assert (late.rule, late.why()) == (Rule.FIRST_TOKEN_DEADLINE, "its deadline cannot be met any more")


def test_who_waits_past_the_last_start_in_time_is_never_started() -> None:
    front, view = policy(times=RATES), View(20)
    for identity in range(3):
        front.at_arrival(candidate(identity), view, 0)
    waits = front.at_arrival(candidate(3, first_token_deadline_ps=100 * MS), view, 0)
    assert waits.answer is Admission.QUEUE
    for identity in range(3):
        front.at_progress(identity, 1, 50 * MS)
    # Its 16 tokens take 16 ms.
    assert list(front.at_scheduling(view, 84 * MS)) == []
    for identity in range(3):
        front.at_end(identity, 9, is_finished=True, now_ps=84 * MS)
    assert answers(list(front.at_scheduling(view, 85 * MS))) == [
        (3, Admission.REJECT, Rule.FIRST_TOKEN_DEADLINE)
    ]
    assert front.queued_count == 0


def test_queues_are_bounded_by_requests_tokens_and_age() -> None:
    bounds = QueueBounds(max_requests=2, max_tokens=60, max_age_ps=10 * MS)
    front, view = policy(queue=bounds), View(20)
    for identity in range(3):
        front.at_arrival(candidate(identity), view, 0)
    assert front.at_arrival(candidate(3), view, 0).answer is Admission.QUEUE
    assert front.at_arrival(candidate(4, prompt=40), view, 0).rule is Rule.QUEUE_TOKENS
    assert front.at_arrival(candidate(5, sent_ps=1), view, 1).answer is Admission.QUEUE
    assert front.at_arrival(candidate(6, prompt=1, bound=1), view, 1).rule is Rule.QUEUE_REQUESTS
    assert list(front.at_scheduling(view, 10 * MS)) == []
    assert answers(list(front.at_scheduling(view, 10 * MS + 1))) == [(3, Admission.REJECT, Rule.QUEUE_AGE)]
    assert (front.queued_count, front.queued_tokens) == (1, 25)


def test_requests_in_doubt_have_a_share_of_the_pool_and_block_nobody_else() -> None:
    front, view = policy(blocks=100, reservation=Reservation.QUANTILE, quantile=0.5, confidence=0.6,
                         risky_over_tokens=20, risky_share=0.2, max_running=50), View(100)  # fmt: skip
    for identity in range(40):
        front.at_arrival(candidate(identity, bound=60), view, 0)
        front.at_end(identity, 5, is_finished=True, now_ps=0)
    # 5 of 60 tokens are reserved: in doubt. Five of 16 + 5 - 1 tokens hold 25 blocks, four the share of 20.
    told = [front.at_arrival(candidate(100 + number, bound=60), view, 0) for number in range(5)]
    assert [one.rule for one in told] == [Rule.FITS] * 4 + [Rule.RISKY_POOL]
    assert told[0].reserved_output_tokens == 5
    assert told[0].observations == 40
    assert front.at_arrival(candidate(200, bound=9), view, 0).answer is Admission.ACCEPT


def test_a_quantile_lets_more_in_once_it_has_learned() -> None:
    front, view = policy(blocks=40, reservation=Reservation.QUANTILE, max_running=50), View(40)
    bound = candidate(0, bound=80)
    assert front.at_arrival(bound, view, 0).reserved_output_tokens == 80
    assert front.at_arrival(candidate(1, bound=80), view, 0).answer is Admission.QUEUE
    front.at_end(0, 4, is_finished=True, now_ps=0)
    front.at_scheduling(view, 0)
    front.at_end(1, 4, is_finished=True, now_ps=0)
    for identity in range(2, 70):
        front.at_arrival(candidate(identity, bound=80), view, 0)
        front.at_end(identity, 4, is_finished=True, now_ps=0)
    told = [front.at_arrival(candidate(100 + number, bound=80), view, 0) for number in range(8)]
    assert [one.answer for one in told] == [Admission.ACCEPT] * 8
    # One that outlives what was reserved for it is given its bound again.
    front.at_progress(100, 5, 0)
    assert front.at_arrival(candidate(200, bound=80), view, 0).peak_blocks > 40


def test_a_risk_lets_in_what_is_exceeded_seldom_enough() -> None:
    def let_in(epsilon: float) -> int:
        front = policy(
            blocks=400, reservation=Reservation.RISK, epsilon=epsilon, max_running=60, risk_span_steps=8,
            pace=Pace(step_tokens=640, max_running=60),
        )  # fmt: skip
        view = View(400)
        for identity in range(200):
            front.at_arrival(candidate(identity, bound=80), view, 0)
            front.at_end(identity, 60 if identity % 10 == 0 else 4, is_finished=True, now_ps=0)
        told = [front.at_arrival(candidate(1000 + number, bound=80), view, 0) for number in range(60)]
        assert all(
            (one.exceeded_probability or 0) <= epsilon for one in told if one.answer is Admission.ACCEPT
        )
        return sum(one.answer is Admission.ACCEPT for one in told)

    # By the bound 400 blocks hold 400 // 24 = 16.
    assert 16 < let_in(0.001) <= let_in(0.2) <= 60
    with pytest.raises(InputError, match="step_tokens None"):
        policy(reservation=Reservation.RISK, pace=Pace())


def test_the_optimist_asks_for_the_prompt_and_a_watermark() -> None:
    front, view = policy(reservation=Reservation.OPTIMISTIC, watermark_blocks=4), View(20)
    assert front.at_arrival(candidate(0, bound=80), view, 0).answer is Admission.ACCEPT
    assert front.at_arrival(candidate(1, bound=80), view, 0).answer is Admission.ACCEPT
    third = front.at_arrival(candidate(2, bound=80), view, 0)
    assert (third.rule, third.free_blocks, third.answer) == (Rule.FITS, 12, Admission.ACCEPT)
    assert front.at_arrival(candidate(3, bound=80), view, 0).rule is Rule.WATERMARK


def test_settings_that_contradict_themselves_are_refused() -> None:
    for changes, words in (
        ({"max_running": 0}, "max_running is 0"),
        ({"quantile": 1.0}, "quantile is 1.0"),
        ({"safety_blocks": 20}, "of 20 blocks none would be left"),
        ({"weights": {3: 0}}, "tenant 3 has weight 0"),
        ({"watermark_blocks": -1}, "watermark_blocks is -1"),
        ({"ageing_ps": 0}, "ageing_ps is 0"),
        ({"token_wait_ps": -1}, "token_wait_ps is -1"),
    ):
        with pytest.raises(InputError, match=words):
            policy_settings(20, **changes)


@st.composite
def loads(draw: st.DrawFn) -> list[tuple[int, Candidate, int]]:
    """Step of arrival, candidate, its real output."""
    rows = []
    for identity in range(draw(st.integers(1, 20))):
        real = draw(st.integers(1, 20))
        rows.append(
            (
                draw(st.integers(0, 30)),
                candidate(
                    identity,
                    prompt=draw(st.integers(1, 40)),
                    bound=real + draw(st.sampled_from([0, 0, 3, 20])),
                    tenant=draw(st.integers(0, 2)),
                    priority=draw(st.integers(0, 1)),
                    branches=draw(st.sampled_from([1, 1, 2])),
                ),
                real,
            )
        )
    return sorted(rows, key=lambda row: row[0])


def served(
    front: Policy, load: list[tuple[int, Candidate, int]], blocks: int
) -> tuple[list[Decision], list[int]]:
    """An engine that computes each prompt in one step and gives each sequence a token a step: decisions, and blocks in use at each step."""
    view, decisions, usage = View(blocks), [], []
    real = {one.identity: output for _, one, output in load}
    running: dict[int, int] = {}
    asked = {one.identity: one for _, one, _ in load}
    rows = list(load)
    step = 0
    while rows or running or front.queued_count:
        told = list(front.at_scheduling(view, step))
        while rows and rows[0][0] <= step:
            told.append(front.at_arrival(rows.pop(0)[1], view, step))
        decisions += told
        running.update((one.identity, 0) for one in told if one.answer is Admission.ACCEPT)
        held = sum(
            asked[name].branches * -(-(asked[name].prompt_tokens + had) // 4) for name, had in running.items()
        )
        usage.append(held)
        view.used_blocks = held
        for name in list(running):
            running[name] += 1
            front.at_progress(name, running[name], step)
            if running[name] == real[name]:
                front.at_end(name, running.pop(name), is_finished=True, now_ps=step)
        view.used_blocks = sum(
            asked[name].branches * -(-(asked[name].prompt_tokens + had) // 4) for name, had in running.items()
        )
        step += 1
        assert step < 2000, "somebody waits for ever"
    return decisions, usage


@settings(deadline=None, max_examples=60)
@given(loads(), st.integers(12, 40))
def test_no_evict_never_promises_more_than_there_is_and_serves_all(
    load: list[tuple[int, Candidate, int]], blocks: int
) -> None:
    front = policy(blocks=blocks, pace=Pace(step_tokens=400, max_running=8))
    decisions, usage = served(front, load, blocks)
    assert max(usage) <= blocks
    assert (front.admitted_count, front.queued_count, front.queued_tokens) == (0, 0, 0)
    ends = {one.identity: one for one in decisions if one.answer is not Admission.QUEUE}
    assert ends.keys() == {one.identity for _, one, _ in load}
    for _, one, _ in load:
        whole = one.branches * -(-(one.prompt_tokens + one.max_output_tokens - 1) // 4)
        assert (ends[one.identity].answer is Admission.ACCEPT) == (whole <= blocks)
    # The same requests are answered the same.
    assert served(policy(blocks=blocks, pace=Pace(step_tokens=400, max_running=8)), load, blocks) == (
        decisions,
        usage,
    )


@settings(deadline=None, max_examples=30)
@given(loads(), st.sampled_from(list(Reservation)))
def test_whatever_is_reserved_everybody_is_served_in_the_end(
    load: list[tuple[int, Candidate, int]], reservation: Reservation
) -> None:
    # The engine of this test has room for all; the policy has to find that out.
    front = policy(
        blocks=60, reservation=reservation, risk_span_steps=8, quantile=0.5, confidence=0.6, max_running=16
    )
    decisions, _ = served(front, load, 60)
    ends = [one for one in decisions if one.answer is not Admission.QUEUE]
    assert sorted(one.identity for one in ends) == sorted(one.identity for _, one, _ in load)
    assert all(one.why() for one in decisions)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), max_size=6),
    st.integers(0, 30),
    st.integers(1, 40),
)
def test_more_room_never_turns_a_yes_into_a_no(
    running: list[tuple[int, int]], used: int, prompt: int
) -> None:
    def answer(blocks: int, reservation: Reservation) -> bool:
        front = policy(blocks=100, reservation=reservation, max_running=50)
        for identity, (tokens, bound) in enumerate(running):
            front.at_arrival(candidate(identity, prompt=tokens, bound=bound), View(100), 0)
        view = View(blocks, used=min(used, blocks))
        return front.at_arrival(candidate(99, prompt=prompt), view, 0).answer is Admission.ACCEPT

    for reservation in Reservation:
        told = [answer(blocks, reservation) for blocks in (20, 35, 60, 100)]
        assert told == sorted(told), reservation


@pytest.mark.parametrize(("is_on", "order"), [(False, [1, 2, 3, 4, 5]), (True, [2, 5, 1, 3, 4])])
def test_where_not_all_can_be_in_time_those_with_the_most_work_go_behind(
    is_on: bool, order: list[int]
) -> None:
    # One that grows to 16 tokens holds 6 of 8 blocks for 160 ms; the first tokens of all are due after 250 ms.
    front, view = policy(8, times=RATES, puts_behind=is_on), View(8)
    assert front.at_arrival(candidate(0, prompt=28, bound=4), view, 0).answer is Admission.ACCEPT
    for identity, prompt, bound in ((1, 16, 16), (2, 20, 12), (3, 16, 16), (4, 16, 16), (5, 4, 2)):
        asked = candidate(identity, prompt=prompt, bound=bound, first_token_deadline_ps=250 * MS)
        assert front.at_arrival(asked, view, 0).answer is Admission.QUEUE
    front.at_end(0, 4, is_finished=True, now_ps=40 * MS)
    let_in: list[int] = []
    for _ in range(6):
        for decision in front.at_scheduling(view, 40 * MS):
            assert decision.answer is Admission.ACCEPT
            let_in.append(decision.identity)
        for identity in let_in:
            front.at_end(identity, 2, is_finished=False, now_ps=40 * MS)
    assert let_in == order


def test_while_lengths_are_unknown_a_first_guess_is_reserved_and_twice_of_what_came() -> None:
    bound = candidate(1, prompt=4, bound=60)
    safe = policy(reservation=Reservation.QUANTILE).at_arrival(bound, View(20), 0)
    assert (safe.reserved_output_tokens, safe.observations) == (60, 0)
    guessing = policy(reservation=Reservation.QUANTILE, first_guess_tokens=10)
    guessed = guessing.at_arrival(bound, View(20), 0)
    assert (guessed.reserved_output_tokens, guessed.need_blocks, guessed.observations) == (10, 4, 0)
    guessing.at_progress(1, 15, 5)
    # It came to 15 tokens, so 30 are reserved: when another has its 10 and 28 tokens in all, it has 29 in 8 blocks.
    after = guessing.at_arrival(candidate(2, prompt=19, bound=60), View(20), 6)
    assert (after.reserved_output_tokens, after.rule) == (10, Rule.FITS)
    assert after.peak_blocks == 15


def test_a_first_guess_is_a_token_at_least() -> None:
    with pytest.raises(InputError, match="first_guess_tokens is 0"):
        policy_settings(20, first_guess_tokens=0)


def test_a_prompt_that_is_being_read_counts_for_what_is_left_of_it() -> None:
    # A thousand prompt tokens a second: 60 tokens are read in 60 ms, of which 50 have passed.
    front, view = policy(40, times=RATES), View(40)
    assert front.at_arrival(candidate(1, prompt=60), view, 0).answer is Admission.ACCEPT
    early = candidate(2, prompt=10, sent_ps=0, first_token_deadline_ps=40 * MS)
    refused = front.at_arrival(early, view, 0)
    assert (refused.rule, refused.possible_first_token_ps) == (Rule.FIRST_TOKEN_DEADLINE, 70 * MS)
    late = candidate(3, prompt=10, first_token_deadline_ps=75 * MS)
    assert front.at_arrival(late, view, 50 * MS).answer is Admission.ACCEPT


def test_a_turn_that_comes_before_the_one_before_it_was_read_is_not_refused_for_what_both_have() -> None:
    front, view = policy(40, times=RATES), View(40)
    keys = tuple(range(10))
    assert front.at_arrival(candidate(1, prompt=40, keys=keys), view, 0).answer is Admission.ACCEPT
    after = candidate(2, prompt=44, keys=(*keys, 99), first_token_deadline_ps=50 * MS)
    assert front.at_arrival(after, view, 0).answer is Admission.ACCEPT
    other = candidate(3, prompt=44, keys=tuple(range(50, 61)), first_token_deadline_ps=50 * MS)
    assert front.at_arrival(other, view, 0).rule is Rule.FIRST_TOKEN_DEADLINE
