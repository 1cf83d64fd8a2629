"""Admission policies of the tests: small, and strict about what they are told."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.gateway.admitter import Decision, Ending, RequestFacts, Verdict

ADMIT = Decision(verdict=Verdict.ADMIT, rule="fits")


class Places:
    """Admits `most` requests at once and queues the others in turn. A request it does not know must not be released."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held: set[int] = set()
        self.line: list[int] = []
        self.endings: dict[int, Ending] = {}
        self.facts: dict[int, RequestFacts] = {}
        self.streamed: dict[int, int] = {}
        self.most_held = 0

    def decide(self, facts: RequestFacts, now_ns: int) -> Decision:
        assert facts.number not in self.facts
        self.facts[facts.number] = facts
        if (facts.max_output_tokens or 0) > 1_000_000:
            return Decision(verdict=Verdict.NEVER_FITS, rule="never-fits", message="longer than the pool")
        if len(self.held) < self.most and not self.line:
            return self._admitted(facts.number)
        self.line.append(facts.number)
        return Decision(verdict=Verdict.QUEUE, rule="places", numbers={"held": len(self.held)})

    def reconsider(self, now_ns: int) -> Iterator[tuple[int, Decision]]:
        while self.line and len(self.held) < self.most:
            number = self.line.pop(0)
            yield number, self._admitted(number)

    def progress(self, number: int, output_tokens: int, now_ns: int) -> None:
        assert number in self.held
        self.streamed[number] = output_tokens

    def release(self, number: int, ending: Ending, now_ns: int) -> None:
        assert number not in self.endings, "released twice"
        self.endings[number] = ending
        if number in self.held:
            self.held.remove(number)
        else:
            self.line.remove(number)

    def knows(self, requests: int) -> bool:
        return len(self.facts) == requests

    def _admitted(self, number: int) -> Decision:
        self.held.add(number)
        self.most_held = max(self.most_held, len(self.held))
        return ADMIT


class Says:
    """Answers everything alike."""

    def __init__(self, decision: Decision | Exception) -> None:
        self.decision = decision

    def decide(self, facts: RequestFacts, now_ns: int) -> Decision:
        if isinstance(self.decision, Exception):
            raise self.decision
        return self.decision

    def reconsider(self, now_ns: int) -> list[tuple[int, Decision]]:
        return []

    def progress(self, number: int, output_tokens: int, now_ns: int) -> None: ...

    def release(self, number: int, ending: Ending, now_ns: int) -> None: ...
