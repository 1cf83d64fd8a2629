"""A first step model from what was measured alone: where a fit to simulated runs may start when nothing is known of the device.

While a request decodes, every step brings it a token. So its tokens count the steps of that time, and who else was there, by the measured instants, says what
each of those had to do. That is rough (a prompt counts where its first token comes), and needs no simulation whose queues would
depend on the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.simulation.least_squares import robust_fit
from vramledger.simulation.step_fit import TOLERANCE, TRUST, model_of
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.timed_run import TimedRun

CONTEXT_TOKENS = 3072
"""So many cached tokens make a lone step no more than twice as long, and so many before it a prompt's token: by weights and KV, by FLOPs of matrices
and attention, models from 135 million parameters up are below that."""
OVERHEAD = 0.2
"""Of what a step costs whatever it does, the share that a large prompt pays too; no rough look tells it."""
EACH = 0.02
CACHED = 0.1
"""Shares of the fastest step that a sequence, and all its cached tokens, are taken to cost where no row tells."""


def first_step(runs: Sequence[TimedRun]) -> StepModel:
    """Raises InputError where no request had two tokens."""
    rows: list[list[float]] = []
    gaps: list[float] = []
    tokens: list[float] = []
    contexts: list[int] = []
    for run in runs:
        there = list(_decoding(run))
        for timing in run.known:
            request = run.requests[timing.number]
            waited_ps = timing.first_token_ps - request.arrival_ns * 1000
            if waited_ps > 0:
                tokens.append(waited_ps / request.prompt_tokens)
            steps, span_ps = request.output_tokens - 1, timing.end_ps - timing.first_token_ps
            if steps > 0 and span_ps > 0:
                seqs, cached, prompts = _beside(there, timing.first_token_ps, timing.end_ps)
                rows.append([value / span_ps for value in (steps, seqs * steps, cached * steps, prompts)])
                gaps.append(span_ps / steps)
                contexts.append(request.prompt_tokens + request.output_tokens)
    if not gaps or not tokens:
        raise InputError("no request had two tokens: a step's time cannot be told")
    gap = sorted(gaps)[len(gaps) // 10]
    token = sorted(tokens)[len(tokens) // 4]
    start = [gap, EACH * gap, EACH * CACHED * gap / median(contexts), min(token, gap)]
    fixed, each, cached_token, prompt_token = robust_fit(
        rows, [1.0] * len(rows), lower=[0.0] * 4, start=start, trust=10 * TRUST, tolerance=TOLERANCE
    )
    fixed = max(fixed, EACH * gap)
    cached_token = min(cached_token, (fixed + each) / CONTEXT_TOKENS)
    return model_of(
        [OVERHEAD * fixed, (1 - OVERHEAD) * fixed, min(prompt_token, token), each, cached_token, 0.0],
        assumed("tokens measured, by who was there with them"),
    )


Decoding = tuple[int, int, int, int]


def _decoding(run: TimedRun) -> Iterable[Decoding]:
    """From when to when each known request had tokens, its cached tokens then, and its prompt."""
    for timing in run.known:
        request = run.requests[timing.number]
        cached = request.prompt_tokens + request.output_tokens // 2
        yield timing.first_token_ps, timing.end_ps, cached, request.prompt_tokens


def _beside(there: Iterable[Decoding], start_ps: int, end_ps: int) -> tuple[float, float, int]:
    """Over a stretch of time: how many decoded at once and how many cached tokens they had, on average, and the tokens of the prompts that were
    computed in it."""
    seqs = cached = 0.0
    prompts = 0
    for first_ps, last_ps, tokens, prompt_tokens in there:
        share = max(0, min(last_ps, end_ps) - max(first_ps, start_ps)) / (end_ps - start_ps)
        seqs += share
        cached += share * tokens
        if start_ps < first_ps <= end_ps:
            prompts += prompt_tokens
    return seqs, cached, prompts
