"""Requests as they end, counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vramledger.gateway.admitter import Ended, Kind
from vramledger.gateway.metrics import table
from vramledger.gateway.metrics.metric import Series
from vramledger.gateway.metrics.tallies import HistogramTally, Names, Tally
from vramledger.gateway.record import RequestRecord

if TYPE_CHECKING:
    from vramledger.gateway.messages import RequestHead

S = 1e-9
RULES = 64
MODELS = 32
TENANTS = 256
COMPLETED = str(Ended.COMPLETED.value)
KINDS = {kind: str(kind.value) for kind in Kind}
CODES = {code: (str(code),) for code in range(100, 600)}


class RequestMetrics:
    """An observer. Tenants come from the configuration. Models are what clients write, so a name becomes a label only when a request
    for it was completed, at most `MODELS` of them unless they are given; all others are one."""

    def __init__(
        self, *, tenants: Sequence[str] = (), models: Sequence[str] = (), instances: Sequence[str] = ()
    ) -> None:
        self._tenants = Names(TENANTS + len(tenants), tuple(tenants))
        self._models = Names(MODELS, tuple(models))
        self._models_given = bool(models)
        self._rules = Names(RULES)
        self._instances = tuple(instances)
        self.admissions = Tally(table.ADMISSIONS)
        self.requests = Tally(table.REQUESTS)
        self.answers = Tally(table.ANSWERS)
        self.tenant_requests = Tally(table.TENANT_REQUESTS)
        self.tenant_prompt = Tally(table.TENANT_PROMPT)
        self.tenant_cached = Tally(table.TENANT_CACHED)
        self.tenant_output = Tally(table.TENANT_OUTPUT)
        self.model_requests = Tally(table.MODEL_REQUESTS)
        self.prompt = Tally(table.PROMPT)
        self.cached = Tally(table.CACHED)
        self.output = Tally(table.OUTPUT)
        self.reserved = Tally(table.RESERVED)
        self.counted = Tally(table.COUNTED)
        self.answer_bytes = Tally(table.ANSWER_BYTES)
        self.tool_turns = Tally(table.TOOL_TURNS)
        self.queue_time = HistogramTally(table.QUEUE_TIME)
        self.ttft = HistogramTally(table.TTFT)
        self.tpot = HistogramTally(table.TPOT)
        self.duration = HistogramTally(table.DURATION)
        self.decision = HistogramTally(table.DECISION)
        self.reservation_error = HistogramTally(table.RESERVATION_ERROR)
        self.count_error = HistogramTally(table.COUNT_ERROR)
        self.release = HistogramTally(table.RELEASE)
        self.blocks_return = HistogramTally(table.BLOCKS_BACK)
        self.tool_pause = HistogramTally(table.TOOL_PAUSE)

    def arrived(self, record: RequestRecord, head: RequestHead) -> None: ...

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None: ...

    def ended(self, record: RequestRecord) -> None:
        facts, outcome, (word, rule) = record.facts, record.outcome, record.admission
        completed = outcome == COMPLETED
        name = (
            self._models.learn(facts.model)
            if completed and not self._models_given
            else self._models.of(facts.model)
        )
        model, tenant = (name,), (self._tenants.learn(record.tenant),)
        self.admissions.add((word, self._rules.learn(rule)))
        self.requests.add((KINDS[facts.kind], outcome))
        self.model_requests.add((name, outcome))
        self.tenant_requests.add((tenant[0], outcome))
        if record.status:
            self.answers.add(CODES.get(record.status, ("other",)))
        if facts.prompt is not None:
            self.counted.add((facts.prompt.source.value,))
        if record.asked_ns:
            self.decision.add((), (record.decided_ns - record.asked_ns) * S)
            self.queue_time.add((word,), (record.queue_ns or 0) * S)
        if record.admitted_ns:
            self._admitted(record, model, tenant)
        if completed:
            self.duration.add(model, (record.finished_ns - facts.arrival_ns) * S)
        if facts.after_tool:
            known = record.tool_pause_ns is not None
            self.tool_turns.add((record.prefix_kept or "unknown" if known else "new",))
            if record.tool_pause_ns is not None:
                self.tool_pause.add((), record.tool_pause_ns * S)

    def _admitted(self, record: RequestRecord, model: tuple[str], tenant: tuple[str]) -> None:
        facts, ending = record.facts, record.ending
        reserved = record.reserved_output_tokens
        if reserved is not None:
            self.reserved.add(model, reserved * facts.branches)
        if record.answer_bytes:
            self.answer_bytes.add((), record.answer_bytes)
        if record.finished_ns and record.released_ns:
            self.release.add((), (record.released_ns - record.finished_ns) * S)
        if record.first_token_ns:
            self.ttft.add(model, (record.first_token_ns - facts.arrival_ns) * S)
        if ending is None:
            return
        prompt, output = ending.prompt_tokens, ending.output_tokens
        if prompt is not None:
            self.prompt.add(model, prompt)
            self.tenant_prompt.add(tenant, prompt)
            if facts.prompt is not None and facts.branches == 1:
                self.count_error.add((facts.prompt.source.value,), prompt - facts.prompt.tokens)
        if ending.cached_prompt_tokens is not None:
            self.cached.add(model, ending.cached_prompt_tokens)
            self.tenant_cached.add(tenant, ending.cached_prompt_tokens)
        if output is None:
            return
        self.output.add(model, output)
        self.tenant_output.add(tenant, output)
        if ending.how is not Ended.COMPLETED:
            return
        if reserved is not None and not ending.counted and facts.kind is not Kind.EMBEDDING:
            self.reservation_error.add((), output // facts.branches - reserved)
        if record.first_token_ns and output > 1 and facts.branches == 1:
            self.tpot.add(model, (record.finished_ns - record.first_token_ns) * S / (output - 1))

    def blocks_back(self, record: RequestRecord) -> None:
        """The engine was seen to hold an ended request's blocks no more."""
        place = record.instance or 0
        instance = self._instances[place] if place < len(self._instances) else str(place)
        self.blocks_return.add((instance,), (record.blocks_back_ns - record.finished_ns) * S)

    def series(self) -> list[Series]:
        tallies = vars(self).values()
        return [tally.series() for tally in tallies if isinstance(tally, Tally | HistogramTally)]
