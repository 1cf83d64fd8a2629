"""Prompts that were counted before, by a keyed hash: no text is kept, and no tenant meets what another one left."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from vramledger.gateway.admitter import Kind, TokenSource

LEFT_OUT = frozenset(
    ("stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict",
     "n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "user", "metadata", "store")
)  # fmt: skip
"""Fields that no prompt is rendered by."""


Name = tuple[bytes, TokenSource]
"""A prompt, and who counted it."""


class CountedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int
    keys: tuple[int, ...] = ()


class CountedCache:
    """The prompts used last, up to a number of them and of their keys."""

    def __init__(self, *, prompts: int, keys: int) -> None:
        self._prompts = prompts
        self._room = keys
        self._known: OrderedDict[Name, CountedPrompt] = OrderedDict()
        self.keys = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: Name) -> CountedPrompt | None:
        found = self._known.get(name)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._known.move_to_end(name)
        return found

    def put(self, name: Name, counted: CountedPrompt) -> None:
        before = self._known.pop(name, None)
        if before is not None:
            self.keys -= len(before.keys)
        self._known[name] = counted
        self.keys += len(counted.keys)
        while len(self._known) > self._prompts or self.keys > self._room:
            _, oldest = self._known.popitem(last=False)
            self.keys -= len(oldest.keys)


def name_of(seed: bytes, kind: Kind, asked: Mapping[str, object]) -> bytes:
    """What a prompt is known by. `seed` is secret and differs between tenants. Raises ValueError or RecursionError for what is no JSON."""
    told = {name: value for name, value in asked.items() if name not in LEFT_OUT}
    written = msgspec.json.encode((kind.value, told))
    return hashlib.blake2b(written, key=seed, digest_size=16).digest()
