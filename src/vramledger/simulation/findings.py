"""What a run says about memory: which of the six ways to run out threatens, when, and by how much.

The words are those of a diagnosis (`vramledger.diagnosis.terms.FailureClass`), so that a forecast and a failure can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.ledger import ByteRange, Phase
from vramledger.simulation.outcome import Run
from vramledger.simulation.settings import Scheduling, SimulationSettings
from vramledger.simulation.step_model import PS_PER_S, StepModel
from vramledger.simulation.summary import FULL, GroupSummary, PoolSummary
from vramledger.units import counted, format_bytes

WASTE = 0.10
"""The share of used blocks' room from which rounding counts as fragmentation."""
CLOSE = 0.95
"""The share of a device's memory from which a phase of the ledger counts as close."""
PREFILL_TOKENS = ("max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens", "n_ubatch")
"""Engines' own words for the tokens of one step, which a plan's activation is sized by."""


class Shortage(StrEnum):
    LOAD_TIME = "load-time"
    WARM_UP = "warm-up"
    PREFILL_SPIKE = "prefill-spike"
    DECODE_GROWTH = "decode-growth"
    FRAGMENTATION = "fragmentation"
    RECOVERY = "recovery"


class Level(StrEnum):
    """How near it is. `untold` is that nothing here can tell."""

    THREATENS = "threatens"
    CLOSE = "close"
    CLEAR = "clear"
    UNTOLD = "untold"


class Finding(Struct, frozen=True, kw_only=True):
    """One way to run out. `at_ps` is when it is first seen in the simulated time, -1 for never or no time."""

    shortage: Shortage
    level: Level
    summary: str
    at_ps: int = -1


def findings(
    run: Run,
    settings: SimulationSettings,
    requests: GroupSummary,
    pool: PoolSummary,
    plan: Plan | None = None,
) -> tuple[Finding, ...]:
    """One finding for each of the six, in the order of an instance's life."""
    return (
        _phase(Shortage.LOAD_TIME, Phase.LOAD, plan),
        _phase(Shortage.WARM_UP, Phase.WARMUP, plan),
        _prefill(settings, requests, plan),
        _decode(requests, pool, run),
        _fragmentation(pool),
        _recovery(run, settings, requests, pool, plan),
    )


def stalls(requests: GroupSummary, settings: SimulationSettings, pool: PoolSummary) -> tuple[str, ...]:
    """What can never be served, each as a sentence with the requests named: prompts that never fit, and livelock."""
    found = []
    if requests.never_fits:
        found.append(
            f"{counted(requests.never_fits, 'request')} can never be served ({_numbers(requests.never_fits_numbers, requests.never_fits)}): "
            f"longer than max_model_len {settings.scheduler.max_model_len:,} or than the whole pool of {pool.capacity_tokens:,} tokens"
            + (
                ""
                if settings.scheduler.chunked_prefill
                else f", or than a step of {settings.scheduler.max_num_batched_tokens:,}"
            )
        )
    if requests.livelocked:
        found.append(
            f"livelock: {counted(requests.livelocked, 'request')} would evict each other for ever "
            f"({_numbers(requests.livelocked_numbers, requests.livelocked)}) in a pool of {pool.capacity_tokens:,} tokens"
        )
    return tuple(found)


def refill_s(step: StepModel, tokens: int, step_tokens: int) -> float:
    """Seconds to prefill `tokens` anew in steps of `step_tokens`, nothing else running and attention's pairs left out."""
    whole, rest = divmod(tokens, max(step_tokens, 1))
    time_ps = whole * step.step_ps(tokens=step_tokens, decode_seqs=0, kv_tokens=0, pairs=0)
    if rest:
        time_ps += step.step_ps(tokens=rest, decode_seqs=0, kv_tokens=0, pairs=0)
    return time_ps / PS_PER_S


def _phase(shortage: Shortage, phase: Phase, plan: Plan | None) -> Finding:
    if plan is None or not plan.ranks:
        return _untold(shortage, "no plan: the ledger of this phase is not known")
    level, text = _occupied(plan, phase)
    return Finding(shortage=shortage, level=level, summary=text)


def _occupied(plan: Plan, phase: Phase) -> tuple[Level, str]:
    """The fullest rank's device in one phase of the ledger."""
    level, text, fullest = Level.CLEAR, "", -1.0
    for rank in plan.ranks:
        taken, total = rank.occupied(phase), rank.device_total_bytes
        share = taken.high / total
        if share > fullest:
            fullest = share
            level = _level(taken, total)
            text = f"{format_bytes(taken.expected)} (at most {format_bytes(taken.high)}) of {format_bytes(total)} in {phase.value}"
    return level, text


def _level(taken: ByteRange, total: int) -> Level:
    if taken.high > total:
        return Level.THREATENS
    return Level.CLOSE if taken.high > CLOSE * total else Level.CLEAR


def _prefill(settings: SimulationSettings, requests: GroupSummary, plan: Plan | None) -> Finding:
    """The largest prefill of one step against what the plan's activation is sized for."""
    scheduler, shortage = settings.scheduler, Shortage.PREFILL_SPIKE
    whole = not scheduler.chunked_prefill or scheduler.scheduling is Scheduling.STATIC_BATCH
    longest = requests.longest_prompt_tokens
    chunk = longest if whole else min(longest, scheduler.max_num_batched_tokens)
    step = max(longest, scheduler.max_num_batched_tokens) if whole else scheduler.max_num_batched_tokens
    said = f"longest prompt {longest:,} tokens; a step computes at most {chunk:,} of one prompt and {step:,} in all"
    if plan is None or not plan.ranks:
        return _untold(shortage, f"{said}; the activation memory is not known without a plan")
    sized = _sized_tokens(plan)
    level, text = _occupied(plan, Phase.PREFILL)
    if sized is not None and step > sized:
        return Finding(
            shortage=shortage,
            level=Level.THREATENS,
            summary=f"{said}; the plan's activation memory is sized for only {sized:,} tokens ({text})",
        )
    held = "" if sized is None else f"; the plan's activation memory is sized for {sized:,}"
    return Finding(shortage=shortage, level=level, summary=f"{said}{held}: {text}")


