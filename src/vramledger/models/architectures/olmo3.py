"""OLMo 3: OLMo 2 with a window in three layers of four (transformers models/olmo3).

Scaled rotary positions are for the layers without a window; the others keep an unscaled table.
"""

from __future__ import annotations

from vramledger.models.architectures.olmo2 import post_norm
from vramledger.models.config import Config
from vramledger.models.decoder import windowed_mixers
from vramledger.models.dense import skeleton
from vramledger.models.model import Model, Rope


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("Olmo3Config", sliding_window=4096)
    frame = skeleton(config, "Olmo3ForCausalLM")
    mixers = windowed_mixers(config, frame.heads, frame.count, lambda index: (index + 1) % 4 != 0)
    scaled = frame.rope(layer_type="full_attention")
    local = Rope(rotary_dim=scaled.rotary_dim, max_positions=frame.positions)
    return post_norm(frame, model_id, mixers=mixers, rope=tuple(dict.fromkeys((scaled, local))))
