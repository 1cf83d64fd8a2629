"""Manifests of start-ups that real engines printed; the logs are those of tests/reconciliation and tests/engines."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from five_kinds import write_config
from manifests import AT, COMMIT
from small_models import TINY_LLAMA
from vramledger.cli import main
from vramledger.evidence import measured
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.manifest.audit import audit
from vramledger.manifest.finding import State
from vramledger.manifest.measured import runtime_peaks, steady_weights
from vramledger.manifest.reader import read_manifest
from vramledger.measurement import Figure, HostMemory, Measurement
from vramledger.planning import plan

TESTS = Path(__file__).parents[1]
LLAMACPP = TESTS / "reconciliation" / "recorded" / "llamacpp-tiny.log"
SGLANG = TESTS / "reconciliation" / "recorded" / "sglang-cpu.log"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "tiny-llama", TINY_LLAMA).parent)


def made(model: str, tmp_path: Path, *more: str) -> bytes:
    file = tmp_path / "r.json"
    asked = [
        "manifest",
        model,
        "--device",
        "cpu:24105MiB",
        "--engine-revision",
        COMMIT,
        "--at",
        AT,
        "-o",
        str(file),
    ]
    assert main([*asked, "--force", *more]) == 0
    return file.read_bytes()


def test_llamacpp(model: str, tmp_path: Path) -> None:
    more = ("--engine", "llamacpp", "--ftype", "F16", "--log", str(LLAMACPP))
    data = made(model, tmp_path, *more)
    assert made(model, tmp_path, *more) == data
    document = read_manifest(data, "r.json").document
    # "CPU_Mapped model buffer size = 9.76 MiB", "KV self size = 8.00 MiB": two decimals of a MiB.
    assert document.measured_weight_steady_bytes_per_rank is not None
    assert abs(document.measured_weight_steady_bytes_per_rank - 9.76 * 2**20) <= 1
    assert document.measured_kv_pool_bytes_per_rank == 8 * 2**20
    assert document.kv_tokens is not None
    assert document.kv_tokens.measured_logical == document.kv_tokens.logical == 8192
    assert document.measured_runtime_peak_bytes_per_rank is None
    assert "measured_runtime_peak_bytes_per_rank" in document.not_evidenced
    states = {item.item.name: item.finding.state for item in audit(document)}
    for name in ("disk-and-runtime", "shards", "activation", "workspaces", "graphs", "collectives"):
        assert states[name] is State.PASSED, name
    assert states["allocator"] is State.NOT_EVIDENCED
    # It was started with four slots of their own context, not with one pool.
    assert states["revisions"] is State.FAILED
    (source,) = document.sources
    assert source.what == "measurement"
    assert source.sha256 is not None


def test_a_print_that_rounds_to_nothing_is_no_measured_zero(model: str, tmp_path: Path) -> None:
    document = read_manifest(
        made(model, tmp_path, "--engine", "sglang", "--log", str(SGLANG)), "r.json"
    ).document
    # "K size: 0.00 GB, V size: 0.00 GB"
    assert document.measured_kv_pool_bytes_per_rank is None
    assert document.kv_tokens is not None
    assert document.kv_tokens.measured_logical == 8192


def test_parts_of_the_weights_add_up_where_they_are_all_there(model: str) -> None:
    found = plan(model, "cpu:24105MiB", engine="llamacpp", ftype="F16")
    (rank,) = found.ranks
    names = [entry.name for entry in rank.entries if entry.owner is Owner.WEIGHTS]
    parts = tuple(
        Figure(
            owners=(Owner.WEIGHTS,),
            name=name,
            bytes=ByteRange.exact(1000 + number),
            evidence=measured("log"),
            entries=(name,),
            ranks=(0,),
        )
        for number, name in enumerate([*names, "CPU_REPACK model buffer"])
    )
    (seen,) = steady_weights(found, Measurement(sources=(), figures=parts), rank)
    assert seen.bytes == sum(part.bytes.expected for part in parts)
    assert steady_weights(found, Measurement(sources=(), figures=parts[len(names) :]), rank) == ()


def test_on_a_host_the_peak_is_that_of_the_processes(model: str) -> None:
    found = plan(model, "cpu:24105MiB", engine="llamacpp", ftype="F16")
    readings = tuple(
        HostMemory(process=process, pid=pid, phase=phase, rss_bytes=size, evidence=measured("proc"))
        for process, pid, phase, size in (
            ("server", 1, Phase.LOAD, 900),
            ("server", 1, Phase.PREFILL, 300),
            ("server", 1, Phase.PREFILL, 310),
            ("worker", 2, Phase.PREFILL, 40),
            ("server", 1, Phase.DECODE, 320),
        )
    )
    peaks = runtime_peaks(found, Measurement(sources=(), host=readings))
    assert sorted(peak.bytes for peak in peaks) == [320, 350]
    on_device = plan(model, "L4", engine="llamacpp", ftype="F16")
    assert runtime_peaks(on_device, Measurement(sources=(), host=readings)) == ()


def test_the_example_of_declarations_is_read() -> None:
    from vramledger.manifest.declared import read_facts

    data = (TESTS.parent / "examples" / "facts.json").read_bytes()
    found = read_facts(data, "facts.json")
    assert json.loads(data).keys() == json.loads(msgspec.json.encode(found)).keys()
