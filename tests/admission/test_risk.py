"""A bound of the probability that the pool is exceeded, against that probability counted out."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.admission.candidate import Candidate
from vramledger.admission.need import Need
from vramledger.admission.risk import RiskBook
from vramledger.admission.survival import Survival
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout

NEED = Need(PoolLayout(num_blocks=100, groups=(BlockGroup(block_tokens=4),)), step_tokens=8)


def learned(lengths: list[int]) -> Survival:
    survival = Survival()
    for length in lengths:
        survival.reach(length)
        survival.end(length)
    return survival


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 16), min_size=2, max_size=4),
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
    st.integers(1, 20),
)
def test_it_is_never_below_the_true_probability(lengths: list[int], prompts: list[int], limit: int) -> None:
    # Each request has one of the learned lengths, alike probable and independent.
    book = RiskBook(NEED, span_steps=4)
    survival = learned(lengths)
    asked = [
        Candidate(identity=number, prompt_tokens=tokens, max_output_tokens=16)
        for number, tokens in enumerate(prompts)
    ]
    terms = [book.prospect(one, survival.curve(), generated_tokens=0, step=0, wait_steps=0) for one in asked]
    for one, mine in zip(asked[1:], terms[1:], strict=True):
        book.put(one.identity, mine, 0)
    exceeding = 0
    cases = list(product(lengths, repeat=len(prompts)))
    for case in cases:
        usage = (
            sum(
                NEED.blocks(tokens + step)
                for tokens, length in zip(prompts, case, strict=True)
                if length > step
            )
            for step in range(17)
        )
        exceeding += max(usage) > limit
    assert book.exceeded_probability(terms[0], limit) >= exceeding / len(cases) - 1e-9


def test_what_is_certain_is_0_or_1() -> None:
    # Without anything learned a request runs to its bound: 8 + 16 tokens are 6 blocks.
    book = RiskBook(NEED, span_steps=4)
    one = Candidate(identity=0, prompt_tokens=8, max_output_tokens=16)
    terms = book.prospect(one, None, generated_tokens=0, step=0, wait_steps=0)
    assert book.exceeded_probability(terms, 6) == 0.0
    assert book.exceeded_probability(terms, 5) == 1.0
    book.put(0, terms, 0)
    assert book.exceeded_probability(terms, 12) == 0.0
    assert book.exceeded_probability(terms, 11) == 1.0
    book.drop(0)
    assert len(book) == 0
    assert book.exceeded_probability(terms, 6) == 0.0


def test_many_that_are_short_as_a_rule_are_unlikely_to_be_long_at_once() -> None:
    # Of 100 ended 90 at 4 tokens and 10 at 100; 40 of them could hold 40 * 27 blocks, and hold far less.
    survival = learned([4] * 90 + [100] * 10)
    book = RiskBook(NEED, span_steps=8)
    for number in range(40):
        one = Candidate(identity=number, prompt_tokens=8, max_output_tokens=100)
        book.put(number, book.prospect(one, survival.curve(), generated_tokens=0, step=0, wait_steps=0), 0)
    extra = book.prospect(
        Candidate(identity=99, prompt_tokens=8, max_output_tokens=100),
        survival.curve(),
        generated_tokens=0,
        step=0,
        wait_steps=0,
    )
    probabilities = [book.exceeded_probability(extra, limit) for limit in (250, 400, 700, 41 * 27)]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[2] < 0.01
    assert probabilities[3] < 1e-6
