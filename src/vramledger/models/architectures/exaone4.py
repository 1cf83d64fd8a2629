"""EXAONE 4: norms after each block and for q and k; the 32B has a window in three layers of four
(transformers models/exaone4).

Its files write the pattern as "LLLG", one letter a layer (local, global), or as the number 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from vramledger.models.config import Config
from vramledger.models.decoder import heads_from_config, windowed_mixers
from vramledger.models.dense import gated_decoder
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("Exaone4Config", sliding_window=4096)
    count = config.num_layers()
    heads = heads_from_config(config)
    return gated_decoder(
        config,
        model_id,
        "Exaone4ForCausalLM",
        heads=heads,
        qk_norm=True,
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        mixers=windowed_mixers(config, heads, count, _is_local(config, count)),
    )


def _is_local(config: Config, count: int) -> Callable[[int], bool]:
    """The rule of `sliding_window_pattern`; a pattern in letters leaves the last layer global."""
    pattern = config.raw("sliding_window_pattern")
    if isinstance(pattern, str):
        if not re.fullmatch(r"[LG]{1,64}", pattern):
            raise config.fail("sliding_window_pattern", "must be letters L and G or a number")
        return lambda index: pattern[index % len(pattern)] == "L" and index != count - 1
    step = config.integer("sliding_window_pattern", default=4)
    return lambda index: (index + 1) % step != 0
