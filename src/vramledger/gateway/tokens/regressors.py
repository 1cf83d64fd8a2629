"""What the length of a prompt is estimated from: its shape in numbers, and which prompts are alike. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from vramledger.gateway.admitter import Kind, RequestFacts
from vramledger.gateway.tokens.lengths import Group
from vramledger.gateway.tokens.prompt_shape import PromptShape

TEMPLATE_TOKENS = 1024
"""What a chat template that nobody has seen may add of its own (the longest known: instructions for tools)."""
MESSAGE_TOKENS = 16
EDGE_TOKENS = 8
"""Signs at the beginning and end of a plain prompt."""

# Characters, further bytes of UTF-8, signs, messages, bytes of JSON, media, and one for each prompt.
BYTES_PRIOR = (0.22, 0.3, 0.3, 5.0, 0.25, 1000.0, 8.0)
# Tokens of a chat's text as a tokenizer has them, in place of its characters.
TEXT_PRIOR = (1.0, 0.0, 0.0, 5.0, 0.25, 1000.0, 8.0)


def cohort_of(facts: RequestFacts, shape: PromptShape) -> Hashable:
    """Prompts whose lengths teach of one another."""
    return (facts.model[:256], facts.kind, shape.media > 0, shape.is_open)


def group_of(shape: PromptShape) -> Group:
    """Length in steps of four times; and of the text, whether it is of ASCII, has many signs and few blanks: prose, code, numbers, keys."""
    size = shape.text_bytes + shape.json_bytes
    further = shape.text_bytes - shape.characters
    script = 0 if 64 * further < size else 1 if 4 * further < size else 2
    signs = 0 if 12 * shape.signs < size else 1 if 3 * shape.signs < size else 2
    return (size.bit_length() // 2, (script, signs, 16 * shape.words < shape.characters))


def row_of(shape: PromptShape, text_tokens: int | None = None) -> tuple[float, ...]:
    """What a length is a weighted sum of, in the order of the priors; with `text_tokens` the text counts by these."""
    further, signs = shape.text_bytes - shape.characters, shape.signs
    told = (shape.characters, further, signs) if text_tokens is None else (text_tokens, 0, 0)
    return (*map(float, (*told, shape.messages, shape.json_bytes, shape.media)), 1.0)


def around_tokens(kind: Kind, shape: PromptShape) -> int:
    """The most tokens that are not of the text: JSON may be written with a space after each sign, and so on."""
    template = EDGE_TOKENS if kind in (Kind.COMPLETION, Kind.EMBEDDING) else TEMPLATE_TOKENS
    return template + MESSAGE_TOKENS * shape.messages + 2 * shape.json_bytes
