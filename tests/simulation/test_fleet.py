"""Several replicas: where requests go, what a prefill and decode split sends, and what is kept for later turns."""

from __future__ import annotations

from typing import Any

import pytest

from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.outcome import RequestOutcome, Run, Status
from vramledger.simulation.reference.replica import Replica
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import (
    Fleet,
    Router,
    SchedulerSettings,
    Scheduling,
    SimulationSettings,
    ToolWait,
)
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request, WorkloadHeader

pytest.importorskip("numpy")

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
    scheduling: Scheduling = Scheduling.VLLM,
    max_num_seqs: int = 8,
    **more: Any,
) -> tuple[Run, list[RequestOutcome]]:
    from vramledger.workload.columns import Workload, columns_of

    settings = SimulationSettings(
        layout=PoolLayout(num_blocks=blocks, groups=(BlockGroup(block_tokens=16),), block_bytes=1600),
        scheduler=SchedulerSettings(
            scheduling=scheduling,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=128,
            max_model_len=4096,
        ),
        step=STEP,
        **more,
    )
    header = WorkloadHeader(name="story", source="this test", block_tokens=16)
    run, outcomes = simulate(Workload.of(header, columns_of(requests)), settings, how="reference")
    assert outcomes is not None
    return run, list(outcomes.outcomes())


def ask(prompt_tokens: int, output_tokens: int, at_ms: int = 0, **more: Any) -> Request:
    return Request(
        arrival_ns=at_ms * 1_000_000, prompt_tokens=prompt_tokens, output_tokens=output_tokens, **more
    )


def turns(pause_ms: int = 50) -> list[Request]:
    """A request, and 50 ms after its end one whose prompt begins with all of it: 79 tokens, four whole blocks."""
    return [
        ask(64, 16, blocks=(1, 2, 3, 4, 5)),
        ask(96, 4, at_ms=60, blocks=(1, 2, 3, 4, 5, 6), parent=0, pause_ns=pause_ms * 1_000_000),
    ]


def crowd(at_ms: int = 20) -> list[Request]:
    """What comes during the wait and needs the whole pool of 12 blocks."""
    return [ask(150, 8, at_ms=at_ms), ask(150, 8, at_ms=at_ms + 1)]


def test_round_robin_deals_and_least_kv_takes_the_emptier() -> None:
    requests = [ask(128, 20), ask(16, 20, at_ms=1), ask(16, 20, at_ms=2), ask(16, 1, at_ms=3)]
    _, dealt = served(requests, fleet=Fleet(replicas=2))
    assert [one.replica for one in dealt] == [0, 1, 0, 1]
    _, weighed = served(requests, fleet=Fleet(replicas=2, router=Router.LEAST_KV))
    assert [one.replica for one in weighed] == [0, 1, 1, 1]


def test_a_prefix_draws_its_requests_until_the_load_is_too_one_sided() -> None:
    blocks = (1, 2, 3, 4)
    requests = [ask(64, 40, blocks=blocks)] + [
        ask(80, 40, at_ms=n, blocks=(*blocks, 100 + n)) for n in (5, 6, 7)
    ]
    _, bound = served(requests, fleet=Fleet(replicas=2, router=Router.PREFIX_AWARE, prefix_load_percent=100))
    # The second would make the first replica's load the whole of it. Then shared blocks count once.
    assert [one.replica for one in bound] == [0, 1, 0, 0]
    _, free = served(requests, fleet=Fleet(replicas=2, router=Router.PREFIX_AWARE, prefix_load_percent=1000))
    assert [one.replica for one in free] == [0, 0, 0, 0]
    assert [one.hit_tokens for one in free] == [0, 64, 64, 64]


def test_a_split_sends_the_prompts_kv_over_one_link_in_turn() -> None:
    # 64 tokens of 1000 bytes at 1 MB/s: 64 ms each, one after the other.
    fleet = Fleet(replicas=2, prefill_replicas=1, kv_bytes_per_token=1000, link_bytes_per_s=1_000_000)
    run, (first, second) = served([ask(64, 3), ask(64, 3)], fleet=fleet)
    assert (first.first_token_ps, second.first_token_ps) == (MS, MS)
    # The last of the prompt's KV is computed with the second token, as where it was hit.
    assert first.end_ps == (1 + 64 + 2) * MS
    assert second.end_ps == (1 + 64 + 64 + 2) * MS
    assert [one.replica for one in (first, second)] == [1, 1]
    assert run.counters[0].computed_tokens == 128


def test_the_sender_keeps_its_blocks_until_they_are_through() -> None:
    fleet = Fleet(replicas=2, prefill_replicas=1, kv_bytes_per_token=1000, link_bytes_per_s=1_000_000)
    # Eight blocks: the third prompt finds room on the prefill side only when the first one's 4 blocks are through.
    _, outcomes = served([ask(64, 2), ask(64, 2), ask(64, 2, at_ms=2)], blocks=8, fleet=fleet)
    assert outcomes[2].admitted_ps == (1 + 64) * MS
    assert {one.status for one in outcomes} == {Status.FINISHED}


