"""A request's facts as a candidate: what is not known is bounded, and what only the engine knows is left to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission, Rule
from vramledger.admission.decision import Decision as PolicyDecision
from vramledger.engines.full_pool import WhenFull
from vramledger.gateway.admitter import Kind, PromptTokens, RequestFacts, TokenSource, Verdict
from vramledger.gateway.live.candidates import Cohorts, candidate_of, decision_of, sizes_of
from vramledger.gateway.live.capacity import Capacity
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout

HAS = Capacity(
    engine="vllm",
    layout=PoolLayout(num_blocks=65, groups=(BlockGroup(block_tokens=64),), reserved_blocks=1),
    max_model_len=2048,
    max_running=8,
    when_full=WhenFull.RECOMPUTE,
)
FACTS = RequestFacts(number=7, kind=Kind.CHAT, model="m", prompt_bytes=400, max_output_tokens=100)


def counted(tokens: int, most: int | None = None, source: TokenSource = TokenSource.ENGINE) -> PromptTokens:
    return PromptTokens(tokens=tokens, most_tokens=most or tokens, source=source)


def candidate(
    facts: RequestFacts, has: Capacity = HAS, *, limit: int = 60, is_strict: bool = True
) -> Candidate:
    sizes = sizes_of(has.layout, limit_blocks=limit, safety_tokens=0)
    return candidate_of(facts, has, sizes, "c", is_strict=is_strict)


def test_a_prompt_that_nobody_counted_has_at_most_its_bytes() -> None:
    found = candidate(FACTS)
    assert (found.prompt_tokens, found.max_output_tokens) == (400, 100)
    learned = replace(FACTS, prompt=counted(90, 130, TokenSource.LEARNED))
    assert candidate(learned).prompt_tokens == 130
    assert candidate(learned, is_strict=False).prompt_tokens == 90


@given(st.integers(0, 1 << 40), st.none() | st.integers(0, 1 << 40), st.integers(1, 1 << 20))
def test_a_guess_is_never_too_long_for_the_model(text: int, output: int | None, branches: int) -> None:
    found = candidate(replace(FACTS, prompt_bytes=text, max_output_tokens=output, branches=branches))
    assert found.prompt_tokens + found.max_output_tokens <= HAS.max_model_len
    assert found.prompt_tokens >= 1 and found.max_output_tokens >= 1
    assert found.branches * (found.prompt_tokens + found.max_output_tokens) <= 60 * 64 or found.branches == 1
    assert found.branches <= HAS.max_running


def test_without_a_bound_the_output_may_fill_what_the_model_and_the_pool_leave() -> None:
    endless = replace(FACTS, prompt=counted(48), max_output_tokens=None)
    assert candidate(endless).max_output_tokens == 2000
    assert candidate(endless, limit=20).max_output_tokens == 20 * 64 - 48
    # A bound beyond the model's length is cut there by the engine; one beyond the pool is not to be had.
    assert candidate(replace(endless, max_output_tokens=9_999)).max_output_tokens == 2000
    small = replace(HAS, layout=replace(HAS.layout, num_blocks=11))
    assert candidate(replace(endless, max_output_tokens=1500), small, limit=10).max_output_tokens == 1500
    assert candidate(replace(endless, prompt=counted(3000)), small, limit=10).prompt_tokens == 3000


def test_of_many_prompts_as_many_run_as_have_room_but_where_too_many_fail() -> None:
    many = replace(FACTS, prompt=counted(900), max_output_tokens=100, branches=300)
    assert candidate(many).branches == 3
    assert candidate(many, replace(HAS, when_full=WhenFull.FAIL)).branches == 8


def test_identities_go_by_the_engines_blocks() -> None:
    named = replace(FACTS, prompt=replace(counted(400), keys=tuple(range(25)), key_tokens=16))
    assert candidate(named).keys == (3, 7, 11, 15, 19, 23)
    assert candidate(replace(FACTS, prompt=replace(counted(400), keys=(1, 2), key_tokens=128))).keys == ()
    assert candidate(named, replace(HAS, keeps_prefixes=False)).keys == ()


def test_deadlines_are_instants_from_the_arrival() -> None:
    found = candidate(replace(FACTS, arrival_ns=5, first_token_within_ms=2, within_ms=3))
    assert (found.sent_ps, found.first_token_deadline_ps, found.deadline_ps) == (
        5_000,
        2_000_005_000,
        3_000_005_000,
    )


def test_models_that_were_never_served_are_one_cohort_and_the_names_are_bounded() -> None:
    cohorts = Cohorts()
    assert cohorts.of(FACTS) == "chat/"
    for number in range(1000):
        cohorts.served(replace(FACTS, model=f"m{number}"))
    names = {cohorts.of(replace(FACTS, model=f"m{number}")) for number in range(1000)}
    assert len(names) == 65


def test_what_the_policy_says_becomes_an_answer_with_numbers() -> None:
    at = 5_000_000_000_000
    said = PolicyDecision(
        identity=7,
        answer=Admission.REJECT,
        rule=Rule.QUEUE_REQUESTS,
        at_ps=at,
        retry_at_ps=at + 2_500_000_000_001,
    )
    told = decision_of(said, instance=3, pace_ms=9, numbers={"prompt_tokens": 4})
    assert (told.verdict, told.instance, told.rule) == (Verdict.REJECT, 3, "queue-requests")
    assert (told.retry_after_ms, told.wait_ms, told.message) == (2501, None, said.why())
    assert all(isinstance(value, int) for value in told.numbers.values())
    paced = decision_of(replace(said, retry_at_ps=None), instance=0, pace_ms=70_000, numbers={})
    assert paced.retry_after_ms == 70_000
    # Several pools' worth waits: that what runs has ended is not enough.
    beyond = decision_of(said, instance=0, pace_ms=70_000, numbers={}, is_beyond=True)
    assert beyond.retry_after_ms == 70_000
    assert decision_of(said, instance=0, pace_ms=9, numbers={}, is_beyond=True).retry_after_ms == 2501
    soon = decision_of(replace(said, retry_at_ps=at), instance=0, pace_ms=None, numbers={})
    assert soon.retry_after_ms == 1000
    queued = decision_of(replace(said, answer=Admission.QUEUE), instance=0, pace_ms=1, numbers={})
    assert (queued.verdict, queued.wait_ms, queued.retry_after_ms) == (Verdict.QUEUE, 2501, None)
    never = decision_of(replace(said, rule=Rule.NEVER_FITS), instance=0, pace_ms=1, numbers={})
    assert (never.verdict, never.retry_after_ms, never.wait_ms) == (Verdict.NEVER_FITS, None, None)
    late = replace(
        said,
        rule=Rule.DEADLINE,
        possible_end_ps=at + 3_000_000_000,
        possible_output_tokens=8,
        exceeded_probability=0.5,
    )
    numbers = decision_of(late, instance=0, pace_ms=1, numbers={}).numbers
    assert (numbers["possible_end_ms"], numbers["possible_output_tokens"], numbers["exceeded_ppm"]) == (
        3,
        8,
        500_000,
    )
