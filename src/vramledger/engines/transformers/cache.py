"""The rules of a release, what they find in the memory a process leaves, and the pool that comes of it."""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.surroundings import Surroundings
from vramledger.engines.transformers.capped import CappedRules
from vramledger.engines.transformers.geometry import Geometry
from vramledger.engines.transformers.paired import PairedRules
from vramledger.engines.transformers.polynomial import PolynomialRules
from vramledger.engines.transformers.sectors import SectorRules
from vramledger.engines.transformers.settings import Settings
from vramledger.engines.transformers.sizing import (
    CacheGroup,
    Solution,
    longest_within,
    requests_within,
    share_of,
    units_for,
)
from vramledger.engines.transformers.version import Rules
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, total
from vramledger.pool import FloatRange, IntRange, KvGroup, KvPart, KvPool

CacheRules = PairedRules | CappedRules | PolynomialRules | SectorRules

HEADS_CUT_SINCE, DRIVER_ASKED_SINCE = 9, 7


class Sized(Struct, frozen=True, kw_only=True):
    """The cache at the low, the expected and the high end of what a process leaves free."""

    rules: CacheRules
    free: ByteRange
    low: Solution
    expected: Solution
    high: Solution

    @property
    def available(self) -> ByteRange:
        return ByteRange(self.low.available_bytes, self.expected.available_bytes, self.high.available_bytes)

    @property
    def units(self) -> IntRange:
        """Sectors or blocks; none where a solution does not fit."""
        return IntRange(*(max(item.units, 0) for item in (self.low, self.expected, self.high)))


def cache_rules(settings: Settings, shape: Geometry, kv_heads_held: int) -> CacheRules:
    """The rules of the settings' release for one model. Up to 5.8 every rank caches all KV heads."""
    if not settings.version.since(HEADS_CUT_SINCE):
        kv_heads_held = shape.kv_heads
    match settings.version.rules:
        case Rules.PAIRED:
            return PairedRules(shape=shape, settings=settings, kv_heads_held=kv_heads_held)
        case Rules.CAPPED:
            return CappedRules(shape=shape, settings=settings, kv_heads_held=kv_heads_held)
        case Rules.POLYNOMIAL:
            return PolynomialRules(shape=shape, settings=settings, kv_heads_held=kv_heads_held)
        case Rules.SECTORS:
            return SectorRules(shape=shape, settings=settings, kv_heads_held=kv_heads_held)


def free_bytes(
    device: Device, settings: Settings, weights: ByteRange, around: list[Surroundings]
) -> ByteRange:
    """What the handler takes for free: by the driver's figures, up to 5.6 by torch's own, which know no context."""
    held = weights
    if settings.version.since(DRIVER_ASKED_SINCE):
        held = held + total(item.bytes for item in around)
    left = device.total - held
    return ByteRange(max(left.low, 0), max(left.expected, 0), max(left.high, 0))


def size(rules: CacheRules, settings: Settings, free: ByteRange) -> Sized:
    low, expected, high = (
        rules.solve(share_of(size, settings)) for size in (free.low, free.expected, free.high)
    )
    return Sized(rules=rules, free=free, low=low, expected=expected, high=high)


def kv_pool(sized: Sized, settings: Settings, positions: int) -> KvPool:
    """The pool of one process; a unit is a sector, before 5.18 a block of one group of layers."""
    rules, units = sized.rules, sized.units
    groups, context = rules.groups, settings.context_len
    counts = (units.low, units.expected, units.high)
    share = sum(group.blocks(context) / group.blocks_per_unit for group in groups)
    request = sum(group.blocks(context) * group.block_bytes for group in groups)
    concurrency = FloatRange(*(count / share for count in counts))
    per_token = rules.whole_block_bytes // settings.page_tokens
    return KvPool(
        bytes=IntRange(*(count * rules.unit_bytes for count in counts)),
        groups=tuple(_group(group, context) for group in groups),
        bytes_per_block=rules.unit_bytes,
        bytes_per_token=per_token,
        state_bytes_per_sequence=0,
        block_size=rules.unit_tokens,
        num_blocks=units,
        tokens=IntRange(*(tokens_of(rules, settings, count) for count in counts)),
        max_concurrency=concurrency,
        context_len=context,
        longest_context=IntRange(
            *(longest_within(groups, count, max(context, positions)) for count in counts)
        ),
        tokens_rule="not printed: cache bytes // bytes of a page in every layer x tokens a page",
        admission_bytes_per_request=request,
        steady_bytes_per_request=request,
        steady_concurrency=concurrency,
        dtype=settings.dtype.value,
    )


def tokens_of(rules: CacheRules, settings: Settings, units: int) -> int:
    """Tokens that units hold where every layer keeps all of them (`num_blocks` x page size)."""
    return units * rules.unit_bytes // rules.whole_block_bytes * settings.page_tokens


def guaranteed(sized: Sized, settings: Settings, units: int) -> int:
    """Requests of the full context that so many units hold for certain, at most those of a batch."""
    most = min(settings.max_requests, sized.expected.batch_tokens)
    return requests_within(sized.rules.groups, settings.context_len, units, most)


def needed_units(sized: Sized, settings: Settings, requests: int) -> int:
    return units_for(sized.rules.groups, settings.context_len, requests)


def _group(group: CacheGroup, context: int) -> KvGroup:
    return KvGroup(
        kind=group.kind,
        num_layers=group.num_layers,
        block_size=group.page_tokens,
        page_bytes=group.page_bytes,
        blocks_per_request=group.blocks(context),
        parts=(KvPart(kind=group.kind, num_layers=group.num_layers, page_bytes=group.page_bytes),),
        window_tokens=group.window or None,
        blocks_per_unit=group.blocks_per_unit,
    )
