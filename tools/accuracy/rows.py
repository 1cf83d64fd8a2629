"""The shape of a reported start-up: what is read of it, with its type. Anything else in a row is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(gt=0)]
Figure = Annotated[float, Meta(gt=-1e6, lt=1e6)]
Number = Annotated[float, Meta(ge=0)]


class Gpu(Struct, frozen=True):
    """The cards of one engine instance."""

    name: str
    count: Count = 1
    total_gib: Annotated[float, Meta(gt=0)] | None = None


class Flags(Struct, frozen=True):
    """What the command line or the engine's own configuration line stated."""

    tensor_parallel_size: Positive = 1
    pipeline_parallel_size: Positive = 1
    data_parallel_size: Positive = 1
    decode_context_parallel_size: Positive = 1
    enable_expert_parallel: bool = False
    max_model_len: int | None = None
    max_num_seqs: Positive | None = None
    max_num_batched_tokens: Positive | None = None
    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] | None = None
    block_size: Positive | None = None
    kv_cache_memory_bytes: Positive | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    enforce_eager: bool = False
    max_cudagraph_capture_size: Count | None = None
    language_model_only: bool = False
    enable_lora: bool = False
    max_loras: Positive = 1
    max_lora_rank: Positive = 16
    pp_layer_partition: tuple[Count, ...] = ()
    limit_mm_per_prompt: dict[str, Any] | None = None
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    dtype: str = "auto"
    mamba_cache_mode: str | None = None
    mamba_ssm_cache_dtype: str = "auto"
    moe_backend: str | None = None
    speculative: str | None = None


class Reported(Struct, frozen=True):
    """Figures the engine printed, for one rank unless the name says otherwise."""

    weights_gib: Number | None = None
    kv_cache_gib: Figure | None = None
    kv_tokens: Positive | None = None
    gpu_blocks: Positive | None = None
    max_concurrency: Annotated[float, Meta(gt=0)] | None = None
    usable_gib: Annotated[float, Meta(gt=0)] | None = None
    kv_cache_gib_by_rank: tuple[Figure, ...] = ()
    kv_tokens_by_rank: tuple[Positive, ...] = ()


class Check(Struct, frozen=True):
    """The case's own arithmetic."""

    ratio: float | None = None
    kv_cache_gib_implied: float = 0.0


class Row(Struct, frozen=True):
    """One start-up."""

    id: str
    engine: str
    model: str
    quantization: str
    gpu: Gpu
    flags: Flags
    reported: Reported
    engine_version: str | None = None
    date: str | None = None
    notes: str = ""
    check: Check = Check()
    config_known: bool = False
    config_dir: str = ""


def problem(row: Mapping[str, Any]) -> str:
    """What is wrong with a row, "" for a good one."""
    try:
        msgspec.convert(row, Row)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
