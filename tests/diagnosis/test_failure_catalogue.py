"""What holds of the whole catalogue of failure messages."""

from __future__ import annotations

import json
import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.failure_texts import figures, kind_in
from vramledger.diagnosis.messages import FAILURES, KINDS, Standing, kind_of
from vramledger.diagnosis.messages.executor_reading import executor_failure
from vramledger.diagnosis.messages.pool_reading import pool_books, pool_shortage
from vramledger.diagnosis.messages.torch_reading import torch_oom
from vramledger.diagnosis.messages.wording import MessagePattern
from vramledger.observation import Event, Observation, Place
from vramledger.telemetry.log_reading import read_log


def test_every_wording_is_of_a_kind_that_is_explained() -> None:
    assert {pattern.constants["message"] for pattern in FAILURES} == set(KINDS)
    assert {pattern.event for pattern in FAILURES} == {Event.FAILURE}
    assert all(kind.meaning and kind.source and kind.name == name for name, kind in KINDS.items())


def expressions() -> Iterator[re.Pattern[str]]:
    for pattern in FAILURES:
        yield pattern.pattern
        if isinstance(pattern, MessagePattern):
            yield from (part.pattern for part in pattern.parts)


def repeats(tree: Any) -> Iterator[tuple[int, int]]:
    """How often each repeated piece may stand, and how deep it is nested in others that repeat often."""
    for code, argument in tree:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            _, most, inner = argument
            yield most, 0
            yield from ((count, depth + (most > 40)) for count, depth in repeats(inner))
        elif isinstance(argument, tuple):
            for item in argument:
                if hasattr(item, "data"):
                    yield from repeats(item)
                elif isinstance(item, list):
                    yield from (found for branch in item for found in repeats(branch))


def test_no_expression_repeats_without_bound() -> None:
    """Together with the window around an anchor this bounds the work on any line."""
    counts = [most for pattern in expressions() for most, _ in repeats(parser.parse(pattern.pattern))]
    assert counts
    assert max(counts) <= 3000


@pytest.mark.parametrize(
    "filler", ["1", "a ", "Process 1 has 1.00 GiB memory in use. ", "A: 1.0 / 1.0 ", "((((", " ", "1."]
)
def test_long_hostile_lines_come_to_an_end(filler: str) -> None:
    for pattern in FAILURES:
        pattern.read((pattern.anchor + filler * 40) * 3 + filler * (20_000 // len(filler)))
        pattern.read(filler * 300 + pattern.anchor + filler * 6_000)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RuntimeError: CUDA error: out of memory", "cuda-oom"),
        ("RuntimeError: HIP error: out of memory", "cuda-oom"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "library-handle"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "library-start"),
        ("enqueue.cc:43 NCCL WARN Cuda failure 2 'out of memory'", "nccl-oom"),
        ("ncclUnhandledCudaError: Call to CUDA function failed.", "nccl-unhandled"),
        ("CUDA error: an illegal memory access was encountered", "illegal-access"),
        ("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "level-zero-oom"),
        (
            "CUresult error: 2 (out of memory)  file=csrc/utils.h func=cu_mem_create line=104",
            "memory-saver-oom",
        ),
        (
            (
                "[torch_memory_saver.cpp] cuMemCreate CUDA_ERROR_OUT_OF_MEMORY (may not be an issue e.g. torch allocator "
                "will free cache and retry)"
            ),
            "memory-saver-retry",
        ),
        ("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62", "vllm-cumem-oom"),
        ("EngineCore failed to start.", "vllm-engine-dead"),
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            "sglang-static-share",
        ),
        ("Exception: Capture cuda graph failed: invalid argument", "sglang-graph-capture"),
        ("llama_kv_cache_init: failed to allocate buffer for kv cache", "ggml-buffer"),
        ("decode: failed to find a memory slot for batch of size 8", "llama-kv-cells"),
        ("  Device 0: AMD Radeon, gfx1151 (0x1151), VMM: no, Wave Size: 32", "ggml-no-vmm"),
        ("State: Terminated  Reason: OOMKilled", "container-oom-killed"),
        ("      Exit Code:    137", "killed"),
        ("Child process unexpectedly failed with exitcode=-9. pid=12", "killed"),
        ("./run.sh: line 12: 40122 Killed                  python serve.py", "killed"),
        ("Bus error (core dumped)", "bus-error"),
        (
            "ERROR: Unexpected bus error encountered in worker. insufficient shared memory (shm).",
            "shared-memory-full",
        ),
        ("MemoryError", "cpu-allocator"),
        ("No enough gpu memory for kv cache.", "lmdeploy-kv-none"),
        ("Error: llama runner process has terminated: exit status 2", "ollama-runner-ended"),
        (
            "RuntimeError: Not enought memory. Please try to increase --mem-fraction-static.",
            "sglang-static-share",
        ),
        ("Multimodal preprocessing ran out of GPU memory on cuda:0; retrying on CPU", "sglang-media-retry"),
        ("retract_decode: aborted last request 7f due to OOM", "sglang-aborted"),
        (
            "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
            "vllm-kv-none",
        ),
        ("Call to wake_up method failed: CUDA Error: out of memory at <path>:163", "vllm-cumem-oom"),
        ("[PUT]Recv Tensor, Out Of Memory, 7, data:7", "vllm-transfer-full"),
        (
            "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
            "ggml-reserve-retry",
        ),
        (
            "triton.runtime.errors.OutOfResources: shared memory,\nRequired: 98304, Hardware limit: 65536",
            "triton-out-of-resources",
        ),
        ("the engine died: CUDA OutOfMemory at run time", "unnamed-shortage"),
        ("Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.", "killed"),
        ("Worker proc VllmWorker-0 died unexpectedly, shutting down executor.", "vllm-engine-dead"),
        ('{"terminated": {"exitCode": 137, "reason": "Error"}}', "killed"),
        ("Received sigquit from a child process. It usually means the child failed.", "sglang-child-failed"),
        ("0.00.514.380 E srv          init: exiting due to model loading error", "llama-load-failed"),
    ],
)
def test_a_text_is_of_its_kind(text: str, kind: str) -> None:
    assert kind_in(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "INFO: the sign OOMKilled: false was read",
        '"OOMKilled": false,',
        "GET /v1/models code 1370",
        "Killed requests are counted",
        "oom_kill 0",
        "unable to open file",
        # Engines' own advice and warnings of what could happen.
        (
            "CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider decreasing "
            "`gpu_memory_utilization` or enforcing eager mode."
        ),
        "The model has a long context length (131072). This may cause OOM errors during the initial memory profiling phase",
        (
            "Initial free memory 31.16 GiB, reserved 4.25 GiB memory for KV Cache as specified by kv_cache_memory_bytes config "
            "and skipped memory profiling. This does not respect the gpu_memory_utilization config. If OOM'ed, check the "
            "difference of initial free memory between the current run and the previous run where kv_cache_memory_bytes is suggested"
        ),
        (
            "Free memory on device (78.5/79.2 GiB) on startup. Desired GPU memory utilization is (0.9, 71.3 GiB). Actual usage is "
            "15.0 GiB for weight, 1.1 GiB for peak activation"
        ),
        "if it is an OOM problem, set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        "Unable to shutdown process 264 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL",
    ],
)
def test_what_is_no_failure_is_not_read(text: str) -> None:
    assert all(pattern.read(text) is None for pattern in FAILURES)


