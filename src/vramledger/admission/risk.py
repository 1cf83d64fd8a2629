"""How probably the pool is exceeded before what runs has ended, erring to the careful side.

Steps to come are cut into spans. Within a span a request holds at most what it would hold at the span's end, if it is there when the span
begins; so the blocks in use in a span are at most a sum S of independent terms, each `blocks` with probability `share` and else nothing. For any
tilt t > 0, with K the logarithm of E[exp(t * S)] and the sum taken under the tilted distribution (in which each term's share is larger),

    P(S >= a) = exp(K - t * a) * E_tilted[exp(-t * (S - a)); S >= a].

The expectation is at most 1, which is Chernoff's bound and holds for every tilt. With a tilt under which S has its mean about a, the expectation is
taken in the middle of the distribution, where that of a normal distribution of the same mean and variance is near it: a saddlepoint
approximation. The smaller of the two counts; where fewer than 8 terms are uncertain or they are very unequal (the sum of their third absolute moments is
above 0.7 of the deviation's third power), only the bound. Each span's sums are kept for one tilt, and taken anew for a better one when they matter and it has
become a bad one.

The chance that any span is exceeded is that of the first and, for each one after, the chance that it is exceeded and the one before was not. What share
of the exceeding that is, is taken from the normal distribution of both spans' sums under the tilt.

What errs, then, is the normal distribution in two places; that spans are taken at their ends errs the other way, and by more. In batches simulated
from the lengths that were learned (tests/admission/test_risk_calibration.py) what is told is never below the share of batches that exceeded the
pool, as far as their number lets one say, and to keep a probability of 0.01 takes at most 15 % more of the pool than it would have to. It
holds for the lengths as they were learned and for requests that end independently of each other; a tenant whose requests all run
long at once is outside of it.
"""

from __future__ import annotations

from copy import copy
from math import erfc, exp, log, pi, sqrt
from typing import NamedTuple

from vramledger.admission.candidate import Candidate
from vramledger.admission.need import Need
from vramledger.admission.survival import Curve

_NEGLIGIBLE = -16.0
"""The logarithm of a chance that is added for a span without a closer look: fewer than a thousand spans add up to 0.0001."""

_NEGLIGIBLE_CHANCE = exp(_NEGLIGIBLE)
_SMALL = 1e-5
_UNEVEN = 0.7
_FEW = 8
_FIRST_TILT = 0.05
_TRIES = 12


class Term(NamedTuple):
    """A request's blocks in a span, and the probability that it is there at its beginning."""

    blocks: int
    share: float


Terms = dict[int, Term]


