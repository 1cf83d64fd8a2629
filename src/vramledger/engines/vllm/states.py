"""Constant states of recurrent layers: their bytes on one rank, and how many of them prefix caching keeps.

Source: vllm model_executor/layers/mamba/mamba_utils.py and models/config.py.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.partition import divided, extended_groups
from vramledger.engines.vllm.settings import Settings
from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.models.mixers import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LinearAttention,
    Mamba1,
    Mamba2,
    RwkvMixer,
    ShortConvolution,
    TokenMixer,
)
from vramledger.models.model import Model


class RecurrentState(Struct, frozen=True, kw_only=True):
    """Bytes one sequence keeps in one recurrent layer on one rank."""

    conv_bytes: int
    state_bytes: int

    @property
    def bytes(self) -> int:
        return self.conv_bytes + self.state_bytes


def recurrent_state(mixer: TokenMixer, model: Model, settings: Settings) -> RecurrentState:
    """State sizes of section mamba_utils.py; conv in the cache dtype, state in the SSM cache dtype."""
    tp, spec = settings.plan.tp, settings.num_speculative_tokens
    conv_dtype = _state_dtype(settings.flags.mamba_cache_dtype, settings.dtype)
    state_default = model.state_dtype or _default_state_dtype(mixer, conv_dtype, settings)
    state_dtype = _state_dtype(settings.flags.mamba_ssm_cache_dtype, state_default)
    conv = state = 0
    match mixer:
        case Mamba1(inner=inner, state=width, conv_kernel=kernel):
            local = divided(inner, tp, "mamba channels")
            conv, state = local * (kernel - 1), local * width
        case Mamba2(heads=heads, head_dim=dim, groups=groups, state=width, conv_kernel=kernel):
            channels = heads * dim + 2 * extended_groups(groups, tp) * width
            conv = channels // tp * (kernel - 1 + spec)
            state = divided(heads, tp, "mamba heads") * dim * width
        case GatedDeltaNet(k_heads=kh, v_heads=vh, k_dim=kd, v_dim=vd, conv_kernel=kernel):
            conv = divided(2 * kh * kd + vh * vd, tp, "linear attention channels") * (kernel - 1 + spec)
            state = divided(vh, tp, "linear attention heads") * vd * kd
        case KimiDeltaAttention(heads=heads, head_dim=dim, conv_kernel=kernel):
            local = divided(heads, tp, "linear attention heads")
            conv, state = 3 * local * dim * (kernel - 1), local * dim * dim
        case LinearAttention(heads=heads, head_dim=dim):
            state = divided(heads, tp, "linear attention heads") * dim * dim
        case ShortConvolution(channels=channels, kernel=kernel):
            conv = divided(channels, tp, "convolution channels") * (kernel - 1)
        case RwkvMixer(state_elements=elements):
            state = elements
    return RecurrentState(conv_bytes=conv_dtype.bytes_for(conv), state_bytes=state_dtype.bytes_for(state))


def _default_state_dtype(mixer: TokenMixer, conv_dtype: DType, settings: Settings) -> DType:
    """KDA and lightning attention keep fp32 states by default, Nemotron-H since 0.16 (models/config.py); the
    others follow the cache dtype."""
    if settings.model_type == "nemotron_h" and settings.version.since(16):
        return DType.F32
    return DType.F32 if isinstance(mixer, KimiDeltaAttention | LinearAttention) else conv_dtype


def _state_dtype(flag: str, default: DType) -> DType:
    return default if flag == "auto" else parse_dtype(flag)


# Models whose states can be kept at every block (SupportsMambaPrefixCaching up to 0.28).
_KEEPS_ALL_STATES = frozenset(
    ("bamba", "falcon_h1", "granitemoehybrid", "jamba", "mamba", "mamba2", "nemotron_h", "zamba2")
)


def recurrent_mode(settings: Settings) -> str:
    """`none` keeps one state a request; with prefix caching `align` keeps states at block boundaries and `all`
    one for each block (models/config.py MambaModelConfig; prefix caching was off for these models before
    0.12, and up to 0.15 for all but those that keep every state)."""
    if settings.flags.mamba_cache_mode is not None:
        return settings.flags.mamba_cache_mode
    if not settings.prefix_caching or not settings.version.since(12):
        return "none"
    if settings.model_type in _KEEPS_ALL_STATES and not settings.version.since(29):
        return "all"
    return "align" if settings.version.since(16) else "none"
