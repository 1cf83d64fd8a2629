"""The admission policy behind the gateway's desk: which engine a request goes to, whether it goes in, and that it leaves once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission
from vramledger.admission.decision import Decision as PolicyDecision
from vramledger.admission.policy import Policy
from vramledger.gateway.admitter import Decision, Ended, Ending, RequestFacts, Verdict
from vramledger.gateway.live.candidates import PS_PER_NS, Cohorts, decision_of
from vramledger.gateway.live.events import TokensPerEvent
from vramledger.gateway.live.instance import Condition, Instance
from vramledger.gateway.live.routing import chosen
from vramledger.gateway.snapshot import InstanceState
from vramledger.units import ceil_div

DOWN_RETRY_MS = 5_000


class _Entry:
    """A request that waits for an engine or is with one. `policy` is the one that has it, which the instance may have given up since."""

    __slots__ = (
        "admitted_ns",
        "candidate",
        "credited_tokens",
        "decode_seqs",
        "facts",
        "generated_tokens",
        "instance",
        "is_gone",
        "policy",
        "work_tokens",
    )

    def __init__(self, facts: RequestFacts, candidate: Candidate, instance: Instance) -> None:
        self.facts = facts
        self.candidate = candidate
        self.instance = instance
        self.policy: Policy = instance.policy
        self.admitted_ns: int | None = None
        self.generated_tokens = 0
        self.work_tokens = 0
        self.credited_tokens = 0
        self.decode_seqs = 0
        self.is_gone = False
        """The engine that had it is gone, and its reservation with it; its release is still to come."""


class PolicyAdmitter:
    """A `gateway.admitter.Admitter` over instances, each with a policy of its own.

    A request goes to one of them at its arrival; one that waits for an engine that dies is decided anew among the others.
    """

    def __init__(self, instances: Sequence[Instance]) -> None:
        self.instances = list(instances)
        self._entries: dict[int, _Entry] = {}
        self._cohorts = Cohorts()
        self._per_event = TokensPerEvent()
        self._reopened = False

    @property
    def open_requests(self) -> int:
        """Requests that wait or were admitted, and have not been released."""
        return len(self._entries)

    def instance_states(self, now_ns: int) -> tuple[InstanceState, ...]:
        """The instances in numbers, for whoever shows them."""
        return tuple(instance.snapshot(now_ns) for instance in self.instances)

    def decide(self, facts: RequestFacts, now_ns: int) -> Decision:
        return self._decide(facts, now_ns, [one for one in self.instances if one.takes_new])

    def _decide(self, facts: RequestFacts, now_ns: int, among: list[Instance]) -> Decision:
        if not among:
            return self._unavailable()
        cohort = self._cohorts.of(facts)
        options = [(one, one.candidate(facts, cohort)) for one in among]
        instance, candidate = chosen(options, now_ns)
        entry = _Entry(facts, candidate, instance)
        work_tokens, decode_seqs = entry.policy.load.prefill_tokens, entry.policy.load.decode_seqs
        decision = entry.policy.at_arrival(candidate, instance.view(now_ns), now_ns * PS_PER_NS)
        if decision.answer is not Admission.REJECT:
            self._entries[facts.number] = entry
        if decision.answer is Admission.ACCEPT:
            self._let_in(entry, decision, work_tokens, decode_seqs, now_ns)
        if decision.answer is not Admission.REJECT:
            instance.keep_pace(now_ns)
            instance.want(now_ns)
        return self._told(instance, decision, candidate, now_ns)

    def reconsider(self, now_ns: int) -> list[tuple[int, Decision]]:
        told: list[tuple[int, Decision]] = []
        for instance in self.instances:
            is_asked = instance.is_open and instance.policy.queued_count
            if is_asked and instance.takes_new and not instance.is_suspect:
                told += self._turns(instance, now_ns)
                instance.keep_pace(now_ns)
                instance.want(now_ns)
        told += self._moved(now_ns)
        return told

    def _turns(self, instance: Instance, now_ns: int) -> Iterator[tuple[int, Decision]]:
        policy = instance.policy
        work_tokens, decode_seqs = policy.load.prefill_tokens, policy.load.decode_seqs
        for decision in policy.at_scheduling(instance.view(now_ns), now_ns * PS_PER_NS):
            entry = self._entries[decision.identity]
            if decision.answer is Admission.ACCEPT:
                self._let_in(entry, decision, work_tokens, decode_seqs, now_ns)
                work_tokens += decision.uncached_tokens
                decode_seqs += entry.candidate.branches
            else:
                del self._entries[decision.identity]
            yield decision.identity, self._told(instance, decision, entry.candidate, now_ns)

    def _moved(self, now_ns: int) -> Iterator[tuple[int, Decision]]:
        """Those that wait for an engine that takes nothing any more, decided anew."""
        left = any(one.is_open and one.policy.queued_count and not one.takes_new for one in self.instances)
        if not left and not self._reopened:
            return
        self._reopened = False
        for number, entry in list(self._entries.items()):
            if entry.admitted_ns is not None:
                continue
            instance = entry.instance
            if instance.takes_new and entry.policy is instance.policy:
                continue
            entry.policy.at_end(number, 0, is_finished=False, now_ps=now_ns * PS_PER_NS)
            del self._entries[number]
            yield number, self.decide(entry.facts, now_ns)

    def progress(self, number: int, output_tokens: int, now_ns: int) -> None:
        entry = self._entries[number]
        if entry.is_gone:
            return
        tokens = self._per_event.tokens(output_tokens)
        entry.generated_tokens = self._of_one_branch(entry, tokens)
        entry.policy.at_progress(number, entry.generated_tokens, now_ns * PS_PER_NS)
        if entry.policy is entry.instance.policy:
            entry.instance.prefixes.computed(number)

    def release(self, number: int, ending: Ending, now_ns: int) -> None:
        entry = self._entries.pop(number)
        instance = entry.instance
        if entry.admitted_ns is None:
            entry.policy.at_end(number, 0, is_finished=False, now_ps=now_ns * PS_PER_NS)
            if entry.policy is instance.policy:
                instance.keep_pace(now_ns)
                instance.want(now_ns)
            return
        self._per_event.learn(ending)
        if ending.how is Ended.COMPLETED:
            self._cohorts.served(entry.facts)
        if not entry.is_gone:
            self._leave(entry, ending, now_ns)
        if ending.how is Ended.UPSTREAM_FAILED:
            instance.suspect()

    def cleared(self, instance: Instance, now_ns: int) -> None:
        """The engine was started anew: what was admitted to the one before holds nothing any more. Each is still released once."""
        for entry in self._entries.values():
            is_of_it = entry.instance is instance and entry.admitted_ns is not None and not entry.is_gone
            if is_of_it and entry.admitted_ns is not None and entry.admitted_ns < instance.dead_before_ns:
                self._leave(entry, Ending(how=Ended.UPSTREAM_FAILED), now_ns)
                entry.is_gone = True

    def reopened(self) -> None:
        """An instance has another policy than before."""
        self._reopened = True

    def healthy_instance(self) -> int:
        up = [one for one in self.instances if one.condition is Condition.UP]
        return up[0].place if up else 0

    def _let_in(
        self, entry: _Entry, decision: PolicyDecision, prefill_tokens: int, decode_seqs: int, now_ns: int
    ) -> None:
        entry.admitted_ns = now_ns
        entry.work_tokens = prefill_tokens + decision.uncached_tokens
        entry.decode_seqs = decode_seqs
        entry.credited_tokens = entry.candidate.prompt_tokens - decision.uncached_tokens
        entry.instance.prefixes.let_in(entry.facts.number, entry.candidate)
        if not entry.facts.stream:
            entry.instance.silent += 1

    def _leave(self, entry: _Entry, ending: Ending, now_ns: int) -> None:
        instance, policy = entry.instance, entry.policy
        generated_tokens = entry.generated_tokens
        if ending.output_tokens is not None:
            tokens = ending.output_tokens
            if ending.counted:
                tokens = self._per_event.tokens(tokens)
            generated_tokens = self._of_one_branch(entry, tokens)
        is_finished = ending.how is Ended.COMPLETED and ending.output_tokens is not None
        is_current = policy is instance.policy
        if is_current:
            instance.going(now_ns)
        held_blocks = policy.held_blocks
        policy.at_end(
            entry.facts.number, generated_tokens, is_finished=is_finished, now_ps=now_ns * PS_PER_NS
        )
        if not is_current:
            return
        instance.pace.released(held_blocks - policy.held_blocks, now_ns)
        instance.keep_pace(now_ns)
        if not entry.facts.stream:
            instance.silent -= 1
        instance.want(now_ns)
        self._learn_prefixes(entry, ending, generated_tokens)
        self._learn_times(entry, ending, now_ns)

    def _learn_prefixes(self, entry: _Entry, ending: Ending, generated_tokens: int) -> None:
        prefixes, policy = entry.instance.prefixes, entry.policy
        if ending.how is Ended.COMPLETED:
            prefixes.computed(entry.facts.number)
        prefixes.left(entry.facts.number, entry.candidate, generated_tokens, held_blocks=policy.most_blocks)
        if ending.how is Ended.COMPLETED:
            prefixes.confirmed(entry.credited_tokens, ending.cached_prompt_tokens)

    def _learn_times(self, entry: _Entry, ending: Ending, now_ns: int) -> None:
        if ending.how is not Ended.COMPLETED or ending.first_output_ns is None or entry.admitted_ns is None:
            return
        entry.instance.times.first_token(entry.work_tokens, ending.first_output_ns - entry.admitted_ns)
        if ending.output_tokens is not None and ending.output_tokens >= entry.candidate.branches:
            tokens = self._of_one_branch(entry, ending.output_tokens) - 1
            entry.instance.times.tokens(entry.decode_seqs, tokens, now_ns - ending.first_output_ns)

    def _of_one_branch(self, entry: _Entry, tokens: int) -> int:
        """Never fewer than before, never more than what bounds it."""
        one = ceil_div(tokens, max(1, entry.facts.branches))
        return max(entry.generated_tokens, min(one, entry.candidate.max_output_tokens))

    def _told(
        self, instance: Instance, decision: PolicyDecision, candidate: Candidate, now_ns: int
    ) -> Decision:
        pace_ms, blocks = None, 0
        if decision.answer is not Admission.ACCEPT:
            blocks = ceil_div(decision.queued_tokens, instance.block_tokens) + decision.need_blocks
            pace_ms = instance.pace.wait_ms(blocks, now_ns)
        return decision_of(
            decision,
            instance=instance.place,
            pace_ms=pace_ms,
            is_beyond=blocks > decision.limit_blocks,
            numbers={
                "prompt_tokens": candidate.prompt_tokens,
                "foreign_blocks": instance.reconciled.foreign_blocks,
                "block_size": instance.block_tokens,
            },
        )

    def _unavailable(self) -> Decision:
        states = {one.condition for one in self.instances}
        opening = states == {Condition.OPENING}
        return Decision(
            verdict=Verdict.UNAVAILABLE,
            rule="engine-opening" if opening else "engine-down",
            message="the engine has not answered yet" if opening else "no engine takes requests now",
            retry_after_ms=DOWN_RETRY_MS,
            numbers={"instances": len(self.instances)},
        )
