"""The KV pool: what is left for tokens, in the engine's own layout."""

from __future__ import annotations

from msgspec import Struct


class IntRange(Struct, frozen=True):
    """A count that is not exact."""

    low: int
    expected: int
    high: int


class FloatRange(Struct, frozen=True):
    """A ratio that is not exact."""

    low: float
    expected: float
    high: float


class KvPart(Struct, frozen=True, kw_only=True):
    """Layers of one group that cache the same thing; `page_bytes` is one block of one of them on one rank."""

    kind: str
    num_layers: int
    page_bytes: int


class KvGroup(Struct, frozen=True, kw_only=True):
    """Layers that share block ids.

    `kind` is the engine's word for the cache ("full_attention", "sliding_window", "mamba", "mla", ...).
    `block_size` is tokens a block; `page_bytes` one block of one layer on one rank;
    `blocks_per_request` what a request of the asked length may hold at most. A group may mix pages (a latent
    and its index keys): `parts` has each, and the kind and page above are the first one's. `pool_blocks` are the
    blocks of the group's own pool, None where all groups draw from one. `window_tokens` is the window or the chunk of
    attention that has one. `keeps_states` is a recurrent group whose states at block boundaries a later request can start
    from. `blocks_per_unit` blocks of this group are cut from one block of the pool.
    """

    kind: str
    num_layers: int
    block_size: int
    page_bytes: int
    blocks_per_request: int
    padding_layers: int = 0
    parts: tuple[KvPart, ...] = ()
    pool_blocks: IntRange | None = None
    window_tokens: int | None = None
    keeps_states: bool = False
    blocks_per_unit: int = 1


class KvPool(Struct, frozen=True, kw_only=True):
    """The pool of one engine instance (one data-parallel replica); every figure is for one rank,
    of the pipeline stage whose blocks are widest.

    `bytes_per_token` is what one more token costs at full attention in every group that keeps it, without
    the constant state; `state_bytes_per_sequence` is that state. `tokens` and `max_concurrency` are what
    this engine version prints; `tokens_rule` says how that version turns blocks into them.
    `steady_tokens` is the other conversion: what full sequences of the asked length hold after windows
    have slid, which is lower than what the engine reserves at admission.
    """

    bytes: IntRange
    groups: tuple[KvGroup, ...]
    bytes_per_block: int
    bytes_per_token: int
    state_bytes_per_sequence: int
    block_size: int
    num_blocks: IntRange
    tokens: IntRange
    max_concurrency: FloatRange
    context_len: int
    longest_context: IntRange
    tokens_rule: str
    admission_bytes_per_request: int
    steady_bytes_per_request: int
    steady_concurrency: FloatRange
    dtype: str
