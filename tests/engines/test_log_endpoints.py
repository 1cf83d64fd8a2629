"""Metrics and information endpoints of SGLang, llama.cpp and TensorRT-LLM.

recorded/metrics/sglang-0.5.23.metrics and llamacpp-b11549.metrics are what SGLang 0.5.23 and llama.cpp's server of b11549 exposed on a CPU,
cut to quantities of memory; bodies of endpoints have the fields that the sources of these releases give.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from vramledger.engines import find_endpoints, find_metrics, find_sample_endpoints
from vramledger.engines.llamacpp.server_info import models, props, slot_samples, slots
from vramledger.engines.metrics_table import names_by_metric, sample_of
from vramledger.engines.sglang.metrics import cache_config
from vramledger.engines.sglang.server_info import model_info, server_info
from vramledger.engines.tensorrtllm.server_info import iteration_pool, iteration_samples
from vramledger.errors import InputError
from vramledger.ledger import Owner
from vramledger.observation import Sample
from vramledger.units import GIB

RECORDED = Path(__file__).parent / "recorded" / "metrics"
LINE = re.compile(r"(?P<name>[a-z_:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'([a-zA-Z_]+)="([^"]*)"')
ENGINES = ("sglang", "llamacpp", "tensorrt-llm")


def samples(engine: str, name: str) -> list[Sample]:
    metrics = find_metrics(engine)
    assert metrics is not None
    names = names_by_metric(metrics.METRICS)
    out = []
    for line in (RECORDED / name).read_text().splitlines():
        match = LINE.match(line)
        if match and not line.startswith("#"):
            labels = dict(LABEL.findall(match["labels"] or ""))
            sample = sample_of(
                names, match["name"], labels, float(match["value"]), at_s=1.0, source="metrics:x"
            )
            out += [sample] if sample is not None else []
    return out


def test_sglang_s_pool_and_memory_are_samples() -> None:
    found = {(item.name, item.label): item.value for item in samples("sglang", "sglang-0.5.23.metrics")}
    here = "tp_rank=0,pp_rank=0"
    # One padding page of one token beside 8,192: 4 layers x 2 heads x 32 x K, V x 2 B.
    assert found["kv_cache_bytes", here] == 8193 * 1024
    assert found["kv_pool_tokens", here] == found["kv_pool_blocks", here] == 8192
    assert found["kv_usage_ratio", here] == 0.0
    assert found["graph_bytes", f"{here},phase=decode"] == 0
    assert {item.rank for item in samples("sglang", "sglang-0.5.23.metrics")} >= {0}


def test_llama_cpp_s_metrics_are_samples() -> None:
    found = {item.name: item.value for item in samples("llamacpp", "llamacpp-b11549.metrics")}
    assert (found["total_prompt_tokens"], found["total_generated_tokens"]) == (5, 8)
    assert (found["running_requests"], found["waiting_requests"]) == (0, 0)
    assert "kv_usage_ratio" not in found


@pytest.mark.parametrize("engine", ENGINES)
def test_samples_end_in_their_unit_and_metrics_are_named_once(engine: str) -> None:
    metrics = find_metrics(engine)
    assert metrics is not None
    units = ("requests", "tokens", "ratio", "bytes", "blocks", "count", "s")
    assert [item.sample for item in metrics.METRICS if not item.sample.endswith(units)] == []
    assert len({item.name for item in metrics.METRICS}) == len(metrics.METRICS)


def test_pages_of_0_5_9_are_labels() -> None:
    (pool,) = cache_config({"page_size": "64", "num_pages": "6431", "model_name": "m"}, "metrics:x").pools
    assert pool.tokens is not None and pool.tokens.expected == 411584
    assert cache_config({"page_size": "x"}, "metrics:x").pools == ()


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_server_info_states_memory_of_every_replica_and_the_smallest_pool() -> None:
    memory = {"weight": 14.99, "kvcache": 50.24, "token_capacity": 411584, "startup_available": 12.111,
              "token_capacity_swa": None, "graph": {"prefill": 0.25, "decode": 0.5}}  # fmt: skip
    answer = {
        "model_path": "org/llama", "tp_size": 1, "dp_size": 2, "page_size": 64, "mem_fraction_static": 0.83, "version": "0.5.23",
        "max_running_requests": None, "cuda_graph_bs": [1, 2],
        "internal_states": [
            {"memory_usage": memory, "effective_max_running_requests_per_dp": 2048},
            {"memory_usage": memory | {"token_capacity": 411520}},
        ],
    }  # fmt: skip
    found = server_info(body(answer), "http://x/server_info")
    assert (found.engine_version, found.model, found.dp) == ("0.5.23", "org/llama", 2)
    settings = dict(found.settings)
    assert (settings["cuda_graph_bs"], settings["effective_max_running_requests"]) == ("[1, 2]", 2048)
    (pool,) = found.pools
    assert pool.tokens is not None and pool.tokens.expected == 411520
    graphs = [figure for figure in found.figures if Owner.GRAPH_POOL in figure.owners]
    assert [figure.bytes.expected for figure in graphs] == [GIB * 3 // 4] * 2
    weights = next(figure for figure in found.figures if Owner.WEIGHTS in figure.owners)
    assert weights.bytes.high - weights.bytes.expected == round(GIB / 2000)
    assert weights.evidence.source == "http://x/server_info internal_states[0].memory_usage, sglang 0.5.23"
    assert [state.point for state in found.allocator] == ["start-up ends"] * 2


def test_sizes_of_old_releases_are_rounded_to_two_decimals() -> None:
    old = {
        "internal_states": [
            {"memory_usage": {"weight": 14.99, "kvcache": 1.0, "token_capacity": 5, "graph": 0.5}}
        ]
    }
    found = server_info(body(old), "x")
    assert all(figure.bytes.high - figure.bytes.expected == round(GIB / 200) for figure in found.figures)


def test_releases_without_memory_state_settings_only() -> None:
    found = server_info(body({"model_path": "m", "version": "0.4.3", "mem_fraction_static": 0.88}), "x")
    assert (found.figures, found.pools) == ((), ())
    assert dict(found.settings)["mem_fraction_static"] == 0.88


def test_model_info_names_the_architecture() -> None:
    found = model_info(body({"model_path": "m", "architectures": ["LlamaForCausalLM"]}), "x")
    assert (found.model, found.architecture) == ("m", "LlamaForCausalLM")


SLOTS = [
    {"id": 0, "n_ctx": 1024, "is_processing": False},
    {"id": 1, "n_ctx": 1024, "is_processing": True, "n_prompt_tokens": 70, "n_prompt_tokens_processed": 15, "n_prompt_tokens_cache": 0},
    {"id": 2, "n_ctx": 1024, "is_processing": False, "n_prompt_tokens": 134},
]  # fmt: skip


def test_kv_in_use_is_summed_from_slots() -> None:
    found = {item.name: item.value for item in slot_samples(body(SLOTS), 1.0, "slots")}
    assert found == {"running_requests": 1, "kv_used_tokens": 70, "kv_evictable_tokens": 134}
    assert dict(slots(body(SLOTS), "slots").settings) == {"total_slots": 3, "n_ctx_slot": 1024}


def test_slots_of_old_builds_do_not_tell_tokens() -> None:
    old = [{"id": 0, "n_ctx": 512, "is_processing": True, "next_token": {"n_decoded": 5}}]
    assert [item.name for item in slot_samples(body(old), 1.0, "slots")] == ["running_requests"]


def test_props_state_build_model_and_slots() -> None:
    answer = {
        "default_generation_settings": {"n_ctx": 2048}, "total_slots": 4, "model_path": "a.gguf", "build_info": "b6565-0123abc",
        "model_ftype": "Q4_1",
    }  # fmt: skip
    found = props(body(answer), "props")
    assert (found.engine_version, found.model) == ("b6565", "a.gguf")
    assert dict(found.settings) == {"total_slots": 4, "n_ctx_slot": 2048, "file_type": "Q4_1"}
    assert props(body({"build_info": "b0-unknown"}), "props").engine_version is None


def test_models_state_the_shape_of_the_file() -> None:
    answer = {"data": [{"id": "a.gguf", "meta": {"n_vocab": 49152, "size": 96576768, "ftype": "Q4_1"}}]}
    assert dict(models(body(answer), "models").settings)["meta_size"] == 96576768


ITERATIONS = [
    {"iter": 7, "numActiveRequests": 1, "kvCacheStats": {"maxNumBlocks": 10, "usedNumBlocks": 1, "tokensPerBlock": 32}},
    {
        "iter": 8, "numActiveRequests": 3, "numQueuedRequests": 2, "gpuMemUsage": 1000,
        "kvCacheStats": {"maxNumBlocks": 10, "usedNumBlocks": 4, "freeNumBlocks": 6, "tokensPerBlock": 32, "cacheHitRate": 0.25},
        "inflightBatchingStats": {"numPausedRequests": 1, "numCtxTokens": 64},
    },
]  # fmt: skip


def test_the_newest_iteration_is_a_pool_and_samples() -> None:
    (pool,) = iteration_pool(body(ITERATIONS), "x").pools
    assert pool.tokens is not None and pool.tokens.expected == 320
    found = {item.name: item.value for item in iteration_samples(body(ITERATIONS), 1.0, "x")}
    assert (found["running_requests"], found["kv_usage_ratio"], found["preempted_requests"]) == (3, 0.4, 1)
    assert found["prefix_hit_ratio"] == 0.25
    assert iteration_samples(b"[]", 1.0, "x") == ()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("wrong", [b"", b"\xff\xfe", b"[" * 5000, b"3", b'"text"', b"null"])
def test_a_body_that_is_no_such_answer_is_refused_by_name(engine: str, wrong: bytes) -> None:
    endpoints = find_endpoints(engine)
    assert endpoints is not None
    for endpoint in endpoints.ENDPOINTS:
        with pytest.raises(InputError, match="http://x"):
            endpoint.read(wrong, "http://x")
    for sampled in find_sample_endpoints(engine):
        with pytest.raises(InputError, match="http://x"):
            sampled.read(wrong, 1.0, "http://x")


@pytest.mark.parametrize("engine", ENGINES)
def test_odd_values_are_left_out(engine: str) -> None:
    odd = {
        "internal_states": 3,
        "default_generation_settings": [],
        "data": [1],
        "memory_usage": {"weight": -1, "kvcache": "x", "graph": []},
    }
    endpoints = find_endpoints(engine)
    assert endpoints is not None
    for endpoint in endpoints.ENDPOINTS:
        listed = endpoint.path == "/slots" or engine == "tensorrt-llm"
        found = endpoint.read(body([3, odd] if listed else odd), "x")
        assert (found.figures, found.pools) == ((), ())
