"""docs/admission.md: what each policy does, by trace, engine and load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from tools.admission_table.cases import ALONE, DEFAULT, NAMES, TRUE_LENGTHS, Case, Figures
from tools.admission_table.scenes import SCENES, Scene

from vramledger.simulation.settings import Scheduling

AIM_LOAD = 1.3
AIM_GAIN = 1.3
HARM = 0.02


class Study(Struct, frozen=True, kw_only=True):
    """Everything that was run. `per_s` is the capacity by scene, `bounds` the largest goodput by scene and load."""

    cases: tuple[tuple[Case, Figures], ...]
    per_s: Mapping[str, float]
    bounds: Mapping[str, Mapping[float, float]]


class Verdict(Struct, frozen=True, kw_only=True):
    """The default in front of an engine against the engine alone, on one trace with one kind of clients.

    `worst` is the smallest goodput over the engine's own over all loads (and `worst_load` where), `gain` and `preemptions` the
    goodput over it and (its, the engine's) preemptions at the aim's load.
    """

    scene: str
    scheduling: Scheduling
    stays: bool
    worst: float
    worst_load: float
    gain: float | None
    preemptions: tuple[int, int]
    failed: tuple[int, int]


def verdicts(study: Study) -> list[Verdict]:
    """One for each trace, engine and kind of clients that both were run for."""
    found: dict[tuple[str, Scheduling, bool], dict[str, dict[float, Figures]]] = {}
    for case, figures in study.cases:
        by_policy = found.setdefault((case.scene, case.scheduling, case.stays), {})
        by_policy.setdefault(case.policy, {})[case.load] = figures
    made = []
    for (scene, scheduling, stays), policies in found.items():
        alone, default = policies.get(ALONE, {}), policies.get(DEFAULT, {})
        loads = sorted(alone.keys() & default.keys())
        if not loads:
            continue
        ratios = [(over(default[load], alone[load]), load) for load in loads]
        worst, worst_load = min(ratios)
        at = AIM_LOAD if AIM_LOAD in loads else None
        pair = (default[at], alone[at]) if at is not None else None
        made.append(
            Verdict(
                scene=scene,
                scheduling=scheduling,
                stays=stays,
                worst=worst,
                worst_load=worst_load,
                gain=None if pair is None else over(*pair),
                preemptions=(0, 0) if pair is None else (pair[0].preemptions, pair[1].preemptions),
                failed=(0, 0) if pair is None else (pair[0].failed, pair[1].failed),
            )
        )
    return made


def over(one: Figures, other: Figures) -> float:
    """One goodput over another."""
    return one.goodput / other.goodput if other.good else 1.0 if not one.good else float("inf")


def page(study: Study, waits: Iterable[str] = ()) -> str:
    """The page's text."""
    found = verdicts(study)
    lines = [*_INTRODUCTION, "", *_verdict_table(found), "", *_missed(found), "", *_READING, ""]
    for scene in SCENES:
        if scene.name in study.per_s:
            lines += [*_scene(study, scene), ""]
    lines += [*_CONCLUSIONS, *_reachable(study), *_LIMITS, ""]
    lines += [*waits]
    return "\n".join(lines).rstrip() + "\n"


def _verdict_table(rows: Sequence[Verdict]) -> Iterator[str]:
    yield "| trace | engine | clients | worst loss (at load) | goodput at 1.3 | preemptions at 1.3 | failed at 1.3 |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        worst = "none" if row.worst >= 1 else f"{1 - row.worst:.1%} ({row.worst_load:g})"
        gain = "-" if row.gain is None else f"{row.gain:.2f} times"
        yield (
            f"| {row.scene} | {NAMES[row.scheduling]} | {'stay' if row.stays else 'leave'} | {worst} | {gain} "
            f"| {row.preemptions[0]} of {row.preemptions[1]} | {row.failed[0]} of {row.failed[1]} |"
        )


def _missed(rows: Sequence[Verdict]) -> Iterator[str]:
    """Which rows miss an aim."""
    harmed = [
        f"{_who(row)} ({1 - row.worst:.1%} at load {row.worst_load:g})"
        for row in rows
        if 1 - row.worst > HARM
    ]
    short = [_who(row) for row in rows if row.gain is not None and row.gain < AIM_GAIN]
    yield f"More than {HARM:.0%} is lost by: {'; '.join(harmed) or 'none'}. Why is below."
    yield f"Less than {AIM_GAIN:g} times is gained by: {'; '.join(short) or 'none'}; how much could be is below, too."


def _who(row: Verdict) -> str:
    return f"{row.scene}, {NAMES[row.scheduling]}, clients that {'stay' if row.stays else 'leave'}"


def _scene(study: Study, scene: Scene) -> Iterator[str]:
    loads = sorted({case.load for case, _ in study.cases})
    yield f"## {scene.title}"
    yield ""
    yield (
        f"{scene.shown.count} {'sessions' if scene.is_of_sessions else 'requests'} from number {scene.shown.first:,} on, a pool of "
        f"{scene.blocks * scene.block_tokens:,} tokens in blocks of {scene.block_tokens}; first token within {scene.first_token_s} s, then one at "
        f"least every {scene.token_ms} ms. Load 1 is {study.per_s[scene.name]:.2f} requests a second."
    )
    for stays in (False, True):
        rows = _rows(study, scene, stays=stays)
        if not rows:
            continue
        yield ""
        yield (
            "Clients that stay after their deadline (it is known, and nothing ends because of it):"
            if stays
            else "Clients that leave when their deadline has passed without a first token:"
        )
        yield ""
        yield f"| engine | in front of it | {' | '.join(f'load {load:g}' for load in loads)} |"
        yield f"| --- | --- | {' | '.join('---' for _ in loads)} |"
        for (scheduling, policy), by_load in rows.items():
            cells = [_cell(by_load[load]) if load in by_load else "-" for load in loads]
            yield f"| {NAMES[scheduling]} | {'nothing' if policy == ALONE else policy} | {' | '.join(cells)} |"
        if not stays:
            bounds = study.bounds[scene.name]
            yield f"| any | bound of a long run | {' | '.join(f'{bounds[load]:.1%}' for load in loads)} |"


def _reachable(study: Study) -> Iterator[str]:
    """How much there is to gain for clients that leave, at the aim's load."""
    yield "| trace | vLLM alone | bound | at most | default | true lengths |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for scene in SCENES:
        if scene.name not in study.per_s or AIM_LOAD not in study.bounds[scene.name]:
            continue
        rows = _rows(study, scene, stays=False)
        found = [
            rows.get((Scheduling.VLLM, policy), {}).get(AIM_LOAD) for policy in (ALONE, DEFAULT, TRUE_LENGTHS)
        ]
        alone, default, known = (None if one is None else one.goodput for one in found)
        if alone is None or default is None:
            continue
        bound = study.bounds[scene.name][AIM_LOAD]
        shown = "-" if known is None else f"{known:.1%}"
        yield f"| {scene.name} | {alone:.1%} | {bound:.1%} | {bound / alone:.2f} times | {default:.1%} | {shown} |"


def _rows(study: Study, scene: Scene, *, stays: bool) -> dict[tuple[Scheduling, str], dict[float, Figures]]:
    rows: dict[tuple[Scheduling, str], dict[float, Figures]] = {}
    for case, figures in study.cases:
        if case.scene == scene.name and case.stays == stays:
            rows.setdefault((case.scheduling, case.policy), {})[case.load] = figures
    return rows


def _cell(one: Figures) -> str:
    lost = f"+{one.failed} failed" if one.failed else ""
    return f"**{one.goodput:.1%}** {one.preemptions}{lost} {one.queue_p99_s:.1f}/{one.first_p99_s:.1f}"


_INTRODUCTION = (
    "# Admission: which policy where",
    "",
    "An admission policy stands in front of an engine's queue and decides which requests go in, wait or are refused",
    "(`vramledger.admission`; the gateway and the simulator run the same object). This page shows by simulation what that does, and",
    "what it does not, and is written by `make admission-table`.",
    "",
    "The default (`admission.defaults`) depends on what an engine does when its pool is full, and on the goal. For deadlines:",
    "",
    "- an engine that preempts (vLLM, SGLang, TensorRT-LLM with MAX_UTILIZATION): room for the output that four of five requests like it",
    "  do not exceed is reserved, as learned from those that ended; requests go in by arrival as long as all that wait can be in time, and",
    "  where not all can, those with the most work go behind (Moore's rule); a request that would be late even if it went in now is refused;",
    "- an engine that fails requests (llama.cpp with a unified KV) or that itself reserves everything (TensorRT-LLM's default): the",
    "  client's bound is reserved, with the same order.",
    "",
    "For throughput alone, an engine that preempts is only kept from admitting into the last 2 % of the pool: to hold back more gains",
    "nothing there (in a closed burst of the conversation trace the engine alone takes 45.7 s with 100 preemptions, so kept 45.6 s with 34,",
    "with learned lengths reserved 46.7 s with 10, and with the bound reserved 63.9 s with none).",
    "",
    "## In short",
    "",
    "The default in front of each engine against that engine alone: the largest relative loss of goodput over loads from 0.5 to 2, and goodput and",
    f"preemptions at load 1.3. The aims: never lose more than {HARM:.0%}, and at load {AIM_LOAD:g} at least {AIM_GAIN:g} times the goodput",
    "with under a tenth of the preemptions.",
)

_READING = (
    "## How to read the tables",
    "",
    "Goodput is the share of all offered requests that got their first token in time and then tokens fast enough. Each cell has **goodput**, the",
    "engine's preemptions (and requests that it failed), and the 99th percentiles of the time in a queue and to the first token in seconds, over",
    "those that got so far. Load 1 is the rate at which vLLM's rules alone finish the same requests when all are there at once, so it is what the",
    "engine can do when it never idles, whatever the deadlines; the same rate is load 1 for every engine. Arrivals keep the trace's rhythm, closer",
    "together or further apart. Requests name a bound of their output that is far above what they generate, as clients do. The engine is one of",
    "about an 8B model on an H100 (assumed step times, not a measurement), with a pool that is small for what it computes.",
    "",
    "Two kinds of clients: those that leave when their deadline has passed, which unburdens an engine that has no admission at all, and those that",
    "stay, so that an engine alone serves late what nobody counts. Settings were chosen on other parts of the traces than those shown here.",
    "",
    "*True lengths* is the same policy told what each request will generate: what better forecasts could still gain. The *bound* holds for",
    "any order of admission in front of vLLM's rules in a long run of the same mix (`tools/admission_table/bound.py`); a short run may end above it,",
    "for its queue is still served after the last arrival.",
    "",
)

_CONCLUSIONS = (
    "## Where it helps, and where not",
    "",
    "- **Engines that fail requests** (llama.cpp with a unified KV): by far the most. What runs is never ended for want of room, at any load.",
    "- **Clients that stay** after their deadline: the engine alone serves late what nobody counts any more, and from load 1 on its queue only grows.",
    "  Refusing at once what cannot be in time, and putting those with the most work behind where not all can be, keeps goodput near what it can do:",
    "  the aim at load 1.3 is met on the conversation and on the agentic trace. (Mooncake's queue is still short at load 1.3 in so few requests.)",
    "- **Clients that leave** at their deadline already do that to an engine that preempts. Then the default is about equal to the engine alone",
    "  around load 1.3, ahead where requests differ much in size (Mooncake), and it takes away the preemptions, which cost little there. The aim of",
    "  1.3 times the goodput at load 1.3 cannot be met for such clients:",
    "",
)

_LIMITS = (
    "",
    "- **Agents whose clients leave, beyond load 1.3**: the default loses to the engine alone. A prompt of 260,000 or 450,000 tokens that is not",
    "  cached cannot be read within 10 s. The engine alone begins it anyway, its client leaves, and what was read stays in the cache, so that",
    "  the session's next turn is in time; a policy that never begins what cannot be in time refuses that turn too, and each after it. Give such",
    "  sessions a deadline that their first turn can meet.",
    "- **Reserving the client's bound** in front of an engine that preempts loses up to a quarter of the goodput between loads 0.8 and 1.3, and the",
    "  strict bound of the *risk* policy more: both are for who must not evict.",
    "- **Preemptions are no measure of harm**: the engine alone has the most and is among the best for clients that leave.",
    "- A part of a trace is a few hundred requests or fewer: differences of one or two in a hundred are within what another order of events makes.",
)
