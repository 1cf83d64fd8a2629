"""Whether an engine's counts of tokens can be true, so that a wrong one makes no load look heavier nor a token faster than it was. Pure."""

from __future__ import annotations

from msgspec import Struct

from vramledger.experiment.answer import Answer
from vramledger.workload.request import Request

TOKENS_OF_A_WORD = 8
"""Of a prompt sent as text, in a vocabulary that splits its words."""
SPARE_TOKENS = 256
"""What a template or special tokens add to a prompt."""
PIECES_OF_A_TOKEN = 2
"""At most: a token is told in one piece, and one or two beside it say how an answer begins and ends."""
SPARE_PIECES = 16


class Counts(Struct, frozen=True, kw_only=True):
    """Those that are believed; None where none was told or it cannot be true."""

    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    output_tokens: int | None = None


def believed(request: Request, answer: Answer) -> Counts:
    """A prompt is not many times what was sent, a cache holds no more than the prompt, an output is no longer than was asked for and
    has not many pieces to a token."""
    prompt, cached, output = answer.prompt_tokens, answer.cached_prompt_tokens, answer.output_tokens
    if prompt is not None and prompt > TOKENS_OF_A_WORD * request.prompt_tokens + SPARE_TOKENS:
        prompt = None
    if cached is not None and cached > (request.prompt_tokens if prompt is None else prompt):
        cached = None
    if output is not None and not _fits(output, answer.events, longest_output(request)):
        output = None
    return Counts(prompt_tokens=prompt, cached_prompt_tokens=cached, output_tokens=output)


def longest_output(request: Request) -> int:
    """Tokens that a request may be answered with, over all its branches."""
    return max(request.max_output_tokens or 0, request.output_tokens) * request.branches


def most_pieces(request: Request) -> int:
    """Pieces of output after which an answer is taken to have no end."""
    return PIECES_OF_A_TOKEN * longest_output(request) + SPARE_PIECES


def _fits(told: int, pieces: int, longest: int) -> bool:
    return told <= longest and pieces <= PIECES_OF_A_TOKEN * told + SPARE_PIECES
