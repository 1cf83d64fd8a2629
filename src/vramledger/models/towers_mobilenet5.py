"""MobileNet-V5 300M, the vision encoder of Gemma 3n (timm 1.0.31 timm/models/mobilenetv5.py).

Gemma 3n's config only names it (`mobilenetv5_300m_enc`), so its stages are written out here.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.models.blocks import Place
from vramledger.models.model import Tower
from vramledger.models.tensors import Role, hidden, whole

NAME = "mobilenetv5_300m_enc"
OUTPUT = 2048
STEM = 64
FUSED_STAGES = 2
"""Stages whose outputs the fusion adapter joins (`msfa_indices` of -2 and -1)."""


class Inverted(Struct, frozen=True, kw_only=True):
    """A universal inverted residual: depthwise kernels before and in the middle (0: none), and an expansion."""

    times: int
    start: int = 0
    middle: int = 0
    expand: int


class MultiQuery(Struct, frozen=True, kw_only=True):
    """Mobile multi-query attention: one key and one value head, downsampled by a 3 x 3 kernel if `strided`."""

    times: int
    heads: int
    dim: int
    strided: bool


STAGE_WIDTHS = (128, 256, 640, 1280)
EDGE_RESIDUALS = 3
STAGES: tuple[tuple[Inverted | MultiQuery, ...], ...] = (
    (
        Inverted(times=1, start=3, middle=5, expand=6),
        Inverted(times=2, start=5, expand=4),
        Inverted(times=2, start=3, expand=4),
    ),
    (
        Inverted(times=1, start=5, middle=5, expand=6),
        Inverted(times=7, start=5, expand=4),
        Inverted(times=1, expand=1),
        MultiQuery(times=14, heads=12, dim=64, strided=True),
        Inverted(times=14, expand=2),
    ),
    (
        Inverted(times=1, start=5, middle=5, expand=6),
        MultiQuery(times=19, heads=16, dim=96, strided=False),
        Inverted(times=19, expand=2),
    ),
)
"""Stages after the first, which is edge residuals. The first entry of each takes the stage before as input."""


def mobilenet_v5(place: Place, *, tokens: int) -> Tower:
    """Tensors of the encoder under `place`, as a tower that gives `tokens` an image."""
    _conv_norm(place, "conv_stem", STEM, 3, 3, bias=True)
    _edge_residuals(place)
    for index, blocks in enumerate(STAGES, start=1):
        width, before = STAGE_WIDTHS[index], STAGE_WIDTHS[index - 1]
        for order, block in enumerate(blocks):
            at = place.at(f"{place.prefix}blocks.{index}.{{block}}.", copies=block.times)
            if isinstance(block, Inverted):
                _inverted(at, block, inp=width if order else before, out=width)
            else:
                _multi_query(at, block, width)
    joined = sum(STAGE_WIDTHS[-FUSED_STAGES:])
    adapter = place.at(f"{place.prefix}msfa.")
    _conv_norm(adapter, "ffn.pw_exp", 2 * joined, joined, 1)
    _conv_norm(adapter, "ffn.pw_proj", OUTPUT, 2 * joined, 1)
    adapter.norm("norm", OUTPUT)
    last = STAGES[-1][1]
    return Tower(
        modality="image",
        hidden_size=OUTPUT,
        intermediate_size=2 * joined,
        num_layers=EDGE_RESIDUALS + sum(block.times for stage in STAGES for block in stage),
        num_heads=last.heads if isinstance(last, MultiQuery) else 0,
        max_item_tokens=tokens,
        patches_per_token=1,
    )


def _conv_norm(place: Place, name: str, out: int, inp: int, kernel: int, *, bias: bool = False) -> None:
    """A convolution and its RMS norm; `inp` is 1 for a depthwise one."""
    place.tensor(f"{name}.conv.weight", Role.OTHER, hidden(out), whole(inp), whole(kernel), whole(kernel))
    if bias:
        place.tensor(f"{name}.conv.bias", Role.OTHER, hidden(out))
    place.norm(f"{name}.bn", out)


def _edge_residuals(place: Place) -> None:
    """The first stage: a 3 x 3 expansion by four and a projection back."""
    out = STAGE_WIDTHS[0]
    for copies, inp in ((1, STEM), (EDGE_RESIDUALS - 1, out)):
        block = place.at(f"{place.prefix}blocks.0.{{block}}.", copies=copies)
        middle = 4 * inp
        block.tensor("conv_exp.weight", Role.OTHER, hidden(middle), hidden(inp), whole(3), whole(3))
        block.norm("bn1", middle)
        block.tensor("conv_pwl.weight", Role.OTHER, hidden(out), hidden(middle), whole(1), whole(1))
        block.norm("bn2", out)


def _inverted(place: Place, block: Inverted, *, inp: int, out: int) -> None:
    middle = inp * block.expand
    if block.start:
        _conv_norm(place, "dw_start", inp, 1, block.start)
    _conv_norm(place, "pw_exp", middle, inp, 1)
    if block.middle:
        _conv_norm(place, "dw_mid", middle, 1, block.middle)
    _conv_norm(place, "pw_proj", out, middle, 1)
    place.tensor("layer_scale.gamma", Role.OTHER, hidden(out))


def _multi_query(place: Place, block: MultiQuery, width: int) -> None:
    place.norm("norm", width)
    inner = block.heads * block.dim
    _pointwise(place, "attn.query.proj", Role.Q, inner, width)
    for name, role in (("key", Role.K), ("value", Role.V)):
        if block.strided:
            kernel = (whole(1), whole(3), whole(3))
            place.tensor(f"attn.{name}.down_conv.weight", Role.OTHER, hidden(width), *kernel)
            place.norm(f"attn.{name}.norm", width)
        _pointwise(place, f"attn.{name}.proj", role, block.dim, width)
    _pointwise(place, "attn.output.proj", Role.O, width, inner)
    place.tensor("layer_scale.gamma", Role.OTHER, hidden(width))


def _pointwise(place: Place, name: str, role: Role, out: int, inp: int) -> None:
    place.tensor(f"{name}.weight", role, hidden(out), hidden(inp), whole(1), whole(1))
