"""TensorRT-LLM: predicted against printed, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from tools.accuracy.comparison import Comparison, LeftOut, Result, collected, scored
from tools.accuracy.data import ModelSet
from tools.accuracy.machine import case_device

from vramledger.engines.tensorrtllm.budget import RankTerms, rank_terms
from vramledger.engines.tensorrtllm.capacity import capacity
from vramledger.engines.tensorrtllm.flags import TrtLlmFlags
from vramledger.engines.tensorrtllm.pools import agreed, fill
from vramledger.engines.tensorrtllm.ranks import rank_kinds
from vramledger.engines.tensorrtllm.settings import Settings, resolve
from vramledger.engines.tensorrtllm.version import TrtLlmVersion, parse_version
from vramledger.hardware.catalogue import Device, find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.units import GIB, MIB

ENGINE = "tensorrt-llm"
WEIGHTS = "engine MiB"
EXECUTION = "execution context MiB"
GIVEN = "blocks from the stated available GiB"
ALLOCATED = "tokens from the stated KV GiB"
AVAILABLE = "available GiB from scratch"
TOKENS = "tokens from scratch"
TOKENS_OLD = "tokens from scratch, before 0.8"
FIELDS = (WEIGHTS, EXECUTION, GIVEN, ALLOCATED, AVAILABLE, TOKENS, TOKENS_OLD)

# What a case's own words are here; anything else in its flags is refused by name.
_FLAGS = {
    "dtype": "dtype",
    "max_batch_size": "max_batch_size",
    "max_seq_len": "max_seq_len",
    "max_output_len": None,  # bounds answers, not memory
    "tokens_per_block": "tokens_per_block",
    "kv_cache_free_gpu_mem_fraction": "free_gpu_memory_fraction",
    "kv_cache_dtype": "kv_cache_dtype",
    "tensor_parallel_size": "tp_size",
    "backend": "backend",
}
_QUANTIZATIONS = {
    "none": None,
    "fp8": "fp8",
    "int4-weight-only": "int4_weight_only",
    "int4": "int4_weight_only",
}
# The last release with the TRT back end as the default and 64 tokens a block: its logs have no version in them.
UNSTATED = TrtLlmVersion(0, 18)
UNSTATED_PYTORCH = TrtLlmVersion(1, 2)


def run(rows: Sequence[Mapping[str, Any]], models: ModelSet) -> Result:
    """Every TensorRT-LLM case."""

    def compared(row: Mapping[str, Any]) -> list[Comparison]:
        found = compare(row, models)
        if not found:
            raise LeftOut("prints no figure that its inputs allow to predict")
        return found

    return collected(rows, compared)


def compare(row: Mapping[str, Any], models: ModelSet) -> list[Comparison]:
    """Every figure the case prints and its inputs allow. Raises what planning raises, KeyError for an unknown model."""
    if "config_dir" not in row:
        raise KeyError(f"the model is not named ({row.get('model')})")
    case, said = row["id"], row["reported"]
    checkpoint = checkpoint_from_source(models.source(row["config_dir"]))
    settings = resolve(checkpoint, _version(row), _flags(row))
    device = case_device(row)
    terms = _terms(checkpoint, settings, device or find_device("80GiB"))
    out: list[Comparison] = []
    if "engine_mib" in said:
        weights = terms[0].loaded_bytes / MIB
        out.append(scored(ENGINE, case, WEIGHTS, said["engine_mib"], (weights, weights, weights), 0.5))
    if "execution_context_mib" in said:
        ends = terms[0].step.bytes
        out.append(
            scored(
                ENGINE, case, EXECUTION, said["execution_context_mib"],
                (ends.low / MIB, ends.expected / MIB, ends.high / MIB), 0.005,
            )
        )  # fmt: skip
    out += _given(case, said, terms, settings)
    if device is None:
        return out
    if "avail_before_kv_gib" in said and "total_gib" in row["gpu"] and "engine_mib" in said:
        left = terms[0].available
        ends_gib = (left.low / GIB, left.expected / GIB, left.high / GIB)
        out.append(scored(ENGINE, case, AVAILABLE, said["avail_before_kv_gib"], ends_gib, 0.005))
    if "kv_tokens" in said and _is_alone(row):
        found = capacity(terms, settings)
        # The oldest releases print the tokens before they become blocks.
        by_blocks = "block_size" in said
        low, middle, high = (
            item[0].binding.blocks * settings.tokens_per_block if by_blocks else item[0].max_tokens
            for item in (found.low, found.expected, found.high)
        )
        field = TOKENS_OLD if settings.prompts_unstated else TOKENS
        note = "built for prompts of a length that is not stated" if settings.prompts_unstated else ""
        out.append(scored(ENGINE, case, field, said["kv_tokens"], (low, middle, high), 0.5, note))
    return out


def _given(
    case: str, said: Mapping[str, Any], terms: Sequence[RankTerms], settings: Settings
) -> list[Comparison]:
    """Blocks for the free memory that a log states, tokens for the pool that it states, between the ends of their
    rounding to two decimals."""
    out = []
    if "avail_before_kv_gib" in said and ("gpu_blocks" in said or "kv_tokens" in said):
        size = settings.tokens_per_block
        printed = said.get("gpu_blocks") or said["kv_tokens"] // size
        ends = [
            _blocks(terms, settings, int((said["avail_before_kv_gib"] + rest) * GIB * settings.fraction))
            for rest in (-0.005, 0.005)
        ]
        out.append(_between(case, GIVEN, printed, ends))
    if "kv_cache_gib" in said and "kv_tokens" in said:
        size = settings.tokens_per_block
        whole = replace(settings, version=TrtLlmVersion(1, 3), backend="pytorch")
        ends = [
            _blocks(terms, whole, int((said["kv_cache_gib"] + rest) * GIB)) * size for rest in (-0.005, 0.005)
        ]
        out.append(_between(case, ALLOCATED, said["kv_tokens"], ends))
    return out


def _between(case: str, field: str, printed: float, ends: Sequence[int]) -> Comparison:
    low, high = ends
    middle = (low + high) / 2
    nearest = min(ends, key=lambda end: abs(end - printed))
    inside = low <= printed <= high
    return Comparison(
        engine=ENGINE,
        case=case,
        field=field,
        printed=printed,
        predicted=middle,
        low=low,
        high=high,
        error_percent=0.0 if inside else 100 * (nearest - printed) / printed,
        inside=inside,
        half_width_percent=50 * (high - low) / middle if middle else 0.0,
    )


def _blocks(terms: Sequence[RankTerms], settings: Settings, budget: int) -> int:
    """Blocks of the one pool of a rank with so many bytes for it."""
    found = agreed([fill(item.layers, settings, budget) for item in terms], settings)
    return found[0].binding.blocks


def _terms(checkpoint: Checkpoint, settings: Settings, device: Device) -> list[RankTerms]:
    return [
        rank_terms(checkpoint, settings, device, kind)
        for kind in rank_kinds(checkpoint.model, settings.flags)
    ]


def _version(row: Mapping[str, Any]) -> TrtLlmVersion:
    stated = row.get("engine_version")
    if stated is not None:
        return parse_version(stated)
    return UNSTATED_PYTORCH if row["flags"].get("backend") == "pytorch" else UNSTATED


def _flags(row: Mapping[str, Any]) -> TrtLlmFlags:
    unknown = set(row["flags"]) - set(_FLAGS)
    if unknown:
        raise KeyError(f"flags without a rule here: {', '.join(sorted(unknown))}")
    found: dict[str, Any] = {
        name: value for key, value in row["flags"].items() if (name := _FLAGS[key]) is not None
    }
    if row["quantization"] not in _QUANTIZATIONS:
        raise KeyError(f"quantization {row['quantization']!r} has no rule here")
    quantization = _QUANTIZATIONS[row["quantization"]]
    if quantization is not None:
        found["quantization"] = quantization
    return TrtLlmFlags(**found)


def _is_alone(row: Mapping[str, Any]) -> bool:
    """Whether the engine had the card to itself, so that the pool follows from the card."""
    return "already holding" not in row.get("notes", "") and row["gpu"]["name"] not in (
        "unknown",
        "Jetson class",
    )
