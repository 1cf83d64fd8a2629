"""The longest context for every request, reserved when it is admitted."""

from __future__ import annotations

from vramledger.kvcache.lengths import Lengths
from vramledger.kvcache.schemes.allocation import Allocation, Waste, constant_bytes, used_bytes, whole
from vramledger.kvcache.shape import CacheShape
from vramledger.ledger import ByteRange


def contiguous(shape: CacheShape, lengths: Lengths, requests: int) -> Allocation:
    """What engines did before they had blocks (arXiv 2309.06180 section 3.1), and transformers' StaticCache does;
    layers with a window reserve their window."""
    each = constant_bytes(shape)
    for group in shape.growing:
        each += group.token_bytes * group.kept.most_tokens(shape.max_len)
    held, used = whole(each * requests), whole(used_bytes(shape, lengths) * requests)
    fit = int(shape.pool_bytes / each) if each else 0
    return Allocation(
        scheme="contiguous",
        source="arXiv 2309.06180 section 3.1; transformers cache_utils.py StaticCache",
        requests=requests,
        unit_bytes=whole(each),
        unit_tokens=shape.max_len,
        used_bytes=used,
        held_bytes=ByteRange.exact(held),
        final_bytes=held,
        waste=Waste(ahead_bytes=held - used),
        virtual_bytes=held,
        idle_bytes=shape.pool_bytes,
        fit_running=fit,
        fit_final=fit,
    )
