"""What vision and audio encoders have in common: dimensions, patch embeddings, encoder blocks, projectors."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from vramledger.models.blocks import Place, attention, gated_mlp, plain_mlp
from vramledger.models.config import Config
from vramledger.models.model import Tower
from vramledger.models.tensors import (
    Axis,
    AxisKind,
    Role,
    axis,
    hidden,
    intermediate,
    q_heads,
    qkv_heads,
    whole,
)

MAX_PIXELS_A_SIDE = 65536


class Vit(Struct, frozen=True, kw_only=True):
    """Dimensions of a transformer encoder."""

    width: int
    heads: int
    inner: int
    layers: int

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    def tower(self, modality: str, *, max_item_tokens: int = 0, patches_per_token: int = 0) -> Tower:
        return Tower(
            modality=modality,
            hidden_size=self.width,
            intermediate_size=self.inner,
            num_layers=self.layers,
            num_heads=self.heads,
            max_item_tokens=max_item_tokens,
            patches_per_token=patches_per_token,
        )

    def with_layers(self, layers: int) -> Vit:
        return replace(self, layers=layers)


def vit_from_config(
    config: Config,
    defaults: Vit,
    *,
    width: str = "hidden_size",
    heads: str = "num_attention_heads",
    inner: str = "intermediate_size",
    layers: str = "num_hidden_layers",
) -> Vit:
    """Dimensions under the keys a class uses, with the class's defaults.

    Raises ConfigError when the width does not divide by the heads.
    """
    vit = Vit(
        width=config.integer(width, default=defaults.width),
        heads=config.integer(heads, default=defaults.heads),
        inner=config.integer(inner, default=defaults.inner),
        layers=config.num_layers(layers, default=defaults.layers),
    )
    if vit.width % vit.heads:
        raise config.fail(width, f"{vit.width} does not divide by {heads} {vit.heads}")
    return vit


def pixels(config: Config, key: str, default: int) -> int:
    """A side in pixels, stated as a number or as a list of equal sides."""
    value = config.raw(key)
    if isinstance(value, list | tuple):
        sides = config.integers(key, minimum=1, maximum=MAX_PIXELS_A_SIDE)
        if not sides or any(side != sides[0] for side in sides):
            raise config.fail(key, "must be one side or equal sides")
        return sides[0]
    return config.integer(key, default=default, maximum=MAX_PIXELS_A_SIDE)


def grid_side(config: Config, image: int, patch: int) -> int:
    """Whole patches along a side of an image."""
    if image < patch:
        raise config.fail("image_size", f"{image} is smaller than patch_size {patch}")
    return image // patch


class BlockNames(Struct, frozen=True, kw_only=True):
    """Names in one encoder block: attention as (qkv, out) or (q, k, v, out), MLP as (up, down) or
    (gate, up, down)."""

    attention: tuple[str, ...]
    mlp: tuple[str, ...]
    norms: tuple[str, ...]


def encoder_block(
    place: Place,
    vit: Vit,
    names: BlockNames,
    *,
    bias: bool = True,
    out_bias: bool | None = None,
    k_bias: bool | None = None,
    mlp_bias: bool | None = None,
    norm_bias: bool | None = None,
) -> None:
    """Attention, MLP and norms of one block; each bias follows `bias` where it is not given."""
    out_has = bias if out_bias is None else out_bias
    mlp_has = bias if mlp_bias is None else mlp_bias
    if len(names.attention) == 2:
        qkv, out = names.attention
        heads = qkv_heads(vit.heads, vit.heads, vit.head_dim)
        place.linear(qkv, Role.QKV, heads, hidden(vit.width), bias=bias)
        place.linear(out, Role.O, hidden(vit.width), q_heads(vit.heads, vit.head_dim), bias=out_has)
    else:
        q, k, v, out = names.attention
        attention(
            place,
            "",
            width=vit.width,
            heads=vit.heads,
            kv=vit.heads,
            head_dim=vit.head_dim,
            bias=bias,
            o_bias=out_has,
            k_bias=k_bias,
            names=(q, k, v, out),
        )
    if len(names.mlp) == 2:
        up, down = names.mlp
        plain_mlp(place, up, down, width=vit.width, inner=vit.inner, bias=mlp_has)
    else:
        gate, up, down = names.mlp
        parent = gate.rpartition(".")[0]
        parts = (gate.rpartition(".")[2], up.rpartition(".")[2], down.rpartition(".")[2])
        gated_mlp(place, parent, width=vit.width, inner=vit.inner, bias=mlp_has, names=parts)
    for norm in names.norms:
        place.norm(norm, vit.width, bias=bias if norm_bias is None else norm_bias)


def patch_embedding(place: Place, name: str, width: int, *kernel: int, bias: bool = True) -> None:
    """A convolution over patches: `kernel` is channels, (frames,) height and width, or one flat number."""
    place.tensor(f"{name}.weight", Role.OTHER, hidden(width), *(whole(size) for size in kernel))
    if bias:
        place.tensor(f"{name}.bias", Role.OTHER, hidden(width))


def positions(place: Place, name: str, width: int, *counts: int) -> None:
    """A table of learned positions."""
    rows: tuple[Axis, ...] = tuple(axis(AxisKind.POSITION, count) for count in counts)
    place.tensor(name, Role.POSITION_EMBEDDING, *rows, hidden(width))


def vector(place: Place, name: str, width: int, *, role: Role = Role.OTHER) -> None:
    """One learned vector (a class token, a separator, a layer scale)."""
    place.tensor(name, role, hidden(width))


def projection(place: Place, name: str, out: int, inp: int, *, bias: bool = False) -> None:
    """One matrix of a projector."""
    place.linear(name, Role.PROJECTOR, hidden(out), hidden(inp), bias=bias)


def projector_mlp(
    place: Place, up: str, down: str, *, inp: int, inner: int, out: int, bias: bool = True
) -> None:
    """Two matrices of a projector, named in full."""
    place.linear(up, Role.PROJECTOR, intermediate(inner), hidden(inp), bias=bias)
    place.linear(down, Role.PROJECTOR, hidden(out), intermediate(inner), bias=bias)


def torch_attention(place: Place, name: str, width: int, heads: int) -> None:
    """torch.nn.MultiheadAttention: queries, keys and values are one matrix, which no quantiser replaces."""
    rows = qkv_heads(heads, heads, width // heads)
    place.tensor(f"{name}.in_proj_weight", Role.QKV, rows, hidden(width))
    place.tensor(f"{name}.in_proj_bias", Role.QKV, rows)
    place.linear(f"{name}.out_proj", Role.O, hidden(width), q_heads(heads, width // heads), bias=True)
