"""From flags to what a context is made with, defaults filled in.

Source: llama.cpp src/llama-context.cpp (constructor: pads, streams, batches), tools/server/server.cpp (slots, pool),
common/common.cpp, [2025-02] src/llama-context.cpp and examples/server.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.llamacpp.architectures import Architecture
from vramledger.engines.llamacpp.flags import LlamaFlags
from vramledger.engines.llamacpp.version import LlamaBuild
from vramledger.errors import FlagError
from vramledger.formats.ggml import ggml_type
from vramledger.hardware.catalogue import Device
from vramledger.models.model import Model
from vramledger.units import ceil_div, round_up

DEFAULT_BATCH = 2048
DEFAULT_UBATCH = 512
AUTO_SLOTS = 4
DEFAULT_FIT_CONTEXT = 4096
DEFAULT_PROMPT_CACHE_MIB = 8192
DEFAULT_CHECKPOINTS = 32


_NO_OFFLOAD = ("apple", "huawei")
"""Backends that compute nothing of a layer whose weights are on the host."""
_PIPELINES = ("nvidia", "amd", "custom")
"""Backends with asynchronous copies and events, which pipeline parallelism needs."""


class Settings(Struct, frozen=True, kw_only=True):
    """One context. `context` is n_ctx over all streams, `context_per_sequence` n_ctx_seq, `streams` how many parts
    the cache has; `outputs` is n_outputs_max; `offloads` whether large batches of host layers are computed on a device, `pipelines`
    whether the backend can copy while it computes."""

    build: LlamaBuild
    flags: LlamaFlags
    devices: int
    slots: int
    is_unified: bool
    streams: int
    context: int
    context_per_sequence: int
    batch: int
    ubatch: int
    outputs: int
    flash: bool
    key_type: str
    value_type: str
    context_is_set: bool
    offloads: bool
    pipelines: bool

    @property
    def tokens(self) -> int:
        """Tokens of the largest step: a ubatch, at most the context, a multiple of the sequences."""
        return round_up(min(self.context, self.ubatch), self.slots)


def resolve(
    model: Model,
    architecture: Architecture,
    device: Device,
    build: LlamaBuild,
    flags: LlamaFlags,
    context: int | None = None,
) -> Settings:
    """The settings under `flags`; `context` stands in for -c where fitting chose one.

    Raises FlagError for combinations that llama.cpp refuses.
    """
    slots, unified = _slots(build, flags)
    shares = flags.shares()
    devices = 0 if device.vendor == "cpu" else max(flags.gpus if flags.gpus is not None else 1, len(shares))
    if flags.gpus == 0:
        devices = 0
    flash = _flash(architecture, device, build, flags, devices)
    key, value = (flags.cache_type_k or "f16").upper(), (flags.cache_type_v or "f16").upper()
    if ggml_type(value).block_elements > 1 and not flash:
        raise FlagError(
            f"--cache-type-v {value.lower()} needs flash attention: llama.cpp refuses a quantised V cache without it; -fa on",
            flag="cache_type_v",
            value=value.lower(),
        )
    asked = flags.ctx_size or 0
    per_slot = flags.kv_unified_per_slot
    if per_slot is not None and not asked:
        asked, unified = per_slot * slots, True
    total = context or asked or model.max_position_embeddings
    pad = 256 if build.pads_context_always or flash else 32
    batch = min(flags.batch_size or DEFAULT_BATCH, max(total, 1))
    total = round_up(max(total, 1), pad)
    streams = slots if build.has_streams and not unified else 1
    per_sequence = total
    if build.has_streams and not unified:
        per_sequence = round_up(max(total // slots, 1), pad)
        total = per_sequence * slots
    elif not build.has_streams:
        per_sequence = total // slots
    ubatch = min(flags.ubatch_size or DEFAULT_UBATCH, batch)
    return Settings(
        build=build,
        flags=flags,
        devices=devices,
        slots=slots,
        is_unified=unified or not build.has_streams,
        streams=streams,
        context=total,
        context_per_sequence=per_sequence,
        batch=batch,
        ubatch=ubatch,
        outputs=_outputs(build, flags, slots, batch),
        flash=flash,
        key_type=key,
        value_type=value,
        context_is_set=bool(asked),
        offloads=devices > 0 and flags.op_offload and device.vendor not in _NO_OFFLOAD,
        pipelines=device.vendor in _PIPELINES,
    )


def _slots(build: LlamaBuild, flags: LlamaFlags) -> tuple[int, bool]:
    auto = flags.parallel in (None, -1)
    if auto and build.has_auto_slots:
        return AUTO_SLOTS, True if flags.kv_unified is None else flags.kv_unified
    return 1 if flags.parallel is None or auto else flags.parallel, bool(flags.kv_unified)


def _flash(
    architecture: Architecture, device: Device, build: LlamaBuild, flags: LlamaFlags, devices: int
) -> bool:
    """Auto is on where the device's kernels have the head widths, as all covered here do; some graphs have none."""
    if flags.flash_attn == "on":
        return True
    return flags.flash_attn != "off" and build.has_auto_flash and architecture.name not in ("grok",)


def _outputs(build: LlamaBuild, flags: LlamaFlags, slots: int, batch: int) -> int:
    if flags.n_outputs_max is not None:
        return max(flags.n_outputs_max, slots)
    return slots if build.caps_outputs and not flags.embedding else batch


def window_cells(settings: Settings, window: int) -> int:
    """Cells of a stream's windowed cache (llama-kv-cache-iswa.cpp)."""
    full = settings.context_per_sequence if settings.streams > 1 else settings.context
    if settings.flags.swa_full:
        return full
    times = settings.slots if settings.is_unified else 1
    batch = settings.ubatch if settings.build.windows_by_ubatch else settings.batch
    return min(full, round_up(window * times + batch, 256))


def share_of_slots(settings: Settings) -> int:
    """Tokens that every slot surely has when all are in use."""
    return settings.context_per_sequence if settings.streams > 1 else settings.context // settings.slots


__all__ = ["Settings", "ceil_div", "resolve", "share_of_slots", "window_cells"]
