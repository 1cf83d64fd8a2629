"""`vramledger diagnose`: pages, documents, exit codes, remedies sized by a plan, and files that are none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest

from vramledger.cli.app import run
from vramledger.observation import Sample
from vramledger.report.schema import schema_of
from vramledger.telemetry.series_file import SeriesWriter

RECORDED = Path(__file__).resolve().parents[1] / "diagnosis" / "recorded"
OOM = (
    "(EngineCore pid=11) INFO 11-30 00:00:01 [gpu_worker.py:298] Available KV cache memory: 2.97 GiB\n"
    "(EngineCore pid=11) INFO 11-30 00:00:01 [kv_cache_utils.py:1087] GPU KV cache size: 150,745 tokens\n"
    "(EngineCore pid=11) ERROR 11-30 00:00:05 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. "
    "GPU 0 has a total capacity of 22.36 GiB of which 120.88 MiB is free. Process 5 has 22.20 GiB memory in use. Of the allocated "
    "memory 20.10 GiB is allocated by PyTorch, with 76.00 MiB allocated in private pools (e.g., CUDA Graphs), and 4.00 MiB is "
    "reserved by PyTorch but unallocated.\n"
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(OOM, encoding="utf-8")
    return str(path)


def test_a_page_tells_class_numbers_evidence_and_sized_remedies(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", log, "--set", "gpu_memory_utilization=0.98"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("warm-up, high confidence")
    assert "missing" in page
    assert f"{log}:3" in page
    # 0.01 of 22.36 GiB, and what that costs at the pool's own 21 KiB a token.
    assert "gpu_memory_utilization 0.98 → 0.97" in page
    assert "229.0 MiB" in page
    assert "KV tokens" in page
    assert all(len(line) <= 80 for line in page.splitlines() if log not in line)


def test_the_document_is_valid_and_lists_rules_that_could_not_speak(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", log, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("diagnosis")).validate(found)
    (failure,) = found["failures"]
    assert failure["failure_class"] == "warm-up"
    sums = failure["arithmetic"]
    assert sums["wanted_bytes"]["expected"] == 136 * 2**20
    assert sums["missing_bytes"]["expected"] == 136 * 2**20 - sums["available_bytes"]["expected"]
    assert {rule["name"] for rule in failure["rules"]} >= {"while-warming-up"}
    assert all(rule["lacking"] for rule in failure["rules_without_evidence"])


def test_a_model_that_the_log_names_and_nothing_reads_spoils_no_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weights").mkdir()
    named = tmp_path / "server.log"
    start = f"INFO 11-30 00:00:00 [core.py:93] Initializing a V1 LLM engine (v0.11.0) with config: model='{tmp_path / 'weights'}', dtype=torch.bfloat16\n"
    named.write_text(start + OOM, encoding="utf-8")
    assert run(["diagnose", str(named)]) == 0
    assert capsys.readouterr().out.startswith("warm-up, high confidence")
    assert run(["diagnose", str(named), "--model", str(tmp_path / "weights")]) == 4


def test_what_happened_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = tmp_path / "quiet.log"
    quiet.write_text("(EngineCore pid=11) INFO 11-30 00:00:01 [core.py:1] hello\n", encoding="utf-8")
    dead = tmp_path / "dead.log"
    dead.write_text(
        "ERROR 11-30 00:00:01 [core.py:1] EngineCore encountered a fatal error.\n", encoding="utf-8"
    )
    assert run(["diagnose", str(quiet)]) == 12
    assert "no memory failure found" in capsys.readouterr().out
    assert run(["diagnose", str(dead)]) == 11
    assert "cannot be told" in capsys.readouterr().out
    assert run(["diagnose", str(dead), "--exit-zero"]) == 0


def test_a_pipe_is_read_once_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w", encoding="utf-8") as pipe:
        pipe.write(
            "[torch] CUDA error: out of memory\n"
            + "(EngineCore pid=11) INFO 11-30 00:00:01 [core.py:1] hi\n" * 200
        )
    try:
        assert run(["diagnose", f"/dev/fd/{ours}"]) == 11
    finally:
        os.close(ours)
    assert f"/dev/fd/{ours}:1" in capsys.readouterr().out


def test_what_was_survived_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.write_text("ggml_cuda_host_malloc: failed to allocate 1024.00 MiB of pinned memory: out of memory\n")
    assert run(["diagnose", str(log)]) == 12
    assert capsys.readouterr().out.startswith("no memory failure found; the program went on after these:")


def test_a_real_failure_with_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(RECORDED / "llamacpp-ulimit.log"), str(RECORDED / "llamacpp-unified-kv.log")]
    assert run(["diagnose", *files, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [failure["failure_class"] for failure in found["failures"]] == ["load-time", "decode-growth"]
    assert [source["kind"] for source in found["sources"]] == ["log", "log"]


@pytest.mark.parametrize(
    "junk",
    [
        os.urandom(100_000),
        b"\x00" * 50_000,
        b"out of memory" * 20_000,
        b"[" * 200_000,
        b"Tried to allocate " + b"9" * 100_000 + b" GiB",
        b"torch.OutOfMemoryError: \x1b]0;owned\x07\x1b[31mCUDA out of memory. Tried to allocate 2.00 GiB.\n",
        b'{"at_s": 1',
        b"Process 1 has 1.00 GiB memory in use. " * 5_000,
    ],
)
def test_junk_is_no_traceback_and_no_escape(
    junk: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "junk.log"
    path.write_bytes(junk)
    assert run(["diagnose", str(path)]) in (0, 2, 4, 11, 12)
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out
    assert "Traceback" not in printed.err


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(b"\x80\x04cos\nsystem\n(S'touch /tmp/never'\ntR.")
    assert run(["diagnose", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_what_cannot_be_read_and_what_is_no_setting(log: str, tmp_path: Path) -> None:
    assert run(["diagnose", str(tmp_path / "none.log")]) == 4
    assert run(["diagnose", log, "--set", "nonsense"]) == 2
    assert run(["diagnose", log, "--engine", "nothing"]) == 2


def test_with_a_model_remedies_are_those_of_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    log = tmp_path / "serving.log"
    log.write_text(
        "(APIServer pid=9) INFO 11-30 00:00:01 [api_utils.py:286] non-default args: {'model': 'm', "
        "'max_model_len': 32768, 'max_num_batched_tokens': 16384}\n"
        "INFO:     Application startup complete.\n"
        "(APIServer pid=9) INFO 11-30 00:10:01 [loggers.py:1] Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation "
        "throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 11.8%, Prefix cache hit rate: 0.0%\n"
        "(EngineCore pid=11) ERROR 11-30 00:10:05 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 640.00 MiB. "
        "GPU 0 has a total capacity of 79.19 GiB of which 287.94 MiB is free. Process 5 has 78.86 GiB memory in use. Of the allocated "
        "memory 76.14 GiB is allocated by PyTorch, and 25.00 MiB is reserved by PyTorch but unallocated.\n",
        encoding="utf-8",
    )
    assert run(["diagnose", str(log), "--model", str(model), "--device", "H100-80GB", "--json"]) == 0
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["failure_class"] == "prefill-spike"
    by_change = {item["change"]: item for item in failure["remedies"]}
    halved = by_change["max_num_batched_tokens 16384 → 8192"]
    assert halved["basis"] == "ledger"
    assert halved["frees_bytes"] > 0
    share = next(
        item for change, item in by_change.items() if change.startswith("gpu_memory_utilization 0.9")
    )
    assert share["basis"] == "ledger"
    assert share["tokens"] < 0
    assert all(line["bytes"] for line in failure["ledger"])


def test_a_series_beside_a_log_shows_the_slope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "serving.log"
    log.write_text(
        "(EngineCore pid=11) INFO 11-29 16:00:00 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m'\n"
        "(APIServer pid=9) INFO 11-29 16:00:01 [launcher.py:1] Application startup complete.\n",
        encoding="utf-8",
    )
    series = tmp_path / "series.jsonl"
    with SeriesWriter(series) as writer:
        writer.write(
            [
                Sample(
                    at_s=1_795_968_100.0 + 60 * i,
                    source="proc:11",
                    name="rss_bytes",
                    value=2**32 + i * 2**23,
                    pid=11,
                )
                for i in range(120)
            ]
        )
    assert run(["diagnose", str(log), str(series), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {source["kind"] for source in found["sources"]} == {"log", "series"}
    (failure,) = found["failures"]
    assert failure["failure_class"] == "decode-growth"
    assert failure["is_failure"] is False
    assert failure["moment"]["host_slope_bytes_per_h"] == pytest.approx(60 * 2**23, rel=1e-6)
