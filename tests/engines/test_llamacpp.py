"""llama.cpp's rules: the worked numbers of its sources and logs, placement, fitting, verdicts."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gguf_builder import llama
from tools.accuracy.data import ModelSet

from vramledger.answer import Plan
from vramledger.engines.llamacpp.flags import LlamaFlags
from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.llamacpp.options import flags_from, plan_with
from vramledger.engines.llamacpp.planner import configure, plan
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.engines.llamacpp.version import NEWEST, LlamaBuild, parse_version
from vramledger.errors import FlagError, HeaderError, UnknownArchitecture
from vramledger.hardware.catalogue import find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source, load_checkpoint
from vramledger.units import MIB

MODELS = ModelSet(Path(__file__).resolve().parents[2] / "data")
LLAMA, GEMMA, OSS = (
    "meta-llama__Llama-3.1-8B-Instruct",
    "google__gemma-3-12b-it",
    "huihui-ai__Huihui-gpt-oss-20b-mxfp4-abliterated-v2",
)


@cache
def checkpoint(name: str) -> Checkpoint:
    return checkpoint_from_source(MODELS.source(name))


def measured(name: str, build: LlamaBuild = NEWEST, device: str = "H100", **flags: Any) -> Measured:
    values = {"parallel": 1, "fit": "off", **flags}
    return configure(checkpoint(name), find_device(device), build, LlamaFlags(**values))[2].measured


def planned(name: str, device: str = "H100", **flags: Any) -> Plan:
    return plan(checkpoint(name), find_device(device), flags=LlamaFlags(**flags))


def kv_mib(found: Measured) -> tuple[float, float]:
    """Caches of full attention and of windows."""
    full = sum(item.bytes for item in found.caches.caches if not item.is_windowed)
    return full / MIB, sum(item.bytes for item in found.caches.caches) / MIB - full / MIB


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        (LLAMA, {"ctx_size": 8192}, (1024.0, 0)),
        (LLAMA, {"ctx_size": 8192, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}, (544.0, 0)),
        (LLAMA, {"ctx_size": 8192, "cache_type_k": "q4_0", "cache_type_v": "q4_0"}, (288.0, 0)),
        (LLAMA, {"ctx_size": 8192, "cache_type_k": "q5_1", "cache_type_v": "q5_1"}, (384.0, 0)),
        (LLAMA, {"ctx_size": 8192, "cache_type_k": "q5_0", "cache_type_v": "q5_0"}, (352.0, 0)),
        (LLAMA, {"ctx_size": 8192, "cache_type_k": "q4_1", "cache_type_v": "q4_1"}, (320.0, 0)),
        (LLAMA, {"ctx_size": 8192, "cache_type_k": "iq4_nl", "cache_type_v": "iq4_nl"}, (288.0, 0)),
        (LLAMA, {"ctx_size": 10000, "parallel": 4}, (1280.0, 0)),
        ("Qwen__Qwen3-30B-A3B", {"ctx_size": 32768}, (3072.0, 0)),
        (GEMMA, {"ctx_size": 32768}, (2048.0, 480.0)),
        (GEMMA, {"ctx_size": 32768, "parallel": 4}, (2048.0, 1920.0)),
        (GEMMA, {"ctx_size": 32768, "parallel": 4, "kv_unified": True}, (2048.0, 1440.0)),
        (GEMMA, {"ctx_size": 32768, "swa_full": True}, (2048.0, 10240.0)),
        ("google__gemma-3-27b-it", {"ctx_size": 131072}, (10240.0, 624.0)),
        (OSS, {"ctx_size": 131072}, (3072.0, 18.0)),
        (OSS, {"ctx_size": 131072, "parallel": 4}, (3072.0, 72.0)),
        ("deepseek-ai__DeepSeek-V3", {"ctx_size": 32768}, (2196.0, 0)),
    ],
)
def test_kv_of_the_worked_cases(name: str, flags: dict[str, Any], expected: tuple[float, float]) -> None:
    assert kv_mib(measured(name, **flags)) == expected


def test_streams_round_each_sequence_up() -> None:
    assert measured(LLAMA, ctx_size=8192, parallel=3).settings.context == 3 * 2816
    old = measured(LLAMA, parse_version("2025-02"), ctx_size=8192, parallel=3).settings
    assert (old.context, old.streams) == (8192, 1)


def test_states_do_not_follow_the_context() -> None:
    one = measured("mistralai__Mamba-Codestral-7B-v0.1", ctx_size=4096)
    longer = measured("mistralai__Mamba-Codestral-7B-v0.1", ctx_size=131072)
    four = measured("mistralai__Mamba-Codestral-7B-v0.1", ctx_size=4096, parallel=4)
    sizes = [sum(item.bytes for item in found.caches.states) / MIB for found in (one, longer, four)]
    assert sizes == [263.5, 263.5, 1054.0]


def test_latents_before_the_files_kept_them() -> None:
    old = measured("deepseek-ai__DeepSeek-V3", LlamaBuild(4436), ctx_size=4096)
    assert kv_mib(old)[0] == 19520.0


def test_windows_before_they_had_caches_of_their_own() -> None:
    old = measured("google__gemma-2-2b-it", LlamaBuild(4754), ctx_size=8192)
    assert kv_mib(old) == (832.0, 0)


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ({"ctx_size": 8192, "n_outputs_max": 512}, 258.50),
        ({"ctx_size": 8192, "n_outputs_max": 512, "flash_attn": "off"}, 560.00),
    ],
)
def test_compute_on_a_device_as_logs_of_2024_print_it(flags: dict[str, Any], printed: float) -> None:
    found = measured(
        LLAMA, LlamaBuild(4277), flash_attn=flags.pop("flash_attn", "on"), gpu_layers="99", **flags
    )
    assert round(found.compute[0].expected / MIB, 2) == printed


def test_host_weights_of_a_large_batch_are_copied_one_at_a_time() -> None:
    """Nothing offloaded: 304.28 MiB of the head and 296.75 of logits, with 5 of the stream, from a log of b5285."""
    found = measured(
        "Qwen__Qwen3-4B",
        LlamaBuild(5285),
        "GTX 1660 Ti",
        ctx_size=4096,
        ftype="Q6_K",
        gpu_layers="0",
        flash_attn="off",
    )
    assert round(found.compute[0].expected / MIB, 2) == 606.03
    assert round(found.compute[HOST].expected / MIB, 2) == 13.01


def test_file_types_as_published_files_have_them() -> None:
    found = measured(LLAMA, ctx_size=2048, ftype="Q4_K_M")
    assert round(found.placement.device_bytes[0] / MIB, 2) == 4403.49
    assert round(found.placement.host_bytes / MIB, 2) == 281.81


def test_a_tied_table_lies_on_host_and_device() -> None:
    found = measured("google__gemma-2b", ctx_size=2048, ftype="Q8_0").placement
    table = 256000 * 2048 // 32 * 34
    assert found.tied_bytes == table
    assert found.host_bytes == table


def test_the_output_is_offloaded_first_since_fitting_came() -> None:
    new = measured(LLAMA, ctx_size=2048, gpu_layers="1").placement
    assert (new.output, set(new.layers)) == (0, {HOST})
    old = measured(LLAMA, parse_version("2025-02"), ctx_size=2048, gpu_layers="1").placement
    assert (old.output, old.layers.count(0)) == (HOST, 1)


def test_experts_of_the_first_layers_stay_on_the_host() -> None:
    found = measured("Qwen__Qwen3-30B-A3B", ctx_size=2048, n_cpu_moe=3).placement
    hosts = {name for name, place in found.places.items() if place == HOST}
    assert {name for name in hosts if "_exps" in name} == {
        f"blk.{layer}.ffn_{part}_exps.weight" for layer in range(3) for part in ("up", "gate", "down")
    }
    assert set(found.layers) == {0}


def test_overrides_decide_in_order() -> None:
    found = measured(LLAMA, ctx_size=2048, override_tensor=r"blk\.0\..*=CPU,blk\..*=CUDA0").placement
    assert {place for name, place in found.places.items() if name.startswith("blk.0.")} == {HOST}
    assert {place for name, place in found.places.items() if name.startswith("blk.1.")} == {0}


def test_layers_go_by_the_stated_proportions() -> None:
    found = measured(LLAMA, ctx_size=2048, tensor_split="3,1").placement
    assert [found.layers.count(device) for device in (0, 1)] == [25, 7]
    assert found.output == 1


def test_fitting_shortens_the_context_then_moves_layers() -> None:
    short = planned(LLAMA, "RTX 4090", ftype="Q8_0")
    context = dict(short.inputs.settings)["ctx_size"]
    assert 4096 < int(context) < 131072 and int(context) % 256 == 0
    assert short.verdict.holds
    few = planned("meta-llama__Llama-3.1-70B-Instruct", "RTX 4090", ftype="Q4_K_M")
    assert dict(few.inputs.settings)["ctx_size"] == 4096
    assert 0 < int(dict(few.inputs.settings)["gpu_layers"]) < 81
    assert few.verdict.holds


def test_fitting_keeps_the_margin() -> None:
    found = configure(checkpoint(LLAMA), find_device("RTX 4090"), NEWEST, LlamaFlags(ftype="Q8_0"))[
        2
    ].measured
    free = find_device("RTX 4090").total_bytes - found.used_bytes(0)
    assert free > 1024 * MIB


def test_mixtures_keep_their_dense_parts_on_the_device() -> None:
    found = configure(
        checkpoint("Qwen__Qwen3-30B-A3B"),
        find_device("RTX 4060 Ti 8GB"),
        NEWEST,
        LlamaFlags(ftype="Q4_K_M", ctx_size=8192),
    )
    placement = found[2].measured.placement
    assert placement.offloaded == 49
    assert placement.places["blk.0.ffn_up_exps.weight"] == HOST
    assert placement.places["blk.0.attn_q.weight"] == 0


def test_a_unified_pool_is_said_to_be_over_committed() -> None:
    found = planned(LLAMA, ctx_size=8192)
    assert any("over-committed" in item for item in found.verdict.conditions)
    assert found.kv_pool is not None and found.kv_pool.max_concurrency.low == 1
    two = plan(
        checkpoint(LLAMA), find_device("H100"), flags=LlamaFlags(ctx_size=8192), concurrency=2, remedies=True
    )
    assert two.verdict.holds is False
    assert "-c 16384 -np 2" in two.verdict.remedies


def test_split_streams_hold_a_request_a_slot() -> None:
    flags = LlamaFlags(ctx_size=8192, parallel=4)
    assert plan(checkpoint(LLAMA), find_device("H100"), flags=flags, concurrency=4).verdict.holds
    assert plan(checkpoint(LLAMA), find_device("H100"), flags=flags, concurrency=5).verdict.holds is False


def test_what_is_printed() -> None:
    lines = planned(LLAMA, ctx_size=8192, parallel=4, ftype="Q4_K_M", fit="off").printed
    assert "load_tensors: CUDA0 model buffer size =  4403.49 MiB" in lines
    assert (
        "llama_kv_cache: size = 1024.00 MiB (  2048 cells,  32 layers,  4/4 seqs), K (f16):  512.00 MiB, "
        "V (f16):  512.00 MiB" in lines
    )


def test_the_engines_table_of_memory() -> None:
    flags: dict[str, Any] = {"ctx_size": 8192, "parallel": 4, "ftype": "Q4_K_M", "fit": "off"}
    table = [line for line in planned(LLAMA, **flags).printed if "breakdown" in line]
    assert table[0].startswith("common_memory_breakdown_print: | memory breakdown [MiB] ")
    device = next(line for line in table if "CUDA0" in line)
    total, free, own, model, context, compute, other = map(int, re.findall(r"\d+", device.split("|")[2]))
    assert (model, context) == (4403, 1024)
    assert abs(own - model - context - compute) <= 3
    assert abs(total - free - own - other) <= 3
    older = plan(checkpoint(LLAMA), find_device("H100"), build=LlamaBuild(6000), flags=LlamaFlags(**flags))
    assert not any("breakdown" in line for line in older.printed)


def test_the_table_of_a_host_alone_is_spaced_as_the_engines() -> None:
    """A log of 2026: 288 MiB of SmolLM2 on a CPU."""
    table = [
        line
        for line in planned(LLAMA, "cpu:64GiB", ctx_size=8192, ftype="Q4_K_M").printed
        if "breakdown" in line
    ]
    assert [re.sub(r" *[0-9]+", "#", line) for line in table] == [
        re.sub(r" *[0-9]+", "#", line)
        for line in (
            "common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute    unaccounted |",
            "common_memory_breakdown_print: |   - Host               |                  288 =    92 +     180 +      16                |",
        )
    ]


def test_the_host_side() -> None:
    names = {item.name: item for item in planned(GEMMA, ctx_size=8192, ftype="Q8_0").host}
    assert names["prompt cache (--cache-ram)"].bytes.high == 8192 * MIB
    assert names["context checkpoints of windows and states"].bytes.high > 0
    assert "CUDA_Host compute buffer" in names
    assert not any("prompt cache" in item.name for item in planned(LLAMA, ctx_size=8192, cache_ram=0).host)


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    writer = llama(layers=3)
    path = writer.write(tmp_path / "small.gguf")
    found = configure(
        load_checkpoint(str(path)),
        find_device("H100"),
        NEWEST,
        LlamaFlags(ctx_size=512, parallel=1, fit="off"),
    )
    placement = found[2].measured.placement
    assert sum(placement.device_bytes) + placement.host_bytes >= sum(writer.sizes())
    assert placement.host_bytes == writer.sizes()[0]
    with pytest.raises(FlagError, match="types already"):
        configure(load_checkpoint(str(path)), find_device("H100"), NEWEST, LlamaFlags(ftype="Q4_0"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"parallel": 0}, "--parallel"),
        ({"parallel": 10**9}, "--parallel"),
        ({"cache_type_k": "fp8"}, "cache-type-k"),
        ({"flash_attn": "off", "cache_type_v": "q8_0"}, "needs flash attention"),
        ({"split_mode": "tensor"}, "no rules here"),
        ({"tensor_split": "a,b"}, "proportions"),
        ({"tensor_split": "0,0"}, "proportions"),
        ({"tensor_split": "5e-324"}, "proportions"),
        ({"override_tensor": "exps"}, "PATTERN=BUFFER"),
        ({"override_tensor": "(=CPU"}, "regular expression"),
        ({"override_tensor": "exps=CUDA7"}, "no buffer"),
        ({"gpu_layers": "many"}, "whole number"),
        ({"ftype": "Q4_K_XL"}, "is not one of"),
        ({"main_gpu": 3, "split_mode": "none"}, "1 device"),
        ({"tp": 2}, "no tensor parallelism"),
        ({"fit_target": "lots"}, "MiB"),
        ({"ctx": 4}, "no flag"),
    ],
)
def test_what_is_refused_names_the_flag(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        plan_with(checkpoint(LLAMA), find_device("H100"), version=None, values=values)


def test_versions() -> None:
    assert parse_version("b5285").number == 5285
    assert parse_version("5285").number == 5285
    assert parse_version("newest") == NEWEST
    for text in ("1.0", "b12", "b1999", "2024-01"):
        with pytest.raises(FlagError):
            parse_version(text)
    with pytest.raises(FlagError, match="has no architecture"):
        plan(checkpoint(GEMMA), find_device("H100"), build=LlamaBuild(4000))


def test_what_has_no_rules_is_refused_by_name() -> None:
    with pytest.raises(UnknownArchitecture, match="whisper"):
        plan(checkpoint("openai__whisper-base"), find_device("H100"))


def test_a_graph_that_is_not_built_is_widened() -> None:
    found = planned("moonshotai__Kimi-Linear-48B-A3B-Instruct", ctx_size=8192, ftype="Q4_K_M")
    entry = next(item for item in found.ranks[0].entries if "compute" in item.name)
    assert entry.bytes.high >= 3 * entry.bytes.low
    assert "no rules here" in entry.evidence.source


def test_short_spellings() -> None:
    assert flags_from({"c": "8k", "np": 2, "ngl": 99, "ctk": "q8_0", "ts": "1,1"}) == LlamaFlags(
        ctx_size=8000, parallel=2, gpu_layers="99", cache_type_k="q8_0", tensor_split="1,1"
    )


def test_more_requests_than_slots_can_be_is_a_verdict_and_no_refusal() -> None:
    answer = plan(checkpoint(LLAMA), find_device("H100"), concurrency=1000, remedies=True)
    assert answer.verdict.holds is False
    assert answer.verdict.remedies == ("at most 1 request of this length at once",)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.attn_q.weight", "blk.2.ffn_down.weight"])
def test_a_file_that_lacks_a_tensor_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    writer = llama()
    writer.tensors = [tensor for tensor in writer.tensors if tensor[0] != name]
    path = writer.write(tmp_path / "model.gguf")
    with pytest.raises(HeaderError, match=f"no tensor '{name}'"):
        plan(load_checkpoint(str(path)), find_device("H100"))


def test_blocks_of_the_full_layers_make_their_cache_and_windows_lie_beside_it() -> None:
    pool = planned(GEMMA, ctx_size=32768, parallel=1).kv_pool
    assert pool is not None
    full, windowed = pool.groups
    assert pool.bytes_per_block == full.num_layers * full.page_bytes
    assert windowed.pool_blocks is not None
    beside = windowed.pool_blocks.expected * windowed.num_layers * windowed.page_bytes
    assert pool.num_blocks.expected * pool.bytes_per_block + beside == pool.bytes.expected


def test_where_slots_are_too_few_only_slots_and_fewer_requests_help() -> None:
    answer = plan(checkpoint(LLAMA), find_device("H100"), concurrency=8, remedies=True)
    assert answer.verdict.summary == "does not fit: the server has 4 slots, 8 requests at once are asked for"
    for text in answer.verdict.remedies:
        assert "-np 8" in text or text.startswith("at most")


def test_more_proportions_than_devices_contradict() -> None:
    with pytest.raises(FlagError, match=r"--tensor-split is 1,1,1; it has more proportions than --gpus 2"):
        LlamaFlags(gpus=2, tensor_split="1,1,1")
    assert LlamaFlags(gpus=4, tensor_split="1,1,1").shares() == (1.0, 1.0, 1.0)
