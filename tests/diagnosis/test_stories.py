"""Whole logs: recorded starts and service of real engines, with the failure they could have had, joined on time."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from diagnosis.diagnosed import one, told
from telemetry.caching_allocator import CachingAllocator
from vramledger.answer import Plan
from vramledger.diagnosis.diagnosis import Diagnosis, diagnose, with_remedies
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.remedy import Remedy
from vramledger.diagnosis.terms import Confidence, FailureClass, Stage
from vramledger.errors import FlagError
from vramledger.observation import Sample
from vramledger.telemetry.evidence_files import collect, free_pieces
from vramledger.telemetry.snapshots import read_snapshot
from vramledger.units import GIB, MIB

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
VLLM = HERE.parent / "engines" / "recorded" / "logs"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of 79.18 GiB of which "
    "{free} is free. Process 7441 has 78.80 GiB memory in use. Of the allocated memory 70.10 GiB is allocated by PyTorch, "
    "{pools}and {slack} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


def oom(
    wanted: str = "1.17 GiB", free: str = "380.00 MiB", slack: str = "12.00 MiB", *, pools: bool = False
) -> str:
    private = "with 1.20 GiB allocated in private pools (e.g., CUDA Graphs), " if pools else ""
    return OOM.format(wanted=wanted, free=free, slack=slack, pools=private)


def vllm(name: str, *, until: str, more: str = "") -> str:
    """A recorded start-up up to the first line that holds `until`, with further lines."""
    lines = (VLLM / name).read_text(encoding="utf-8").splitlines()
    end = next(index for index, text in enumerate(lines) if until in text) + 1
    return "\n".join([*lines[:end], more, ""])


def error(clock: str, text: str, who: str = "EngineCore pid=27445") -> str:
    return f"({who}) ERROR 11-29 {clock} [core.py:901] {text}"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def test_while_weights_are_read() -> None:
    log = vllm("vllm-0.32.0-compile.log", until="Starting to load model", more=error("16:08:10", oom()))
    found = one(log)
    assert found.answer.failure_class is FailureClass.LOAD_TIME
    assert (found.facts.stage, found.facts.ready) == (Stage.WEIGHT_LOAD, False)
    assert found.moment.stage_line is not None
    assert "Starting to load model" in found.moment.stage_line.text


def test_after_the_pool_was_sized_and_before_the_instance_was_ready() -> None:
    log = vllm("vllm-0.32.0-compile.log", until="KV cache size", more=error("16:09:20", oom(pools=True)))
    found = one(log)
    assert found.answer.failure_class is FailureClass.WARM_UP
    assert found.answer.confidence is Confidence.HIGH
    # The share that the same log does not state is the engine's own default.
    assert any("gpu_memory_utilization" in remedy.change for remedy in remedies_of(found))


def test_in_service_with_an_almost_empty_pool() -> None:
    log = vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more=error("16:35:36", oom(pools=True)))
    found = one(log)
    assert found.answer.failure_class is FailureClass.PREFILL_SPIKE
    assert found.facts.running_requests == 1
    assert found.facts.kv_usage_ratio is not None
    assert found.facts.kv_usage_ratio < 0.1
    assert found.facts.since_ready_s is not None
    assert found.facts.since_ready_s > 0


def test_the_first_rank_is_the_cause_and_the_others_are_its_echo() -> None:
    more = "\n".join(
        (
            error("16:42:19", oom(), "Worker_TP1 pid=25649"),
            error("16:42:20", oom(), "Worker_TP0 pid=25648"),
            error("16:42:21", "RuntimeError: NCCL error: unhandled cuda error", "Worker_TP0 pid=25648"),
            error("16:42:22", "EngineCore encountered a fatal error.", "EngineCore pid=25582"),
            error("16:42:23", "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "APIServer pid=25506"),
        )
    )  # fmt: skip
    found = one(vllm("vllm-0.32.0-tp2.log", until="Starting to load model", more=more))
    assert found.incident.first.process == "Worker_TP1 pid=25649"
    assert dict(found.incident.ranks)["Worker_TP0 pid=25648"] == 2
    assert sum(count for _, count in found.incident.ranks) == 5
    assert found.answer.failure_class is FailureClass.LOAD_TIME


def test_echoes_alone_have_no_class() -> None:
    log = vllm(
        "vllm-0.32.0-pressure.log",
        until="Running: 1 reqs",
        more=error("16:35:36", "EngineCore encountered a fatal error."),
    )
    found = one(log)
    assert found.answer.failure_class is None
    assert found.facts.standing is Standing.CONSEQUENCE
    assert "log above" in found.answer.surer[0]


def test_what_a_shutdown_tears_down_is_no_failure() -> None:
    log = (VLLM / "vllm-0.32.0-pressure.log").read_text(encoding="utf-8")
    assert told(log) == []
    dead = error("16:36:11", "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.")
    assert told(log + dead + "\n") == []


CHECK = (
    "ValueError: Free memory on device cuda:0 (1.53/22.05 GiB) on startup is less than desired GPU memory utilization "
    "(0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)


def test_a_start_right_after_another_engine_is_recovery_and_alone_it_is_not() -> None:
    first = vllm("vllm-0.32.0-pressure.log", until="[shutdown] API server")
    second = (
        "(APIServer pid=31) INFO 11-29 16:36:25 [api_utils.py:286] non-default args: {'model': 'm', 'port': 8101}\n"
        + error("16:36:31", CHECK, "EngineCore pid=40")
    )
    both, alone = one(first, second), one(second)
    assert both.answer.failure_class is FailureClass.RECOVERY
    assert both.facts.previous_engine_s == 15
    assert alone.answer.failure_class is FailureClass.LOAD_TIME
    # What the device held, and what would pass, are in the message.
    assert alone.arithmetic.largest_share == 0.06
    assert 20.4 < alone.arithmetic.holders[0].bytes.expected / GIB < 20.6


def test_hours_between_two_engines_are_no_recovery() -> None:
    first = vllm("vllm-0.32.0-pressure.log", until="[shutdown] API server")
    second = (
        "(APIServer pid=31) INFO 11-29 21:36:25 [api_utils.py:286] non-default args: {'model': 'm', 'port': 8101}\n"
        + error("21:36:31", CHECK, "EngineCore pid=40")
    )
    assert one(first, second).answer.failure_class is FailureClass.LOAD_TIME


KERNEL = (
    "2026-11-29T16:35:40+00:00 host kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,"
    "oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=VLLM::EngineCor,pid=17894,uid=0\n"
    "2026-11-29T16:35:40+00:00 host kernel: Memory cgroup out of memory: Killed process 17894 (VLLM::EngineCor) "
    "total-vm:65000000kB, anon-rss:33554432kB, file-rss:2628kB, shmem-rss:0kB, UID:0 pgtables:119448kB oom_score_adj:0\n"
)


def test_a_kernel_log_is_joined_with_the_engines_phase() -> None:
    serving = vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs")
    loading = vllm("vllm-0.32.0-pressure.log", until="Starting to load model")
    in_service, at_load = one(serving, KERNEL), one(loading, KERNEL)
    assert in_service.facts.domain is Domain.HOST
    assert in_service.answer.failure_class is FailureClass.DECODE_GROWTH
    assert at_load.answer.failure_class is FailureClass.LOAD_TIME
    assert in_service.facts.kernel_says_oom


def test_killed_is_not_out_of_memory_until_the_kernel_says_so() -> None:
    refused, killed = told(recorded("killed.log"))
    assert refused.facts.kind == "cpu-allocator"
    assert killed.facts.kind == "killed"
    assert killed.answer.confidence is not Confidence.HIGH
    assert not killed.facts.is_proven
    (proven,) = (item for item in told(recorded("killed.log"), KERNEL) if item.facts.kind == "killed")
    assert proven.facts.is_proven


def test_a_real_start_under_a_limit() -> None:
    found = one(recorded("llamacpp-ulimit.log"))
    assert found.answer.failure_class is FailureClass.LOAD_TIME
    assert (found.facts.domain, found.facts.stage) == (Domain.HOST, Stage.KV_ALLOC)
    wanted = found.arithmetic.wanted_bytes
    assert wanted is not None
    # 65,536 cells of 23,040 bytes.
    assert wanted.low <= 65_536 * 23_040 <= wanted.high
    shorter = next(item for item in remedies_of(found) if item.change.startswith("ctx_size 65536"))
    assert shorter.frees_bytes == pytest.approx(32_768 * 23_040, rel=1e-3)


def test_cells_that_generating_slots_filled() -> None:
    found = one(recorded("llamacpp-unified-kv.log"))
    assert found.answer.failure_class is FailureClass.DECODE_GROWTH
    assert (found.facts.running_requests, found.facts.free_cells) == (4, 0)
    cap = remedies_of(found)[0]
    assert cap.change == "parallel → 3"
    assert "1,024 tokens, 256 each" in cap.effect


def test_cells_that_are_free_in_pieces() -> None:
    log = recorded("llamacpp-unified-kv.log").replace("n_tokens = 256, trunc", "n_tokens = 100, trunc")
    found = one(log)
    assert found.facts.free_cells == 1024 - 3 * 100 - 257
    assert found.answer.failure_class is FailureClass.FRAGMENTATION


def test_a_fragmented_pool_is_sure_once_a_snapshot_shows_it(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(error("16:35:36", oom("96.00 MiB", "40.00 MiB", "200.00 MiB")) + "\n", encoding="utf-8")
    alone = told_of(log)
    assert alone.answer.failure_class is FailureClass.FRAGMENTATION
    assert alone.answer.confidence is Confidence.MEDIUM

    allocator = CachingAllocator()
    blocks = [allocator.malloc(50 * MIB) for _ in range(8)]
    held = [allocator.malloc(50 * MIB) for _ in range(8)]
    for block in blocks:
        allocator.free(block)
    small = [allocator.malloc(20 * MIB) for _ in range(8)]
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    assert held
    assert small
    (peak,) = free_pieces(str(path), read_snapshot(str(path)))
    assert peak.largest_free_run_bytes < 96 * MIB < peak.free_bytes
    both = told_of(log, path)
    assert both.answer.failure_class is FailureClass.FRAGMENTATION
    assert both.answer.confidence is Confidence.HIGH


def series(name: str, start: float, slope_bytes_per_h: float) -> list[Sample]:
    memory = [
        Sample(
            at_s=start + 60 * i,
            source="proc:17894",
            name=name,
            value=int(4 * GIB + slope_bytes_per_h * i / 60),
        )
        for i in range(240)
    ]
    load = [
        Sample(at_s=start + 60 * i, source="metrics", name="running_requests", value=8 + i % 3)
        for i in range(240)
    ]
    return memory + load


def test_memory_that_rises_under_constant_load_is_told_without_a_message() -> None:
    log = vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs")
    start = 1_795_970_200.0
    found = one(log, samples=series("rss_bytes", start, 512 * MIB))
    assert found.answer.failure_class is FailureClass.DECODE_GROWTH
    assert not found.is_failure
    assert found.facts.host_slope_bytes_per_h == pytest.approx(512 * MIB, rel=0.01)
    assert told(log, samples=series("rss_bytes", start, 0)) == []


def test_memory_that_rises_with_its_load_is_no_leak() -> None:
    log = vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs")
    start = 1_795_970_200.0
    samples = [item for item in series("rss_bytes", start, 512 * MIB) if item.name == "rss_bytes"]
    samples += [
        Sample(at_s=start + 60 * i, source="metrics", name="running_requests", value=1 + i // 4)
        for i in range(240)
    ]
    assert told(log, samples=samples) == []


def test_a_wake_that_finds_its_memory_taken() -> None:
    more = "\n".join(
        (
            "(Worker pid=18215) INFO 11-29 16:36:00 [gpu_worker.py:180] Sleep mode freed 60.10 GiB memory, 4.20 GiB memory is still in use.",
            "(Worker pid=18215) CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
        )
    )
    found = one(vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more=more))
    assert found.answer.failure_class is FailureClass.RECOVERY
    assert found.facts.stage in (Stage.WAKE, Stage.SLEEP)


def test_sglang_retracts_and_then_fails_in_decode() -> None:
    log = (
        "[2026-11-29 17:00:01] server_args=ServerArgs(model_path='models/m', page_size=64, mem_fraction_static=0.9)\n"
        "[2026-11-29 17:01:00] max_total_num_tokens=131072, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=256, context_len=32768, available_gpu_mem=9.10 GB\n"
        "[2026-11-29 17:01:20] The server is fired up and ready to roll!\n"
        "[2026-11-29 17:05:00 TP0] Decode batch, #running-req: 148, #token: 128900, token usage: 0.98, cuda graph: False, "
        "gen throughput (token/s): 2210.20, #queue-req: 12, \n"
        "[2026-11-29 17:05:02 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.0980 -> 0.7070\n"
        "[2026-11-29 17:05:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: Decode out of memory. Try to lower your batch size.\n"
        "Try to allocate 148 tokens.\nAvailable tokens: 2048 (available_size=2048 + evictable_size=0)\n"
    )
    found = one(log)
    assert found.answer.failure_class is FailureClass.DECODE_GROWTH
    assert found.facts.domain is Domain.KV_POOL
    assert found.facts.running_requests == 148
    assert found.facts.waiting_requests == 12
    # More tokens are free than were asked for; what ran out are pages.
    assert any("32 pages of 64" in text for text in found.arithmetic.lines)


def test_the_same_failure_of_a_restart_loop_is_told_once() -> None:
    start = vllm("vllm-0.32.0-compile.log", until="Starting to load model", more=error("16:08:10", oom()))
    again = start.replace("16:0", "17:0")
    found = one(start + again)
    assert found.repeats == 1


def test_a_plan_that_is_refused_says_why_nothing_is_sized() -> None:
    def planner(changes: Mapping[str, object]) -> Plan:
        raise FlagError("--load-format odd is not one of vLLM's", flag="load-format", value="odd")

    log = vllm("vllm-0.32.0-compile.log", until="Starting to load model", more=error("16:08:10", oom()))
    found = with_remedies(one(log), planner)
    assert any("--load-format odd" in item.needs for item in found.remedies)
    assert all("--model" not in item.needs for item in found.remedies)


def test_logs_of_two_engines_tell_two_failures() -> None:
    theirs = "llama_context: constructing llama_context\n" + "failed to allocate buffer for kv cache\n"
    ours = vllm("vllm-0.32.0-compile.log", until="Starting to load model", more=error("16:08:10", oom()))
    assert {item.facts.engine for item in told(ours, theirs)} == {"vllm", "llamacpp"}


def test_ranks_that_nothing_states_are_not_said_to_be_one() -> None:
    untold = (
        error("16:08:10", "RuntimeError: failed while Loading checkpoint shards")
        + "\n"
        + error("16:08:10", oom())
    )
    found = one("INFO 11-29 16:08:01 [x.py:1] Starting to load model m...\n" + untold, engine="vllm")
    changes = [item.change for item in remedies_of(found)]
    assert "twice as many ranks (tensor_parallel_size)" in changes


def test_narrower_kv_does_not_help_where_nothing_is_left_for_any() -> None:
    refusal = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
    found = one(
        vllm("vllm-0.32.0-compile.log", until="Starting to load model", more=error("16:08:10", refusal))
    )
    assert (found.facts.kind, found.answer.failure_class) == ("vllm-kv-none", FailureClass.LOAD_TIME)
    assert not any("kv_cache_dtype" in item.change for item in remedies_of(found))


def told_of(*paths: Path) -> Diagnosis:
    collected = collect([str(path) for path in paths])
    (found,) = diagnose(collected.observations, samples=collected.samples, snapshots=collected.snapshots)
    return found


def remedies_of(found: Diagnosis) -> tuple[Remedy, ...]:
    return with_remedies(found, None).remedies


def sglang_refusal(after_gib: str) -> str:
    return (
        "[2026-11-29 17:00:01] server_args=ServerArgs(model_path='models/m', mem_fraction_static=0.8)\n"
        "[2026-11-29 17:00:05 TP0] Load weight begin. avail mem=23.20 GB\n"
        f"[2026-11-29 17:00:25 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem={after_gib} GB, mem usage=19.00 GB.\n"
        "[2026-11-29 17:00:26 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.8\n"
    )


def test_sglangs_share_has_an_interval() -> None:
    found = one(sglang_refusal("4.20"))
    assert found.answer.failure_class is FailureClass.LOAD_TIME
    interval = found.arithmetic.share_interval
    assert interval is not None
    # KV begins where the share is more than what weights took: 1 - 4.20 / 23.20.
    assert interval[0] == pytest.approx(0.819, abs=0.0005)
    raised = remedies_of(found)[0]
    assert raised.change == "mem_fraction_static 0.8 → 0.84"
    assert raised.frees_bytes == pytest.approx((0.84 - interval[0]) * 23.2 * GIB, rel=1e-3)
    # Where weights leave almost nothing, no share below 1 works.
    assert not any("mem_fraction_static" in item.change for item in remedies_of(one(sglang_refusal("0.10"))))


def test_what_a_killed_process_held_is_in_the_numbers() -> None:
    found = one(KERNEL)
    (own,) = (item.bytes for item in found.arithmetic.holders if item.who.startswith("memory of"))
    assert own.expected == 33_554_432 * 1024
    assert any("32.00 GiB resident" in item.effect for item in remedies_of(found))


def test_ranks_with_logs_of_their_own_are_one_instance() -> None:
    first = vllm(
        "vllm-0.32.0-pressure.log",
        until="Running: 1 reqs",
        more=error("16:35:37", "NCCL error: unhandled cuda error", "Worker_TP0 pid=1"),
    )
    second = error("16:35:36", oom(), "Worker_TP1 pid=2") + "\n"
    found = one(first, second)
    assert found.incident.first.process == "Worker_TP1 pid=2"
    assert found.facts.previous_engine_s is None
    assert len(found.incident.lines) == 2
