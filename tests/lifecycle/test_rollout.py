"""Replacing an instance: what every step holds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger import load_model, plan
from vramledger.answer import Plan
from vramledger.engines import find_lifecycle
from vramledger.engines.lifecycle import SleepLevel
from vramledger.ledger import Owner, Phase
from vramledger.lifecycle.rollout import Rollout, Way, rollouts
from vramledger.lifecycle.sleeping import asleep

ROOT = Path(__file__).parents[2]
LLAMA = ROOT / "examples" / "Llama-3.1-8B-Instruct"
DEEP = ROOT / "examples" / "Qwen3-30B-A3B"


@cache
def planned(path: Path = LLAMA, engine: str = "vllm==0.33.0", **flags: object) -> Plan:
    return plan(load_model(path), "H100-80GB", engine=engine, max_model_len=32768, **flags)  # type: ignore[arg-type]


def levels(version: str) -> tuple[SleepLevel, ...]:
    known = find_lifecycle("vllm")
    assert known is not None
    return known.sleep_levels(version)


def ways(
    old: Plan, new: Plan, *, required: int = 0, host: int | None = None, replicas: int = 1
) -> dict[str, Rollout]:
    found = rollouts(
        old, new, levels=levels(old.inputs.engine_version), free_bytes_required=required, host_total_bytes=host,
        replicas=replicas,
    )  # fmt: skip
    return {item.way.value + item.level: item for item in found}


class TestSleeping:
    def test_level_1_keeps_weights_on_the_host_and_drops_the_pool(self) -> None:
        rank = planned().ranks[0]
        found = asleep(rank, levels("0.33.0")[0])
        assert {entry.owner for entry in found.on_host} == {Owner.WEIGHTS, Owner.ALLOCATOR}
        assert Owner.KV_CACHE in {entry.owner for entry in found.released}
        assert {entry.owner for entry in found.stays} >= {Owner.GRAPH_POOL, Owner.RUNTIME_CONTEXT}
        weights = rank.owned(Owner.WEIGHTS)
        assert found.host_bytes.low >= weights.low

    def test_level_2_copies_only_registered_buffers(self) -> None:
        found = asleep(planned().ranks[0], levels("0.33.0")[1])
        assert {entry.name for entry in found.on_host} == {"rope tables"}
        assert not any(entry.owner is Owner.WEIGHTS for entry in found.stays)

    def test_adapters_are_dropped_at_level_2_until_they_have_a_pool_of_their_own(self) -> None:
        before = planned(engine="vllm==0.31.0", enable_lora=True)
        after = planned(engine="vllm==0.33.0", enable_lora=True)
        dropped = asleep(before.ranks[0], levels("0.31.0")[1])
        kept = asleep(after.ranks[0], levels("0.33.0")[1])
        assert not any(entry.owner is Owner.ADAPTERS for entry in dropped.on_host + dropped.stays)
        assert any(entry.owner is Owner.ADAPTERS for entry in kept.on_host)

    def test_the_experts_buffers_are_released_since_they_lie_in_a_pool(self) -> None:
        def released(version: str) -> set[str]:
            rank = planned(DEEP, engine=f"vllm=={version}", tp=2).ranks[0]
            return {entry.name for entry in asleep(rank, levels(version)[0]).released}

        assert "experts' kernels" in released("0.33.0")
        assert "experts' kernels" not in released("0.31.0")

    def test_sglang_keeps_clones_of_buffers_on_the_device(self) -> None:
        known = find_lifecycle("sglang")
        assert known is not None
        kept, emptied = known.sleep_levels("0.5.23")
        rank = plan(load_model(LLAMA), "H100-80GB", engine="sglang==0.5.23").ranks[0]
        for level in (kept, emptied):
            found = asleep(rank, level)
            assert "rope tables" in {entry.name for entry in found.stays}
            assert {Owner.KV_CACHE, Owner.GRAPH_POOL} <= {entry.owner for entry in found.released}
        assert not asleep(rank, emptied).on_host
        assert asleep(rank, kept).host_bytes.expected > 14 * 2**30

    def test_sglang_gives_back_graphs_since_they_have_a_tag(self) -> None:
        known = find_lifecycle("sglang")
        assert known is not None
        assert known.sleep_levels("0.4.0") == ()
        (before,) = known.sleep_levels("0.4.9")
        rank = plan(load_model(LLAMA), "H100-80GB", engine="sglang==0.4.9").ranks[0]
        assert Owner.GRAPH_POOL in {entry.owner for entry in asleep(rank, before).stays}

    def test_there_was_no_sleep_before_0_7(self) -> None:
        assert levels("0.6.6") == ()

    @pytest.mark.parametrize("level", [0, 1])
    def test_what_stays_and_what_is_released_is_all_that_outlives_a_step(self, level: int) -> None:
        for rank in planned(DEEP, tp=2).ranks:
            found = asleep(rank, levels("0.33.0")[level])
            lasting = [
                entry for entry in rank.entries
                if Phase.DECODE in entry.phases and entry.lifetime.value != "iteration"
            ]  # fmt: skip
            assert sorted(map(id, found.stays + found.released)) == sorted(map(id, lasting))
            assert set(map(id, found.on_host)) <= set(map(id, found.released))


class TestWays:
    def test_beside_each_other_two_instances_take_their_sum(self) -> None:
        half = planned(gpu_memory_utilization=0.45)
        found = ways(half, half)["side-by-side"]
        both = next(step for step in found.steps if step.name == "both serve")
        alone = found.steps[0]
        assert both.device_bytes == alone.device_bytes + alone.device_bytes
        assert found.holds
        assert found.tokens_lost == 0

    def test_a_whole_device_does_not_hold_two(self) -> None:
        whole = planned()
        found = ways(whole, whole)["side-by-side"]
        both = next(step for step in found.steps if step.name == "both serve")
        assert found.holds is False
        assert found.shortfall_bytes == both.device_bytes.low - both.device_total_bytes

    def test_ending_the_old_one_first_costs_its_pool(self) -> None:
        whole = planned()
        assert whole.kv_pool is not None
        found = ways(whole, whole, replicas=3)["recreate"]
        assert found.holds
        assert found.tokens_lost == whole.kv_pool.tokens.expected
        assert found.devices == 3

    def test_a_surge_takes_devices_instead(self) -> None:
        two = planned(DEEP, tp=2)
        found = ways(two, two, replicas=2)["surge"]
        assert (found.holds, found.devices, found.tokens_lost) == (True, 6, 0)

    def test_a_sleeping_instance_needs_its_weights_on_the_host(self) -> None:
        whole = planned()
        room = 8 * 2**30
        found = ways(whole, whole, host=room)
        assert found["asleep1"].holds is False
        assert found["asleep1"].host_shortfall_bytes > 6 * 2**30
        assert found["asleep2"].host_shortfall_bytes == 0

    def test_an_engine_that_wants_its_budget_free_does_not_start_beside_what_takes_it(self) -> None:
        new = planned(gpu_memory_utilization=0.9)
        old = planned(gpu_memory_utilization=0.3)
        known = find_lifecycle("vllm")
        assert known is not None
        required = known.free_bytes_required(new)
        assert required == new.budget_bytes
        found = ways(old, new, required=required)["side-by-side"]
        assert found.holds is False
        assert found.shortfall_bytes > 0

    @given(
        first=st.sampled_from([0.3, 0.45, 0.6, 0.9]),
        second=st.sampled_from([0.3, 0.5, 0.9]),
        replicas=st.integers(1, 4),
    )
    def test_every_way_ends_with_the_new_instance_and_nothing_else(
        self, first: float, second: float, replicas: int
    ) -> None:
        old, new = planned(gpu_memory_utilization=first), planned(gpu_memory_utilization=second)
        found = ways(old, new, replicas=replicas)
        assert {item.way for item in found.values()} == set(Way)
        ends = {item.steps[-1].device_bytes for item in found.values()}
        assert len(ends) == 1
        for item in found.values():
            assert item.tokens_lost >= 0
            assert item.shortfall_bytes == 0 or item.holds is False
        assert found["recreate"].devices <= found["surge"].devices
        lost = found["side-by-side"].tokens_lost
        assert lost <= found["recreate"].tokens_lost
