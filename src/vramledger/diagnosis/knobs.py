"""Which flag of which engine turns what: the names that a remedy uses."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Knobs(Struct, frozen=True, kw_only=True):
    """Flags of one engine by what they do; None where it has none.

    `chunk` bounds the tokens of a step, `sequences` the requests of one, `share` the part of the device (or of what is free) that the
    engine takes, `length` the longest context, `parallel` the ranks of a layer. `graphs_off` and `narrow_kv` are settings that turn
    graphs off and halve the KV cache. `share_is_of_pool` is for a share that only sizes the pool.
    """

    chunk: str | None = None
    sequences: str | None = None
    share: str | None = None
    length: str | None = None
    parallel: str | None = None
    graphs_off: tuple[str, object] | None = None
    narrow_kv: tuple[tuple[str, object], ...] = ()
    default_share: float | None = None
    usual_chunk: int | None = None
    expandable: str = ""


_TORCH = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF from torch 2.9)"

KNOBS: Mapping[str, Knobs] = {
    "vllm": Knobs(
        chunk="max_num_batched_tokens",
        sequences="max_num_seqs",
        share="gpu_memory_utilization",
        length="max_model_len",
        parallel="tensor_parallel_size",
        graphs_off=("enforce_eager", True),
        narrow_kv=(("kv_cache_dtype", "fp8"),),
        default_share=0.9,
        expandable=_TORCH,
    ),
    "sglang": Knobs(
        chunk="chunked_prefill_size",
        sequences="max_running_requests",
        share="mem_fraction_static",
        length="context_length",
        parallel="tp_size",
        graphs_off=("disable_cuda_graph", True),
        narrow_kv=(("kv_cache_dtype", "fp8_e4m3"),),
        expandable=_TORCH,
    ),
    "tensorrt-llm": Knobs(
        chunk="max_num_tokens",
        sequences="max_batch_size",
        share="free_gpu_memory_fraction",
        length="max_seq_len",
        parallel="tp_size",
        narrow_kv=(("kv_cache_dtype", "fp8"),),
        default_share=0.9,
    ),
    "llamacpp": Knobs(
        chunk="ubatch_size",
        sequences="parallel",
        length="ctx_size",
        narrow_kv=(("cache_type_k", "q8_0"), ("cache_type_v", "q8_0")),
        usual_chunk=512,
    ),
    "tgi": Knobs(
        chunk="max_batch_prefill_tokens",
        sequences="max_batch_size",
        share="cuda_memory_fraction",
        length="max_total_tokens",
        parallel="num_shard",
        expandable=_TORCH,
    ),
    "transformers": Knobs(length="max_length", chunk="max_batch_tokens", expandable=_TORCH),
}

NO_KNOBS = Knobs(expandable=_TORCH)


def knobs_of(engine: str | None) -> Knobs:
    return KNOBS.get(engine or "", NO_KNOBS)
