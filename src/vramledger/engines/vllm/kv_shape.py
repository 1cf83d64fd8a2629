"""One rank's KV in a few numbers, as what moves it needs them."""

from __future__ import annotations

from vramledger.engines.vllm.kv_budget import blocks_per_request
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.kv_specs import KvKind
from vramledger.engines.vllm.kv_transfer import KvShape
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind

_STATES = (KvKind.RECURRENT, KvKind.COMPRESSOR_STATE)
_LATENT = (KvKind.MLA, KvKind.INDEXER)


def kv_shape(layout: Layout, settings: Settings, kind: RankKind) -> KvShape:
    """Bytes of a token and of a block on the rank's stage, and of a full request."""
    members = [
        (group.spec.kind, member.spec)
        for group in layout.groups
        for member in group.members
        if member.layer in kind.kv_layers
    ]
    per_block = layout.bytes_per_block(kind.kv_layers)
    blocks = blocks_per_request(layout, settings.context_len, settings) if layout.groups else 0
    return KvShape(
        bytes_per_token=sum(
            spec.content_bytes // spec.block_size for of, spec in members if of not in _STATES
        ),
        bytes_per_block=per_block,
        layers=len(members),
        request_bytes=blocks * per_block,
        is_latent=bool(members) and all(of in _LATENT for of, _ in members),
    )
