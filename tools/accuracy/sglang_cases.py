"""SGLang's ground-truth cases: one reported start-up each, and what it says about its own inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from tools.accuracy.data import ModelSet
from tools.accuracy.machine import case_device

from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.version import SglangVersion, parse_version
from vramledger.hardware.catalogue import Device, find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source

RELEASES = (
    ("2024-05-21", "0.1.17"), ("2024-08-16", "0.2.13"), ("2024-10-06", "0.3.3"), ("2025-02-10", "0.4.3"),
    ("2025-05-24", "0.4.6.post5"), ("2025-06-16", "0.4.7.post1"), ("2025-07-06", "0.4.9"), ("2025-09-11", "0.5.2"),
    ("2025-10-06", "0.5.3"), ("2025-10-24", "0.5.4"), ("2025-12-03", "0.5.6"), ("2026-01-01", "0.5.7"),
    ("2026-01-23", "0.5.8"), ("2026-02-23", "0.5.9"), ("2026-04-05", "0.5.10"), ("2026-05-16", "0.5.12"),
    ("2026-07-10", "0.5.15"), ("2026-08-21", "0.5.18"), ("2026-09-04", "0.5.19"), ("2026-09-18", "0.5.20"),
    ("2026-10-01", "0.5.21"), ("2026-10-15", "0.5.22"), ("2026-10-30", "0.5.23"),
)  # fmt: skip
"""When releases were built, as the files in their packages are dated."""

ONLINE = ("fp8", "w8a8_fp8", "w8a8_int8", "bitsandbytes")


class Case(Struct, frozen=True, kw_only=True):
    """A case ready to plan. `device` is None where nothing says how much memory it has; `weights_known` is False where
    the config describes another quantisation than the one that ran."""

    id: str
    raw: Mapping[str, Any]
    checkpoint: Checkpoint
    device: Device | None
    version: SglangVersion
    version_note: str
    flags: SglangFlags
    weights_known: bool

    @property
    def reported(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.raw["reported"]
        return found

    @property
    def ranks(self) -> int:
        return self.flags.tp_size * self.flags.pp_size


def prepare(row: Mapping[str, Any], models: ModelSet) -> Case:
    """A case ready to plan.

    Raises KeyError where its model has no config here, VramledgerError where the model or a flag is refused.
    """
    if not row.get("config_known"):
        raise KeyError(f"no config of {row['model']}")
    checkpoint = checkpoint_from_source(models.source(row["config_dir"]))
    version, note = _version(row)
    return Case(
        id=row["id"],
        raw=row,
        checkpoint=checkpoint,
        device=_device(row),
        version=version,
        version_note=note,
        flags=_flags(row),
        weights_known=_weights_known(
            row, checkpoint, reconstructed=models.is_reconstructed(row["config_dir"])
        ),
    )


def _version(row: Mapping[str, Any]) -> tuple[SglangVersion, str]:
    """The version a case reports, or the newest release of its date."""
    if row.get("engine_version"):
        return parse_version(row["engine_version"]), ""
    date = str(row.get("date"))
    text = next((version for day, version in reversed(RELEASES) if day <= date), RELEASES[0][1])
    return parse_version(text), f"version not stated: {text} by date"


def _device(row: Mapping[str, Any]) -> Device | None:
    """The card by name, or by the class its name states; None where it only says how much was free."""
    name = re.sub(r"\(.*\)", "", row["gpu"]["name"]).replace("class", "").strip()
    known = {"A100-40GB": "A100 SXM 40GB", "MI300X": "MI300X", "Ascend 910": "Ascend 910"}
    if name in known:
        return find_device(known[name])
    if name == "32 GB Blackwell":
        return find_device("RTX 5090")
    device = case_device({**row, "flags": {}, "gpu": {**row["gpu"], "name": row["gpu"]["name"]}})
    return None if device is not None and "24 GB" in row["gpu"]["name"] else device


_SAME = (
    "tp_size", "dp_size", "ep_size", "enable_dp_attention", "enable_dp_lm_head", "mem_fraction_static",
    "max_running_requests", "chunked_prefill_size", "max_prefill_tokens", "page_size", "swa_full_tokens_ratio",
    "max_total_tokens", "context_length", "cuda_graph_max_bs", "disable_cuda_graph", "attention_backend",
    "disaggregation_mode", "moe_a2a_backend", "kv_cache_dtype", "dtype",
)  # fmt: skip


def _flags(row: Mapping[str, Any]) -> SglangFlags:
    stated = row["flags"]
    values: dict[str, Any] = {name: stated[name] for name in _SAME if name in stated}
    values.setdefault("tp_size", max(row["gpu"].get("count", 1), 1))
    if stated.get("quantization") in ONLINE:
        values["quantization"] = stated["quantization"]
    # Old releases print the draft's defaults in every log; only the algorithm says that something is drafted.
    if stated.get("speculative_algorithm"):
        values["speculative_algorithm"] = stated["speculative_algorithm"]
        for name in ("speculative_num_steps", "speculative_num_draft_tokens"):
            if name in stated:
                values[name] = stated[name]
    return SglangFlags(**values)


def _weights_known(row: Mapping[str, Any], checkpoint: Checkpoint, *, reconstructed: bool) -> bool:
    """Whether the config says how these weights are stored."""
    stated = row["quantization"]
    method = checkpoint.quantization.partition(":")[0]
    plain = checkpoint.quantization == checkpoint.model.dtype.value
    if stated == "none":
        return plain
    if plain:
        return False
    return method in stated and (method in ("awq", "gptq") or not reconstructed or "native" in stated)


def on_memory(case: Case, total_bytes: int) -> Device:
    """The case's device, or one without a name, of another total."""
    device = case.device or find_device("80GiB")
    return replace(device, total_bytes=total_bytes, total_low_bytes=total_bytes, total_high_bytes=total_bytes)
