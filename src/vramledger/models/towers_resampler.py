"""The resampler of Qwen-VL and MiniCPM-V: learned queries over patches (Qwen-VL's visual.py, MiniCPM-V's resampler.py)."""

from __future__ import annotations

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.tensors import Role, hidden
from vramledger.models.towers import positions, projection, torch_attention

HEAD_DIM = 128


def resampler(
    place: Place, config: Config, *, queries: int, width: int, kv_width: int, stored_grid: bool
) -> None:
    """One cross attention of `queries` over projected patches, with heads of 128.

    `stored_grid` where the checkpoint keeps the queries' sine positions. Raises ConfigError for a width that
    has no whole heads.
    """
    if width % HEAD_DIM:
        raise config.fail("hidden_size", f"{width} does not divide into the resampler's heads of {HEAD_DIM}")
    positions(place, "query", width, queries)
    if stored_grid:
        positions(place, "pos_embed", width, queries)
    if kv_width != width:
        projection(place, "kv_proj", width, kv_width)
    torch_attention(place, "attn", width, width // HEAD_DIM)
    for norm in ("ln_q", "ln_kv"):
        place.norm(norm, width, bias=True)


def resampled_output(place: Place, width: int) -> None:
    """The norm and square projection behind a resampler."""
    place.norm("ln_post", width, bias=True)
    place.tensor("proj", Role.PROJECTOR, hidden(width), hidden(width))
