"""The context length: the config's own limit, what a rope scaling adds to it, and what the flag may ask for.

Source: vllm config/model.py (to 0.11.0 config.py or config/__init__.py), `_get_and_verify_max_len`.
"""

from __future__ import annotations

from vramledger.engines.vllm.flags import AUTO, VllmFlags
from vramledger.engines.vllm.version import VllmVersion
from vramledger.errors import FlagError
from vramledger.models.model import Model, Rope

POSITIONS_WITHOUT_LIMIT = 2048
"""What vLLM takes for a model whose config states no limit."""

YARN = ("yarn", "deepseek_yarn")
YARN_LIMIT_AS_STATED_SINCE = 30
ORIGINAL_LENGTH_SINCE = (11, 1)


def context_len(model: Model, flags: VllmFlags, version: VllmVersion, notes: list[str]) -> tuple[int, bool]:
    """Tokens a request may have, and whether the engine may lower them to what fits.

    Raises FlagError for a length above the model's limit, unless --allow-long-max-model-len is given, and for
    "auto" in a version without it.
    """
    limit, asked = position_limit(model, version), flags.max_model_len
    if asked is None:
        return _default(model, version, limit), False
    if asked == AUTO:
        if not version.since(14):
            raise FlagError(
                f"--max-model-len auto exists since vllm 0.14, not in {version}",
                flag="max_model_len",
                value=asked,
            )
        return _default(model, version, limit), True
    if limit is not None and asked > limit:
        above = f"is above the {limit} tokens that the config gives the model"
        if not flags.allow_long_max_model_len:
            raise FlagError(
                f"--max-model-len {asked} {above}; vllm takes it with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 "
                "(--allow-long-max-model-len here) or with a rope scaling in the config",
                flag="max_model_len",
                value=asked,
            )
        notes.append(f"max_model_len {asked} {above}: VLLM_ALLOW_LONG_MAX_MODEL_LEN has to be set")
    return asked, False


def position_limit(model: Model, version: VllmVersion) -> int | None:
    """Tokens the config allows under its rope scaling; None where it states no limit.

    The positions times the factor, for YaRN the original ones up to 0.29; LongRoPE and Llama 3 state scaled positions,
    as do YaRN configs since 0.30 and Gemma 3's always.
    """
    if not model.max_position_embeddings:
        return None
    if "gemma3" in model.model_type:
        return model.max_position_embeddings
    limits = [_scaled(rope, model.max_position_embeddings, version) for rope in model.rope]
    return max(limits, default=model.max_position_embeddings)


def _scaled(rope: Rope, positions: int, version: VllmVersion) -> int:
    if rope.scaling in ("longrope", "llama3"):
        return positions
    if rope.scaling in YARN:
        if version.since(YARN_LIMIT_AS_STATED_SINCE):
            return positions
        return int((rope.original_positions or positions) * rope.factor)
    return int(positions * rope.factor)


def _default(model: Model, version: VllmVersion, limit: int | None) -> int:
    """Without the flag: the limit, but the original length of LongRoPE since 0.11.1."""
    if limit is None:
        return POSITIONS_WITHOUT_LIMIT
    if version.since(*ORIGINAL_LENGTH_SINCE):
        original = [rope.original_positions for rope in model.rope if rope.scaling == "longrope"]
        return next((length for length in original if length), limit)
    return limit