@pytest.mark.parametrize("router", list(Router))
@pytest.mark.parametrize("scheduling", list(Scheduling))
def test_a_fleet_of_any_engine_serves_everyone_once(router: Router, scheduling: Scheduling) -> None:
    requests = [
        ask(16 + 7 * n, 1 + n % 9, at_ms=n // 2, blocks=(1, 2, 1000 + n), branches=1 + n % 3 // 2)
        for n in range(30)
    ]
    for split in (0, 1):
        fleet = Fleet(
            replicas=3,
            router=router,
            prefill_replicas=split,
            kv_bytes_per_token=10,
            link_bytes_per_s=1_000_000,
        )
        blocks = 400 if scheduling is Scheduling.LLAMACPP else 40
        _, outcomes = served(requests, scheduling=scheduling, blocks=blocks, fleet=fleet)
        assert [one.number for one in outcomes] == list(range(30))
        assert {one.status for one in outcomes} == {Status.FINISHED}
        assert all(one.output_tokens == (1 + n % 9) * requests[n].branches for n, one in enumerate(outcomes))
        assert all((one.replica >= split) or one.output_tokens <= 2 for one in outcomes)


def test_what_is_released_is_found_again_unless_others_took_it() -> None:
    _, (_, alone) = served(turns(), blocks=12)
    assert alone.hit_tokens == 64
    _, (_, later, *_) = served(turns() + crowd(), blocks=12)
    assert later.hit_tokens == 0


def test_what_is_preserved_is_found_again_and_others_wait_for_room() -> None:
    run, (_, later, *others) = served(turns() + crowd(), blocks=16, tool_wait=ToolWait.PRESERVE)
    assert later.hit_tokens == 64
    # Held from the first turn's end (16 ms) until the second was admitted.
    assert run.counters[0].kept_token_ps == 64 * (later.admitted_ps - 16 * MS)
    assert all(one.status is Status.FINISHED for one in others)


def test_what_is_preserved_gives_way_where_nothing_could_run_without() -> None:
    run, (_, later, *others) = served(turns() + crowd(), blocks=12, tool_wait=ToolWait.PRESERVE)
    assert others[0].admitted_ps == 20 * MS
    assert later.hit_tokens == 0
    assert run.counters[0].kept_token_ps == 64 * 4 * MS


def test_what_is_discarded_is_computed_anew_but_not_what_others_hold() -> None:
    _, (_, later) = served(turns(), tool_wait=ToolWait.DISCARD)
    assert later.hit_tokens == 0
    holder = ask(40, 90, blocks=(1, 2))
    _, (_, shared, _) = served([*turns(), holder], tool_wait=ToolWait.DISCARD)
    assert shared.hit_tokens == 32


def test_what_is_swapped_comes_back_over_the_link_before_the_turn_starts() -> None:
    # 64 tokens of 100 bytes, at 640 kB/s 10 ms each way.
    run, (_, later) = served(
        turns(), tool_wait=ToolWait.SWAP, host_link_bytes_per_s=640_000, host_swap_bytes=10_000
    )
    assert later.sent_ps == (16 + 50) * MS
    assert later.admitted_ps == (16 + 50 + 10) * MS
    counters = run.counters[0]
    assert (counters.swapped_out_tokens, counters.swapped_in_tokens) == (64, 64)
    assert counters.host_link_bytes == 2 * 6400
    assert counters.kept_token_ps == 64 * 10 * MS  # Its blocks are free when the last byte has left.
    assert counters.computed_tokens == 64 + 15 + (96 - 64) + 3


def test_a_host_without_room_swaps_nothing() -> None:
    run, (_, later) = served(
        turns(), tool_wait=ToolWait.SWAP, host_link_bytes_per_s=640_000, host_swap_bytes=6_000
    )
    assert run.counters[0].host_link_bytes == 0
    assert later.hit_tokens == 64  # It stays findable, as what is released.


def test_a_turn_goes_where_its_context_is_kept() -> None:
    story = [ask(16, 1), *turns()]
    story[2] = ask(96, 4, at_ms=60, blocks=(1, 2, 3, 4, 5, 6), parent=1, pause_ns=50_000_000)
    _, kept = served(story, fleet=Fleet(replicas=2), tool_wait=ToolWait.PRESERVE)
    assert (kept[1].replica, kept[2].replica, kept[2].hit_tokens) == (1, 1, 64)
    _, released = served(story, fleet=Fleet(replicas=2))
    assert (released[1].replica, released[2].replica, released[2].hit_tokens) == (1, 0, 0)


def test_contradictions_are_told() -> None:
    with pytest.raises(InputError, match="only prefill"):
        served(turns(), tool_wait=ToolWait.PRESERVE, fleet=Fleet(replicas=2, prefill_replicas=1))
    with pytest.raises(InputError, match="prefix_load_percent"):
        served(turns(), fleet=Fleet(replicas=2, prefix_load_percent=50))


def test_status_of_what_the_engine_failed_is_told() -> None:
    # 24 requests of 96 tokens in the end, four slots, cells for two of them: all four are ended when cells run out.
    requests = [ask(64, 32, at_ms=n) for n in range(24)]
    _, uncapped = served(requests, blocks=12, max_num_seqs=4, scheduling=Scheduling.LLAMACPP)
    assert {one.status for one in uncapped[:20]} == {Status.FAILED}
    _, capped = served(requests, blocks=12, max_num_seqs=2, scheduling=Scheduling.LLAMACPP)
    assert {one.status for one in capped} == {Status.FINISHED}


def test_replicas_with_nothing_to_do_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    begin = Replica.begin

    def counted(self: Replica, now_ps: int) -> int | None:
        asked.append(self.number)
        return begin(self, now_ps)

    monkeypatch.setattr(Replica, "begin", counted)
    requests = [Request(arrival_ns=0, prompt_tokens=16, output_tokens=50)]
    run, _ = served(requests, fleet=Fleet(replicas=40, router=Router.LEAST_KV))
    assert sum(counters.steps for counters in run.counters) == 50
    assert {asked.count(number) for number in range(1, 40)} == {1}
