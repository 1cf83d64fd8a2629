"""What a request's recurrent state takes in all layers of a stage on one rank.

Source: sglang srt/configs/mamba_utils.py (Mamba2StateShape, KimiLinearStateShape).
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.partition import divided, extended_groups
from vramledger.engines.sglang.settings import Settings
from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.models.mixers import (
    RECURRENT,
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


class SlotBytes(Struct, frozen=True, kw_only=True):
    """One slot of the state pool over some layers: convolution windows and recurrent states."""

    conv_bytes: int
    state_bytes: int

    @property
    def total(self) -> int:
        return self.conv_bytes + self.state_bytes


def slot_bytes(model: Model, settings: Settings, layers: range) -> SlotBytes:
    """A slot over the recurrent layers among `layers`. Raises FlagError where tp does not divide the heads."""
    conv = state = 0
    wanted = settings.flags.mamba_ssm_dtype
    kept = parse_dtype(wanted) if wanted is not None else model.state_dtype or DType.F32
    for layer in model.layers:
        if layer.index not in layers:
            continue
        for mixer in layer.token_mixers:
            if isinstance(mixer, RECURRENT):
                windows, states = _elements(mixer, settings.flags.attn_tp)
                conv += DType.BF16.bytes_for(windows)
                state += kept.bytes_for(states)
    return SlotBytes(conv_bytes=conv, state_bytes=state)


def _elements(mixer: TokenMixer, tp: int) -> tuple[int, int]:
    """Elements of the convolution windows and of the state of one layer."""
    flag = "tp_size"
    match mixer:
        case Mamba1(inner=inner, state=width, conv_kernel=kernel):
            local = divided(inner, tp, "mamba channels", flag=flag)
            return local * (kernel - 1), local * width
        case Mamba2(heads=heads, head_dim=dim, groups=groups, state=width, conv_kernel=kernel):
            channels = heads * dim + 2 * extended_groups(groups, tp) * width
            return (
                divided(channels, tp, "mamba channels", flag=flag) * (kernel - 1),
                divided(heads, tp, "mamba heads", flag=flag) * dim * width,
            )
        case GatedDeltaNet(k_heads=kh, v_heads=vh, k_dim=kd, v_dim=vd, conv_kernel=kernel):
            channels = vh * vd + 2 * extended_groups(kh, tp) * kd
            return (
                divided(channels, tp, "linear attention channels", flag=flag) * (kernel - 1),
                divided(vh, tp, "linear attention heads", flag=flag) * vd * kd,
            )
        case KimiDeltaAttention(heads=heads, head_dim=dim, conv_kernel=kernel):
            local = divided(heads, tp, "linear attention heads", flag=flag)
            return 3 * local * dim * (kernel - 1), local * dim * dim
        case LinearAttention(heads=heads, head_dim=dim):
            return 0, divided(heads, tp, "linear attention heads", flag=flag) * dim * dim
        case ShortConvolution(channels=channels, kernel=kernel):
            return divided(channels, tp, "convolution channels", flag=flag) * (kernel - 1), 0
        case RwkvMixer(state_elements=elements):
            return 0, elements
        case _:
            return 0, 0
