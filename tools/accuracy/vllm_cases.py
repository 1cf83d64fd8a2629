"""vLLM's cases: one reported start-up each, and what it says about its own inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from tools.accuracy.data import ModelSet
from tools.accuracy.machine import case_device

from vramledger.engines.vllm.flags import ParallelPlan, Speculation, VllmFlags
from vramledger.engines.vllm.version import NEWEST, OLDEST, VllmVersion, parse_version
from vramledger.errors import VramledgerError
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.models.mixers import RECURRENT, CompressedAttention, SlidingWindowAttention
from vramledger.units import GIB

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
RUNTIME_QUANTIZATION = ("fp8", "bitsandbytes")


class Case(Struct, frozen=True, kw_only=True):
    """A case ready to plan. `device` is None where nothing says how much memory it has; `weights_known` is
    False where the config describes another quantisation than the one that ran; `gaps` are what the log leaves
    open, or says against itself, about turning KV bytes into tokens."""

    id: str
    raw: Mapping[str, Any]
    checkpoint: Checkpoint
    device: Device | None
    version: VllmVersion
    version_note: str
    parallel: ParallelPlan
    flags: VllmFlags
    weights_known: bool
    gaps: tuple[str, ...]
    contradiction: str

    @property
    def reported(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.raw["reported"]
        return found


def newest_by_date(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, VllmVersion]]:
    """(date, newest release any case up to it reports), in date order."""
    seen: list[tuple[str, VllmVersion]] = []
    best = OLDEST
    for row in sorted((row for row in rows if row.get("date")), key=lambda row: str(row["date"])):
        try:
            version = parse_version(row.get("engine_version") or "")
        except VramledgerError:
            continue
        best = max(best, version)
        seen.append((row["date"], best))
    return seen


def case_version(row: Mapping[str, Any], history: list[tuple[str, VllmVersion]]) -> tuple[VllmVersion, str]:
    """The version a case reports, or the newest the data has seen by its date, or the newest of all."""
    stated = row.get("engine_version")
    if stated:
        try:
            return parse_version(stated), ""
        except VramledgerError:
            pass
    date = row.get("date")
    if not date:
        return NEWEST, "version and date not stated: newest assumed"
    best = OLDEST
    for when, version in history:
        if when <= date:
            best = version
    if stated and "nightly" in stated:
        best = VllmVersion(0, best.minor + 1)
        return best, f"a nightly build: what became {best}, by date"
    return best, f"version not stated: {best} by date"


def prepare(row: Mapping[str, Any], models: ModelSet, history: list[tuple[str, VllmVersion]]) -> Case:
    """A case ready to plan.

    Raises KeyError where its model has no config here, VramledgerError where the model or a flag is refused.
    """
    if not row.get("config_known"):
        raise KeyError(f"no config of {row['model']}")
    checkpoint = checkpoint_from_source(models.source(row["config_dir"]))
    version, note = case_version(row, history)
    return Case(
        id=row["id"],
        raw=row,
        checkpoint=checkpoint,
        device=case_device(row),
        version=version,
        version_note=note,
        parallel=_parallel(row),
        flags=_flags(row, version),
        contradiction=contradiction(row, checkpoint, case_device(row), version),
        gaps=conversion_gaps(row, checkpoint, reconstructed=models.is_reconstructed(row["config_dir"])),
        weights_known=_weights_known(
            row, checkpoint, reconstructed=models.is_reconstructed(row["config_dir"])
        ),
    )


def _parallel(row: Mapping[str, Any]) -> ParallelPlan:
    """The stated sizes; cards that no stated size explains are taken as tensor parallel."""
    flags = row["flags"]
    stated = {"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"} & set(flags)
    unsaid = 1 if stated else max(row["gpu"].get("count", 1), 1)
    return ParallelPlan(
        tp=flags.get("tensor_parallel_size", unsaid),
        pp=flags.get("pipeline_parallel_size", 1),
        dp=flags.get("data_parallel_size", 1),
        dcp=flags.get("decode_context_parallel_size", 1),
        enable_expert_parallel=bool(flags.get("enable_expert_parallel")),
    )


_SAME = (
    "max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size",
    "kv_cache_memory_bytes", "enable_prefix_caching", "mamba_cache_mode", "mamba_ssm_cache_dtype",
    "language_model_only", "moe_backend", "kv_cache_dtype", "dtype", "max_cudagraph_capture_size",
)  # fmt: skip


def _flags(row: Mapping[str, Any], version: VllmVersion) -> VllmFlags:
    said, stated = row["reported"], row["flags"]
    values: dict[str, Any] = {name: stated[name] for name in _SAME if stated.get(name) is not None}
    values["enforce_eager"] = bool(stated.get("enforce_eager"))
    # Both lines are V0's: its block counts, and before 0.9 its profile in one sentence.
    if ("gpu_blocks" in said and "cpu_blocks" in said) or (
        "activation_peak_gib" in said and not version.since(9)
    ):
        values["use_v1"] = False
    if stated.get("enable_chunked_prefill") is not None:
        values["enable_chunked_prefill"] = stated["enable_chunked_prefill"]
    if stated.get("pp_layer_partition"):
        values["pp_layer_partition"] = tuple(stated["pp_layer_partition"])
    if stated.get("enable_lora"):
        rank = stated.get("max_lora_rank", 16)
        values |= {
            "enable_lora": True,
            "max_loras": stated.get("max_loras", 1),
            "max_lora_rank": next((size for size in LORA_RANKS if size >= rank), rank),
        }
    limits = stated.get("limit_mm_per_prompt")
    if isinstance(limits, Mapping) and limits and not any(limits.values()):
        values["language_model_only"] = True
    if row["quantization"] in RUNTIME_QUANTIZATION and stated.get("quantization") in RUNTIME_QUANTIZATION:
        values["quantization"] = stated["quantization"]
    values["speculative"] = _speculation(stated.get("speculative"))
    return VllmFlags(**values)


def _speculation(text: str | None) -> Speculation | None:
    if not text:
        return None
    count = re.search(r"n(?:um_spec_tokens)?=(\d+)", text)
    method = next((name for name in ("mtp", "medusa", "eagle3", "eagle", "dspark") if name in text), "draft")
    return Speculation(method=method, num_speculative_tokens=int(count.group(1)) if count else 1)


def _weights_known(row: Mapping[str, Any], checkpoint: Checkpoint, *, reconstructed: bool) -> bool:
    """Whether the config says how these weights are stored (or vLLM quantises them itself).

    A draft model that the log only names is loaded too, and unknown.
    """
    stated = row["quantization"]
    method = checkpoint.quantization.partition(":")[0]
    speculation = _speculation(row["flags"].get("speculative"))
    if speculation is not None and speculation.method != "mtp":
        return False
    plain = checkpoint.quantization == checkpoint.model.dtype.value
    if stated == "none":
        return plain
    online = row["flags"].get("quantization") in RUNTIME_QUANTIZATION
    if plain:
        return online
    if not any(name in stated for name in _METHOD_NAMES.get(method, (method,))):
        return False
    return method in ("awq", "gptq") or not reconstructed


# What a case may call the method that a config calls by the key.
_METHOD_NAMES = {
    "modelopt": ("modelopt", "nvfp4"),
    "fbgemm_fp8": ("fp8",),
    "auto-round": ("autoround",),
}


def why_nothing(case: Case) -> str:
    """Why no field of a case can be compared."""
    reasons = []
    if case.device is None:
        reasons.append("nothing says how much memory its device has, or which batch it runs by default")
    if not case.weights_known:
        reasons.append("its config does not say how these weights are stored")
    if "kv_cache_gib" not in case.reported:
        reasons.append("no KV memory is stated")
    return "; ".join(reasons) or "it prints nothing that is predicted"


def conversion_gaps(
    row: Mapping[str, Any], checkpoint: Checkpoint, *, reconstructed: bool
) -> tuple[str, ...]:
    """Why KV bytes and tokens of a log need not agree: figures of different ranks, or a setting that the
    conversion depends on and nobody stated."""
    flags, said = row["flags"], row["reported"]
    mixers = [mixer for layer in checkpoint.model.layers for mixer in layer.token_mixers]
    recurrent = any(isinstance(mixer, RECURRENT) for mixer in mixers)
    windowed = any(isinstance(mixer, SlidingWindowAttention | CompressedAttention) for mixer in mixers)
    gaps = []
    ranks = row["gpu"].get("count", 1)
    if ranks > 1 and "kv_cache_gib_by_rank" not in said and _bytes_per_token_differ(row):
        gaps.append("one rank's KV memory beside the smallest rank's tokens")
    if recurrent and "enable_prefix_caching" not in flags:
        gaps.append("prefix caching of a recurrent model not stated")
    if windowed and not row.get("engine_version"):
        gaps.append("version not stated")
    if (recurrent or windowed) and "max_model_len" not in flags:
        gaps.append("max_model_len not stated")
    if windowed and "max_num_batched_tokens" not in flags and "max_concurrency" in said:
        gaps.append("max_num_batched_tokens of a windowed model not stated")
    if reconstructed and row["quantization"] != "none" and "kv_cache_dtype" not in flags:
        gaps.append("reconstructed quantisation: a KV cache type it may declare is not known")
    notes = row.get("notes", "")
    if "fork" in notes or "patched" in notes:
        gaps.append("a patched build")
    return tuple(gaps)


def _bytes_per_token_differ(row: Mapping[str, Any]) -> bool:
    """The case's own arithmetic: KV memory over tokens against what its uniform layout takes."""
    check = row.get("check", {})
    ratio = check.get("ratio")
    if ratio is not None:
        return bool(abs(ratio - 1) > 0.003)
    return "tokens_over_concurrency_x_len" in check and "kv_bytes_per_token_reported" in check


def contradiction(
    row: Mapping[str, Any], checkpoint: Checkpoint, device: Device | None, version: VllmVersion
) -> str:
    """What makes a log impossible by itself: less weights than its unquantised model has, or more memory than
    its device; empty where nothing does."""
    said, flags = row["reported"], row["flags"]
    weights = said.get("weights_gib")
    ranks = max(row["gpu"].get("count", 1), 1)
    if weights and row["quantization"] == "none" and flags.get("dtype", "") != "float32":
        least = 2 * checkpoint.model.parameter_counts().total / ranks / GIB
        if weights < 0.8 * least:
            return f"{weights} GiB is less than 2 bytes for each of the model's parameters ({least:.2f} GiB)"
    if device is None:
        return ""
    util = flags.get("gpu_memory_utilization", 0.92 if version.since(20) else 0.9)
    room = device.total_high_bytes / GIB * util
    implied = row.get("check", {}).get("kv_cache_gib_implied", 0.0)
    held = (weights or 0.0) + said.get("kv_cache_gib", implied)
    if held > room:
        return f"weights and KV cache ({held:.2f} GiB) exceed what {device.name} gives at {util} ({room:.2f} GiB)"
    return ""
