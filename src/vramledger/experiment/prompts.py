"""Prompts as token ids, to the token as long as a workload wants them and shared as far as its identities say.

The text of an identity is a function of a seed, its boundary and itself, so equal identities are equal tokens and others are not. A
turn carries what its parent's prompt was and what the engine really answered, as far as the identities go on. Imports numpy, so import this module late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vramledger.workload.request import Request, WorkloadHeader

Ids = npt.NDArray[np.int64]
UNKNOWN_VOCABULARY = 4096
"""Where nobody says how many tokens there are: every model that is served has as many."""
_OWN = 1
_SHARED = 0


class Prompts:
    """The prompts of one stage, made one by one as they are due.

    Token ids keep away from both ends of the vocabulary, where models have their special tokens: the first 1,000 (a quarter of a small
    vocabulary) and the last sixteenth.
    """

    def __init__(
        self, header: WorkloadHeader, requests: Sequence[Request], *, seed: int, vocab_size: int | None
    ) -> None:
        self._requests = requests
        self._block_tokens = header.block_tokens or 0
        size = vocab_size or UNKNOWN_VOCABULARY
        self._first = min(1000, size // 4)
        self._span = max(size - size // 16 - self._first, 1)
        self._seed = _mixed(np.array([seed % 2**63], dtype=np.uint64))[0]
        self._followers = Counter(one.parent for one in requests if one.parent is not None)
        self._prompts: dict[int, Ids] = {}
        self._contexts: dict[int, Ids] = {}

    def has_followers(self, number: int) -> bool:
        """Whether a later request goes on from this one."""
        return number in self._followers

    def prompt(self, number: int) -> list[int]:
        """Token ids of a request, exactly `prompt_tokens` of them. Its parent must have been `heard` before."""
        request = self._requests[number]
        tokens = self._made(number, request)
        if request.parent is not None:
            carried = self._carried(
                request, self._requests[request.parent], self._contexts.get(request.parent)
            )
            tokens[: len(carried)] = carried
            self._let_go(request.parent)
        if self.has_followers(number):
            self._prompts[number] = tokens
        made: list[int] = tokens.tolist()
        return made

    def heard(self, number: int, output: Sequence[int]) -> None:
        """What the engine answered, token by token; nothing where it did not answer."""
        prompt = self._prompts.pop(number, None)
        if prompt is not None:
            self._contexts[number] = np.concatenate([prompt, np.array(output, dtype=np.int64)])

    def _let_go(self, parent: int) -> None:
        self._followers[parent] -= 1
        if not self._followers[parent]:
            self._contexts.pop(parent, None)

    def _carried(self, request: Request, parent: Request, context: Ids | None) -> Ids:
        """The part of a parent's prompt and answer that the request begins with."""
        if context is None:
            return np.empty(0, dtype=np.int64)
        size = self._block_tokens
        common = _common(request.blocks, parent.blocks) if request.boundary == parent.boundary else 0
        reach = common * size
        is_same = request.conversation is not None and request.conversation == parent.conversation
        if common == len(parent.blocks) and (common or is_same) and size:
            # Nothing was changed, so the last tokens, fewer than a block has, stand there as well.
            named = common * size
            kept = parent.prompt_tokens + parent.output_tokens
            reach = parent.prompt_tokens if named + size <= kept and named <= parent.prompt_tokens else kept
            reach = min(max(reach, named), named + size - 1)
        return context[: min(reach, request.prompt_tokens)]

    def _made(self, number: int, request: Request) -> Ids:
        """The text by identities, and behind them text that nobody else has."""
        count, size = request.prompt_tokens, self._block_tokens
        places = np.arange(count, dtype=np.uint64)
        keys = np.full(count, number, dtype=np.uint64)
        kinds = np.full(count, _OWN, dtype=np.uint64)
        named = min(len(request.blocks) * size, count)
        if named:
            blocks = np.array(request.blocks[: -(-named // size)], dtype=np.int64).astype(np.uint64)
            keys[:named] = np.repeat(blocks, size)[:named]
            kinds[:named] = _SHARED
            places[:named] %= np.uint64(size)
        with np.errstate(over="ignore"):
            boundary = np.uint64(request.boundary)
            state = _mixed(self._seed ^ (boundary * np.uint64(2) + kinds))
            words = _mixed(_mixed(state ^ keys) + places)
        return self._first + (words % np.uint64(self._span)).astype(np.int64)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    shared = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared


def _mixed(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))
