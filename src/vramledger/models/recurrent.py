"""Tensors of recurrent token mixers, block by block: selective state spaces, gated delta rule, short convolution.

Channels that belong to a head are `ssm_heads`, channels that a group of heads shares (B and C, linear-attention
queries and keys) are `ssm_groups`, in the order in which the checkpoint stacks them.
"""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.mixers import GatedDeltaNet, KimiDeltaAttention, Mamba1, Mamba2
from vramledger.models.tensors import Axis, Role, hidden, latent, ssm_groups, ssm_heads, whole
from vramledger.units import ceil_div


def conv1d(place: Place, name: str, channels: Axis, kernel: int, *, bias: bool) -> None:
    """A depthwise causal convolution: one kernel a channel."""
    place.tensor(f"{name}.weight", Role.SSM_CONV, channels, whole(1), whole(kernel))
    if bias:
        place.tensor(f"{name}.bias", Role.SSM_CONV, channels)


def mamba1(
    place: Place,
    name: str,
    mixer: Mamba1,
    *,
    width: int,
    dt_rank: int,
    bias: bool,
    conv_bias: bool,
    inner_norms: bool = False,
) -> None:
    """Mamba (Gu and Dao 2023, section 3.4); `inner_norms` normalises dt, B and C (Jamba).

    Every one of the `inner` channels is its own head.
    """
    channels = ssm_heads(mixer.inner)
    place.tensor(f"{name}.A_log", Role.SSM_PARAM, channels, whole(mixer.state))
    place.tensor(f"{name}.D", Role.SSM_PARAM, channels)
    conv1d(place, f"{name}.conv1d", channels, mixer.conv_kernel, bias=conv_bias)
    place.linear(f"{name}.in_proj", Role.SSM_IN, channels + channels, hidden(width), bias=bias)
    place.linear(f"{name}.x_proj", Role.SSM_PARAM, latent(dt_rank + 2 * mixer.state), channels)
    place.linear(f"{name}.dt_proj", Role.SSM_PARAM, channels, latent(dt_rank), bias=True)
    place.linear(f"{name}.out_proj", Role.SSM_OUT, hidden(width), channels, bias=bias)
    if inner_norms:
        place.norm(f"{name}.dt_layernorm", dt_rank)
        place.norm(f"{name}.b_layernorm", mixer.state)
        place.norm(f"{name}.c_layernorm", mixer.state)


def dt_rank_from(config: Config, key: str, width: int) -> int:
    """The rank of the step-size projection; "auto" is hidden_size / 16, rounded up."""
    if config.raw(key) in (None, "auto"):
        return ceil_div(width, 16)
    return config.integer(key)


def mamba2(
    place: Place,
    name: str,
    mixer: Mamba2,
    *,
    width: int,
    bias: bool,
    conv_bias: bool,
    out_bias: bool | None = None,
    gated_norm: bool = True,
) -> None:
    """Mamba-2 (Dao and Gu 2024, section 7): in_proj makes gate, x, B, C and one step size a head at once."""
    channels = ssm_heads(mixer.heads, mixer.head_dim)
    shared = ssm_groups(mixer.groups, mixer.state)
    per_head = ssm_heads(mixer.heads)
    place.tensor(f"{name}.dt_bias", Role.SSM_PARAM, per_head)
    place.tensor(f"{name}.A_log", Role.SSM_PARAM, per_head)
    place.tensor(f"{name}.D", Role.SSM_PARAM, per_head)
    conv1d(place, f"{name}.conv1d", channels + shared + shared, mixer.conv_kernel, bias=conv_bias)
    place.linear(
        f"{name}.in_proj",
        Role.SSM_IN,
        channels + channels + shared + shared + per_head,
        hidden(width),
        bias=bias,
    )
    if gated_norm:
        place.norm(f"{name}.norm", channels)
    place.linear(
        f"{name}.out_proj", Role.SSM_OUT, hidden(width), channels, bias=bias if out_bias is None else out_bias
    )


def checked_mamba2(config: Config, mixer: Mamba2, *, inner: int | None, heads_key: str) -> Mamba2:
    """`mixer`, after the checks its class makes: heads fill the inner width and divide by the groups.

    `inner` is the width the config asks for elsewhere (None: it does not). Raises ConfigError.
    """
    if inner is not None and mixer.inner != inner:
        raise config.fail(heads_key, f"{mixer.heads} x {mixer.head_dim} is not the inner width {inner}")
    if mixer.heads % mixer.groups:
        raise config.fail(heads_key, f"{mixer.heads} does not divide by its {mixer.groups} groups")
    return mixer


