"""Stories of llama.cpp's slots, and what holds of them on any workload."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.llamacpp import LlamacppScheduler
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.settings import SchedulerSettings, Scheduling


def server(*, slots: int = 4, cells: int = 1000, batch: int = 64) -> LlamacppScheduler:
    layout = PoolLayout(num_blocks=cells, groups=(BlockGroup(block_tokens=1),))
    limits = SchedulerSettings(
        scheduling=Scheduling.LLAMACPP, max_num_seqs=slots, max_num_batched_tokens=batch, max_model_len=1000
    )
    return LlamacppScheduler(limits, BlockPool(layout))


def request(
    number: int, prompt: int, output: int, *, keys: list[int] | None = None, boundary: int = 0
) -> Sequence:
    own = [-10_000 * (number + 1) - place for place in range(prompt + output)]
    return Sequence(
        identity=number,
        number=number,
        prompt_tokens=prompt,
        output_tokens=output,
        keys=(keys or []) + own[len(keys or []) :],
        boundary=boundary,
    )


def serve(
    engine: LlamacppScheduler, requests: list[Sequence]
) -> tuple[list[list[tuple[int, int]]], list[int]]:
    """Steps as (number, tokens), and who was failed."""
    for one in requests:
        engine.submit(one)
    steps, failed = [], []
    while engine.running_count or engine.waiting_count:
        plan = engine.step(0)
        failed += [one.number for one in plan.failed]
        steps.append([(share.sequence.number, share.tokens) for share in plan.scheduled])
        engine.after_step(plan)
    return steps, failed


def test_generating_slots_come_first_and_prompts_fill_the_batch_in_order_of_slots() -> None:
    steps, _ = serve(server(batch=48), [request(0, 40, 3), request(1, 40, 2)])
    # The first request takes the last of the unused slots, so the second one's prompt is before it in the batch.
    assert steps == [[(1, 40), (0, 8)], [(1, 1), (0, 32)], [(0, 1)], [(0, 1)]]


def test_a_turn_takes_the_slot_that_holds_its_conversation_and_computes_what_is_new() -> None:
    engine = server()
    first = request(0, 50, 10)
    serve(engine, [first, request(1, 30, 5)])
    second = request(2, 80, 1, keys=list(first.keys[:59]))
    steps, _ = serve(engine, [second])
    assert steps == [[(2, 21)]]
    assert second.hit_tokens == 59
    # What the other slots hold is still there: 34 of the second request and 80 of this one.
    assert engine.pool.used_blocks == 34 + 80


def test_a_little_in_common_is_no_reason_to_take_a_slot() -> None:
    engine = server(slots=2)
    first = request(0, 50, 1)
    serve(engine, [first])
    stranger = request(1, 100, 1, keys=list(first.keys[:10]))
    serve(engine, [stranger])
    assert stranger.hit_tokens == 0
    assert engine.pool.used_blocks == 50 + 100  # It took the slot that was never used.


def test_tenants_content_is_kept_apart() -> None:
    engine = server(slots=1)
    first = request(0, 50, 1)
    other = request(1, 60, 1, keys=list(first.keys[:50]), boundary=1)
    serve(engine, [first, other])
    assert other.hit_tokens == 0


def test_idle_slots_are_cleared_before_anything_fails() -> None:
    engine = server(slots=3, cells=100)
    serve(engine, [request(0, 30, 1), request(1, 30, 1), request(2, 30, 1)])
    assert engine.pool.used_blocks == 90
    _, failed = serve(engine, [request(3, 64, 8)])
    assert failed == []
    assert engine.pool.used_blocks == 71  # It took one slot, and both others were cleared for it.


def test_out_of_cells_every_request_in_a_slot_fails_and_the_queue_goes_on() -> None:
    engine = server(slots=2, cells=100, batch=200)
    requests = [request(0, 40, 30), request(1, 40, 30), request(2, 40, 5)]
    steps, failed = serve(engine, requests)
    # 40 + 40, and a cell each for ten steps more.
    assert failed == [0, 1] or failed == [1, 0]
    assert len(steps) == 11 + 5
    assert [one.generated_tokens for one in requests] == [11, 11, 5]


def test_a_cap_on_how_many_share_the_cells_serves_them_all() -> None:
    def finished(slots: int) -> int:
        _, failed = serve(server(slots=slots, cells=200), [request(n, 60, 30) for n in range(24)])
        return 24 - len(failed)

    assert (finished(4), finished(2)) == (0, 24)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 60)), min_size=1, max_size=12),
    slots=st.integers(1, 5),
    batch=st.sampled_from([16, 64, 512]),
)
@settings(max_examples=60, deadline=None)
def test_every_request_ends_once_and_never_fails_with_cells_of_its_own(
    lengths: list[tuple[int, int]], slots: int, batch: int
) -> None:
    for cells, may_fail in ((160, True), (slots * 150, False)):
        engine = server(slots=slots, cells=cells, batch=batch)
        requests = [request(n, prompt, output) for n, (prompt, output) in enumerate(lengths)]
        _, failed = serve(engine, requests)
        assert all(one.is_done for one in requests)
        assert len(failed) == len(set(failed))
        assert may_fail or not failed
        for one in requests:
            assert (one.generated_tokens == one.output_tokens) != (one.number in failed)
        # Idle slots hold what their last request computed, and nothing else is held.
        assert engine.pool.used_blocks <= cells
        for slot in range(slots):
            engine._clear(engine._slots[slot])
        assert engine.pool.used_blocks == 0
