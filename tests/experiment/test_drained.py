"""What came back after a load: blocks, reservations, memory; what did not is named with its size and owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.experiment.drained import ALLOWANCE_BYTES, ALLOWANCE_SHARE, returned
from vramledger.experiment.headroom import room_of
from vramledger.experiment.plan import Step
from vramledger.experiment.result import Check, Snapshot
from vramledger.observation import Sample
from vramledger.units import GIB, MIB

ENGINE = "metrics:http://127.0.0.1:8000/metrics"
GATEWAY = "gateway:http://127.0.0.1:9000"


def said(name: str, value: float, source: str = ENGINE, *, label: str = "", pid: int | None = None) -> Sample:
    return Sample(at_s=5.0, source=source, name=name, value=value, label=label, pid=pid)


def process(
    private_bytes: int, pid: int = 7, name: str = "VLLM::Worker", swap_bytes: int = 0
) -> list[Sample]:
    source = f"proc:{pid}"
    return [
        said("private_bytes", private_bytes, source, label=name, pid=pid),
        said("swap_bytes", swap_bytes, source, label=name, pid=pid),
    ]


def shot(*samples: Sample) -> Snapshot:
    return Snapshot(label="now", at_s=5.0, samples=samples)


def checks(before: Snapshot, after: Snapshot) -> dict[str, Check]:
    return {check.name: check for check in returned(before, after, step=Step.STEADY)}


IDLE = [said("running_requests", 0), said("waiting_requests", 0), said("kv_usage_ratio", 0.0)]


def test_all_is_back() -> None:
    before = shot(*IDLE, *process(3 * GIB))
    found = checks(before, shot(*IDLE, *process(3 * GIB + MIB)))
    assert {name: check.passed for name, check in found.items()} == {
        "requests_ended": True,
        "kv_returned": True,
        "process_memory_returned": True,
    }
    assert (
        found["process_memory_returned"].words
        == "as before the load, but for 1.0 MiB (0.0%): VLLM::Worker 1.0 MiB"
    )


def test_what_did_not_come_back_is_named_with_its_owner() -> None:
    before = shot(*IDLE, *process(3 * GIB), *process(GIB, 8, "VLLM::EngineCore"))
    after = shot(
        said("running_requests", 1, label="engine=0"),
        said("running_requests", 2, label="engine=1"),
        said("kv_usage_ratio", 0.25),
        *process(3 * GIB + 100 * MIB),
        *process(GIB, 8, "VLLM::EngineCore"),
    )
    found = checks(before, after)
    assert not any(check.passed for check in found.values())
    assert found["requests_ended"].after == 3  # of both replicas
    assert found["kv_returned"].words == "25.00% of the pool still in use, 0.00% before the load"
    assert (
        found["process_memory_returned"].words
        == "100.0 MiB (2.4%) more than before the load: VLLM::Worker 100.0 MiB"
    )


def test_what_went_to_swap_has_not_come_back() -> None:
    found = checks(shot(*process(3 * GIB)), shot(*process(2 * GIB, swap_bytes=GIB + 64 * MIB)))
    assert found["process_memory_returned"].passed is False


def test_a_gateways_reservation_that_stays_is_named() -> None:
    held = [said("gateway_admitted_requests", 1, GATEWAY), said("gateway_reserved_blocks", 12, GATEWAY)]
    check = checks(shot(), shot(*held))["reservations_returned"]
    assert (check.passed, check.source) == (False, GATEWAY)
    assert check.words == "the gateway still has 1 admitted requests, 12 reserved blocks"
    assert "reservations_returned" not in checks(shot(), shot(*IDLE))  # no gateway, nothing to say


def test_an_engines_own_word_goes_before_the_gateways() -> None:
    after = shot(said("kv_usage_ratio", 0.0), said("kv_used_blocks", 3, GATEWAY))
    assert checks(shot(), after)["kv_returned"].passed


def test_what_is_kept_for_others_is_not_in_use() -> None:
    after = shot(said("kv_used_tokens", 0), said("kv_evictable_tokens", 912))
    check = checks(shot(said("kv_used_tokens", 0)), after)["kv_returned"]
    assert check.passed
    assert check.words == "all came back to the pool; 912 tokens are kept for prompts that begin alike"


def test_where_nothing_is_told_nothing_is_claimed() -> None:
    found = checks(shot(), shot())
    assert {check.passed for check in found.values()} == {None}
    assert "cannot be seen from here" in found["process_memory_returned"].words
    # Memory that is seen only afterwards is compared with nothing.
    assert checks(shot(), shot(*process(GIB)))["process_memory_returned"].passed is None


@given(before=st.integers(1, 1 << 42), grown=st.integers(-(1 << 40), 1 << 40))
def test_growth_beyond_the_allowance_fails_and_no_other(before: int, grown: int) -> None:
    after = max(0, before + grown)
    check = checks(shot(*process(before)), shot(*process(after)))["process_memory_returned"]
    assert check.passed is (after - before <= max(ALLOWANCE_BYTES, ALLOWANCE_SHARE * before))


def test_a_device_is_held_against_what_its_processes_had() -> None:
    nvml = "nvml:0"
    before = shot(
        said("process_device_bytes", 60 * GIB, nvml, pid=7), said("device_used_bytes", 61 * GIB, nvml)
    )
    after = shot(
        said("process_device_bytes", 62 * GIB, nvml, pid=7), said("device_used_bytes", 63 * GIB, nvml)
    )
    check = checks(before, after)["device_memory_returned"]
    assert (check.passed, check.before, check.after) == (False, 60 * GIB, 62 * GIB)


def test_another_tenants_growth_on_the_device_is_not_the_engines() -> None:
    nvml = "nvml:0"

    def both(own: int, other: int) -> Snapshot:
        return shot(
            *process(GIB, 7),
            said("process_device_bytes", own, nvml, pid=7),
            said("process_device_bytes", other, nvml, pid=99),
        )

    check = checks(both(60 * GIB, GIB), both(60 * GIB, 9 * GIB))["device_memory_returned"]
    assert (check.passed, check.before, check.after) == (True, 60 * GIB, 60 * GIB)


def room(at_s: float, name: str, value: int, source: str) -> Sample:
    return Sample(at_s=at_s, source=source, name=name, value=value)


def test_the_least_room_is_the_devices_where_there_is_one() -> None:
    host = [
        room(1.0, "host_available_bytes", GIB, "meminfo"),
        room(2.0, "host_available_bytes", MIB, "meminfo"),
    ]
    found = room_of(host)
    assert found.smallest is not None
    assert (found.smallest.kind, found.smallest.bytes, found.smallest.at_s) == ("host", MIB, 2.0)
    devices = [room(at, "device_free_bytes", size * GIB, f"nvml:{index}") for at, index, size in ((1, 0, 9), (2, 1, 3), (3, 1, 5))]  # fmt: skip
    found = room_of([*host, *devices])
    assert found.smallest is not None
    assert (found.smallest.source, found.smallest.bytes) == ("nvml:1", 3 * GIB)


@pytest.mark.parametrize(("kills", "counted"), [((2, 2, 2), 0), ((2, 2, 3), 1), ((0, 1, 4), 4)])
def test_only_what_was_killed_meanwhile_counts(kills: tuple[int, ...], counted: int) -> None:
    group = "cgroup:/sys/fs/cgroup"
    samples = []
    for at, count in enumerate(kills):
        samples += [
            room(at, "cgroup_current_bytes", (1 + at) * GIB, group),
            room(at, "cgroup_limit_bytes", 8 * GIB, group),
            room(at, "cgroup_oom_kill_count", count, group),
        ]
    found = room_of(samples)
    assert found.oom_kills == counted
    assert found.smallest is not None
    assert (found.smallest.kind, found.smallest.bytes) == ("control group", 5 * GIB)


def test_no_samples_tell_of_no_room() -> None:
    assert (room_of([]).smallest, room_of([]).oom_kills) == (None, None)
