"""llama.cpp's reported start-ups: model, KV, state and compute buffers against the plan.

A log says where layers went only by their sizes, so with several devices the sums over devices are compared, and of
the compute buffers the largest. Cases without a config have their KV widths from the GGUF metadata that was printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tools.accuracy.comparison import Comparison, LeftOut, Result, collected, scored
from tools.accuracy.data import ModelSet

from vramledger.engines.llamacpp.flags import CACHE_TYPES, LlamaFlags
from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.llamacpp.planner import configure
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.engines.llamacpp.version import LlamaBuild, parse_version
from vramledger.errors import VramledgerError
from vramledger.formats.ggml import ggml_type
from vramledger.hardware.catalogue import Device, find_device
from vramledger.models.loading import checkpoint_from_source
from vramledger.units import MIB

ENGINE = "llama.cpp"
FIELDS = ("model on devices", "model on host", "kv", "state", "compute on a device", "compute on host")
_ROUNDING = 0.006
_BUILDS = (
    ("2024-06-01", 3060),
    ("2024-10-01", 3860),
    ("2025-01-01", 4400),
    ("2025-05-01", 5230),
    ("2025-09-01", 6340),
    ("2026-01-01", 7600),
    ("2026-05-01", 9010),
)
"""Builds by date, for logs that print none."""
_HOST = re.compile(r"CPU|.*_Host|CPU_.*")


EXCLUDED = {
    ("llamacpp-i13305-deepseek-r1", "model on host"): "the file's types are its maker's (2.70 bits a weight)",
    (
        "llamacpp-i10080-mistral-7b-instruct-v0-2",
        "model on host",
    ): "a mapping's span; the order of the file is not in the report",
    (
        "llamacpp-i6031-codebooga-34b-v0-1",
        "model on host",
    ): "a mapping's span; the order of the file is not in the report",
    ("llamacpp-i5909-gemma-2b", "model on host"): "quantised before tied tables were kept at the head's type",
    (
        "llamacpp-i14625-ai21-jamba-mini-1-7",
        "model on devices",
    ): "-ot was given, its pattern is not in the report",
    (
        "llamacpp-i14625-ai21-jamba-mini-1-7",
        "model on host",
    ): "-ot was given, its pattern is not in the report",
    (
        "llamacpp-i14625-ai21-jamba-mini-1-7",
        "compute on a device",
    ): "-ot was given, its pattern is not in the report",
    (
        "llamacpp-i14625-ai21-jamba-mini-1-7",
        "compute on host",
    ): "-ot was given, its pattern is not in the report",
    ("llamacpp-i13795-qwen3-embedding-8b", "model on devices"): "weights are repacked for AMX, and lie twice",
    ("llamacpp-i13795-qwen3-embedding-8b", "model on host"): "weights are repacked for AMX, and lie twice",
    (
        "llamacpp-v1-6-gemma-4-26b-a4b-it",
        "model on devices",
    ): "the file's types are its maker's (its embedding is Q8_0)",
    (
        "llamacpp-v1-6-gemma-4-26b-a4b-it",
        "model on host",
    ): "the file's types are its maker's (its embedding is Q8_0)",
    (
        "llamacpp-i14670-lfm2-1-2b",
        "model on devices",
    ): "that build's LFM2 computes the head from the host's table",
    (
        "llamacpp-i11500-granite-3b-code-instruct-128k",
        "compute on host",
    ): "SYCL had no flash attention: it ran on the CPU",
}
"""Figures that are not compared, each with its reason."""


def run(rows: Sequence[Mapping[str, Any]], models: ModelSet) -> Result:
    def compared(row: Mapping[str, Any]) -> list[Comparison]:
        found = _case(row, models)
        if not found:
            raise LeftOut("the log has none of the compared figures")
        return found

    found = collected(rows, compared)
    excluded = [item for item in found.comparisons if (item.case, item.field) in EXCLUDED]
    reasons = [(f"{item.case}: {item.field}", EXCLUDED[item.case, item.field]) for item in excluded]
    return Result(
        comparisons=tuple(item for item in found.comparisons if item not in excluded),
        refused=(*found.refused, *reasons),
    )


def _case(row: Mapping[str, Any], models: ModelSet) -> list[Comparison]:
    if not row.get("config_known"):
        return _without_config(row)
    build = _build(row)
    checkpoint = checkpoint_from_source(models.source(row["config_dir"]))
    device = _device(row)
    if not _has_latents(row):
        build = min(build, _BEFORE_LATENTS)
    flags = _flags(row, build)
    _, _, fitted = configure(checkpoint, device, build, flags)
    return _compared(row, fitted.measured)


_BEFORE_LATENTS = LlamaBuild(5138)


def _has_latents(row: Mapping[str, Any]) -> bool:
    """Whether the log shows one latent a token; a file converted before they were kept shows every head."""
    width = str(row.get("gguf_meta", {}).get("n_embd_k_gqa", "0"))
    return not row.get("arch_kind", "").startswith("mla") or (width.isdigit() and int(width) <= 1024)


def _build(row: Mapping[str, Any]) -> LlamaBuild:
    stated = str(row.get("engine_version") or "")
    # A fork's own count, which its date gives away.
    if stated and not (
        int(stated.lstrip("b").partition("-")[0]) < 3000 and str(row.get("date")) > "2024-06-01"
    ):
        return parse_version(stated)
    date = row.get("date")
    if date is None:
        return LlamaBuild(8700)
    before = [number for day, number in _BUILDS if day <= date]
    return LlamaBuild(before[-1] if before else _BUILDS[0][1])


def _device(row: Mapping[str, Any]) -> Device:
    if not _devices(row):
        return find_device("cpu:512GiB")
    try:
        return find_device(row["gpu"]["name"])
    except VramledgerError:
        return find_device("custom:64GiB")


def _devices(row: Mapping[str, Any]) -> list[str]:
    """Names of the accelerators in the log."""
    reported = row["reported"]
    names = {
        name.removesuffix("_Split").removesuffix("_Mapped")
        for key in ("model_buffer_mib", "kv_buffer_mib", "compute_buffer_mib")
        for name in reported.get(key, {})
        if not _HOST.fullmatch(name)
    }
    return sorted(names)


def _flags(row: Mapping[str, Any], build: LlamaBuild) -> LlamaFlags:
    stated, reported = row["flags"], row["reported"]
    offloaded = str(stated.get("offloaded_layers", "0/0")).split("/")
    layers = int(offloaded[0]) if int(offloaded[0]) < int(offloaded[1]) else 999
    flash = stated.get("flash_attn_log")
    split = any(name.endswith("_Split") for name in reported.get("model_buffer_mib", {}))
    devices = _devices(row)
    return LlamaFlags(
        ctx_size=int(stated["n_ctx"]),
        parallel=int(stated.get("n_seq_max", 1)),
        kv_unified=True if build.has_streams and _unified(row) else None,
        batch_size=stated.get("n_batch"),
        ubatch_size=stated.get("n_ubatch"),
        gpu_layers=str(layers),
        gpus=max(len(devices), 1) if devices else None,
        split_mode="row" if split else None,
        flash_attn="on" if flash in (1, "enabled", "auto", True) else "off",
        cache_type_k=_cache_type(reported, "type_k"),
        cache_type_v=_cache_type(reported, "type_v"),
        swa_full=_whole_windows(reported),
        kv_offload=not stated.get("no_kv_offload", False),
        mmap=not any(name.endswith("_Host") for name in reported.get("model_buffer_mib", {})),
        fit="off",
        ftype=_file_type(row["quantization"]),
    )


def _unified(row: Mapping[str, Any]) -> bool:
    """Whether the cells of the full cache are all of n_ctx."""
    caches = row["reported"].get("kv_caches", ())
    return any(item.get("cells") == row["flags"]["n_ctx"] for item in caches)


def _whole_windows(reported: Mapping[str, Any]) -> bool:
    """Whether windowed layers were given every cell."""
    caches = reported.get("kv_caches", ())
    return len(caches) > 1 and len({item.get("cells") for item in caches}) == 1


def _cache_type(reported: Mapping[str, Any], name: str) -> str | None:
    value = reported.get(name) or next((item.get(name) for item in reported.get("kv_caches", ())), None)
    return value if value in CACHE_TYPES else None


def _file_type(text: str) -> str:
    name = text.removeprefix("gguf:").split("  ")[0].strip()
    if name.lower().startswith(("all f32", "f32")):
        return "F32"
    return name.replace("mostly ", "").partition(" (")[0]


def _compared(row: Mapping[str, Any], measured: Measured) -> list[Comparison]:
    reported, name = row["reported"], row["id"]
    devices = range(measured.settings.devices)
    placement = measured.placement
    out: list[Comparison] = []

    def add(field: str, printed: float | None, low: float, expected: float, high: float) -> None:
        if printed is not None:
            interval = (low / MIB, expected / MIB, high / MIB)
            out.append(
                scored(
                    ENGINE, name, field, printed, interval, _ROUNDING, str(row.get("engine_version") or "")
                )
            )

    models = reported.get("model_buffer_mib", {})
    held = sum(placement.device_bytes) + sum(placement.split_bytes)
    on_devices = _sum(models, host=False)
    if any(item.startswith("Metal") for item in models) and on_devices is not None:
        # Metal maps the file from its first to its last tensor, as the host does.
        held = (
            sum(placement.device_bytes)
            - placement.tied_bytes
            + (placement.host_bytes if placement.tied_bytes else 0)
        )
    add("model on devices", on_devices, held, held, held)
    host = _sum(models, host=True)
    if host is not None:
        if any(item.endswith("Mapped") for item in models):
            add(
                "model on host",
                host,
                placement.host_bytes,
                placement.host_span_bytes,
                placement.host_span_bytes,
            )
        else:
            add("model on host", host, placement.host_bytes, placement.host_bytes, placement.host_bytes)
    kept = sum(item.bytes for item in measured.caches.caches)
    add("kv", reported.get("kv_total_mib"), kept, kept, kept)
    state = sum(item.bytes for item in measured.caches.states)
    add("state", _sum(reported.get("recurrent_state_buffer_mib", {}), host=None), state, state, state)
    compute = reported.get("compute_buffer_mib", {})
    largest = [size for item, size in compute.items() if not _HOST.fullmatch(item)]
    if largest and devices:
        worst = max((measured.compute[index] for index in devices), key=lambda item: item.expected)
        add("compute on a device", max(largest), worst.low, worst.expected, worst.high)
    hosts = [size for item, size in compute.items() if _HOST.fullmatch(item)]
    if hosts:
        host_range = measured.compute[HOST]
        add("compute on host", sum(hosts), host_range.low, host_range.expected, host_range.high)
    return out


def _sum(sizes: Mapping[str, float], *, host: bool | None) -> float | None:
    found = [size for name, size in sizes.items() if host is None or bool(_HOST.fullmatch(name)) is host]
    return sum(found) if found else None


def _without_config(row: Mapping[str, Any]) -> list[Comparison]:
    """KV alone, from the widths the log printed."""
    meta, reported = row.get("gguf_meta", {}), row["reported"]
    keys, values = str(meta.get("n_embd_k_gqa", "")), str(meta.get("n_embd_v_gqa", ""))
    total = reported.get("kv_total_mib")
    if (
        not (keys.isdigit() and values.isdigit() and int(keys))
        or total is None
        or "n_ctx" not in row["flags"]
    ):
        raise KeyError("no config of this model, and the log prints no uniform KV widths")
    layers = int(meta["n_layer"])
    kinds = [_cache_type(reported, name) or "f16" for name in ("type_k", "type_v")]
    rows = int(row["flags"]["n_ctx"]) * layers
    size = (
        sum(
            ggml_type(kind).bytes_for(int(width), 1)
            for kind, width in zip(kinds, (keys, values), strict=True)
        )
        * rows
    )
    expected = size / MIB
    return [
        scored(
            ENGINE,
            row["id"],
            "kv",
            total,
            (expected, expected, expected),
            _ROUNDING,
            "no config: widths of the log",
        )
    ]


__all__ = ["ENGINE", "FIELDS", "run"]
