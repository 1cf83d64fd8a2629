"""From a gateway's facts of a request to a candidate of the policy, and from the policy's decision to the gateway's. Pure."""

from __future__ import annotations

from typing import NamedTuple

from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission, Rule
from vramledger.admission.decision import Decision as PolicyDecision
from vramledger.engines.full_pool import WhenFull
from vramledger.gateway.admitter import Decision, RequestFacts, TokenSource, Verdict
from vramledger.gateway.live.capacity import Capacity
from vramledger.kvcache.blocks.layout import PoolLayout
from vramledger.units import ceil_div

PS_PER_NS = 1_000
PS_PER_MS = 1_000_000_000
MOST_COHORT_MODELS = 64
LEAST_RETRY_MS = 1_000
MOST_RETRY_MS = 600_000

COUNTED = frozenset((TokenSource.TOKEN_IDS, TokenSource.ENGINE, TokenSource.TOKENIZER))


class Cohorts:
    """Names of requests whose outputs are alike: by kind and model. Models count once the engine has served one under that name, and the first few
    only, for the names are the clients' to choose."""

    def __init__(self) -> None:
        self._models: set[str] = set()

    def of(self, facts: RequestFacts) -> str:
        model = facts.model if facts.model in self._models else ""
        return f"{facts.kind.value}/{model}"

    def served(self, facts: RequestFacts) -> None:
        if len(self._models) < MOST_COHORT_MODELS and len(facts.model) <= 256:
            self._models.add(facts.model)


class Sizes(NamedTuple):
    """Of an instance's pool: tokens of a block, of all blocks, and of those that admitted requests may hold."""

    block_tokens: int
    pool_tokens: int
    limit_tokens: int


def sizes_of(layout: PoolLayout, *, limit_blocks: int, safety_tokens: int) -> Sizes:
    block_tokens = layout.key_tokens
    return Sizes(
        block_tokens,
        layout.usable_blocks * block_tokens,
        max(1, limit_blocks * block_tokens - safety_tokens),
    )


def candidate_of(
    facts: RequestFacts, capacity: Capacity, sizes: Sizes, cohort: str, *, is_strict: bool
) -> Candidate:
    """`is_strict` reserves what a prompt has at the most where nobody counted it, else what it is expected to have.

    A prompt that nobody counted has at most its bytes, and is never taken for longer than the model allows: that is the engine's to say. The output
    ends where the model or the pool does. Of many prompts in one request as many run at once as may, and as have room unless the
    engine fails where they have none.
    """
    length = capacity.max_model_len
    block_tokens, pool_tokens, limit_tokens = sizes
    prompt, is_counted = _prompt_tokens(facts, is_strict=is_strict)
    if not is_counted:
        prompt = min(prompt, max(1, min(length, limit_tokens) - 1))
    room = max(1, min(length - prompt, limit_tokens - prompt))
    asked = facts.max_output_tokens
    if asked is None:
        output = room
    elif prompt + min(asked, length - prompt) > pool_tokens and is_counted:
        output = max(1, min(asked, length - prompt))  # never fits, which is the policy's to say
    else:
        output = max(1, min(asked, room))
    branches = min(facts.branches, capacity.max_running)
    if capacity.when_full is not WhenFull.FAIL:
        branches = min(branches, max(1, limit_tokens // (prompt + output)))
    return Candidate(
        identity=facts.number,
        prompt_tokens=prompt,
        max_output_tokens=output,
        keys=_keys(facts, block_tokens) if capacity.keeps_prefixes else (),
        branches=branches,
        tenant=facts.tenant,
        cohort=cohort,
        priority=facts.priority,
        sent_ps=facts.arrival_ns * PS_PER_NS,
        first_token_deadline_ps=_instant(facts, facts.first_token_within_ms),
        deadline_ps=_instant(facts, facts.within_ms),
    )


def _keys(facts: RequestFacts, block_tokens: int) -> tuple[int, ...]:
    """Of blocks as the engine has them, where theirs are whole multiples of those that were named. A chained identity stands for all before it."""
    prompt = facts.prompt
    if prompt is None or not prompt.key_tokens:
        return ()
    times, rest = divmod(block_tokens, prompt.key_tokens)
    return () if rest else prompt.keys[times - 1 :: times]


def _prompt_tokens(facts: RequestFacts, *, is_strict: bool) -> tuple[int, bool]:
    prompt = facts.prompt
    if prompt is None:
        return max(1, facts.prompt_bytes), False
    tokens = prompt.most_tokens if is_strict else prompt.tokens
    return max(1, tokens), prompt.source in COUNTED


def _instant(facts: RequestFacts, within_ms: int | None) -> int | None:
    return None if within_ms is None else facts.arrival_ns * PS_PER_NS + within_ms * PS_PER_MS


def decision_of(
    decision: PolicyDecision,
    *,
    instance: int,
    pace_ms: int | None,
    numbers: dict[str, int],
    is_beyond: bool = False,
) -> Decision:
    """`pace_ms` is when there may be room by the pace of late, for where the policy foretells nothing; and where `is_beyond`, for more waits than the
    whole pool holds, and the policy only foretells when what runs now has ended. `numbers` are added to the policy's."""
    verdict = _VERDICTS[decision.answer]
    wait_ms = None
    if decision.answer is not Admission.ACCEPT:
        if decision.retry_at_ps is not None and decision.retry_at_ps > decision.at_ps:
            wait_ms = ceil_div(decision.retry_at_ps - decision.at_ps, PS_PER_MS)
            if is_beyond:
                wait_ms = max(wait_ms, pace_ms or 0)
        else:
            wait_ms = pace_ms
    if decision.rule is Rule.NEVER_FITS:
        verdict, wait_ms = Verdict.NEVER_FITS, None
    retry_after_ms = None
    if verdict is Verdict.REJECT:
        retry_after_ms, wait_ms = min(max(wait_ms or 0, LEAST_RETRY_MS), MOST_RETRY_MS), None
    return Decision(
        verdict=verdict,
        rule=decision.rule.value,
        message=decision.why(),
        retry_after_ms=retry_after_ms,
        wait_ms=wait_ms,
        numbers=_numbers(decision) | numbers,
        instance=instance,
    )


_VERDICTS = {
    Admission.ACCEPT: Verdict.ADMIT,
    Admission.QUEUE: Verdict.QUEUE,
    Admission.REJECT: Verdict.REJECT,
}


def _numbers(decision: PolicyDecision) -> dict[str, int]:
    numbers = {
        "uncached_tokens": decision.uncached_tokens,
        "reserved_output_tokens": decision.reserved_output_tokens,
        "observations": decision.observations,
        "need_blocks": decision.need_blocks,
        "free_blocks": decision.free_blocks,
        "peak_blocks": decision.peak_blocks,
        "limit_blocks": decision.limit_blocks,
        "queued_requests": decision.queued_requests,
        "queued_tokens": decision.queued_tokens,
    }
    if decision.exceeded_probability is not None:
        numbers["exceeded_ppm"] = round(decision.exceeded_probability * 1_000_000)
    for name, at_ps in (
        ("possible_first_token_ms", decision.possible_first_token_ps),
        ("possible_end_ms", decision.possible_end_ps),
    ):
        if at_ps is not None:
            numbers[name] = max(0, at_ps - decision.at_ps) // PS_PER_MS
    if decision.possible_output_tokens is not None:
        numbers["possible_output_tokens"] = decision.possible_output_tokens
    return numbers
