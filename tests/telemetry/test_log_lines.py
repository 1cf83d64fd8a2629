"""Prefixes: worked examples of what printers and collectors write, and that nesting them changes no text."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vramledger.observation import Place
from vramledger.telemetry.log_lines import LogLine, read_lines
from vramledger.telemetry.log_times import yearless_time

NOW_S = 1_796_000_000.0  # 2026-11-30 00:53:20 UTC
PLACE = Place(source="log")
AT_S = 1_795_968_770.0  # 2026-11-29 16:12:50 UTC


def lines(raw: bytes | str) -> list[LogLine]:
    return read_lines(raw.encode() if isinstance(raw, str) else raw, place=PLACE, reference_s=NOW_S)


def only(raw: bytes | str) -> LogLine:
    (line,) = lines(raw)
    return line


@pytest.mark.parametrize(
    ("raw", "text", "told"),
    [
        ("(EngineCore pid=6585) INFO 11-29 16:12:50 [core.py:133] T", "T", ("INFO", None, "EngineCore pid=6585")),
        ("INFO 11-29 16:12:50 llm_engine.py:161] T", "T", ("INFO", None, None)),
        ("INFO 11-29 16:12:50 [v1/worker/gpu_worker.py:298] T", "T", ("INFO", None, None)),
        ("(VllmWorker rank=1 pid=7) ERROR 11-29 16:12:50 [e.py:1] T", "T", ("ERROR", 1, "VllmWorker rank=1 pid=7")),
        ("(VllmWorker-3 pid=7) WARNING 11-29 16:12:50 [e.py:1] T", "T", ("WARNING", 3, "VllmWorker-3 pid=7")),
        ("(Worker_TP1 pid=7) INFO 11-29 16:12:50 [e.py:1] T", "T", ("INFO", 1, "Worker_TP1 pid=7")),
        ("(Worker_PP1_TP1 pid=7) INFO 11-29 16:12:50 [e.py:1] T", "T", ("INFO", None, "Worker_PP1_TP1 pid=7")),
        ("(RayWorkerWrapper pid=7, ip=10.0.0.3) INFO 11-29 16:12:50 [e.py:1] T", "T",
         ("INFO", None, "RayWorkerWrapper pid=7, ip=10.0.0.3")),
        ("[2026-11-29 16:12:50 TP0] T", "T", (None, 0, "TP0")),
        ("[2026-11-29 16:12:50 DP1 TP3 EP3] T", "T", (None, 3, "DP1 TP3 EP3")),
        ("[gpu=2] T", "T", (None, 2, None)),
        ("[11/29/2026-16:12:50] [TRT-LLM] [RANK 3] [W] T", "T", ("WARNING", 3, None)),
        ("[TensorRT-LLM][ERROR] T", "T", ("ERROR", None, None)),
        ("2026-11-29T16:12:50.000Z  INFO dynamo_llm::http: T", "T", ("INFO", None, None)),
        ("2026-11-29 16:12:50,000 - lmdeploy - ERROR - engine.py:12 - T", "T", ("ERROR", None, None)),
        ("2026-11-29 16:12:50.000 | INFO     | a.b:c:12 - T", "T", ("INFO", None, None)),
        ("[2026-11-29 16:12:50 +0000] [77] [INFO] T", "T", ("INFO", None, None)),
        ("[W1129 16:12:50.000000000 CUDACachingAllocator.cpp:3340] T", "T", ("WARNING", None, None)),
        ("E1129 16:12:50.000000    99 engine.cc:12] T", "T", ("ERROR", None, None)),
        ("Nov 29 16:12:50 gpu1 vllm[77]: T", "T", (None, None, None)),
        ("2026-11-29T16:12:50+0000 gpu1 kernel: T", "T", (None, None, None)),
        ("<6>Nov 29 16:12:50 gpu1 kernel: [ 1234.567890] T", "T", (None, None, None)),
        ("<14>1 2026-11-29T16:12:50Z gpu1 vllm 77 - - T", "T", (None, None, None)),
        ("[Sun Nov 29 16:12:50 2026] T", "T", (None, None, None)),
        ("2026-11-29T16:12:50.000000000Z stderr F T", "T", (None, None, None)),
        ("2026-11-29T17:12:50+01:00 {app=\"vllm\", pod=\"a\"} T", "T", (None, None, None)),
        ("time=2026-11-29T08:12:50.000-08:00 level=WARN source=sched.go:1 T", "T", ("WARNING", None, None)),
        ('{"log":"T\\n","stream":"stderr","time":"2026-11-29T16:12:50.0Z"}', "T", (None, None, None)),
        ('{"timestamp":"2026-11-29T16:12:50Z","level":"INFO","fields":{"message":"T"},"target":"x"}', "T",
         ("INFO", None, None)),
        ('{"__REALTIME_TIMESTAMP":"1795968770000000","MESSAGE":[27,91,51,49,109,84],"_PID":"7"}', "T", (None, None, None)),
        ('{"labels":{"pod":"a"},"line":"T","timestamp":"2026-11-29T16:12:50Z"}', "T", (None, None, None)),
        ('{"date":1795968770.0,"log":"T","kubernetes":{"pod_name":"vllm-0"}}', "T", (None, None, None)),
    ],
)  # fmt: skip
def test_what_a_prefix_says(raw: str, text: str, told: tuple[str | None, int | None, str | None]) -> None:
    line = only(raw)
    assert line.text == text
    assert (line.level, line.rank, line.process) == told
    assert line.at_s == (AT_S if "gpu=" not in raw and "TensorRT-LLM]" not in raw else None)


@pytest.mark.parametrize(
    ("raw", "container"),
    [
        ("vllm-1  | T", "vllm-1"),
        ("[pod/vllm-0/main] T", "vllm-0/main"),
        ("Nov 29 16:12:50 gpu1 vllm[77]: T", "vllm[77]"),
        ("vllm-0 main (EngineCore pid=7) INFO 11-29 16:12:50 [a.py:1] T", "vllm-0 main"),
        ("2026-11-29T16:12:50.000+00:00 app/vllm/0a1b [2026-11-29 16:12:50 TP0] T", "app/vllm/0a1b"),
        ('{"date":1,"log":"T","kubernetes":{"pod_name":"vllm-0"}}', "vllm-0"),
    ],
)
def test_where_a_collector_found_it(raw: str, container: str) -> None:
    assert only(raw).container == container and only(raw).text == "T"


def test_time_since_the_start_is_no_time_of_day() -> None:
    line = only("0.04.551.256 W slot release: T")
    assert line.elapsed_s == pytest.approx(4.551256) and line.at_s is None and line.level == "WARNING"
    assert only("[12345.678901] T").elapsed_s == 12345.678901


def test_a_zone_beats_what_a_printer_wrote_without_one() -> None:
    line = only("2026-11-29T16:12:50Z stdout F INFO 11-29 08:12:50 [a.py:1] T")
    assert line.at_s == AT_S and line.text == "T"


def test_a_message_of_several_lines_in_one_document() -> None:
    found = lines(
        json.dumps({"message": "INFO 11-29 16:12:50 [a.py:1] one\nINFO 11-29 16:12:50 [a.py:1] two"})
    )
    assert [line.text for line in found] == ["one", "two"]


@pytest.mark.parametrize(
    "text",
    [
        "# GPU blocks: 2241, # CPU blocks: 512",
        "llama_kv_cache: size = 84.00 MiB",
        "[TM][ERROR] CUDA runtime error: out of memory",
        "[MemUsageChange] Allocated 12.00 MiB for execution context memory.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0",
        "| memory breakdown [MiB] | total   free",
        "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less",
        "(profile, create kv cache, warmup model) took 3 seconds",
        "max_total_num_tokens=8192, chunked_prefill_size=4096",
        "Out of memory: Killed process 77 (python) total-vm:1kB",
        '{"a": 1}',
        "{not json}",
        "Capture failed: size 512",
        "Scheduler exception: x",
    ],
)
def test_text_that_only_looks_like_a_prefix_stays(text: str) -> None:
    assert only(text).text == text
    for layer in (
        "[2026-11-29 16:12:50 TP0] ",
        "2026-11-29T16:12:50.0Z ",
        "[rank0]: ",
        "2026-11-29T16:12:50Z INFO a: ",
    ):
        assert only(layer + text).text == text
    assert only(f"(EngineCore pid=1) INFO 11-29 16:12:50 [a.py:1] {text}").text == text


def test_a_year_is_the_nearest_past_one() -> None:
    assert (
        yearless_time("11", "30", "12:00:00", NOW_S) == 1_796_040_000.0
    )  # later today: a zone ahead of ours
    assert yearless_time("12", "02", "00:00:00", NOW_S) == 1_764_633_600.0  # 2025
    assert yearless_time("Feb", "29", "00:00:00", NOW_S) == 1_709_164_800.0  # 2024
    assert yearless_time("02", "30", "00:00:00", NOW_S) is None
    assert yearless_time("11", "29", "25:00:00", NOW_S) is None


LAYERS = (
    "(EngineCore pid=6585) ",
    "(VllmWorker rank=1 pid=9) ",
    "(Worker_TP1 pid=8) ",
    "INFO 11-29 16:12:50 [core.py:133] ",
    "ERROR 11-29 16:12:50 [v1/core.py:133] ",
    "[2026-11-29 17:26:59 TP0] ",
    "[11/29/2026-17:26:59] [TRT-LLM] [I] ",
    "[TensorRT-LLM][WARNING] ",
    "0.00.001.047 I ",
    "[rank0]: ",
    "[1,0]<stdout>:",
    "2026-11-29T16:12:50.123456789Z stdout F ",
    "[pod/vllm-0/main] ",
    "vllm-1  | ",
    "Nov 29 16:12:50 host vllm[12]: ",
    "2026-11-29T16:12:50.1Z  INFO a.b: ",
    "\x1b[1;36m",
    "\x1b[0;0m",
    "JSON",
    "DOCKER",
)


def wrapped_in(layers: list[str], text: str) -> str:
    for layer in reversed(layers):
        if layer == "JSON":
            text = json.dumps({"level": "info", "message": text})
        elif layer == "DOCKER":
            text = json.dumps({"log": text + "\n", "stream": "stdout", "time": "2026-11-29T16:12:50.1Z"})
        else:
            text = layer + text
    return text


@given(
    st.lists(st.sampled_from(LAYERS), max_size=8),
    st.sampled_from(["GPU KV cache size: 8,192 tokens", "out of memory", "# GPU blocks: 1", "größer"]),
)
def test_nesting_prefixes_never_changes_the_text(layers: list[str], text: str) -> None:
    assume(sum(layer in ("JSON", "DOCKER") for layer in layers) <= 4)
    assert only(wrapped_in(layers, text)).text == text


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_a_line(raw: bytes) -> None:
    assert lines(raw)


@given(
    st.lists(
        st.sampled_from([*LAYERS, "{", "[", "(", '"', ":", "|", "<", "2026-", "11-29", "pid=", "\\u"]),
        max_size=12,
    )
)
def test_torn_prefixes_are_a_line(parts: list[str]) -> None:
    assert lines("".join(parts))


@pytest.mark.parametrize(
    "junk", ["[", "(a", "{", "<", "1", "a", "A", " ", "\x1b[", "[2026-11-29 ", "(x pid=1) ", "a |"]
)
def test_long_lines_of_what_looks_like_prefixes_end(junk: str) -> None:
    assert lines(junk * (128 * 1024 // len(junk)))
