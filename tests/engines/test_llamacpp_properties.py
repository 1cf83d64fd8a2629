"""What holds for every model, build, device and set of flags of llama.cpp."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tools.accuracy.data import ModelSet

from vramledger.engines.llamacpp.architectures import architecture_of
from vramledger.engines.llamacpp.file_model import file_model
from vramledger.engines.llamacpp.file_type import FILE_TYPES
from vramledger.engines.llamacpp.flags import CACHE_TYPES, LlamaFlags
from vramledger.engines.llamacpp.graph_memory import scratch_bytes
from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.llamacpp.planner import configure, plan
from vramledger.engines.llamacpp.tensor_graph import HOST, Graph
from vramledger.engines.llamacpp.version import NEWEST, LlamaBuild
from vramledger.hardware.catalogue import find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source

MODELS = ModelSet(Path(__file__).resolve().parents[2] / "data")
NAMES = (
    "HuggingFaceTB__SmolLM2-135M-Instruct", "Qwen__Qwen3-0.6B", "google__gemma-3-1b-it", "google__gemma-3n-E2B-it",
    "LiquidAI__LFM2-350M", "ibm-granite__granite-4.0-h-tiny", "deepseek-ai__DeepSeek-V2-Lite-Chat",
    "state-spaces__mamba-130m-hf", "tiiuae__Falcon-H1-0.5B-Instruct", "Qwen__Qwen3.5-0.8B",
)  # fmt: skip
BUILDS = (NEWEST, LlamaBuild(9500), LlamaBuild(8700))


@cache
def checkpoint(name: str) -> Checkpoint:
    return checkpoint_from_source(MODELS.source(name))


def measured(name: str, flags: LlamaFlags, build: LlamaBuild = NEWEST, device: str = "H100") -> Measured:
    return configure(checkpoint(name), find_device(device), build, flags)[2].measured


flag_sets = st.builds(
    LlamaFlags,
    ctx_size=st.integers(64, 40_000),
    parallel=st.integers(1, 8),
    kv_unified=st.booleans(),
    ubatch_size=st.sampled_from([32, 128, 512, 1024]),
    gpus=st.integers(1, 4),
    gpu_layers=st.sampled_from(["0", "1", "7", "13", "99", "all", None]),
    ftype=st.sampled_from(["F16", "Q8_0", "Q4_K_M", "Q4_0", "IQ3_XXS"]),
    cache_type_k=st.sampled_from(["f16", "q8_0", "bf16"]),
    swa_full=st.booleans(),
    kv_offload=st.booleans(),
    cpu_moe=st.booleans(),
    fit=st.just("off"),
)


@settings(deadline=None, max_examples=15)
@given(name=st.sampled_from(NAMES), flags=flag_sets, build=st.sampled_from(BUILDS))
def test_devices_and_host_hold_the_whole_file(name: str, flags: LlamaFlags, build: LlamaBuild) -> None:
    found = measured(name, flags, build).placement
    file = file_model(checkpoint(name), architecture_of(checkpoint(name).model), build, flags.ftype)
    total = sum(item.size_bytes for item in file.tensors)
    held = sum(found.device_bytes) + found.host_bytes - found.tied_bytes
    assert total <= held <= total + 128 * len(file.tensors)


@settings(deadline=None, max_examples=15)
@given(name=st.sampled_from(NAMES), flags=flag_sets)
def test_every_cache_lies_somewhere_once(name: str, flags: LlamaFlags) -> None:
    found = measured(name, flags)
    devices = [*range(found.settings.devices), HOST]
    assert sum(found.kv_bytes(device) for device in devices) == sum(
        item.bytes for item in found.caches.caches
    )
    assert sum(found.state_bytes(device) for device in devices) == sum(
        item.bytes for item in found.caches.states
    )


@settings(deadline=None, max_examples=10)
@given(name=st.sampled_from(NAMES), flags=flag_sets, more=st.integers(1, 20_000))
def test_a_longer_context_never_needs_less(name: str, flags: LlamaFlags, more: int) -> None:
    from msgspec.structs import replace

    assert flags.ctx_size is not None
    longer = measured(name, replace(flags, ctx_size=flags.ctx_size + more))
    shorter = measured(name, flags)
    for device in [*range(shorter.settings.devices), HOST]:
        assert longer.context_bytes(device) >= shorter.context_bytes(device)


@settings(deadline=None, max_examples=10)
@given(name=st.sampled_from(NAMES), flags=flag_sets)
def test_a_plan_adds_up(name: str, flags: LlamaFlags) -> None:
    answer = plan(checkpoint(name), find_device("H100"), flags=flags)
    assert plan(checkpoint(name), find_device("H100"), flags=flags) == answer
    assert len(answer.ranks) == (flags.gpus or 1)
    for rank in answer.ranks:
        assert all(entry.bytes.low >= 0 and entry.evidence.source for entry in rank.entries)


@settings(deadline=None, max_examples=15)
@given(file_type=st.sampled_from(sorted(FILE_TYPES)), name=st.sampled_from(NAMES))
def test_every_file_type_gives_every_tensor_a_type_its_rows_fit(file_type: str, name: str) -> None:
    file = file_model(checkpoint(name), architecture_of(checkpoint(name).model), NEWEST, file_type)
    assert all(item.type and item.size_bytes > 0 for item in file.tensors)


@given(kind=st.sampled_from(CACHE_TYPES))
def test_every_cache_type_is_taken(kind: str) -> None:
    found = measured(
        NAMES[0], LlamaFlags(ctx_size=512, cache_type_k=kind, cache_type_v=kind, flash_attn="on")
    )
    assert found.caches.caches[0].key_bytes == found.caches.caches[0].value_bytes


@settings(max_examples=40)
@given(widths=st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_scratch_of_a_chain_is_at_most_two_neighbours_and_the_input(widths: list[int]) -> None:
    """A chain of matrix products needs the input and, at any time, one operation's argument and result."""
    graph = Graph()
    cur = graph.input(1)
    for width in widths:
        cur = graph.op("mul_mat", (width,), graph.weight(1, width, device=0), cur)
    graph.expand(cur)
    found = scratch_bytes(graph)
    sizes = [0, *(-(-4 * width // 128) * 128 for width in widths)]
    pairs = max(first + second for first, second in itertools.pairwise(sizes))
    assert max(sizes) <= found[0] <= sum(sizes) + 128
    assert found[0] >= pairs
