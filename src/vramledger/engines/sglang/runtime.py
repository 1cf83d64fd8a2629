"""What a rank takes beside tensors it knows of: context, communicators, workspaces, graphs, activations.

Ranges from observation name how many observations and how they spread; the rest follows rules of
srt/layers/attention and model_executor.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.layer_widths import channel_width, mixer_width
from vramledger.engines.partition import VOCAB_PADDING
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.sharding import RankKind
from vramledger.engines.surroundings import gib_bytes as _gib
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ZERO, ByteRange
from vramledger.models.mixers import FullAttention, LatentAttention, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.units import MIB, round_up

NVSWITCH_BYTES_PER_S = 900 * 10**9
ACTIVATION_LOW_PERCENT, ACTIVATION_HIGH_PERCENT = 80, 125


class Observed(Struct, frozen=True, kw_only=True):
    """A range and where it comes from."""

    bytes: ByteRange
    source: str


class Calculated(Struct, frozen=True, kw_only=True):
    """Bytes by a rule, with its inputs filled in."""

    bytes: int
    formula: str
    source: str


def context(device: Device) -> Observed:
    """Driver context and base libraries of one process, there before free memory is measured."""
    if device.vendor == "cpu":
        return Observed(bytes=_gib(0.4, 0.6, 1.0), source="resident set of a worker without a model")
    if device.vendor == "huawei":
        return Observed(
            bytes=_gib(0.0, 0.2, 0.4),
            source="60.77 to 61.10 GiB are free before a load; the device's total is what was free at most",
        )
    if device.vendor == "amd":
        return Observed(bytes=_gib(0.4, 0.6, 1.0), source="HIP context; no log prints it alone")
    return Observed(
        bytes=_gib(0.3, 0.45, 0.65),
        source="'Load weight begin' is 0.41 to 0.60 GiB below the total of one known card in 3 logs",
    )


def collectives(settings: Settings, device: Device) -> Observed | None:
    """Communicators of one rank, made before the pool is sized; None for a world of one."""
    world = settings.flags.tp_size * settings.flags.pp_size
    if world == 1:
        return None
    if device.vendor == "amd":
        return Observed(
            bytes=_gib(2.0, 4.5, 6.0),
            source="RCCL and custom all-reduce at tp 8 on MI300X: 185.72 of 191.98 GiB are free before a load, 1 log",
        )
    if device.vendor == "huawei":
        return Observed(
            bytes=_gib(0.0, 0.1, 0.4), source="HCCL, within what was free before a load on 17 machines"
        )
    if (device.link_bandwidth_bytes_per_s or 0) >= NVSWITCH_BYTES_PER_S and world >= 4:
        return Observed(
            bytes=_gib(0.3, 1.2, 2.2),
            source="NCCL with NVLink SHARP, custom and symmetric all-reduce: the pool of 1 log at tp 4 on H100 implies "
            "1.4 GiB, vLLM's communicators take up to 2.2 GiB there",
        )
    return Observed(
        bytes=_gib(0.0, 0.15, 0.6),
        source="NCCL over PCIe: 'Load weight begin' is 0.05 to 0.2 GiB lower than on one GPU in 10 logs",
    )


def load_growth(settings: Settings, device: Device) -> Observed:
    """What a load leaves beside tensors: kernels, handles, rests of loading. `Load weight end ... mem usage` has it."""
    if device.vendor == "cpu":
        return Observed(bytes=ZERO, source="no device kernels on CPU")
    if not settings.version.since(4, 6):
        return Observed(
            bytes=_gib(0.0, 0.07, 0.1),
            source="'Load weight end' beyond the tensors: 0.03 to 0.09 GiB in 5 logs up to 0.4.3",
        )
    return Observed(
        bytes=_gib(0.0, 0.01, 0.1),
        source="'Load weight end' beyond the tensors and segments: 0.00 to 0.07 GiB in 4 logs of 0.5",
    )


def attention_workspace(model: Model, settings: Settings, kind: RankKind, device: Device) -> Calculated:
    """Buffers of the attention backend, allocated after the pools."""
    backend, tp = settings.attention_backend, settings.flags.attn_tp
    rows = settings.chunk.decode_max_bs
    if backend == "flashinfer":
        wide = settings.model_type.startswith(("qwen2", "qwen3", "glm4", "mimo"))
        size = (512 if wide else 384) * MIB
        wrappers = 2 * 8 * MIB
        return Calculated(
            bytes=size + wrappers,
            formula=f"float workspace {size} B + integer workspaces 2 x {8 * MIB} B",
            source="layers/attention/flashinfer_backend.py",
        )
    if backend in ("trtllm_mha", "trtllm_mla"):
        size = (512 if backend == "trtllm_mha" else 150) * MIB
        return Calculated(
            bytes=size, formula=f"workspace {size} B", source=f"layers/attention/{backend}_backend.py"
        )
    if backend in ("triton", "aiter"):
        widest = 0
        for mixer in model.token_mixers:
            if isinstance(mixer, FullAttention):
                widest = max(widest, mixer.q_heads // tp * (mixer.v_head_dim + 1))
            elif isinstance(mixer, LatentAttention):
                widest = max(widest, mixer.q_heads // tp * (mixer.kv_lora_rank + 1))
        splits = 16 if device.vendor == "amd" else 8
        return Calculated(
            bytes=4 * rows * splits * widest,
            formula=f"4 B x batch {rows} x {splits} splits x {widest} partial outputs",
            source="layers/attention/triton_backend.py",
        )
    return Calculated(
        bytes=4 * rows * settings.context_len // max(settings.page_size, 1),
        formula=f"page table 4 B x batch {rows} x {settings.context_len // max(settings.page_size, 1)} pages",
        source="layers/attention/flashattention_backend.py",
    )


def graph_pool(settings: Settings, device: Device) -> Observed:
    """Memory of captured graphs: what the engine's own reserve allows for them, between a quarter and twice it.

    2 MiB for each request of the largest decode batch, 8 MiB for each prefill size, 1.5 GiB for latent attention's
    prefill (arg_groups/memory_hook.py, `reserve_for_graph_mb`).
    """
    if device.vendor == "huawei" and settings.decode_sizes:
        return Observed(
            bytes=_gib(1.3, 2.0, 8.8),
            source="graphs of decode on Ascend: 1.3 to 3.7 GiB in 8 logs, 6.5 to 8.8 GiB with DeepEP in 3",
        )
    decode = 2 * MIB * max(settings.decode_sizes, default=0)
    prefill = 0
    if settings.prefill_sizes:
        prefill = 1536 * MIB if settings.is_mla else 8 * MIB * len(settings.prefill_sizes)
    size = decode + prefill
    return Observed(
        bytes=ByteRange(size // 4, size, 2 * size),
        source=f"the engine's own reserve: 2 MiB x {max(settings.decode_sizes, default=0)} decode rows, "
        f"{len(settings.prefill_sizes)} prefill sizes; the logs of GPUs print 0.06 GiB at batch 1",
    )


class Activation(Struct, frozen=True, kw_only=True):
    """Peaks of a prefill and of a decode step on one rank."""

    prefill: ByteRange
    decode: ByteRange
    formula: str


def activation(model: Model, settings: Settings, kind: RankKind) -> Activation:
    """A model of the peaks: hidden states, the widest layer, gathered tokens under DP attention, logits of the rows that
    are sampled."""
    flags = settings.flags
    element = settings.dtype.bits // 8
    tokens = settings.step_tokens
    width = model.hidden_size
    attention, channel, experts = _widths(model, settings, kind)
    gathered = flags.attn_dp
    per_token = 3 * width + max(attention, gathered * (channel + (width if gathered > 1 else 0)))
    per_token += gathered * experts
    if flags.tp_size > 1:
        per_token += width
    forward = element * tokens * per_token
    vocab = round_up(model.vocab_size, VOCAB_PADDING)
    rows = min(settings.max_running_requests or settings.chunk.decode_max_bs, settings.chunk.decode_max_bs)
    rows = max(rows * max(flags.draft_tokens, 1), 1)
    sampled = rows * vocab * (element + 4 + 4) if kind.is_last and not model.is_pooling else 0
    decode = element * rows * per_token + sampled
    prefill = max(forward, sampled)
    return Activation(
        prefill=_spread(prefill),
        decode=_spread(decode),
        formula=f"{element} B x T {tokens} x {per_token} elements a token (3 x hidden {width}, attention {attention}, "
        f"MLP {channel}, experts {experts}, {gathered} attention group(s)); logits of {rows} rows {sampled} B",
    )


def _spread(size: int) -> ByteRange:
    return ByteRange(size * ACTIVATION_LOW_PERCENT // 100, size, size * ACTIVATION_HIGH_PERCENT // 100)


def _widths(model: Model, settings: Settings, kind: RankKind) -> tuple[int, int, int]:
    """Elements a token takes in the widest mixer, the widest MLP and the widest experts' buffers of a stage."""
    flags = settings.flags
    attention = channel = experts = 0
    for layer in model.layers:
        if layer.index not in kind.layers:
            continue
        for mixer in layer.token_mixers:
            attention = max(attention, mixer_width(mixer, flags.attn_tp))
        if layer.channel_mixer is None:
            continue
        channel = max(channel, channel_width(layer.channel_mixer, kind.cuts.dense))
        if isinstance(layer.channel_mixer, MixtureOfExperts):
            mixture = layer.channel_mixer
            share = max(flags.ep_size, 1)
            inner = mixture.intermediate * share // flags.tp_size
            routed = mixture.top_k * (3 * inner + model.hidden_size) // (share if share > 1 else 1)
            experts = max(experts, routed)
    return attention, channel, experts


def padding_page_bytes(cell_bytes: int, settings: Settings) -> int:
    """One page more than the pool's tokens in every layer, which the budget does not charge."""
    return cell_bytes * settings.page_size
