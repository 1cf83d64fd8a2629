"""Words that read like a failure and are none: what clients wrote, what metrics explain, what settings are called."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from diagnosis.diagnosed import one, told
from diagnosis.test_stories import error, oom, vllm
from telemetry.caching_allocator import CachingAllocator
from vramledger.cli.output import escaped
from vramledger.diagnosis.diagnosis import diagnose
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.terms import FailureClass, Stage
from vramledger.errors import shorter
from vramledger.telemetry.evidence_files import collect
from vramledger.units import GIB, MIB


@pytest.mark.parametrize(
    "quoting",
    [
        "INFO 11-29 16:35:40 [logger.py:39] Received request chatcmpl-1: prompt: {text!r}, params: SamplingParams(n=1)",
        "INFO 11-29 16:35:40 [logger.py:80] Generated response chatcmpl-1 (streaming): output: {text!r}",
        "[2026-11-29 16:35:40] Receive: obj=GenerateReqInfo(text={text!r}, sampling_params=None)",
        "[2026-11-29 16:35:40] Finish: obj=GenerateReqInfo(text='hi'), out={{'text': {text!r}}}",
        'time=2026-11-29T16:35:40Z level=DEBUG msg="chat request" images=0 prompt={text!r}',
        "srv  log_server_r: request: {text!r}",
    ],
)
def test_what_a_client_sent_is_no_message_of_a_program(quoting: str) -> None:
    log = vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more=quoting.format(text=oom()))
    assert told(log) == []


def test_a_message_about_a_request_is_one() -> None:
    log = vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more=error("16:35:40", oom()))
    assert one(log).answer.failure_class is not None


def test_help_texts_of_saved_metrics_describe_nothing(tmp_path: Path) -> None:
    scrape = tmp_path / "vllm.metrics"
    scrape.write_text(
        "# HELP vllm:request_prefill_kv_computed_tokens Histogram of new KV tokens computed during prefill\n"
        "# TYPE vllm:request_prefill_kv_computed_tokens histogram\n"
        'vllm:request_prefill_kv_computed_tokens_sum{engine="0"} 12.0\n'
    )
    assert diagnose(collect([str(scrape)]).observations) == []


def test_a_killer_that_is_turned_off_killed_nothing() -> None:
    assert told("oom_score_adj set to 0; OOM killer disabled for this container\n") == []


def test_the_buffer_is_named_by_the_line_after_the_shared_function() -> None:
    found = one(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory\n"
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 17179869184\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
    )
    assert (found.answer.failure_class, found.facts.stage) == (FailureClass.LOAD_TIME, Stage.KV_ALLOC)


def test_a_communicator_says_so_without_its_debug_prefix() -> None:
    found = one(error("16:08:10", "Cuda failure 2 'out of memory'"))
    assert (found.facts.kind, found.facts.stage) == ("nccl-oom", Stage.FIRST_COLLECTIVE)


def test_what_is_killed_because_it_does_not_end_in_time_did_not_fail() -> None:
    ending = "INFO 11-29 16:36:00 [launcher.py:79] Shutting down FastAPI HTTP server.\ncontainer exited with code 137"
    assert told(vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more=ending)) == []


def test_a_process_found_dead_failed_for_reasons_that_nobody_printed() -> None:
    dead = "\n".join(
        (
            error("16:36:00", "Engine core proc EngineCore_0 died unexpectedly, shutting down client."),
            "INFO 11-29 16:36:01 [launcher.py:79] Shutting down FastAPI HTTP server.",
        )
    )
    found = one(vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more=dead))
    assert found.facts.standing is Standing.CONSEQUENCE
    assert found.answer.failure_class is None
    assert "kernel log" in found.answer.surer[0]


def test_json_holds_nothing_that_a_terminal_obeys() -> None:
    text = json.dumps({"model": "a\x9b2J\u202eb"}, ensure_ascii=False)
    assert escaped(text).isascii()
    assert json.loads(escaped(text)) == json.loads(text)


def test_a_snapshot_tells_the_failure_that_its_history_holds(tmp_path: Path) -> None:
    allocator = CachingAllocator()
    allocator.malloc(600 * MIB)
    allocator.fail(GIB, 100 * MIB)
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    collected = collect([str(path)])
    (found,) = diagnose(collected.observations, snapshots=collected.snapshots)
    missing = found.arithmetic.missing_bytes
    assert missing is not None
    assert (found.facts.kind, missing.expected) == ("torch-oom", GIB - 100 * MIB)
    log = tmp_path / "server.log"
    log.write_text(vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more=error("16:35:40", oom())))
    joined = collect([str(path), str(log)])
    (found,) = diagnose(joined.observations, snapshots=joined.snapshots)
    assert found.incident.first.place.source == str(log)


def test_what_is_shown_of_lists_within_one_list_is_bounded() -> None:
    shared: list[object] = [0] * 10
    for _ in range(40):
        shared = [shared] * 10
    assert len(shorter(shared)) <= 80


def test_an_error_that_says_nothing_of_memory_is_named() -> None:
    crash = "\n".join(
        (
            error("16:35:40", "EngineCore encountered a fatal error."),
            error("16:35:40", "Traceback (most recent call last):"),
            error("16:35:40", "AssertionError"),
        )
    )
    found = one(vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more=crash))
    assert found.answer.failure_class is None
    assert found.incident.exception is not None
    assert found.facts.raised == "AssertionError"


def test_what_killed_a_process_is_told_by_the_kernel() -> None:
    found = one(vllm("vllm-0.32.0-pressure.log", until="Running: 1 reqs", more="Killed"))
    assert found.facts.domain is Domain.HOST
    assert "kernel log" in found.answer.surer[0]
