"""Functions whose name in a traceback, near a failure, tells what was under way.

Names are the engines' own, of vllm/worker and v1/worker, sglang/srt, text_generation_server, tensorrt_llm/_torch, ggml;
a line is a frame where it ends as Python's do (`File ..., line N, in NAME`) or says "frame: NAME".
"""

from __future__ import annotations

import re

from vramledger.diagnosis.terms import Stage
from vramledger.engines.log_pattern import LinePattern
from vramledger.observation import Event

_SOURCE = "engines' function names, vLLM 0.2 - 0.33, SGLang 0.3 - 0.5, TGI 1 - 3, TensorRT-LLM 0.5 - 1.2"

FUNCTIONS: dict[str, Stage] = {
    "profile_run": Stage.PROFILE_RUN,
    "profile_num_available_blocks": Stage.PROFILE_RUN,
    "determine_num_available_blocks": Stage.PROFILE_RUN,
    "determine_available_memory": Stage.PROFILE_RUN,
    "profile_cudagraph_memory": Stage.PROFILE_RUN,
    "capture_model": Stage.GRAPH_CAPTURE,
    "_capture_cudagraphs": Stage.GRAPH_CAPTURE,
    "capture_one_batch_size": Stage.GRAPH_CAPTURE,
    "init_cuda_graphs": Stage.GRAPH_CAPTURE,
    "init_device_graphs": Stage.GRAPH_CAPTURE,
    "cuda_graph_warmup": Stage.GRAPH_CAPTURE,
    "_dummy_sampler_run": Stage.SAMPLER_WARMUP,
    "_dummy_pooler_run": Stage.SAMPLER_WARMUP,
    "compile_or_warm_up_model": Stage.WARMUP_FORWARD,
    "kernel_warmup": Stage.WARMUP_FORWARD,
    "warmup": Stage.WARMUP_FORWARD,
    "load_model": Stage.WEIGHT_LOAD,
    "load_weights": Stage.WEIGHT_LOAD,
    "load_weights_and_postprocess": Stage.WEIGHT_LOAD,
    "create_weights": Stage.WEIGHT_LOAD,
    "initialize_model": Stage.WEIGHT_LOAD,
    "process_weights_after_loading": Stage.POST_LOAD,
    "init_cache_engine": Stage.KV_ALLOC,
    "_allocate_kv_cache": Stage.KV_ALLOC,
    "_allocate_kv_cache_tensors": Stage.KV_ALLOC,
    "initialize_kv_cache": Stage.KV_ALLOC,
    "initialize_cache": Stage.KV_ALLOC,
    "init_memory_pool": Stage.KV_ALLOC,
    "prepare_for_extend": Stage.PREFILL,
    "forward_extend": Stage.PREFILL,
    "alloc_for_extend": Stage.PREFILL,
    "run_prefill": Stage.PREFILL,
    "prepare_for_decode": Stage.DECODE,
    "forward_decode": Stage.DECODE,
    "alloc_for_decode": Stage.DECODE,
    "prepare_for_verify": Stage.DECODE,
    "get_prompt_logprobs": Stage.PREFILL,
    "_get_prompt_logprobs_dict": Stage.PREFILL,
    "wake_up": Stage.WAKE,
    "resume_memory_occupation": Stage.WAKE,
    "release_memory_occupation": Stage.SLEEP,
    "execute_model": Stage.SERVING,
}

# A forward runs inside others: the outer frame says whose it is, so these win over what they call.
OUTER = frozenset(
    {
        Stage.PROFILE_RUN,
        Stage.GRAPH_CAPTURE,
        Stage.SAMPLER_WARMUP,
        Stage.WARMUP_FORWARD,
        Stage.WAKE,
        Stage.SLEEP,
    }
)


def _pattern(function: str, stage: Stage) -> LinePattern:
    name = re.escape(function)
    return LinePattern(
        event=Event.FRAME,
        anchor=function,
        pattern=re.compile(rf"(?:, in |frame: .{{0,200}}?\b)(?P<function>{name})\b"),
        source=_SOURCE,
        constants={"stage": stage.value},
    )


def stage_in(text: str) -> Stage | None:
    """The stage that a function named in a message's own text tells; that weights were being read, where it tells so."""
    for pattern in FRAMES:
        values = pattern.read(text)
        if values is not None and "stage" in values:
            return Stage(str(values["stage"]))
        if values is not None and pattern.event is Event.LOAD_BEGIN:
            return Stage.WEIGHT_LOAD
    return None


def _usage(anchor: str) -> LinePattern:
    return LinePattern(
        event=Event.STEP,
        anchor=anchor,
        pattern=re.compile(
            rf"\b{anchor}(?:_perc)?(?:\{{[^}}]{{0,400}}\}})?[ :=]{{1,3}}(?:(?P<kv_usage_percent>[0-9]{{1,3}}(?:\.[0-9]{{1,9}})?)%"
            rf"|(?P<kv_usage_ratio>[01]\.[0-9]{{1,17}}))"
        ),
        source="vLLM's metric kv_cache_usage_perc, as scraped or quoted",
    )


def _capture(call: str) -> LinePattern:
    """A line of torch's own source that a traceback quotes."""
    return LinePattern(
        event=Event.FRAME,
        anchor=f"{call}(",
        pattern=re.compile(rf"[.](?P<function>{call})\("),
        source="torch/cuda/graphs.py, 1.10 on",
        constants={"stage": Stage.GRAPH_CAPTURE.value},
    )


FRAMES: tuple[LinePattern, ...] = (
    _capture("capture_begin"),
    _capture("capture_end"),
    *(_pattern(name, stage) for name, stage in FUNCTIONS.items()),
    _usage("kv_cache_usage"),
    LinePattern(
        event=Event.LOAD_BEGIN,
        anchor="checkpoint shards",
        pattern=re.compile(r"Loading (?:safetensors |pt )?checkpoint shards:? "),
        source="transformers modeling_utils.py and its like in vLLM: progress of loading",
    ),
)
