"""What a tensor of an adapter's file is, from its name.

Source: peft utils/save_and_load.py (names without the adapter's own, old files with it), tuners/lora/layer.py,
tuners/trainable_tokens; llama.cpp convert_lora_to_gguf.py (`.lora_a` and `.lora_b` after a weight's name).
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache

PREFIX = "base_model.model."


class PartKind(StrEnum):
    """One tensor's place in an adapter."""

    A = "A"
    B = "B"
    EMBEDDING_A = "embedding A"
    EMBEDDING_B = "embedding B"
    B_BIAS = "bias of B"
    MAGNITUDE = "magnitude vector"
    TOKENS = "trained token rows"
    BASE_COPY = "copy of a base weight"
    FULL = "whole module"
    BIAS = "bias of the base module"
    OTHER = "other"


_ENDS = (
    (r"lora_A(?:\.\w+)?\.weight", PartKind.A),
    (r"lora_B(?:\.\w+)?\.weight", PartKind.B),
    (r"lora_embedding_A(?:\.\w+)?", PartKind.EMBEDDING_A),
    (r"lora_embedding_B(?:\.\w+)?", PartKind.EMBEDDING_B),
    (r"lora_B(?:\.\w+)?\.bias", PartKind.B_BIAS),
    (r"lora_magnitude_vector(?:\.\w+)*", PartKind.MAGNITUDE),
    (r"(?:token_adapter\.)?trainable_tokens_delta(?:\.\w+)?", PartKind.TOKENS),
    (r"(?:token_adapter\.)?base_layer\.weight", PartKind.BASE_COPY),
    (r"base_layer\.bias", PartKind.BIAS),
    (r"modules_to_save(?:\.\w+)?\.(?:weight|bias)", PartKind.FULL),
    (r"weight\.lora_a", PartKind.A),
    (r"weight\.lora_b", PartKind.B),
    (r"lora_[A-Za-z]\w*(?:\.\w+)*", PartKind.OTHER),
    (r"weight", PartKind.FULL),
    (r"bias", PartKind.BIAS),
)


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], PartKind], ...]:
    return tuple((re.compile(rf"\.{end}$"), kind) for end, kind in _ENDS)


def parse_name(name: str) -> tuple[str, PartKind]:
    """The module's path without PEFT's prefix, and which of its tensors this is; `{}` stands for an index.

    >>> parse_name("base_model.model.model.layers.{}.mlp.up_proj.lora_A.weight")
    ('model.layers.{}.mlp.up_proj', <PartKind.A: 'A'>)
    """
    plain = name.removeprefix(PREFIX)
    for pattern, kind in _patterns():
        found = pattern.search(plain)
        if found is not None:
            return plain[: found.start()], kind
    return plain, PartKind.OTHER
