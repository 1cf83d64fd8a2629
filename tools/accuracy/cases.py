"""Ground-truth cases: one reported start-up each, and what it says about its own inputs."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from tools.pack_data import reference

from vramledger.engines.vllm.flags import ParallelPlan, Speculation, VllmFlags
from vramledger.engines.vllm.version import NEWEST, OLDEST, VllmVersion, parse_version
from vramledger.errors import DeviceError, VramledgerError
from vramledger.evidence import reported
from vramledger.hardware.catalogue import Device, devices, find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.models.mixers import RECURRENT, CompressedAttention, SlidingWindowAttention
from vramledger.models.sources.load import Source
from vramledger.units import GIB

OWN_FACTS = Path(__file__).resolve().parents[2] / "data/groundtruth/facts.jsonl"
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


class ModelSet:
    """Configs by folder name, from `models/` of a data folder or from its packed copy `models.json.gz`."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "models"
        packed = data / "models.json.gz"
        self._reconstructed: frozenset[str] = frozenset()
        index = self._folder / "index.json"
        if index.is_file():
            entries = json.loads(index.read_text(encoding="utf-8"))
            self._reconstructed = frozenset(
                entry["id"].replace("/", "__") for entry in entries if entry.get("reconstructed")
            )
        self._references: dict[str, dict[str, Any]] = {}
        self._packed: dict[str, dict[str, Any]] = {}
        if not self._folder.is_dir() and packed.is_file():
            with gzip.open(packed, "rt", encoding="utf-8") as handle:
                content = json.load(handle)
            self._packed = content["models"]
            self._reconstructed = frozenset(content["reconstructed"])
            self._references = content["params"]
        elif index.is_file():
            counts = json.loads((self._folder / "param-counts.json").read_text(encoding="utf-8"))
            self._references = {
                entry["id"].replace("/", "__"): reference(entry, counts.get(entry["id"], {}))
                for entry in entries
            }

    def is_reconstructed(self, name: str) -> bool:
        """Whether a config was written from published dimensions: its quantisation's ignore list is a guess."""
        return name in self._reconstructed

    def reference(self, name: str) -> Mapping[str, Any]:
        """What is known of a model's size from elsewhere: params, caveat, published, note, total_size, source."""
        return self._references.get(name, {})

    def names(self) -> tuple[str, ...]:
        if self._packed:
            return tuple(sorted(self._packed))
        return tuple(sorted(path.parent.name for path in self._folder.glob("*/config.json")))

    def source(self, name: str) -> Source:
        """The config files of one model, without weights or headers. Raises KeyError for an unknown name."""
        files = self._packed.get(name) if self._packed else self._read(name)
        if files is None or "config.json" not in files:
            raise KeyError(f"no config in a folder {name}")
        return Source(
            id=name.replace("__", "/", 1),
            where=f"{name}/config.json",
            config=files["config.json"],
            quant_configs={key: value for key, value in files.items() if key != "config.json"},
            side_configs={},
            table=None,
            index=None,
            gguf=None,
            disk_bytes=None,
            disk_evidence=None,
            files=tuple(files),
        )

    def _read(self, name: str) -> dict[str, Any] | None:
        folder = self._folder / name
        if not (folder / "config.json").is_file():
            return None
        wanted = ("config.json", "hf_quant_config.json")
        return {
            path.name: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.json"))
            if path.name in wanted
        }


def read_cases(data: Path, engine: str) -> list[Mapping[str, Any]]:
    """Every case of one engine, with what the project's `facts.jsonl` and one beside the cases add to their inputs."""
    path = data / "groundtruth" / "reported-startups.jsonl"
    rows = _read_lines(path)
    files = [file for file in (OWN_FACTS, path.with_name("facts.jsonl")) if file.is_file()]
    added = {fact["id"]: fact for file in files for fact in _read_lines(file)}
    return [_with_facts(row, added.get(row.get("id", ""), {})) for row in rows if row.get("engine") == engine]


def _read_lines(path: Path) -> list[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as handle:
        return [json.loads(line) for line in handle if line.strip()]


def _with_facts(row: Mapping[str, Any], fact: Mapping[str, Any]) -> Mapping[str, Any]:
    """A case with inputs that its source page states and the collection lacks; printed figures stay."""
    row = {key: _stated(value) for key, value in row.items()}
    version = row.get("engine_version") or fact.get("engine_version")
    return {**row, "engine_version": version, "flags": {**fact.get("flags", {}), **row.get("flags", {})}}


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


def case_device(row: Mapping[str, Any]) -> Device | None:
    """The card with the total the log printed; a class of cards where only its size is known."""
    gpu, flags, said = row["gpu"], row["flags"], row["reported"]
    total = gpu.get("total_gib")
    device: Device | None
    try:
        device = find_device(re.sub(r"\(.*\)", "", gpu["name"]).strip())
    except DeviceError:
        device = _class_of(gpu["name"], flags.get("max_num_batched_tokens"))
    usable, util = said.get("usable_gib"), flags.get("gpu_memory_utilization")
    if total is None and usable is not None and util is not None:
        total = usable / util
    precise = total is not None and abs(total - round(total)) > 0.004
    if device is None and total is None:
        return None
    if device is None:
        device = find_device(f"{total}GiB")
    if precise or device.name.startswith("custom:"):
        size = int(total * GIB)
        slack = int(0.005 * GIB)
        device = replace(
            device,
            total_bytes=size,
            total_low_bytes=size - slack,
            total_high_bytes=size + slack,
            evidence=reported("the case's own log"),
        )
    return device


def _class_of(name: str, batch: int | None) -> Device | None:
    """The middle of all catalogue cards sold with that many GB, None where the name gives no size."""
    match = re.search(r"(\d+) GB (?:class|card)", name)
    if match is None:
        return None
    size = int(match.group(1))
    alike = [device for device in devices() if device.marketing_gb == size and device.vendor == "nvidia"]
    if not alike:
        return find_device(f"{size}GiB")
    if size >= 70 and batch != 2048:
        return None  # an A100 and an H100 of one size run with different default batches
    if size >= 70:
        alike = [device for device in alike if "a100" in device.name.lower()]
    ordered = sorted(alike, key=lambda device: device.total_bytes)
    middle = ordered[len(ordered) // 2]
    return replace(
        middle,
        total_low_bytes=ordered[0].total_low_bytes,
        total_high_bytes=ordered[-1].total_high_bytes,
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


def _stated(value: Any) -> Any:
    """A table without the keys that say nothing (null)."""
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if item is not None}
    return value


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
