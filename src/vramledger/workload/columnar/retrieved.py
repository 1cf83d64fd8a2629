"""Prompts with chunks of a corpus after their shared beginning: what two of them share depends on the chunks' order.

An identity stands for everything before it, so it is made from the text's identity and the chunks up to its place. Identities
of this kind are hashed (51 bits), because no table of all orders can be kept; they lie above those that are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vramledger.workload.agents import Retrieval
from vramledger.workload.columnar.history import Run
from vramledger.workload.columnar.rows import Rows

Ints = npt.NDArray[np.int64]
HASHED_FROM = 2**51
_MOST_BLOCKS = 2**20


class RetrievedText:
    """Draws the chunks of consecutive requests of one cohort; corpora of two cohorts (`salt`) have nothing in common."""

    def __init__(self, retrieval: Retrieval, block_tokens: int, salt: int) -> None:
        self._retrieval = retrieval
        self._block_tokens = block_tokens
        self._salt = salt
        popularity = np.arange(1, retrieval.corpus_chunks + 1, dtype=np.float64) ** -retrieval.skew
        self._logs = np.log(popularity)
        self._places = np.cumsum(popularity / popularity.sum())

    def chunks(self, count: int, rng: np.random.Generator) -> Ints:
        """`top_k` different chunks for each of `count` requests, in the order in which they stand."""
        top_k, corpus = self._retrieval.top_k, self._retrieval.corpus_chunks
        found = np.empty((count, top_k), dtype=np.int64)
        for request in range(count):
            found[request] = self._different(top_k, corpus, rng)
        if self._retrieval.order == "sorted":
            found.sort(axis=1)
        return found

    def rows(
        self, values: Ints, prompts: Ints, text_ids: Ints, head_blocks: Ints, rng: np.random.Generator
    ) -> Rows:
        """Requests whose prompts hold `head_blocks` of the text that begins at `text_ids`, then the chunks."""
        count, top_k = len(prompts), self._retrieval.top_k
        chunks = self.chunks(count, rng)
        retrieves = rng.random(count) < self._retrieval.probability
        most = (prompts - 1) // self._block_tokens
        firsts = np.empty((count, top_k + 1), dtype=np.int64)
        ends = np.empty((count, top_k + 1), dtype=np.int64)
        firsts[:, 0], ends[:, 0] = text_ids, np.minimum(head_blocks, most)
        state = _started(text_ids, self._salt)
        head_tokens = head_blocks * self._block_tokens
        for place in range(top_k):
            state = mixed(state ^ (chunks[:, place].astype(np.uint64) + np.uint64(1)))
            reach = (head_tokens + (place + 1) * self._retrieval.chunk_tokens) // self._block_tokens
            ends[:, place + 1] = np.where(retrieves, np.minimum(reach, most), ends[:, 0])
            firsts[:, place + 1] = hashed_ids(state) + ends[:, place]
        lengths = np.diff(ends, axis=1, prepend=0)
        return Rows(values, np.full(count, top_k + 1, dtype=np.int64), firsts.ravel(), lengths.ravel())

    def runs(self, text: int, head_blocks: int, chunks: Sequence[int]) -> list[Run]:
        """The chunks of one prompt behind `head_blocks` blocks of a text."""
        state = _started(text, self._salt)
        found = []
        start = head_blocks
        for place, chunk in enumerate(chunks, start=1):
            state = mixed(state ^ np.uint64(chunk + 1))
            end = head_blocks + place * self._retrieval.chunk_tokens // self._block_tokens
            found.append(Run(int(hashed_ids(state)[0]) + start, start, end))
            start = end
        return found

    def _different(self, top_k: int, corpus: int, rng: np.random.Generator) -> Ints:
        """Chunks drawn one by one by popularity, without those drawn already."""
        if top_k * 4 > corpus:
            keys = self._logs + rng.gumbel(
                size=corpus
            )  # the order of such keys is that of drawing one by one
            return np.argsort(-keys, kind="stable")[:top_k].astype(np.int64)
        chosen: dict[int, None] = {}
        while len(chosen) < top_k:
            drawn = np.searchsorted(self._places, rng.random(top_k), side="right")
            chosen.update(dict.fromkeys(np.minimum(drawn, corpus - 1).tolist()))
        return np.array(list(chosen)[:top_k], dtype=np.int64)


def mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each number scattered over 64 bits (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def hashed_ids(state: npt.NDArray[np.uint64]) -> Ints:
    """First identities from hashes."""
    return HASHED_FROM + (state >> np.uint64(13)).astype(np.int64)


@lru_cache(maxsize=4096)
def hashed_id(*numbers: int) -> int:
    """The first identity of what is named by several numbers."""
    state = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        state = mixed(state ^ np.uint64(number))
    return int(hashed_ids(state)[0])


def _started(text_ids: Ints | int, salt: int) -> npt.NDArray[np.uint64]:
    """The state of each text before its first chunk."""
    return mixed(np.atleast_1d(np.asarray(text_ids, dtype=np.uint64)) ^ np.uint64(salt))
