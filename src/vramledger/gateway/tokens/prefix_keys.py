"""Identities of a prompt's leading full blocks: chained, and seeded by everything that forbids sharing. Pure.

As in vLLM's prefix cache, a block's identity covers its tokens and all before them, so two prompts share exactly the blocks of their longest
common run of identities (`workload.request` has the same rule). The seed is what an engine puts before the first block: tenant, model or
adapter by name, and cache salt; prompts that differ in one of them share nothing.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from vramledger.gateway.admitter import RequestFacts

SALTS = ("cache_salt", "extra_key", "lora", "lora_path", "lora_name", "lora_request", "adapter")
"""Fields by which engines keep prefixes apart: vLLM's and SGLang's salts, and adapters by request."""
TURN_BLOCKS = 512
"""Blocks that are named at once: under a millisecond."""


def seed_of(secret: bytes, facts: RequestFacts, asked: Mapping[str, object]) -> bytes:
    """`secret` is up to 64 bytes that no client knows: without it nobody can make two prompts that look alike."""
    salts = [asked.get(name) for name in SALTS]
    try:
        written = msgspec.json.encode((facts.tenant, facts.model, salts))
    except (RecursionError, ValueError, TypeError):
        # Nobody else's: an engine would refuse such a salt.
        written = b"%d" % facts.number
    return hashlib.blake2b(written, key=secret, digest_size=32).digest()


def prefix_keys(ids: Sequence[int], block_size: int, seed: bytes) -> tuple[int, ...]:
    """One identity (63 bits) for each full block of `ids`; those before the first that has something else in it than tokens' numbers."""
    return tuple(key for turn in keys_in_turns(ids, block_size, seed) for key in turn)


def keys_in_turns(ids: Sequence[int], block_size: int, seed: bytes) -> Iterator[list[int]]:
    """The same in portions of under a millisecond, for callers that have other work."""
    turn = block_size * TURN_BLOCKS
    hashed, chain = hashlib.blake2b, seed
    for begin in range(0, len(ids) - block_size + 1, turn):
        try:
            words = array("I", ids[begin : begin + turn])
        except (OverflowError, TypeError):
            return
        data, step = words.tobytes(), words.itemsize * block_size
        keys = []
        for at in range(0, len(data) - step + 1, step):
            chain = hashed(chain + data[at : at + step], digest_size=16).digest()
            keys.append(int.from_bytes(chain[:8], "little") >> 1)
        yield keys
