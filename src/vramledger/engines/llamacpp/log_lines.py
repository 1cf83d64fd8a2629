"""The memory lines of a start-up log, worded as each build words them.

Source: llama.cpp src/llama-model.cpp, llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp,
llama-context.cpp; [2025-02] src/llama.cpp of c392e50.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.llamacpp.caches import LayerCache
from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.hardware.catalogue import Device
from vramledger.units import MIB

_BACKENDS = {"nvidia": "CUDA", "amd": "ROCm", "intel": "SYCL", "apple": "Metal", "huawei": "CANN"}


def device_name(device: Device, index: int) -> str:
    """llama.cpp's name of a device: CUDA0, ROCm1, Metal."""
    if index == HOST:
        return "CPU"
    backend = _BACKENDS.get(device.vendor, "GPU")
    return backend if backend == "Metal" else f"{backend}{index}"


def host_name(device: Device) -> str:
    """The pinned host buffer beside a device."""
    backend = _BACKENDS.get(device.vendor, "GPU")
    return "CPU" if device.vendor in ("apple", "cpu") else f"{backend}_Host"


def log_lines(measured: Measured, device: Device, output_bytes: int) -> tuple[str, ...]:
    """Model, cache, state, compute and output lines with expected values, times left out."""
    settings, placement, build = measured.settings, measured.placement, measured.settings.build
    devices = range(settings.devices)
    lines = []
    if settings.devices:
        lines.append(f"load_tensors: offloaded {placement.offloaded}/{placement.total_layers} layers to GPU")
    for index in devices:
        if placement.split_bytes[index]:
            lines.append(
                _sized(
                    "load_tensors:", f"{device_name(device, index)}_Split model", placement.split_bytes[index]
                )
            )
        lines.append(
            _sized("load_tensors:", f"{device_name(device, index)} model", placement.device_bytes[index])
        )
    mapped = settings.flags.mmap and build.number >= 3900
    pinned = settings.devices and not settings.flags.mmap
    host = "CPU_Mapped" if mapped else host_name(device) if pinned else "CPU"
    lines.append(
        _sized(
            "load_tensors:", f"{host} model", placement.host_span_bytes if mapped else placement.host_bytes
        )
    )
    context = "llama_context:" if build.has_latents else "llama_init_from_model:"
    if build.has_latents:
        flash = "enabled" if settings.flash else "disabled"
        values = {
            "n_seq_max": settings.slots, "n_ctx": settings.context, "n_ctx_seq": settings.context_per_sequence,
            "n_batch": settings.batch, "n_ubatch": settings.ubatch, "flash_attn": flash,
            "kv_unified": str(settings.is_unified).lower(), "n_outputs_max": settings.outputs,
        }  # fmt: skip
        lines.extend(f"{context} {name} = {value}" for name, value in values.items())
    else:
        lines.append(f"{context} n_ctx = {settings.context}")
    where = host_name(device) if settings.devices else "CPU"
    lines.append(_sized(context, f"{where} output", output_bytes, digits=8))
    lines.extend(_caches(measured, device))
    lines.extend(_states(measured, device))
    compute = "sched_reserve:" if build.plans_embeddings else context
    for index in [*devices, HOST]:
        size = measured.compute[index].expected
        if size:
            name = device_name(device, index) if index != HOST else where
            lines.append(_sized(compute, f"{name} compute", size))
    return tuple(lines)


def _sized(head: str, name: str, size: int, *, digits: int = 8) -> str:
    return f"{head} {name} buffer size = {size / MIB:{digits}.2f} MiB"


def _caches(measured: Measured, device: Device) -> list[str]:
    build = measured.settings.build
    lines = []
    for windowed, index in ((False, False), (True, False), (False, True)):
        layers = [
            item for item in measured.caches.caches if item.is_windowed is windowed and item.is_index is index
        ]
        if not layers:
            continue
        if measured.caches.window:
            word = "    SWA" if windowed else "non-SWA"
            lines.append(f"llama_kv_cache_iswa: creating {word} KV cache, size = {layers[0].cells} cells")
        elif any(item.is_index for item in measured.caches.caches):
            word = "indexer" if index else "main"
            lines.append(f"llama_kv_cache_dsa: creating {word} KV cache, size = {layers[0].cells} cells")
        name = (
            "llama_kv_cache:"
            if build.has_streams
            else "llama_kv_cache_unified:"
            if build.has_latents
            else "llama_kv_cache_init:"
        )
        for place in [*range(measured.settings.devices), HOST]:
            size = sum(item.bytes for item in layers if measured.cache_device(item.layer) == place)
            if size:
                lines.append(_sized(name, f"{device_name(device, place)} KV", size))
        lines.append(_total(layers, measured, name))
    return lines


def _total(layers: Sequence[LayerCache], measured: Measured, name: str) -> str:
    settings = measured.settings
    keys, values = sum(item.key_bytes for item in layers), sum(item.value_bytes for item in layers)
    split = f"K ({settings.key_type.lower()}): {keys / MIB:7.2f} MiB, V ({settings.value_type.lower()}): {values / MIB:7.2f} MiB"
    if not settings.build.has_latents:
        return f"llama_init_from_model: KV self size  = {(keys + values) / MIB:7.2f} MiB, {split}"
    sequences = (
        f"{settings.slots:2d}/{settings.streams} seqs"
        if settings.build.has_streams
        else f"{settings.slots:2d} seqs"
    )
    return f"{name} size = {(keys + values) / MIB:7.2f} MiB ({layers[0].cells:6d} cells, {len(layers):3d} layers, {sequences}), {split}"


def _states(measured: Measured, device: Device) -> list[str]:
    states = measured.caches.states
    if not states:
        return []
    lines = []
    for index in [*range(measured.settings.devices), HOST]:
        size = measured.state_bytes(index)
        if size:
            lines.append(_sized("llama_memory_recurrent:", f"{device_name(device, index)} RS", size))
    shift, state = sum(item.shift_bytes for item in states), sum(item.state_bytes for item in states)
    slots = measured.settings.slots
    lines.append(
        f"llama_memory_recurrent: size = {(shift + state) / MIB:7.2f} MiB ({slots:6d} cells, {len(measured.placement.layers):3d} layers, "
        f"{slots:2d} seqs), R (f32): {shift / MIB:7.2f} MiB, S (f32): {state / MIB:7.2f} MiB"
    )
    return lines
