"""Peaks while weights load, by the way their files are read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from support import DEEPSEEK_V3, H100, LLAMA_3_1_8B, TINY_LLAMA, checkpoint, planned, settings, weights
from vramledger import plan
from vramledger.engines.checkpoint_reading import DEFAULT_SHARD_BYTES, largest_tensor_bytes
from vramledger.engines.vllm.load_peak import check_load_format, reading
from vramledger.engines.vllm.options import read_flags
from vramledger.errors import FlagError
from vramledger.ledger import ByteRange, Phase
from vramledger.units import GIB

LLAMA = checkpoint(LLAMA_3_1_8B)
FILES = replace(LLAMA, largest_file_bytes=3 * GIB)


def read(subject: Any = FILES, version: str = "0.33.0", **values: Any) -> tuple[ByteRange, ByteRange, bool]:
    found = reading(subject, settings(subject, H100, version, **values))
    return found.host, found.device, found.is_reclaimable


def extra(**values: object) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(values.items()))


DISK = FILES.disk_bytes
HEAD = 128_256 * 4096 * 2
NOTHING = ByteRange.exact(0)


def test_files_are_mapped_one_after_another() -> None:
    assert read() == (ByteRange(GIB, 3 * GIB, DISK), NOTHING, True)
    assert read(tp=8) == read(), "ranks share the page cache"
    assert read(safetensors_load_strategy="lazy") == read()
    assert read(LLAMA)[0].expected == DEFAULT_SHARD_BYTES


@pytest.mark.parametrize(
    ("values", "host"),
    [
        ({"safetensors_load_strategy": "eager"}, 2 * 3 * GIB),
        ({"safetensors_load_strategy": "eager", "tp": 4}, 4 * 2 * 3 * GIB),
        ({"load_format": "pt", "tp": 2}, 2 * 3 * GIB),
        ({"load_format": "dummy"}, 0),
        ({"load_format": "pt", "model_loader_extra_config": extra(enable_multithread_load=True, num_threads=2)}, 6 * GIB),
        ({"load_format": "runai_streamer"}, DISK + HEAD),
        ({"load_format": "runai_streamer", "model_loader_extra_config": extra(memory_limit=5 * GIB), "tp": 2}, 2 * (5 * GIB + HEAD)),
        ({"load_format": "runai_streamer", "model_loader_extra_config": extra(memory_limit=0)}, 2 * HEAD),
        ({"load_format": "tensorizer", "model_loader_extra_config": extra(num_readers=3)}, 3 * HEAD),
    ],
)  # fmt: skip
def test_what_the_host_holds(values: dict[str, Any], host: int) -> None:
    found, device, is_reclaimable = read(**values)
    assert (found, device, is_reclaimable) == (ByteRange.exact(host), NOTHING, False)


def test_prefetching_fills_the_page_cache_with_everything() -> None:
    assert read(safetensors_load_strategy="prefetch") == (ByteRange(3 * GIB, DISK, DISK), NOTHING, True)


@pytest.mark.parametrize(
    ("version", "tp", "expected"),
    [("0.20.2", 1, 3 * GIB), ("0.24.0", 1, 6 * GIB), ("0.24.0", 2, 6 * GIB + HEAD)],
)
def test_whole_files_stand_on_the_device_before_tensors_are_cut_from_them(
    version: str, tp: int, expected: int
) -> None:
    """A queue of 0 holds two files since 0.24 (fastsafetensors parallel_loader.py), and a rank receives what another
    rank's file has."""
    values: dict[str, Any] = {"load_format": "fastsafetensors", "tp": tp}
    assert read(version=version, **values) == (NOTHING, ByteRange.exact(expected), False)
    (rank,) = planned(FILES, H100, version, **values).ranks
    plain = planned(FILES, H100, version, tp=tp).ranks[0]
    assert rank.peak(Phase.LOAD).expected - plain.peak(Phase.LOAD).expected == expected
    assert rank.peak(Phase.DECODE) == plain.peak(Phase.DECODE)


def test_presharded_files_are_read_by_their_own_rank() -> None:
    host = read(load_format="sharded_state", tp=8)[0]
    assert host.high == max(DISK, host.expected) and host.expected == 8 * -(-DISK // 8)


def test_an_experts_matrix_is_a_tensor_of_its_own() -> None:
    assert largest_tensor_bytes(LLAMA) == HEAD
    assert largest_tensor_bytes(checkpoint(DEEPSEEK_V3)) == 129_280 * 7168 * 2


def test_only_loading_takes_the_files() -> None:
    entries = planned(FILES).host
    files = [item for item in entries if Phase.LOAD in item.phases and Phase.DECODE not in item.phases]
    assert [item.name for item in files] == ["page cache of the weight files (auto)"]
    assert files[0].bytes == planned(FILES).ranks[0].weights.host_peak_bytes


@pytest.mark.parametrize(
    ("version", "name", "config", "said"),
    [
        ("0.33.0", "safetensor", (), "is not one of vLLM's"),
        ("0.16.0", "instanttensor", (), "has it since 0.19"),
        ("0.28.0", "bitsandbytes", (), "left it with 0.28"),
        ("0.33.0", "runai_streamer", extra(memory=1), "'memory' is not a key"),
        ("0.33.0", "runai_streamer", extra(memory_limit=-2), "memory_limit is -2"),
        ("0.33.0", "runai_streamer", extra(concurrency=True), "concurrency is True"),
        ("0.33.0", "runai_streamer", extra(distributed=1), "must be true or false"),
        ("0.33.0", "auto", extra(num_threads={"a": 1}), "num_threads is"),
    ],
)
def test_what_a_version_does_not_load_is_refused(
    version: str, name: str, config: tuple[tuple[str, object], ...], said: str
) -> None:
    found = settings(LLAMA, H100, version, load_format=name, model_loader_extra_config=config)
    with pytest.raises(FlagError, match=said):
        check_load_format(found)


def test_flags_are_read_as_a_person_writes_them() -> None:
    _, flags = read_flags(
        {"load_format": "runai_streamer", "model_loader_extra_config": '{"memory_limit": 0}', "beams": "4"}
    )
    assert flags.model_loader_extra_config == (("memory_limit", 0),)
    assert flags.requests.beams == 4
    shown = dict(
        plan(checkpoint(TINY_LLAMA), H100, load_format="dummy", beams=4, held_contexts=1).inputs.settings
    )
    assert (shown["load_format"], shown["beams"], shown["held_contexts"]) == ("dummy", 4, 1)


@pytest.mark.parametrize(
    ("version", "quantization", "extra_bytes"),
    [
        # 6,979,321,856 weights of linears in bf16 less what FP8 keeps of them, scales included, and the widest module.
        ("0.15.1", "fp8", 2 * 6_979_321_856 - 6_979_321_856 - 4 * 4 * 32 + 28_672 * 4096 + 4),
        ("0.16.0", "fp8", 2 * 28_672 * 4096),
        ("0.20.2", "bitsandbytes", 2 * 28_672 * 4096),
        ("0.20.2", None, 0),
    ],
)
def test_a_model_is_whole_before_it_is_quantised_up_to_0_15(
    version: str, quantization: str | None, extra_bytes: int
) -> None:
    (held,) = weights(LLAMA, H100, version, quantization=quantization)
    assert abs(held.load_peak_extra_bytes - extra_bytes) <= 4 * 4 * 32
    (rank,) = planned(LLAMA, H100, version, quantization=quantization).ranks
    repacking = [item.bytes.expected for item in rank.entries if item.name == "repacking at load"]
    assert repacking == [held.load_peak_extra_bytes][: 1 if extra_bytes else 0]
