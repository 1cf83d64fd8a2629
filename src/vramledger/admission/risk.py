"""The probability that the pool is exceeded before what runs has ended, bounded from above.

Steps to come are cut into spans. Within a span a request holds at most what it would hold at the span's end, if it is there when the span
begins; so the blocks in use in a span are at most a sum of independent terms, each `blocks` with probability `share` and else nothing. The
chance that such a sum exceeds the pool is bounded by Bernstein's inequality,

    P(sum - mean >= x) <= exp(-x**2 / (2 * (variance + largest * x / 3))),

and the chance that any span does by the sum over spans. That holds for the lengths as they were learned and for requests that end
independently of each other; a tenant whose requests all run long at once is outside of it.
"""

from __future__ import annotations

from math import exp
from typing import NamedTuple

from vramledger.admission.candidate import Candidate
from vramledger.admission.need import Need
from vramledger.admission.survival import Survival


class Term(NamedTuple):
    """A request's blocks in a span, and the probability that it is there at its beginning."""

    blocks: int
    share: float


Terms = dict[int, Term]


class RiskBook:
    """Sums over all admitted requests by span of `span_steps` steps. Steps are the caller's."""

    def __init__(self, need: Need, *, span_steps: int) -> None:
        self._need = need
        self._span_steps = span_steps
        self._terms: dict[int, Terms] = {}
        self._mean: dict[int, float] = {}
        self._variance: dict[int, float] = {}
        self._largest: dict[int, int] = {}
        self._step = 0

    def __len__(self) -> int:
        return len(self._terms)

    def terms(
        self,
        candidate: Candidate,
        survival: Survival | None,
        *,
        generated_tokens: int,
        step: int,
        wait_steps: int,
    ) -> Terms:
        """Its terms from a step on. Without a `survival` it runs to the client's bound for certain.

        It may wait up to `wait_steps` before it grows again. The terms hold until it comes into another bin of lengths
        (`survival.bin_of`); from there on it is less likely to end early than they say.
        """
        size, need = self._span_steps, self._need
        bound, known = candidate.max_output_tokens, candidate.prompt_tokens + generated_tokens
        left = bound - generated_tokens + wait_steps
        shares = candidate.branches > 1 and candidate.branches_share_prompt
        common = need.common_blocks(candidate.prompt_tokens) if shares else 0
        terms: Terms = {}
        for span in range(step // size, (step + left) // size + 1):
            started = generated_tokens + span * size - step - wait_steps
            share = (
                1.0
                if survival is None
                else survival.share_beyond(max(started - 1, generated_tokens), given=generated_tokens)
            )
            if share <= 0.0:
                break
            tokens = min(known + (span + 1) * size - step, candidate.prompt_tokens + bound)
            terms[span] = Term(need.blocks(tokens, candidate.branches, common), share)
        return terms

    def put(self, identity: int, terms: Terms, step: int) -> None:
        """A request's terms, in the place of those it had."""
        self.drop(identity)
        self._advance(step)
        self._terms[identity] = terms
        self._largest[identity] = _largest(terms)
        self._sum(terms, 1)

    def drop(self, identity: int) -> None:
        """It ended."""
        terms = self._terms.pop(identity, None)
        if terms is not None:
            del self._largest[identity]
            self._sum(terms, -1)

    def exceeded_probability(self, extra: Terms, limit_blocks: int) -> float:
        """A bound of the probability that more than `limit_blocks` are ever in use, with a request more."""
        total = 0.0
        largest = max(_largest(extra), max(self._largest.values(), default=0))
        for span in sorted(self._mean.keys() | extra.keys()):
            blocks, share = extra.get(span, Term(0, 0.0))
            mean = self._mean.get(span, 0.0) + blocks * share
            variance = self._variance.get(span, 0.0) + blocks * blocks * share * (1.0 - share)
            total += _beyond(limit_blocks + 1 - mean, max(variance, 0.0), largest)
        return min(1.0, total)

    def _advance(self, step: int) -> None:
        self._step = max(self._step, step)
        past = [span for span in self._mean if span < self._step // self._span_steps]
        for span in past:
            del self._mean[span], self._variance[span]

    def _sum(self, terms: Terms, sign: int) -> None:
        first = self._step // self._span_steps
        for span, (blocks, share) in terms.items():
            if span >= first:
                self._mean[span] = self._mean.get(span, 0.0) + sign * blocks * share
                variance = sign * blocks * blocks * share * (1.0 - share)
                self._variance[span] = self._variance.get(span, 0.0) + variance


def _largest(terms: Terms) -> int:
    return max((term.blocks for term in terms.values()), default=0)


def _beyond(distance: float, variance: float, largest: int) -> float:
    """Bernstein's bound; a sum that cannot vary is beyond or is not."""
    if distance <= 1e-6:  # Blocks are whole; the sums were rounded.
        return 1.0
    if variance <= 1e-6:
        return 0.0
    return exp(-(distance**2) / (2.0 * (variance + largest * distance / 3.0)))
