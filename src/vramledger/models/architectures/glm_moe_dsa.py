"""GLM-5: latent attention with an indexer that runs in some layers and is reused in the others (transformers
models/glm_moe_dsa/configuration_glm_moe_dsa.py for the schedule)."""

from __future__ import annotations

from vramledger.models.architectures.deepseek_v3 import latent_moe
from vramledger.models.config import Config
from vramledger.models.mla import indexer_from_config
from vramledger.models.model import Model
from vramledger.models.moe import kinds

_LETTERS = {"F": "full", "S": "shared"}


def describe(config: Config, model_id: str) -> Model:
    count = config.num_layers()
    runs = tuple(kind == "full" for kind in indexer_types(config, count))
    full, shared = indexer_from_config(config), indexer_from_config(config, keeps_keys=False)
    return latent_moe(
        config,
        model_id,
        default_class="GlmMoeDsaForCausalLM",
        default_dense=3,
        default_positions=202752,
        draft_copies=False,
        indexers=(*(full if run else shared for run in runs), full),
    )


def indexer_types(config: Config, count: int) -> tuple[str, ...]:
    """ "full" or "shared" for each layer: `indexer_types`, else `index_topk_pattern` ("FSSF..."), else the
    schedule of `index_topk_freq` and `index_skip_topk_offset`. The draft block always runs its own."""
    stated = kinds(config, "indexer_types", count, tuple(_LETTERS.values()))
    if stated:
        return stated
    pattern = config.raw("index_topk_pattern")
    if isinstance(pattern, str):
        if len(pattern) < count or not set(pattern) <= set(_LETTERS):
            raise config.fail("index_topk_pattern", f"must be {count} or more letters F and S")
        return tuple(_LETTERS[letter] for letter in pattern[:count])
    if pattern is not None:
        return kinds(config, "index_topk_pattern", count, tuple(_LETTERS.values()))
    every = config.integer("index_topk_freq", default=1)
    offset = config.integer("index_skip_topk_offset", default=2, minimum=0)
    return tuple("shared" if max(index - offset + 1, 0) % every else "full" for index in range(count))