def mamba2_from_config(
    config: Config, width: int, *, inner: int | None = None, state_default: int = 256
) -> Mamba2:
    """The `mamba_*` keys that Bamba, Granite 4 and Falcon-H1 share, with Bamba's class defaults.

    `inner` overrides mamba_expand x width. A head width of "auto" divides the inner width by the heads.
    """
    full = inner if inner is not None else config.integer("mamba_expand", default=2, maximum=1024) * width
    heads = config.integer("mamba_n_heads", default=128)
    if config.raw("mamba_d_head") in (None, "auto"):
        if full % heads:
            raise config.fail("mamba_n_heads", f"{heads} does not divide the inner width {full}")
        head_dim = full // heads
    else:
        head_dim = config.integer("mamba_d_head")
    mixer = Mamba2(
        heads=heads,
        head_dim=head_dim,
        groups=config.integer("mamba_n_groups", default=1),
        state=config.integer("mamba_d_state", default=state_default),
        conv_kernel=config.integer("mamba_d_conv", default=4, maximum=4096),
    )
    return checked_mamba2(config, mixer, inner=full, heads_key="mamba_n_heads")


def gated_delta_from_config(config: Config) -> GatedDeltaNet:
    """The `linear_*` keys of Qwen3-Next and Qwen3.5, with Qwen3-Next's class defaults. Raises ConfigError."""
    k_heads = config.integer("linear_num_key_heads", default=16)
    v_heads = config.integer("linear_num_value_heads", default=32)
    if v_heads % k_heads:
        raise config.fail(
            "linear_num_value_heads", f"{v_heads} does not divide by linear_num_key_heads {k_heads}"
        )
    return GatedDeltaNet(
        k_heads=k_heads,
        v_heads=v_heads,
        k_dim=config.integer("linear_key_head_dim", default=128),
        v_dim=config.integer("linear_value_head_dim", default=128),
        conv_kernel=config.integer("linear_conv_kernel_dim", default=4, maximum=4096),
    )


def gated_delta_net(place: Place, name: str, mixer: GatedDeltaNet, *, width: int, fused: bool) -> None:
    """Gated DeltaNet (transformers models/qwen3_next and models/qwen3_5).

    `fused` has one matrix for q, k, v and gate and one for the two scalars a head (Qwen3-Next, which
    interleaves them by key head); otherwise gate and scalars are matrices of their own (Qwen3.5).
    """
    keys = ssm_groups(mixer.k_heads, mixer.k_dim)
    values = ssm_heads(mixer.v_heads, mixer.v_dim)
    per_head = ssm_heads(mixer.v_heads)
    place.tensor(f"{name}.dt_bias", Role.SSM_PARAM, per_head)
    place.tensor(f"{name}.A_log", Role.SSM_PARAM, per_head)
    conv1d(place, f"{name}.conv1d", keys + keys + values, mixer.conv_kernel, bias=False)
    if fused:
        place.linear(f"{name}.in_proj_qkvz", Role.SSM_IN, keys + keys + values + values, hidden(width))
        place.linear(f"{name}.in_proj_ba", Role.SSM_IN, per_head + per_head, hidden(width))
    else:
        place.linear(f"{name}.in_proj_qkv", Role.SSM_IN, keys + keys + values, hidden(width))
        place.linear(f"{name}.in_proj_z", Role.SSM_IN, values, hidden(width))
        place.linear(f"{name}.in_proj_b", Role.SSM_IN, per_head, hidden(width))
        place.linear(f"{name}.in_proj_a", Role.SSM_IN, per_head, hidden(width))
    place.norm(f"{name}.norm", mixer.v_dim)
    place.linear(f"{name}.out_proj", Role.SSM_OUT, hidden(width), values)


def kimi_delta(place: Place, name: str, mixer: KimiDeltaAttention, *, width: int) -> None:
    """Kimi Delta Attention (Kimi Linear report, section 3): q, k and v with a convolution each, low-rank
    forget and output gates, one write strength a head."""
    channels = ssm_heads(mixer.heads, mixer.head_dim)
    for part in ("q", "k", "v"):
        place.linear(f"{name}.{part}_proj", Role.SSM_IN, channels, hidden(width))
        conv1d(place, f"{name}.{part}_conv1d", channels, mixer.conv_kernel, bias=False)
    place.tensor(f"{name}.A_log", Role.SSM_PARAM, whole(1), whole(1), ssm_heads(mixer.heads), whole(1))
    place.tensor(f"{name}.dt_bias", Role.SSM_PARAM, channels)
    for gate in ("f", "g"):
        place.linear(f"{name}.{gate}_a_proj", Role.SSM_IN, latent(mixer.head_dim), hidden(width))
        place.linear(f"{name}.{gate}_b_proj", Role.SSM_IN, channels, latent(mixer.head_dim))
    place.linear(f"{name}.b_proj", Role.SSM_IN, ssm_heads(mixer.heads), hidden(width))
    place.norm(f"{name}.o_norm", mixer.head_dim)
    place.linear(f"{name}.o_proj", Role.SSM_OUT, hidden(width), channels)


def short_convolution(place: Place, name: str, *, width: int, kernel: int, bias: bool) -> None:
    """LFM2's gated convolution (transformers models/lfm2, Lfm2ShortConv): B, C and x from one matrix."""
    channels = ssm_heads(width)
    conv1d(place, f"{name}.conv", channels, kernel, bias=bias)
    place.linear(f"{name}.in_proj", Role.SSM_IN, channels + channels + channels, hidden(width), bias=bias)
    place.linear(f"{name}.out_proj", Role.SSM_OUT, hidden(width), channels, bias=bias)
