"""Prompts as token ids, to the token as long as a workload wants them and shared as far as its identities say.

The text of an identity is a function of a seed, its boundary and itself, so equal identities are equal tokens and others are not. A
turn carries what its parent's prompt was and what the engine really answered, as far as the identities go on. Imports numpy, so import this module late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from vramledger.experiment.answer import Answer
from vramledger.workload.request import Request, WorkloadHeader

Ids = npt.NDArray[np.int64]
UNKNOWN_VOCABULARY = 4096
"""Where nobody says how many tokens there are: every model that is served has as many."""
_OWN = 1
_SHARED = 0


class Prompts(Protocol):
    """The prompts of one stage, made one by one as they are due."""

    def prompt(self, number: int) -> list[int] | str:
        """The prompt of a request. Its parent must have been `heard` before."""

    def heard(self, answer: Answer) -> None:
        """What became of a request that others go on from."""


T = TypeVar("T")


class Followed(Generic[T]):
    """What was asked and answered, in any form, as long as requests that go on from it are to come."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._left = Counter(one.parent for one in requests if one.parent is not None)
        self._prompts: dict[int, T] = {}
        self._contexts: dict[int, T] = {}

    def asked(self, number: int, prompt: T) -> None:
        """Keeps the prompt of a request that others follow."""
        if number in self._left:
            self._prompts[number] = prompt

    def take_prompt(self, number: int) -> T | None:
        """The prompt of a request that is answered, once; None where nobody follows it."""
        return self._prompts.pop(number, None)

    def answered(self, number: int, context: T) -> None:
        """Keeps a prompt with its answer."""
        self._contexts[number] = context

    def take_context(self, parent: int) -> T | None:
        """What a request that follows begins with; it goes with the last that does. None where the engine did not answer."""
        context = self._contexts.get(parent)
        self._left[parent] -= 1
        if not self._left[parent]:
            self._contexts.pop(parent, None)
        return context


class IdPrompts:
    """Prompts as token ids, for engines that tell those of their answers.

    They keep away from both ends of the vocabulary, where models have their special tokens: the first 1,000 (a quarter of a small
    vocabulary) and the last sixteenth.
    """

    def __init__(
        self, header: WorkloadHeader, requests: Sequence[Request], *, seed: int, vocab_size: int | None
    ) -> None:
        size = vocab_size or UNKNOWN_VOCABULARY
        first = min(1000, size // 4)
        self._requests = requests
        self._block_tokens = header.block_tokens or 0
        self._made = Made(header, seed=seed, first=first, span=max(size - size // 16 - first, 1))
        self._followed: Followed[Ids] = Followed(requests)

    def prompt(self, number: int) -> list[int]:
        """Token ids of a request, exactly `prompt_tokens` of them."""
        request = self._requests[number]
        tokens = self._made.of(number, request)
        if request.parent is not None:
            context = self._followed.take_context(request.parent)
            if context is not None:
                reach = reach_of(request, self._requests[request.parent], self._block_tokens)
                carried = context[:reach]
                tokens[: len(carried)] = carried
        self._followed.asked(number, tokens)
        made: list[int] = tokens.tolist()
        return made

    def heard(self, answer: Answer) -> None:
        """The answer's token ids are gone on from, none where the engine did not answer."""
        prompt = self._followed.take_prompt(answer.number)
        if prompt is not None:
            ids = () if answer.output is None else answer.output.ids
            self._followed.answered(answer.number, np.concatenate([prompt, np.array(ids, dtype=np.int64)]))


def reach_of(request: Request, parent: Request, block_tokens: int) -> int:
    """How many tokens of its parent's prompt and answer a request begins with, by their identities. Where no identity was changed
    the tokens behind the last of them, fewer than a block has, stand there as well."""
    if request.boundary != parent.boundary or not block_tokens:
        return 0
    common = _common(request.blocks, parent.blocks)
    named = common * block_tokens
    is_same = request.conversation is not None and request.conversation == parent.conversation
    if common < len(parent.blocks) or not (common or is_same):
        return min(named, request.prompt_tokens)
    with_answer = parent.prompt_tokens + parent.output_tokens
    # Identities that end with the prompt although the answer has room for more say that it was not kept.
    is_kept = with_answer < named + block_tokens or named > parent.prompt_tokens
    reach = min(with_answer if is_kept else parent.prompt_tokens, named + block_tokens - 1)
    return min(max(reach, named), request.prompt_tokens)


class Made:
    """Numbers from `first` on, `span` of them, that stand for the text of identities, and for text that nobody shares."""

    def __init__(self, header: WorkloadHeader, *, seed: int, first: int, span: int) -> None:
        self._block_tokens = header.block_tokens or 0
        self._seed = _mixed(np.array([seed % 2**63], dtype=np.uint64))[0]
        self._first, self._span = first, span

    def of(self, number: int, request: Request) -> Ids:
        """As many as a request's prompt has tokens."""
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
            state = _mixed(self._seed ^ (np.uint64(request.boundary) * np.uint64(2) + kinds))
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
