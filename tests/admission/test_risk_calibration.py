"""What is told of the pool being exceeded, held against batches drawn from the very lengths that were learned."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pytest

from vramledger.admission.candidate import Candidate
from vramledger.admission.need import Need
from vramledger.admission.risk import Prospect, RiskBook
from vramledger.admission.survival import Survival, bin_of, last_of
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout

SIZE = 16
NEED = Need(PoolLayout(num_blocks=100_000, groups=(BlockGroup(block_tokens=SIZE),)), step_tokens=8)
BATCHES = 2000
BOUND = 1024


@dataclass
class Batches:
    """Requests under way, and the most blocks that each of many batches of them came to use."""

    book: RiskBook
    extra: Prospect
    peaks: np.ndarray

    def told(self, limit: int) -> float:
        return self.book.exceeded_probability(self.extra, limit)


def batches(lengths: np.ndarray, requests: int, prompts: tuple[int, int], seed: int) -> Batches:
    """Some of the requests have begun; each goes on as those did that came so far."""
    random = np.random.default_rng(seed)
    survival, book = Survival(), RiskBook(NEED, span_steps=16)
    for length in lengths:
        survival.reach(int(length))
        survival.end(int(length))
    ranked = np.sort(lengths)
    begun = np.where(random.random(requests) < 0.6, random.integers(0, np.median(lengths), requests), 0)
    prompt_tokens = random.integers(*prompts, requests)
    told: list[Prospect] = []
    for number in range(requests):
        one = Candidate(identity=number, prompt_tokens=int(prompt_tokens[number]), max_output_tokens=BOUND)
        had = int(begun[number])
        prospect = book.prospect(
            one,
            survival.curve(),
            generated_tokens=had,
            step=0,
            wait_steps=0,
            until_tokens=last_of(bin_of(had)),
        )
        told.append(prospect)
        if number:
            book.put(number, prospect, 0)
    left = np.empty((BATCHES, requests), dtype=np.int64)
    for number, had in enumerate(begun):
        longer = ranked[np.searchsorted(ranked, had, side="right") :]
        left[:, number] = random.choice(longer, BATCHES) - had
    peaks = np.zeros(BATCHES, dtype=np.int64)
    for step in range(int(left.max())):
        blocks = -(-(prompt_tokens + begun + step) // SIZE)
        np.maximum(peaks, (left > step) @ blocks, out=peaks)
    return Batches(book, told[0], peaks)


def drawn(kind: str) -> np.ndarray:
    random = np.random.default_rng(7)
    if kind == "lognormal":
        return np.asarray(np.clip(random.lognormal(4.5, 0.8, 3000).astype(int) + 1, 1, BOUND - 1))
    if kind == "geometric":
        return np.asarray(np.clip(random.geometric(1 / 120, 3000), 1, BOUND - 1))
    is_short = random.random(3000) < 0.9
    return np.where(is_short, random.integers(10, 60, 3000), random.integers(400, 500, 3000))


@pytest.mark.parametrize("kind", ["lognormal", "geometric", "short or long"])
@pytest.mark.parametrize(("requests", "prompts"), [(20, (10, 60)), (60, (10, 60)), (60, (50, 800))])
def test_it_is_not_told_too_low_and_costs_little_of_the_pool(
    kind: str, requests: int, prompts: tuple[int, int]
) -> None:
    run = batches(drawn(kind), requests, prompts, seed=requests)
    for share in (0.1, 0.03, 0.01):
        limit = int(np.quantile(run.peaks, 1 - share))
        exceeded = float((run.peaks > limit).mean())
        # Three standard errors of a share that was counted.
        assert run.told(limit) >= exceeded - 3 * sqrt(exceeded / BATCHES)
    # A pool for which a hundredth is told is at most so much larger than the one that a hundredth of the batches exceed.
    least = int(np.quantile(run.peaks, 0.99))
    assert run.told(int(least * 1.15) + 1) <= 0.01
