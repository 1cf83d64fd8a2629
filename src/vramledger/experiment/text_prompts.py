"""Prompts as text, for engines that tell no token ids: of words that stand for one token each in the vocabularies that are in use.

So a prompt is as long as the workload wants it to a token or two, and a turn carries the answer's own text. Imports numpy, so import this module late.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.experiment.answer import Answer
from vramledger.experiment.prompts import Followed, Made, reach_of
from vramledger.workload.request import Request, WorkloadHeader

_FREQUENT = (
    "the of and to in a is that for it was on are as with his they at be this from have or by one had not but "
    "what all were when we there can an your which their said if do will each about how up out them then she "
    "many some so these would other into has more her two like him see time could no make than first been its "
    "who now people my made over did down only way find use may water long little very after words called "
    "just where most know get through back much go good new write our me man too any day same right look "
    "think also around another came come work three word must because does part even place well such here "
    "take why things help put years different away again off went old number great tell men say small every "
    "found still between name should home big give air line set own under read last never us left end along "
    "while might next sound below saw something thought both few those always looked show large often "
    "together asked house world going want school important until form food keep children feet land side "
    "without boy once animals life enough took sometimes four head above kind began almost live page got "
    "earth need far hand high year mother light parts country father let night following picture being study "
    "second eyes soon times story boys since white days ever paper hard near sentence better best across "
    "during today "
)
WORDS = tuple(_FREQUENT.split())
"""Frequent English words, each with the space before it one token of byte-pair vocabularies and of SentencePiece's."""


class TextPrompts:
    """The prompts of one stage as text. An answer's text counts as many tokens as the engine said, and is carried whole or not at all."""

    def __init__(self, header: WorkloadHeader, requests: Sequence[Request], *, seed: int) -> None:
        self._requests = requests
        self._block_tokens = header.block_tokens or 0
        self._made = Made(header, seed=seed, first=0, span=len(WORDS))
        self._followed: Followed[list[tuple[str, int]]] = Followed(requests)

    def prompt(self, number: int) -> str:
        """Words, and what was answered before."""
        request = self._requests[number]
        pieces: list[tuple[str, int]] = []
        if request.parent is not None:
            reach = reach_of(request, self._requests[request.parent], self._block_tokens)
            pieces = _within(self._followed.take_context(request.parent) or (), reach)
        carried = sum(tokens for _, tokens in pieces)
        pieces += [(f" {WORDS[word]}", 1) for word in self._made.of(number, request)[carried:].tolist()]
        self._followed.asked(number, pieces)
        return "".join(text for text, _ in pieces).removeprefix(" ")

    def heard(self, answer: Answer) -> None:
        """The answer's text is gone on from."""
        pieces = self._followed.take_prompt(answer.number)
        if pieces is not None:
            said = "" if answer.output is None else answer.output.text
            tokens = answer.events if answer.output_tokens is None else answer.output_tokens
            self._followed.answered(answer.number, [*pieces, (said, tokens)] if said else pieces)


def _within(pieces: Sequence[tuple[str, int]], reach: int) -> list[tuple[str, int]]:
    """The first of them, of at most so many tokens together."""
    taken: list[tuple[str, int]] = []
    for text, tokens in pieces:
        if tokens > reach:
            break
        reach -= tokens
        taken.append((text, tokens))
    return taken