class Prospect:
    """A request's terms, span by span, computed when asked for."""

    __slots__ = (
        "_ahead",
        "_branches",
        "_common",
        "_curve",
        "_given",
        "_held",
        "_most_tokens",
        "_need",
        "_size",
        "most_blocks",
        "spans",
    )

    def __init__(
        self,
        need: Need,
        span_steps: int,
        candidate: Candidate,
        curve: Curve | None,
        generated_tokens: int,
        given_tokens: int,
        step: int,
        wait_steps: int,
    ) -> None:
        bound, branches = candidate.max_output_tokens, candidate.branches
        shares = branches > 1 and candidate.branches_share_prompt
        self._need, self._curve, self._given = need, curve, given_tokens
        self._size, self._branches = span_steps, branches
        self._common = need.common_blocks(candidate.prompt_tokens) if shares else 0
        self._most_tokens = candidate.prompt_tokens + bound
        # At a step it has this many tokens more than steps; its output is at least this many more.
        self._held = candidate.prompt_tokens + generated_tokens - step
        self._ahead = generated_tokens - step - wait_steps - 1
        self.most_blocks = need.blocks(self._most_tokens, branches, self._common)
        last = step + bound - generated_tokens + wait_steps
        self.spans = range(step // span_steps, last // span_steps + 1)

    def at(self, span: int) -> Term | None:
        """Its term in a span; None where it cannot be there."""
        if span not in self.spans:
            return None
        start = span * self._size
        reached, share = start + self._ahead, 1.0
        if self._curve is not None and reached > self._given:
            share = self._curve.share_beyond(reached, self._given)
            if share <= 0.0:
                return None
        tokens = start + self._size + self._held
        most = self._most_tokens
        return Term(self._need.blocks(tokens if tokens < most else most, self._branches, self._common), share)

    def terms(self) -> Terms:
        """All of them."""
        found: Terms = {}
        for span in self.spans:
            term = self.at(span)
            if term is None:
                break
            found[span] = term
        return found


class _Sums:
    """Over all terms of a span: under the tilt logarithm of the generating function, mean variance and third absolute moment, mean and variance of the span
    before, and the covariance with it; without the tilt the mean; the most blocks, and how many terms are uncertain.
    """

    __slots__ = (
        "before_mean",
        "before_variance",
        "blocks",
        "covariance",
        "log_mgf",
        "mean",
        "open",
        "plain_mean",
        "third",
        "tilt",
        "tuned_for",
        "variance",
    )

    def __init__(self, tilt: float) -> None:
        self.tilt = tilt
        self.log_mgf = self.mean = self.variance = self.third = self.plain_mean = 0.0
        self.before_mean = self.before_variance = self.covariance = 0.0
        self.tuned_for = 0.0
        self.blocks = self.open = 0

    def add(self, term: Term, before: Term, sign: int) -> None:
        """A request more, or less, by its terms in the span and in the one before."""
        blocks, share = term
        log_mgf, tilted = _tilted(blocks, share, self.tilt)
        mean = sign * tilted * blocks
        self.blocks += sign * blocks
        self.log_mgf += sign * log_mgf
        self.mean += mean
        self.plain_mean += sign * share * blocks
        if share >= 1.0:
            self.before_mean += sign * before.blocks
            return
        self.open += sign
        rest = 1.0 - tilted
        variance = mean * rest * blocks
        self.variance += variance
        self.third += variance * blocks * (tilted * tilted + rest * rest)
        gone = rest * (1.0 - before.share) / (1.0 - share)
        there = sign * (1.0 - gone) * before.blocks
        self.before_mean += there
        self.before_variance += there * gone * before.blocks
        self.covariance += mean * gone * before.blocks

    def beyond(self, least: int) -> float:
        """About how probably the sum is at least so much."""
        log_mgf, tilt, mean, variance = self.log_mgf, self.tilt, self.mean, self.variance
        if variance <= 1e-6:  # The sum cannot vary; what is left are roundings.
            return min(1.0, exp(min(0.0, log_mgf - tilt * mean))) if mean > least - 0.5 else 0.0
        if log_mgf - tilt * least < _NEGLIGIBLE:
            return _NEGLIGIBLE_CHANCE
        deviation = sqrt(variance)
        chernoff = exp(min(50.0, log_mgf - tilt * least))
        if not self.is_even:
            return min(1.0, chernoff)
        place = (least - mean) / deviation + tilt * deviation
        normal = log_mgf - tilt * mean + tilt * tilt * variance / 2.0
        if place < 5.0:
            normal += log(_below(-place))
        else:  # No more than the density over the place.
            normal -= place * place / 2.0 + log(place * sqrt(2.0 * pi))
        return min(1.0, chernoff, exp(min(0.0, normal)))

    @property
    def is_even(self) -> bool:
        """Whether there are so many terms, and so much alike, that a normal distribution is near."""
        return self.open >= _FEW and self.third < _UNEVEN * self.variance * sqrt(self.variance)

    def share_new(self, least: int) -> float:
        """Where the sum is at least so much, about how often the one of the span before was less.

        What it is above that falls off with the tilt; the sum before goes along with it, by the covariance.
        """
        if self.variance <= 1e-6 or not self.is_even:
            return 1.0
        slope = self.covariance / self.variance
        spread = self.before_variance - slope * self.covariance
        room = least - 0.5 - self.before_mean - slope * (least - self.mean)
        if spread <= 1e-6:
            return (
                1.0
                if slope <= 0.0 and room > 0.0
                else 1.0 - exp(-self.tilt * max(0.0, room) / max(slope, 1e-9))
            )
        place, fall = room / sqrt(spread), self.tilt * sqrt(spread) / max(slope, 1e-9)
        exponent = fall * fall / 2.0 - fall * place
        if exponent > 300.0 or place - fall < -30.0:
            return _below(place)
        return min(1.0, max(0.0, _below(place) - exp(exponent) * _below(place - fall)))


class RiskBook:
    """Sums over all admitted requests by span of `span_steps` steps. Steps are the caller's."""

    def __init__(self, need: Need, *, span_steps: int) -> None:
        self._need = need
        self._span_steps = span_steps
        self._terms: dict[int, Terms] = {}
        self._sums: dict[int, _Sums] = {}
        self._step = 0

    def __len__(self) -> int:
        return len(self._terms)

    def prospect(
        self,
        candidate: Candidate,
        curve: Curve | None,
        *,
        generated_tokens: int,
        step: int,
        wait_steps: int,
        until_tokens: int | None = None,
    ) -> Prospect:
        """What it holds from a step on. Without a `curve` it runs to the client's bound for certain.

        It may wait up to `wait_steps` before it grows again. The terms hold until it has come to `until_tokens` (those it has where None); from
        there on it is less likely to end early than they say.
        """
        given = generated_tokens if until_tokens is None else until_tokens
        return Prospect(
            self._need, self._span_steps, candidate, curve, generated_tokens, given, step, wait_steps
        )

    def put(self, identity: int, prospect: Prospect, step: int) -> None:
        """A request's prospect, in the place of the one it had."""
        terms = prospect.terms()
        self.drop(identity)
        self._advance(step)
        self._terms[identity] = terms
        self._add(terms, 1)

    def drop(self, identity: int) -> None:
        """It ended."""
        terms = self._terms.pop(identity, None)
        if terms is not None:
            self._add(terms, -1)

    def exceeded_probability(self, extra: Prospect, limit_blocks: int) -> float:
        """How probably more than `limit_blocks` are ever in use, with a request more."""
        least = limit_blocks + 1
        total, before, before_span = 0.0, None, -1
        room = least - extra.most_blocks
        for span in sorted(self._sums):
            sums = self._sums[span]
            if sums.blocks < room:
                continue
            if sums.log_mgf - sums.tilt * room < _NEGLIGIBLE:
                total += _NEGLIGIBLE_CHANCE
                continue
            term = extra.at(span)
            aim = least if term is None else least - term.blocks
            if sums.blocks < aim:
                continue
            if self._is_off(sums, aim):
                self._sums[span] = sums = self._tuned(span, sums.tilt, aim)
            if term is not None:
                sums = copy(sums)
                sums.add(term, extra.at(span - 1) or term, 1)
            chance = sums.beyond(least)
            if before is not None and before_span == span - 1 and chance > _SMALL:
                chance *= sums.share_new(least)
            total += chance
            if total >= 1.0:
                return 1.0
            before, before_span = sums, span
        if room <= 0:
            alone = (extra.at(span) for span in extra.spans if span not in self._sums)
            total += sum(term.share for term in alone if term is not None and term.blocks >= least)
        return min(1.0, total)

    def _is_off(self, sums: _Sums, aim: int) -> bool:
        """Whether a better tilt would matter, and there has been none for what runs now."""
        deviation = sqrt(max(sums.variance, 1.0))
        return (
            sums.plain_mean < aim
            and abs(sums.mean - aim) > deviation
            and abs(sums.plain_mean - aim - sums.tuned_for) > deviation / 4.0
        )

    def _advance(self, step: int) -> None:
        first = max(self._step, step) // self._span_steps
        if first > self._step // self._span_steps:
            for span in [span for span in self._sums if span < first]:
                del self._sums[span]
        self._step = max(self._step, step)

    def _add(self, terms: Terms, sign: int) -> None:
        first, every = self._step // self._span_steps, self._sums
        before = None
        for span, term in terms.items():
            if span >= first:
                sums = every.get(span)
                if sums is None:
                    last = every.get(span - 1)
                    sums = every[span] = _Sums(_FIRST_TILT if last is None else last.tilt)
                sums.add(term, before or term, sign)
            before = term

    def _tuned(self, span: int, tilt: float, aim: int) -> _Sums:
        """A span's sums under a tilt that puts the mean about there (by Newton's method, as the mean grows with the tilt by the variance)."""
        rows = [
            (term, terms.get(span - 1, term))
            for terms in self._terms.values()
            if (term := terms.get(span)) is not None
        ]
        for _ in range(_TRIES):
            mean = variance = 0.0
            for (blocks, share), _ in rows:
                _, tilted = _tilted(blocks, share, tilt)
                mean += tilted * blocks
                variance += tilted * (1.0 - tilted) * blocks * blocks
            off = aim - mean
            if off * off <= variance / 4.0:
                break
            tilt = min(4.0 * tilt, max(tilt / 4.0, tilt + off / max(variance, 1e-9)))
        sums = _Sums(tilt)
        for term, before in rows:
            sums.add(term, before, 1)
        sums.tuned_for = sums.plain_mean - aim
        return sums


def _tilted(blocks: int, share: float, tilt: float) -> tuple[float, float]:
    """The logarithm of a term's generating function, and its share under the tilt."""
    power = tilt * blocks
    if share >= 1.0:
        return power, 1.0
    whole = share + (1.0 - share) * exp(-power)
    return power + log(whole), share / whole


def _below(place: float) -> float:
    """The normal distribution function."""
    return 0.5 * erfc(-place / sqrt(2.0))
