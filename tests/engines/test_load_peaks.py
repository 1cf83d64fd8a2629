"""What SGLang and TensorRT-LLM hold while they read weight files."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from support import H100, LLAMA_3_1_8B, checkpoint
from vramledger.answer import Plan
from vramledger.engines.sglang import options as sglang
from vramledger.engines.tensorrtllm import options as tensorrtllm
from vramledger.errors import FlagError
from vramledger.ledger import ByteRange, Entry, Phase
from vramledger.units import GIB

FILES = replace(checkpoint(LLAMA_3_1_8B), largest_file_bytes=GIB)
DISK, HEAD = FILES.disk_bytes, 128_256 * 4096 * 2


def planned(version: str = "0.5.23", engine: Any = sglang, **values: Any) -> Plan:
    found: Plan = engine.plan_with(FILES, H100, version=version, values=values)
    return found


def on_host(plan: Plan) -> Entry | None:
    return next((entry for entry in plan.host if entry.phases == {Phase.LOAD}), None)


def host(version: str = "0.5.23", **values: Any) -> ByteRange:
    plan = planned(version, **values)
    entry = on_host(plan)
    size = ByteRange.exact(0) if entry is None else entry.bytes
    assert plan.ranks[0].weights.host_peak_bytes == size
    return size


def test_a_file_is_mapped_and_eight_since_0_5_10() -> None:
    assert host("0.5.9") == ByteRange(GIB, GIB, DISK)
    assert host("0.5.10") == host("0.5.23", tp_size=2) == ByteRange(GIB, 8 * GIB, DISK)
    config = '{"enable_multithread_load": false}'
    assert host(model_loader_extra_config=config) == host("0.5.9")
    assert host(
        "0.5.9", model_loader_extra_config='{"enable_multithread_load": true, "num_threads": 3}'
    ) == ByteRange(GIB, 3 * GIB, DISK)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"load_format": "dummy"}, 0),
        ({"load_format": "ipc_cache"}, 0),
        ({"load_format": "pt", "model_loader_extra_config": '{"num_threads": 2}', "tp_size": 2}, 2 * 2 * GIB),
        (
            {"weight_loader_disable_mmap": True, "model_loader_extra_config": '{"num_threads": 2}'},
            2 * 2 * GIB,
        ),
        ({"load_format": "runai_streamer"}, DISK + HEAD),
        (
            {"load_format": "runai_streamer", "model_loader_extra_config": {"memory_limit": 0}, "tp_size": 2},
            4 * HEAD,
        ),
    ],
)
def test_what_each_process_holds_itself(values: dict[str, Any], expected: int) -> None:
    assert host(**values) == ByteRange.exact(expected)


def test_prefetching_fills_the_page_cache() -> None:
    assert host(weight_loader_prefetch_checkpoints=True) == ByteRange(GIB, DISK, DISK)


def test_files_that_go_straight_to_the_device_stand_beside_the_weights() -> None:
    plain, straight = planned(tp_size=2), planned(tp_size=2, load_format="fastsafetensors")
    files = next(entry for entry in straight.ranks[0].entries if entry.name.startswith("files on the device"))
    assert files.bytes == ByteRange.exact(GIB + HEAD)
    assert straight.ranks[0].occupied(Phase.LOAD) == plain.ranks[0].occupied(Phase.LOAD) + files.bytes
    assert straight.kv_pool == plain.kv_pool and straight.printed == plain.printed
    assert on_host(straight) is None


def test_tensorrt_llm_reads_everything_into_the_page_cache() -> None:
    pytorch = planned("1.2.1", tensorrtllm)
    entry = on_host(pytorch)
    assert entry is not None and entry.bytes == ByteRange(GIB, DISK, DISK)
    assert pytorch.ranks[0].weights.host_peak_bytes == entry.bytes
    assert on_host(planned("0.17.0", tensorrtllm)) is None


@pytest.mark.parametrize(
    ("version", "values", "said"),
    [
        ("0.5.23", {"load_format": "remote"}, "no rules here"),
        ("0.5.9", {"load_format": "runai_streamer"}, "0.5.10 does"),
        ("0.5.10", {"weight_loader_prefetch_checkpoints": True}, "0.5.12 does"),
        ("0.4.5", {"weight_loader_disable_mmap": True}, "0.4.9 does"),
        ("0.5.23", {"model_loader_extra_config": '{"threads": 4}'}, "'threads'"),
        ("0.5.23", {"model_loader_extra_config": '{"num_threads": 0}'}, "num_threads 0"),
        ("0.5.23", {"model_loader_extra_config": '{"num_threads": true}'}, "num_threads True"),
    ],
)
def test_what_is_refused(version: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        planned(version, **values)
