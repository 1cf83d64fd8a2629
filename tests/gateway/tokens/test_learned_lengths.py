"""Lengths learned from what engines counted, and whether their stated error holds for prompts that were not learned from."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from vramledger.gateway.admitter import Ended, Ending, Kind, PromptTokens, TokenSource
from vramledger.gateway.request_facts import facts_of
from vramledger.gateway.tokens.counter import Counting
from vramledger.gateway.tokens.lengths import ENOUGH, LengthModel, high_ratio
from vramledger.gateway.tokens.settings import Ask, CountingSettings

PRIOR = (0.25, 0.3, 5.0, 0.25, 1000.0, 8.0)
ANY = (None, None)
ROOT = Path(__file__).parents[3]


def row(text: str, messages: int) -> tuple[float, ...]:
    return (float(len(text)), float(len(text.encode()) - len(text)), float(messages), 0.0, 0.0, 1.0)


def test_before_anything_is_known_there_is_a_guess_and_no_bound() -> None:
    told = LengthModel(PRIOR, quantile=0.99).forecast("m", row("a" * 400, 1), ANY)
    assert (told.tokens, told.most, told.observations) == (113, None, 0)


def test_a_rule_that_holds_is_found() -> None:
    model, made = LengthModel(PRIOR, quantile=0.99), random.Random(3)
    for _ in range(200):
        characters, messages = made.randrange(10, 5000), made.randrange(1, 9)
        seen = (float(characters), 0.0, float(messages), 0.0, 0.0, 1.0)
        model.learn("m", seen, ANY, round(0.21 * characters + 4 * messages + 11))
    told = model.forecast("m", (3000.0, 0.0, 5.0, 0.0, 0.0, 1.0), ANY)
    assert told.tokens == pytest.approx(661, abs=2)
    assert told.most is not None
    assert told.tokens <= told.most <= 680
    assert told.observations == 200


def test_models_do_not_teach_each_other_and_are_forgotten_at_last() -> None:
    model = LengthModel(PRIOR, quantile=0.99)
    for number in range(1000):
        model.learn(number, row("abcd", 1), ANY, 2)
    assert model.forecast(999, row("abcd", 1), ANY).observations == 1
    assert model.forecast(0, row("abcd", 1), ANY).observations == 0


@given(
    st.lists(
        st.tuples(*([st.floats(0, 1e7)] * 5), st.integers(1, 10**7)), min_size=1, max_size=60
    )
)  # fmt: skip
def test_no_history_breaks_a_forecast(history: list[tuple[float, float, float, float, float, int]]) -> None:
    model = LengthModel(PRIOR, quantile=0.99)
    for *seen, tokens in history:
        model.learn("m", (*seen, 1.0), ANY, tokens)
        told = model.forecast("m", (*seen, 1.0), ANY)
        assert told.tokens >= 1
        assert told.most is None or told.most >= 0


@given(st.lists(st.floats(0.1, 10), min_size=ENOUGH, max_size=300), st.floats(0.5, 0.995))
def test_a_high_ratio_is_one_that_was_seen_or_above_all_of_them(ratios: list[float], quantile: float) -> None:
    ratios.sort()
    told = high_ratio(ratios, quantile)
    assert told is not None
    place = math.ceil(quantile * (len(ratios) + 1))
    if place <= len(ratios):
        assert told == ratios[place - 1]
    else:
        assert told >= ratios[-1]


def test_few_ratios_tell_nothing() -> None:
    assert high_ratio([1.0] * (ENOUGH - 1), 0.99) is None
    assert high_ratio([1.0] * ENOUGH, 0.99) == 1.0


def pieces() -> Iterator[str]:
    """Texts of this repository in two scripts: as they are, and with their letters moved into Greek and Han."""
    greek = {ord("a") + at: 0x3B1 + at for at in range(24)}
    han = {ord("a") + at: 0x4E00 + 97 * at for at in range(26)}
    for number, file in enumerate(sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("src/vramledger/*/*.py")])):
        text = file.read_text(encoding="utf-8")
        yield text if number % 4 else text.translate(greek if number % 8 else han)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    one = Tokenizer(models.BPE())
    one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = [text[:20_000] for number, text in enumerate(pieces()) if number % 5 == 0]
    one.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    )
    return one


def prompts_of(made: random.Random, number: int) -> list[str]:
    texts = list(pieces())
    prompts = []
    for _ in range(number):
        text = made.choice(texts)
        begin = made.randrange(max(1, len(text) - 200))
        prompts.append(text[begin : begin + round(math.exp(made.uniform(math.log(40), math.log(8000))))])
    return prompts


@pytest.mark.parametrize("quantile", [0.9, 0.99])
def test_the_stated_error_holds_for_prompts_that_were_not_learned_from(
    tokenizer: Tokenizer, quantile: float
) -> None:
    prompts = prompts_of(random.Random(5), 1600)
    actual = [len(one.ids) + 5 for one in tokenizer.encode_batch_fast(prompts)]
    counting = Counting(CountingSettings(ask=Ask.NEVER, quantile=quantile))

    async def forecasts() -> list[PromptTokens]:
        told = []
        for number, (prompt, tokens) in enumerate(zip(prompts, actual, strict=True)):
            asked = {"prompt": prompt}
            facts = facts_of(Kind.COMPLETION, asked, number=number, arrival_ns=0)
            one = await counting.count(asked, facts)
            assert one is not None
            told.append(one)
            if number < 800:  # the later half is not learned from
                counting.learn(facts, Ending(how=Ended.COMPLETED, prompt_tokens=tokens))
        return told

    told = asyncio.run(forecasts())[300:]
    tokens = actual[300:]
    above = sum(one.most_tokens < count for one, count in zip(told, tokens, strict=True))
    # Within three deviations of a share of that size, and of the share that the ratios themselves were drawn with.
    share = 1 - quantile
    assert above / len(told) <= share + 3 * math.sqrt(share * (1 - share) * (1 / len(told) + 1 / 100))
    errors = [abs(one.tokens - count) / count for one, count in zip(told, tokens, strict=True)]
    assert sum(errors) / len(errors) < 0.25
    widths = sorted(one.most_tokens / count for one, count in zip(told, tokens, strict=True))
    assert widths[len(widths) // 2] < 2
    assert all(one.source is TokenSource.LEARNED for one in told)
    assert told[-1].observations == 800


def test_of_a_kind_of_text_that_was_not_seen_nothing_is_claimed(tokenizer: Tokenizer) -> None:
    """Keys, numbers and another script have several times as many tokens a byte as what was learned from: they are bounded by their bytes."""
    made = random.Random(7)
    prose = [" ".join(made.choices(["some", "words", "of", "one", "language"], k=300)) for _ in range(200)]
    strange = [
        "".join(made.choices("ABCDEFGHKLMNPQRSTUVWXYZ23456789", k=1500)),
        " ".join(str(made.randrange(10**9)) for _ in range(150)),
        "ἀλλὰ " * 200,
    ]
    counting = Counting(CountingSettings(ask=Ask.NEVER))

    async def run() -> None:
        for number, prompt in enumerate([*prose, *strange]):
            asked, tokens = {"prompt": prompt}, len(tokenizer.encode(prompt).ids)
            facts = facts_of(Kind.COMPLETION, asked, number=number, arrival_ns=0)
            told = await counting.count(asked, facts)
            assert told is not None
            if number < len(prose):
                counting.learn(facts, Ending(how=Ended.COMPLETED, prompt_tokens=tokens))
            else:
                assert tokens <= told.most_tokens
                assert told.most_tokens >= len(prompt.encode())

    asyncio.run(run())
