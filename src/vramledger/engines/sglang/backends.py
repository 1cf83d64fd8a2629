"""Attention backends: which one runs without a flag, and the page size it forces.

Source: sglang srt/arg_groups/model_override_base.py (`get_default_attn_backend`), arg_groups/overrides.py
(`_mla_backend_page_constraints`, `_page_size_default`); server_args.py before 0.5.19.
"""

from __future__ import annotations

from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.version import SglangVersion
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.mixers import LatentAttention
from vramledger.models.model import Model

_FORCED: dict[str, tuple[tuple[int, ...], int]] = {
    "flashmla": ((64,), 64),
    "cutlass_mla": ((128,), 128),
    "trtllm_mla": ((32, 64), 64),
    "cutedsl_mla": ((32, 64), 64),
    "trtllm_mha": ((16, 32, 64, 128), 64),
    "hpc_ops": ((64,), 64),
    "intel_xpu": ((64, 128), 128),
    "ascend": ((128,), 128),
}
"""Page sizes a backend takes, and the one it falls back to."""

_SINKS = frozenset({"gpt_oss"})


def runs_mla(model: Model) -> bool:
    """Whether the attention layers cache a latent."""
    return model.has_mixer(LatentAttention)


def has_indexer(model: Model) -> bool:
    """Whether latents are read through a sparse indexer (DeepSeek-V3.2)."""
    return any(
        isinstance(mixer, LatentAttention) and mixer.indexer is not None for mixer in model.token_mixers
    )


def attention_backend(model: Model, device: Device, version: SglangVersion, flags: SglangFlags) -> str:
    """The flag's backend, else the version's choice for the device."""
    if flags.attention_backend is not None:
        return flags.attention_backend
    if device.vendor == "cpu":
        return "intel_amx"
    if device.vendor not in ("nvidia", "amd"):
        return {"huawei": "ascend", "intel": "intel_xpu"}.get(device.vendor, "triton")
    if has_indexer(model):
        return "dsa" if version.since(5, 15) else "nsa"
    if runs_mla(model):
        if device.architecture == "hopper":
            return "fa3"
        if device.architecture == "blackwell":
            return "trtllm_mla" if version.since(5, 4) and model.model_type == "deepseek_v3" else "flashinfer"
        return "aiter" if device.vendor == "amd" and version.since(5) else "triton"
    if device.architecture == "hopper":
        return "fa3"
    if device.architecture == "blackwell" and version.since(5, 4):
        return "trtllm_mha"
    if device.vendor == "amd":
        return "aiter" if version.since(5) else "triton"
    return "triton" if model.model_type in _SINKS else "flashinfer"


def page_size(backend: str, model: Model, device: Device, version: SglangVersion, flags: SglangFlags) -> int:
    """Tokens a page: the flag's or 1, unless the backend takes only others.

    Raises FlagError where recurrent states without extra buffers ask for pages above 1.
    """
    asked = flags.page_size or 1
    if has_indexer(model) and device.vendor in ("nvidia", "amd"):
        return 64
    if backend == "fa4" and not runs_mla(model) and device.architecture == "blackwell":
        return 128
    allowed, fallback = _FORCED.get(backend, ((), 0))
    size = asked if not allowed or asked in allowed or (backend == "ascend" and flags.page_size) else fallback
    chunk = flags.chunked_prefill_size
    if chunk is not None and chunk > 0 and chunk % size and not version.since(5, 3):
        raise FlagError(
            f"--chunked-prefill-size {chunk} is not a multiple of the page size {size}",
            flag="chunked_prefill_size",
            value=chunk,
        )
    return size
