"""Workspaces: kernels of experts, MLA prefill, attention backends.

Source: vllm model_executor/layers/fused_moe/modular_kernel.py and v1/worker/workspace.py,
layers/attention/mla_attention.py.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.partition import local_experts
from vramledger.engines.vllm.all2all import batched_workspace, gathered_bytes, is_batched
from vramledger.engines.vllm.attention_backends import latent_mixers
from vramledger.engines.vllm.attention_buffers import (
    AttentionWorkspace,
    backend_workspace,
    mla_prefill_tokens,
)
from vramledger.engines.vllm.capability import has_fp8_units
from vramledger.engines.vllm.expert_kernels import kernel_name, scratch_elements
from vramledger.engines.vllm.layouts import mxfp4_kernel
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.engines.vllm.sparse_buffer import SparseBuffer
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model
from vramledger.units import round_up


class MoeWorkspace(Struct, frozen=True, kw_only=True):
    """Two buffers of the experts' kernels, what routing needs, and tokens of other ranks. The buffers are
    `persistent` since 0.13."""

    buffer_bytes: int
    routing_bytes: int
    persistent: bool
    gathered_bytes: int
    formula: str


def moe_workspace(
    model: Model, settings: Settings, kind: RankKind, device: Device, *, expert_format: str
) -> MoeWorkspace | None:
    """The largest layer's workspace on one rank, None without experts.

    `expert_format` is the experts' storage ("dense", "fp8", "fp8_block", "group_int", "nvfp4", "mxfp4", ...),
    which with the device decides the kernel.
    """
    mixers = {
        layer.channel_mixer
        for layer in model.layers
        if layer.index in kind.layers and isinstance(layer.channel_mixer, MixtureOfExperts)
    }
    best: MoeWorkspace | None = None
    for mixer in mixers:
        found = _one_layer(mixer, model, settings, kind, device, expert_format)
        if best is None or found.buffer_bytes > best.buffer_bytes:
            best = found
    return best


def moe_kernel(device: Device, settings: Settings, expert_format: str) -> str:
    """The experts' kernel by default."""
    if settings.flags.moe_backend not in (None, "auto"):
        return kernel_name(settings.flags.moe_backend, expert_format)
    if expert_format in ("group_int", "bitsandbytes"):
        return "marlin"
    if expert_format == "mxfp4":
        kernel = mxfp4_kernel(device, settings)
        return "gptoss_triton" if kernel in ("triton", "rocm") else kernel
    if expert_format == "nvfp4":
        return "flashinfer_cutlass" if device.architecture == "blackwell" else "marlin"
    if expert_format.startswith("fp8") and not has_fp8_units(device):
        return "marlin"
    if device.architecture == "blackwell" and settings.version.since(12):
        return "flashinfer_cutlass"
    if expert_format == "fp8_block" and settings.plan.ep > 1 and device.architecture == "hopper":
        return "flashinfer_cutlass" if settings.version.since(13) else "triton"
    return "triton"


def _one_layer(
    mixer: MixtureOfExperts,
    model: Model,
    settings: Settings,
    kind: RankKind,
    device: Device,
    expert_format: str,
) -> MoeWorkspace:
    plan, version = settings.plan, settings.version
    element = settings.dtype.bits // 8
    tokens = settings.max_tokens * (plan.dp if plan.dp > 1 else 1)
    rows = tokens
    if not version.since(18):
        rows = min(rows, 16384 if version.since(13) else 32768)
    inner = mixer.intermediate * plan.ep // plan.expert_group
    both = 2 * inner if mixer.gated else inner
    width, top_k = model.hidden_size, mixer.top_k
    kernel = moe_kernel(device, settings, expert_format)
    experts = local_experts(mixer.num_experts, kind.cuts)
    shape = f"M {rows}, top-k {top_k}, hidden {width}, intermediate {inner}"
    if is_batched(settings):
        batched = batched_workspace(
            settings, experts=experts, width=width, both=both, activated=both // 2 if mixer.gated else inner
        )
        kernel, shape = "batched", batched.formula
        first, second, rows = batched.first, batched.second, 0
    else:
        first, second = scratch_elements(
            kernel, version, rows=rows, top_k=top_k, width=width, inner=inner, both=both, experts=experts,
            element=element,
        )  # fmt: skip
    buffers = round_up(max(first, rows * width) * element, 256) + round_up(second * element, 256)
    routing = tokens * mixer.num_experts * 4 + tokens * top_k * 8 + (tokens * top_k + experts * 128) * 4
    return MoeWorkspace(
        buffer_bytes=buffers,
        routing_bytes=routing,
        persistent=version.since(13),
        gathered_bytes=gathered_bytes(mixer, model, settings),
        formula=(f"{kernel}: {element} B x (max({first}, {rows * width}) + {second}) elements, {shape}"),
    )


def mla_prefill_bytes(model: Model, settings: Settings, block_size: int) -> int:
    """The up-projection of cached latents during chunked prefill: W x heads x (nope + v) elements with W rows of the
    chunked prefill; 0 without MLA."""
    latent = latent_mixers(model, settings)
    if not latent or not settings.v1:
        return 0
    tokens = mla_prefill_tokens(settings, block_size)
    heads = latent[0].q_heads // settings.plan.tp
    width = latent[0].nope_dim + latent[0].v_head_dim
    return tokens * heads * width * settings.dtype.bits // 8


def attention_workspace(
    model: Model,
    settings: Settings,
    device: Device,
    backend: str,
    *,
    sparse: SparseBuffer,
    experts_bytes: int,
) -> AttentionWorkspace:
    """What the attention backend keeps beside the KV pool; nothing for those that keep none.

    Sparse attention takes what its buffer is larger than the experts' kernels' `experts_bytes`, which it shares
    (v1/worker/workspace.py).
    """
    if not sparse.bytes:
        return backend_workspace(model, settings, device, backend, experts_bytes=experts_bytes)
    return AttentionWorkspace(
        bytes=ByteRange.exact(max(sparse.bytes - experts_bytes, 0)),
        charged=True,
        source="vllm v1/worker/workspace.py, shared with the experts' kernels",
        formula=f"{sparse.formula}, less {experts_bytes} B of the experts' kernels",
    )
