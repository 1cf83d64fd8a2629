"""How wide a layer is to a forward pass: elements a token takes beside its hidden states on one rank."""

from __future__ import annotations

from vramledger.models.mixers import (
    CompressedAttention,
    DenseMlp,
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    LatentAttention,
    LinearAttention,
    Mamba1,
    Mamba2,
    MixtureOfExperts,
    ShortConvolution,
    TokenMixer,
)


def channel_width(channel: DenseMlp | MixtureOfExperts, tp: int) -> int:
    """Elements a token takes in a channel mixer on one of `tp` ranks: gate, up and their product. Experts' own
    buffers are a workspace."""
    if isinstance(channel, DenseMlp):
        return (3 if channel.gated else 2) * channel.intermediate // tp
    dense = max(channel.shared_intermediate, channel.dense_intermediate)
    return 3 * dense // tp


def mixer_width(mixer: TokenMixer, tp: int) -> int:
    """Elements a token takes in a mixer on one rank: projections in and the output before the last matrix."""
    match mixer:
        case LatentAttention():
            heads = mixer.q_heads // tp
            return (
                heads * (2 * (mixer.nope_dim + mixer.rope_dim) + mixer.nope_dim + 2 * mixer.v_head_dim)
                + mixer.q_lora_rank
                + mixer.kv_lora_rank
            )
        case CompressedAttention():
            return 2 * mixer.q_heads * mixer.head_dim // tp
        case FullAttention():
            kv = max(mixer.kv_heads // tp, 1)
            return mixer.q_heads // tp * (mixer.head_dim + mixer.v_head_dim) + kv * (
                mixer.head_dim + mixer.v_head_dim
            )
        case Mamba1():
            return 5 * mixer.inner // tp
        case Mamba2():
            return (4 * mixer.inner + 4 * mixer.groups * mixer.state) // tp
        case GatedDeltaNet():
            return (4 * mixer.k_heads * mixer.k_dim + 4 * mixer.v_heads * mixer.v_dim) // tp
        case KimiDeltaAttention():
            return 6 * mixer.heads * mixer.head_dim // tp
        case LinearAttention():
            return 5 * mixer.heads * mixer.head_dim // tp
        case ShortConvolution():
            return 4 * mixer.channels // tp
        case _:
            return 0
