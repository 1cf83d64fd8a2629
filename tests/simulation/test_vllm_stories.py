"""Short stories of vLLM's scheduler, replayed by the readable simulator; a step takes 1 ms here, whatever is in it."""

from __future__ import annotations

from typing import Any

import pytest

from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.simulation.outcome import RequestOutcome, Run, Status
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request, WorkloadHeader

MS = 1_000_000_000
STEP = StepModel(
    overhead_ps=MS,
    floor_ps=0,
    token_ps=0,
    decode_seq_ps=0,
    kv_token_ps=0,
    evidence=assumed("one millisecond"),
)


def served(
    requests: list[Request],
    *,
    blocks: int = 100,
    groups: tuple[BlockGroup, ...] = (BlockGroup(block_tokens=16),),
    follow_parents: bool = True,
    time_limit_ps: int | None = None,
    **limits: Any,
) -> tuple[Run, list[RequestOutcome]]:
    pytest.importorskip("numpy")
    from vramledger.workload.columns import Workload, columns_of

    settings = SimulationSettings(
        layout=PoolLayout(num_blocks=blocks + 1, groups=groups, reserved_blocks=1),
        scheduler=SchedulerSettings(
            **({"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 1024} | limits)
        ),
        step=STEP,
        follow_parents=follow_parents,
        time_limit_ps=time_limit_ps,
    )
    header = WorkloadHeader(name="story", source="this test", block_tokens=16)
    run, outcomes = simulate(Workload.of(header, columns_of(requests)), settings, how="reference")
    assert outcomes is not None
    return run, list(outcomes.outcomes())


def ask(prompt_tokens: int, output_tokens: int, at_ms: int = 0, **more: Any) -> Request:
    return Request(
        arrival_ns=at_ms * 1_000_000, prompt_tokens=prompt_tokens, output_tokens=output_tokens, **more
    )


def test_a_prompt_longer_than_the_budget_takes_several_steps_and_then_a_step_a_token() -> None:
    _, (only,) = served([ask(150, 4)])
    assert (only.admitted_ps, only.first_token_ps, only.end_ps) == (0, 3 * MS, 6 * MS)


def test_decodes_come_first_and_a_prefill_takes_what_they_leave() -> None:
    run, (short, long) = served([ask(16, 10), ask(128, 1)], max_num_batched_tokens=65)
    assert short.first_token_ps == MS
    # 49 + 64 + 15 of the long prompt: the short one's decode takes a token of the second and third step.
    assert long.first_token_ps == 3 * MS
    assert run.counters[0].computed_tokens == 16 + 9 + 128


def test_the_newest_gives_way_and_recomputes_what_it_lost() -> None:
    # Five blocks: 2 + 2 for the prompts, then each wants a third one for its 33rd token.
    run, (old, new) = served([ask(32, 20), ask(32, 20)], blocks=5, prefix_caching=False)
    assert (old.preemptions, new.preemptions) == (0, 1)
    assert old.end_ps == 20 * MS
    assert new.recomputed_tokens == 32
    assert new.end_ps > old.end_ps
    assert run.counters[0].computed_tokens == 2 * (32 + 19) + 32


def test_a_long_prompt_at_the_head_holds_up_the_short_one_behind_it() -> None:
    _, (first, long, short) = served(
        [ask(64, 8), ask(96, 1), ask(16, 1)], blocks=8, max_num_batched_tokens=512
    )
    assert first.end_ps == 8 * MS
    assert long.admitted_ps == short.admitted_ps == 8 * MS


def test_a_prompt_of_whole_cached_blocks_computes_its_last_block_again() -> None:
    _, (cold, warm) = served([ask(64, 1, blocks=(1, 2, 3, 4)), ask(64, 1, at_ms=5, blocks=(1, 2, 3, 4))])
    assert (cold.hit_tokens, warm.hit_tokens) == (0, 48)


def test_a_later_request_of_the_same_step_hits_what_the_earlier_one_is_about_to_compute() -> None:
    _, (_, second) = served(
        [ask(32, 1, blocks=(1, 2)), ask(33, 1, blocks=(1, 2))], max_num_batched_tokens=128
    )
    assert (second.hit_tokens, second.admitted_ps) == (32, 0)


def test_a_turn_is_sent_a_pause_after_the_one_before_it_ended() -> None:
    _, (first, second) = served([ask(16, 4), ask(32, 2, parent=0, pause_ns=7_000_000)])
    assert second.sent_ps == first.end_ps + 7 * MS


def test_what_can_never_fit_is_told_at_once() -> None:
    _, (model, pool, fine) = served([ask(1024, 1), ask(100, 100), ask(10, 1)], blocks=8)
    assert (model.status, pool.status, fine.status) == (Status.NEVER_FITS, Status.NEVER_FITS, Status.FINISHED)
    assert model.end_ps == pool.end_ps == 0


def test_a_prompt_that_cannot_be_reserved_is_told_at_once_though_its_window_would_do() -> None:
    # Without a cap a windowed group's whole prompt is asked for: 2 x 10 blocks of 16.
    window = BlockGroup(kind=GroupKind.WINDOW, block_tokens=16, window_tokens=32)
    groups = (BlockGroup(block_tokens=16), window)
    _, (refused,) = served([ask(160, 1)], blocks=19, groups=groups)
    _, (chunked,) = served([ask(160, 1)], blocks=19, groups=groups, reserve_full_prompt=False)
    assert (refused.status, chunked.status) == (Status.NEVER_FITS, Status.FINISHED)


def test_a_cancelled_request_gives_its_blocks_back_before_the_next_scheduling() -> None:
    _, (gone, next_one) = served(
        [ask(128, 50, cancel_ns=10_000_000), ask(128, 1)], blocks=12, max_num_batched_tokens=512
    )
    assert (gone.status, gone.end_ps) == (Status.CANCELLED, 10 * MS)
    assert next_one.admitted_ps == 10 * MS


def test_a_run_may_be_cut() -> None:
    run, (cut, unsent) = served([ask(16, 100), ask(16, 1, at_ms=90)], time_limit_ps=50 * MS)
    assert (cut.status, cut.output_tokens, cut.end_ps) == (Status.UNFINISHED, 50, -1)
    assert unsent.status is Status.UNFINISHED
    assert run.end_ps == 50 * MS


def test_settings_that_serve_nobody_are_refused() -> None:
    with pytest.raises(InputError, match="max_num_seqs is 0"):
        served([ask(1, 1)], max_num_seqs=0)


def test_a_step_that_is_planned_while_another_runs_does_not_hold_who_comes_later() -> None:
    # The step from 1 to 2 ms was planned at 0: who comes at 0.5 ms is in the one after it.
    requests = [ask(16, 8), Request(arrival_ns=500_000, prompt_tokens=16, output_tokens=2)]
    _, (_, waits) = served(requests, async_scheduling=True)
    _, (_, joins) = served(requests, async_scheduling=False)
    assert (joins.admitted_ps, joins.first_token_ps) == (MS, 2 * MS)
    assert (waits.admitted_ps, waits.first_token_ps) == (2 * MS, 3 * MS)


def test_where_no_step_runs_one_is_planned_at_once() -> None:
    _, (first, later) = served([ask(16, 2), ask(16, 2, at_ms=10)], async_scheduling=True)
    assert first.first_token_ps == MS
    assert (later.admitted_ps, later.first_token_ps) == (10 * MS, 11 * MS)
