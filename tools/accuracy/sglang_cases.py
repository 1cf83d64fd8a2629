"""SGLang's ground-truth cases: one reported start-up each, and what it says about its own inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from tools.accuracy.data import ModelSet
from tools.accuracy.machine import case_device

from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.layers import has_windowed_pool
from vramledger.engines.sglang.version import SglangVersion, parse_version
from vramledger.hardware.catalogue import Device, find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.units import GIB

RELEASES = (
    ("2024-06-08", "0.1.17"), ("2024-07-19", "0.2.5"), ("2024-08-16", "0.2.13"), ("2024-10-06", "0.3.3"),
    ("2025-02-10", "0.4.3"), ("2025-05-24", "0.4.6.post5"), ("2025-06-16", "0.4.7.post1"), ("2025-07-06", "0.4.9"),
    ("2025-09-11", "0.5.2"), ("2025-10-06", "0.5.3"), ("2025-10-24", "0.5.4"), ("2025-12-03", "0.5.6"),
    ("2026-01-01", "0.5.7"), ("2026-01-23", "0.5.8"), ("2026-02-23", "0.5.9"), ("2026-04-05", "0.5.10"),
    ("2026-05-16", "0.5.12"), ("2026-06-11", "0.5.13"), ("2026-06-26", "0.5.14"), ("2026-07-10", "0.5.15"),
    ("2026-08-21", "0.5.18"), ("2026-09-04", "0.5.19"), ("2026-09-18", "0.5.20"), ("2026-10-01", "0.5.21"),
    ("2026-10-15", "0.5.22"), ("2026-10-30", "0.5.23"),
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
    contradiction: str

    @property
    def fraction_known(self) -> bool:
        """Whether the log states mem_fraction_static, or the memory that would show another than the default."""
        return self.flags.mem_fraction_static is not None or "avail_after_load_gib" in self.reported

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
    version, note = _version(row, checkpoint)
    return Case(
        id=row["id"],
        raw=row,
        checkpoint=checkpoint,
        device=_device(row),
        version=version,
        version_note=note,
        flags=_flags(row),
        contradiction=_contradiction(row, checkpoint),
        weights_known=_weights_known(
            row, checkpoint, reconstructed=models.is_reconstructed(row["config_dir"])
        ),
    )


def _version(row: Mapping[str, Any], checkpoint: Checkpoint) -> tuple[SglangVersion, str]:
    """The version a case reports, or the newest release of its date; a build of the main branch runs by the next
    release's rules where the log shows a pool that no release of its date has."""
    if row.get("engine_version"):
        return parse_version(row["engine_version"]), ""
    date = str(row.get("date"))
    index = max((place for place, (day, _) in enumerate(RELEASES) if day <= date), default=0)
    text = RELEASES[index][1]
    if "swa_tokens" in row["reported"]:
        name = checkpoint.model.architecture
        later = [
            version for _, version in RELEASES[index:] if has_windowed_pool(name, parse_version(version))
        ]
        text = later[0] if later else text
    return parse_version(text), f"version not stated: {text} by date"


def _contradiction(row: Mapping[str, Any], checkpoint: Checkpoint) -> str:
    """What makes a log impossible by itself: weights below what its format stores, or far above what its ranks hold."""
    printed = row["reported"].get("weights_gib")
    ranks = row["flags"].get("tp_size", row["gpu"].get("count", 1))
    if not printed or ranks == 1 or "quantised repack" in row.get("notes", ""):
        return ""
    whole = checkpoint.disk_bytes / GIB
    if printed < 0.98 * whole / ranks:
        return f"{printed} GiB a rank are less than one of {ranks} shares of the {whole:.2f} GiB the checkpoint stores"
    if printed > 2 * whole / ranks + 4:
        return f"{printed} GiB a rank are over two of {ranks} shares of the {whole:.2f} GiB the checkpoint stores"
    return ""


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
    values |= _state_dtype(row["reported"])
    # Old releases print the draft's defaults in every log; only the algorithm says that something is drafted.
    if stated.get("speculative_algorithm"):
        values["speculative_algorithm"] = stated["speculative_algorithm"]
        for name in ("speculative_num_steps", "speculative_num_draft_tokens"):
            if name in stated:
                values[name] = stated[name]
    return SglangFlags(**values)


def _state_dtype(said: Mapping[str, Any]) -> dict[str, str]:
    """The type of recurrent states by the log's own figures: a state of 128 x 128 takes 4 or 2 bytes an element, its
    window of 3 steps always 2."""
    if "mamba_ssm_gib" not in said or not said.get("mamba_conv_gib"):
        return {}
    return {
        "mamba_ssm_dtype": "float32" if said["mamba_ssm_gib"] / said["mamba_conv_gib"] > 30 else "bfloat16"
    }


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
