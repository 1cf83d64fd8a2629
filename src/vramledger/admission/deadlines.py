"""Whether a request can still be in time, and what would have been possible."""

from __future__ import annotations

from typing import NamedTuple

from vramledger.admission.candidate import Candidate
from vramledger.admission.case import Case
from vramledger.admission.decision import Rule
from vramledger.admission.forecast import LengthBook
from vramledger.admission.need import Need
from vramledger.admission.service_time import Load, ServiceTime


class Possible(NamedTuple):
    """The earliest instants of a request that is let in now, and the output that it could have by its deadline (None: not foretold)."""

    first_token_ps: int
    end_ps: int
    output_tokens: int | None


class Deadlines:
    """Judges deadlines by a service time, or without one by what is past.

    An end is judged by the learned output at `quantile`, and while too little is known by a single token, so that nobody is refused
    for a guess.
    """

    def __init__(
        self, service_time: ServiceTime | None, lengths: LengthBook, *, quantile: float, confidence: float
    ) -> None:
        self._service_time = service_time
        self._lengths = lengths
        self._quantile = quantile
        self._confidence = confidence

    def adopt(self, *, quantile: float, confidence: float) -> None:
        """Judges by another quantile from now on."""
        self._quantile, self._confidence = quantile, confidence

    def possible(self, candidate: Candidate, uncached_tokens: int, load: Load, now_ps: int) -> Possible:
        """What is possible beside a load."""
        service_time = self._service_time
        if service_time is None:
            return Possible(now_ps, now_ps, None)
        first_ps = now_ps + service_time.first_token_ps(uncached_tokens, candidate.prompt_tokens, load)
        token_ps = service_time.token_ps(load)
        output_tokens = None
        if candidate.deadline_ps is not None and token_ps > 0:
            output_tokens = max(0, (candidate.deadline_ps - first_ps) // token_ps + 1)
        return Possible(first_ps, first_ps + (self._likely_tokens(candidate) - 1) * token_ps, output_tokens)

    def missed(self, candidate: Candidate, possible: Possible) -> Rule | None:
        """The deadline that is missed even so."""
        due_ps = candidate.first_token_deadline_ps
        if due_ps is not None and possible.first_token_ps > due_ps:
            return Rule.FIRST_TOKEN_DEADLINE
        if candidate.deadline_ps is not None and possible.end_ps > candidate.deadline_ps:
            return Rule.DEADLINE
        return None

    def latest_start(self, candidate: Candidate, uncached_tokens: int) -> tuple[int, Rule] | None:
        """The last instant at which an idle engine would still be in time, and for which deadline; None without any."""
        first_ps, end_ps, _ = self.possible(candidate, uncached_tokens, Load(), 0)
        starts = []
        if candidate.first_token_deadline_ps is not None:
            starts.append((candidate.first_token_deadline_ps - first_ps, Rule.FIRST_TOKEN_DEADLINE))
        if candidate.deadline_ps is not None:
            starts.append((candidate.deadline_ps - end_ps, Rule.DEADLINE))
        return min(starts, default=None)

    def work(self, case: Case, need: Need, load: Load) -> int:
        """What a request takes of an instance, in block picoseconds: its blocks for as long as it likely decodes beside what does so now, and
        the whole pool for the time of its prefill, which all others wait for. 0 without a service time."""
        service_time, candidate = self._service_time, case.candidate
        if service_time is None:
            return 0
        output_tokens = self._lengths.mean(candidate) or case.forecast.tokens
        blocks = need.blocks(candidate.prompt_tokens + output_tokens // 2, candidate.branches)
        prefill_ps = service_time.first_token_ps(case.uncached_tokens, candidate.prompt_tokens, Load())
        return blocks * output_tokens * service_time.token_ps(load) + case.limit_blocks * prefill_ps

    def _likely_tokens(self, candidate: Candidate) -> int:
        likely = self._lengths.at(candidate, self._quantile, self._confidence)
        return likely.tokens if likely.observations else 1