TEXTS = [
    text
    for name in ("oom-reports.jsonl", "oom-messages-extra.jsonl")
    for line in (Path(__file__).resolve().parents[2] / "data/groundtruth" / name)
    .read_text("utf-8")
    .splitlines()
    for text in json.loads(line)["messages"]
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.sampled_from(TEXTS),
    st.integers(0, 400),
    st.integers(0, 400),
    st.text(max_size=9),
)
def test_spoilt_messages_are_read_without_an_error(
    first: str, second: str, cut: int, resume: int, junk: str
) -> None:
    """What two printers wrote over each other, cut anywhere, with anything in between."""
    text = first[:cut] + junk + second[resume:]
    for pattern in FAILURES:
        values = pattern.read(text)
        if values is not None:
            found = Observation(event=pattern.event, values=values, place=Place(source="test"), text=text)
            assert kind_of(found).name == values["message"]
            oom = torch_oom(found)
            assert oom is None or oom.missing is None or oom.missing.low >= 0
            pool_shortage(found)
            pool_books(found)
            executor_failure(found)


LOGS = Path(__file__).resolve().parents[1] / "engines/recorded/logs"


@pytest.mark.parametrize(
    "log",
    [
        path
        for path in sorted(LOGS.iterdir())
        if not re.search("fail|exhaust|refus|preempt|too-long|die", path.name)
    ],
)
def test_a_log_of_an_engine_that_serves_has_no_cause_of_failure(log: Path) -> None:
    found = [kind_of(item) for item in read_log(log, patterns=FAILURES) if item.event is Event.FAILURE]
    assert [kind.name for kind in found if kind.standing is Standing.CAUSE] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Available memory on node 0 (3.2/31.3 GiB) on startup is less than desired CPU memory utilization (0.92, 28.8 GiB).",
            {
                "free_bytes": 3.2,
                "total_bytes": 31.3,
                "utilization_ratio": 0.92 / 2**30,
                "requested_bytes": 28.8,
            },
        ),
        (
            (
                "Free memory on device cuda:0 (9.5/79.2 GiB) on startup is less than the engine's budget after excluding external "
                "process's weights (0.9, 41.3 GiB). Decrease GPU memory utilization"
            ),
            {
                "free_bytes": 9.5,
                "total_bytes": 79.2,
                "utilization_ratio": 0.9 / 2**30,
                "requested_bytes": 41.3,
            },
        ),
        (
            "SWA pool cap (7168 tokens, 11.25 GiB) leaves no room for the full KV pool within the available 9.75 GiB.",
            {"window_tokens": 7168 / 2**30, "window_bytes": 11.25, "available_bytes": 9.75},
        ),
        (
            "Not enough host memory available. Requesting 64.00 GB but only have 31.50 GB free.",
            {"requested_bytes": 64e9 / 2**30, "free_bytes": 31.5e9 / 2**30},
        ),
    ],
)
def test_the_figures_of_a_refusal_are_read_in_its_own_units(text: str, expected: dict[str, float]) -> None:
    found = figures(text)
    for name, gib in expected.items():
        value = found[name]
        assert isinstance(value, int | float)
        assert value == pytest.approx(gib * 2**30, abs=1)


def test_the_kernels_line_gives_what_the_victim_held() -> None:
    found = figures(
        "[81234.5] Memory cgroup out of memory: Killed process 4711 (python3) total-vm:78521468kB, anon-rss:54398260kB,"
        " file-rss:2628kB, shmem-rss:12kB, UID:1000 pgtables:119448kB oom_score_adj:-997"
    )
    assert found["message"] == "cgroup-oom-kill"
    assert found["pid_id"] == 4711
    assert found["task"] == "python3"
    assert found["anon_rss_bytes"] == 54398260 * 1024
    assert found["oom_score_adj_count"] == -997