def _sized_tokens(plan: Plan) -> int | None:
    settings = dict(plan.inputs.settings)
    for name in PREFILL_TOKENS:
        value = settings.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _decode(requests: GroupSummary, pool: PoolSummary, run: Run) -> Finding:
    shortage, usable = Shortage.DECODE_GROWTH, max(pool.usable_blocks, 1)
    top = f"at most {pool.used_blocks.max / usable:.1%} of the pool in use"
    if requests.livelocked:
        return Finding(
            shortage=shortage,
            level=Level.THREATENS,
            at_ps=pool.first_full_ps,
            summary=f"livelock of {counted(requests.livelocked, 'request')}; {top}",
        )
    if requests.failed:
        return Finding(
            shortage=shortage,
            level=Level.THREATENS,
            at_ps=pool.first_full_ps,
            summary=f"{counted(requests.failed, 'request')} ended with an error: the slots together need more KV cells than there are; {top}",
        )
    full = f"{pool.full_ps / PS_PER_S / 60:,.1f} min above {FULL:.0%} of the blocks ({pool.full_share:.1%} of the time)"
    preemptions = sum(item.preemptions for item in run.counters)
    if preemptions:
        lost = sum(item.recomputed_tokens for item in run.counters)
        swapped = sum(item.swapped_out_tokens for item in run.counters)
        done = max(sum(item.computed_tokens for item in run.counters), 1)
        cost = f"{lost:,} tokens computed again ({lost / done:.1%})" + (
            f", {swapped:,} swapped out" if swapped else ""
        )
        return Finding(
            shortage=shortage,
            level=Level.THREATENS,
            at_ps=pool.first_full_ps,
            summary=f"{counted(preemptions, 'preemption')} of {counted(requests.preempted, 'request')}, {cost}; {full}",
        )
    if pool.first_full_ps >= 0:
        return Finding(
            shortage=shortage,
            level=Level.CLOSE,
            at_ps=pool.first_full_ps,
            summary=f"no preemption; {full}; up to {pool.waiting.max:,} waiting",
        )
    return Finding(shortage=shortage, level=Level.CLEAR, summary=f"no preemption; {top}")


def _fragmentation(pool: PoolSummary) -> Finding:
    shortage, waste = Shortage.FRAGMENTATION, pool.waste_tokens
    if waste is None:
        return _untold(shortage, "the pool has several groups: what last blocks waste is not sampled")
    share = waste.mean / max(waste.mean + pool.active_tokens.mean, 1.0)
    text = f"partly filled last blocks waste {waste.p95:,} tokens (p95), {share:.1%} of what is held; blocks of one size fragment in no other way"
    return Finding(shortage=shortage, level=Level.CLOSE if share > WASTE else Level.CLEAR, summary=text)


def _recovery(
    run: Run, settings: SimulationSettings, requests: GroupSummary, pool: PoolSummary, plan: Plan | None
) -> Finding:
    """A restart at the worst sampled moment: everybody who ran or waited comes back at once, to an empty cache."""
    shortage = Shortage.RECOVERY
    if not run.samples:
        return _untold(shortage, "no sample of the pool")
    worst = max(run.samples, key=lambda item: (item.logical_tokens, item.waiting, -item.at_ps))
    mean_prompt = requests.prompt_tokens // max(requests.offered, 1)
    tokens = worst.logical_tokens + worst.waiting * mean_prompt
    seconds = refill_s(settings.step, tokens, settings.scheduler.max_num_batched_tokens)
    aim_s = None if settings.slo.ttft_ms is None else settings.slo.ttft_ms / 1000
    over = tokens > pool.capacity_tokens
    text = (
        f"a restart at the fullest moment brings {counted(worst.running + worst.waiting, 'request')} and {counted(tokens, 'token')} back at once, "
        f"{'more than the pool holds' if over else f'{tokens / max(pool.capacity_tokens, 1):.0%} of the pool'}; "
        f"prefilling them anew takes {seconds:,.1f} s"
    )
    level = Level.CLOSE if over else Level.CLEAR
    if aim_s is not None and seconds > aim_s:
        level, text = Level.CLOSE, f"{text}, longer than the TTFT aim of {aim_s:g} s"
    if plan is not None and plan.ranks:
        held, ledger = _occupied(plan, Phase.RECOVERY)
        if held is Level.THREATENS:
            level = held
        text = f"{text}; {ledger}"
    return Finding(shortage=shortage, level=level, summary=text, at_ps=worst.at_ps)


def _untold(shortage: Shortage, text: str) -> Finding:
    return Finding(shortage=shortage, level=Level.UNTOLD, summary=text)


def _numbers(numbers: Sequence[int], count: int) -> str:
    text = ", ".join(f"{number}" for number in numbers)
    return f"number {text}" if count == 1 else f"numbers {text}{', ...' if count > len(numbers) else ''}"


def worst_first(found: Iterable[Finding]) -> Iterator[Finding]:
    """Findings as a page shows them: what threatens first, of equals in the order of an instance's life."""
    order = list(Level)
    yield from sorted(found, key=lambda item: order.index(item.level))
