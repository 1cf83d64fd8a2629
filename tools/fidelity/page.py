"""The page docs/fidelity.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tools.fidelity.replay import Replay
from tools.fidelity.tables import (
    AIM_PERCENT,
    AIMED,
    Report,
    admission,
    count,
    counts,
    curve_words,
    missed_aims,
    seconds,
    table,
)

from vramledger.simulation.step_model import StepModel

SCHEDULER_HEADING = "## vLLM's own scheduler, step by step"


def page(reports: Sequence[Report], scheduler: str) -> str:
    """docs/fidelity.md."""
    return "\n".join(_page(reports, scheduler)) + "\n"


def _page(reports: Sequence[Report], scheduler: str) -> Iterator[str]:
    yield "# Fidelity: simulated runs against measured ones"
    yield ""
    yield (
        "Made by `make fidelity` from the runs in data/traces/vllm-measured-runs (`DATA=DIR` for others of the same layout). "
        "For each run: the KV pool from the model's name, the card and the flags alone; then, with the blocks that the engine "
        "recorded, the whole run simulated under a step model that was fitted to the first and last tokens of the first half of "
        "the requests. Nothing measured of the other half is used. Times count from when the client sent a request, and all "
        "arrivals are those of the client."
    )
    yield ""
    yield (
        f"The aim is {AIM_PERCENT:g} % on the whole run for {', '.join(AIMED[:-1])} and {AIMED[-1]}: "
        + ("met in every run." if not (missed := missed_aims(reports)) else f"missed by {'; '.join(missed)}.")
    )
    yield ""
    yield "| KV blocks | low | expected | high | with the recorded total | recorded | |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for report in reports:
        pool = report.pool
        verdict = {None: "not recorded", True: "inside", False: "OUTSIDE"}[pool.is_inside]
        yield (
            f"| {report.name} | {pool.low:,} | {pool.expected:,} | {pool.high:,} | {count(pool.expected_with_recorded_total)} "
            f"| {count(pool.recorded)} | {verdict} |"
        )
    for report in reports:
        yield ""
        yield f"## {report.name}"
        yield ""
        yield f"{report.model} on {report.device}, vLLM {report.engine_version}."
        yield ""
        yield from table(report, plain=False)
        yield ""
        yield (
            "LLMServingSim is the error that LLMServingSim 2.0 published for the same run (its times count from the engine's "
            "queue, and its step times are profiles of the card). The roofline column is our simulation with the data "
            "sheet alone, nothing fitted."
        )
        yield ""
        yield f"{counts(report)}. {admission(report.replay)}."
        yield ""
        yield f"![{report.name} over time]({report.picture})"
        yield ""
        for error in report.curves:
            yield f"- {curve_words(error)}"
        yield ""
        yield from _steptable(report.replay)
    yield ""
    yield SCHEDULER_HEADING
    yield ""
    yield f"{scheduler.rstrip('.')}."
    yield ""
    yield "## What is not modelled"
    yield ""
    firsts = "; ".join(
        f"{report.name} {seconds(report.replay.first.measured_s)}, simulated {seconds(report.replay.first.simulated_s)}"
        for report in reports
    )
    yield (
        "A server's first steps are slower than later ones (kernels are loaded, clocks rise), which no constant says. TTFT of the "
        f"first request: {firsts}."
    )
    yield ""
    yield (
        "A step's time is linear in its work, so sizes at which an engine changes kernels or graphs are met on average. Decoding "
        "sequences and the tokens that they have cached grow together, so a run tells their sum better than either. Which request "
        "is preempted in a full pool depends on differences of a millisecond: fits that agree to a part in a thousand differ by "
        "several preemptions."
    )


def _steptable(made: Replay) -> Iterator[str]:
    yield "| constant of a step | data sheet, assumed | fitted |"
    yield "| --- | --- | --- |"
    for words, name, scale, unit in (
        ("fixed", "overhead_ps", 1e9, "ms"),
        ("weights' read", "floor_ps", 1e9, "ms"),
        ("token computed", "token_ps", 1e6, "us"),
        ("decoding sequence", "decode_seq_ps", 1e6, "us"),
        ("1,000 cached tokens", "kv_token_ps", 1e3, "us"),
        ("1,024 pairs of a prefill", "pair_ps_per_1024", 1e6, "us"),
    ):
        yield f"| {words} | {_constant(made.start, name, scale)} {unit} | {_constant(made.step, name, scale)} {unit} |"
    error = made.step.relative_error
    if error is not None:
        yield ""
        yield f"Latencies of the requests that the fit did not see are off by {100 * error:.2f} % in the middle."


def _constant(step: StepModel, name: str, scale: float) -> str:
    return f"{getattr(step, name) / scale:,.2f}"
