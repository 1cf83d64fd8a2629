"""Layers grouped so that every group can draw blocks of one size from one pool.

Source: vllm v1/core/kv_cache_utils.py up to 0.32, v1/core/kv_cache_planning.py in 0.33.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from vramledger.engines.vllm.kv_packed import Packing, block_bytes, is_packed, pack, packing_of
from vramledger.engines.vllm.kv_specs import KvKind, KvSpec, LayerSpec
from vramledger.engines.vllm.version import VllmVersion
from vramledger.units import ceil_div


class Group(Struct, frozen=True, kw_only=True):
    """Layers that share block ids. `specs` are the distinct specs of a uniform-type group, else one."""

    spec: KvSpec
    members: tuple[LayerSpec, ...]
    padding_layers: int = 0

    def page_sum(self, layers: range | None = None) -> int:
        """Bytes one block takes over this group's layers (those within `layers`)."""
        return sum(self.pages(layers))

    def pages(self, layers: range | None = None) -> list[int]:
        """The page of each layer (of those within `layers`)."""
        return [m.spec.page_bytes for m in self.members if layers is None or m.layer in layers]


class Layout(Struct, frozen=True, kw_only=True):
    """Groups of a whole model; `unified` tells that windows were given up and all layers keep all tokens.

    `distinct` is derived: each spec with the number of groups that have it.
    """

    groups: tuple[Group, ...]
    unified: bool = False
    packing: Packing = Packing.NONE
    distinct: tuple[tuple[KvSpec, int], ...] = ()

    def __post_init__(self) -> None:
        counts = Counter(group.spec for group in self.groups)
        force_setattr(self, "distinct", tuple(counts.items()))

    def bytes_per_block(self, layers: range | None = None) -> int:
        """Bytes one pool block takes on a stage that holds `layers`: the widest group there, or what the
        packing of mixed pages needs."""
        return block_bytes(self.packing, [group.pages(layers) for group in self.groups])

    @property
    def block_size(self) -> int:
        """Smallest block in tokens of the groups that keep tokens, 0 without groups."""
        sizes = [g.spec.block_size for g in self.groups if g.spec.kind is not KvKind.COMPRESSOR_STATE]
        return min(sizes, default=0)


def plan_groups(
    specs: Sequence[LayerSpec], version: VllmVersion, *, v1: bool, hybrid_manager: bool
) -> Layout:
    """Groups of `specs`.

    V0 and a disabled hybrid manager keep every attention layer at full length. Mixed pages that cannot be
    unified fall back to full attention too, as the engine does with a warning.
    """
    if not specs:
        return Layout(groups=())
    if not v1:
        return Layout(groups=(_whole([_as_full(item) for item in specs]),), unified=True)
    unified = False
    if not hybrid_manager and not _is_uniform(specs):
        specs = [_as_full(item) for item in specs]
        unified = True
    if _is_uniform(specs):
        return Layout(groups=(_whole(specs),), unified=unified)
    if is_packed(specs):
        return _packed(specs, version)
    same_page = _unify_pages(specs)
    if same_page is None:
        return Layout(groups=(_whole([_as_full(item) for item in specs]),), unified=True)
    return Layout(groups=_by_count(same_page, version), unified=unified)


def _as_full(item: LayerSpec) -> LayerSpec:
    if item.spec.kind in (KvKind.WINDOW, KvKind.CHUNKED, KvKind.CROSS):
        return replace(item, spec=replace(item.spec, kind=KvKind.FULL, window=0, chunk=0, max_tokens=0))
    return item


def _is_uniform(specs: Sequence[LayerSpec]) -> bool:
    """One group holds all: equal block sizes, and all full-length, or all one window, or all one state."""
    first = specs[0].spec
    if any(item.spec.block_size != first.block_size for item in specs):
        return False
    if all(item.spec.kind in (KvKind.FULL, KvKind.MLA, KvKind.INDEXER) for item in specs):
        return True
    if first.kind is KvKind.RECURRENT:
        return all(item.spec == first for item in specs)
    return all(
        item.spec.kind is first.kind
        and item.spec.window == first.window
        and item.spec.chunk == first.chunk
        and item.spec.max_tokens == first.max_tokens
        for item in specs
    )


def _whole(specs: Sequence[LayerSpec]) -> Group:
    return Group(spec=specs[0].spec, members=tuple(specs))


def _unify_pages(specs: Sequence[LayerSpec]) -> list[LayerSpec] | None:
    """Every page raised to the largest: an attention page by as many more tokens as fit, the rest padding.

    None where an MLA page does not divide the largest one: it cannot be padded.
    """
    target = max(item.spec.page_bytes for item in specs)
    unified: dict[KvSpec, KvSpec] = {}
    for spec in {item.spec for item in specs}:
        ratio = 1 if spec.kind is KvKind.RECURRENT else target // spec.page_bytes
        if spec.kind in (KvKind.MLA, KvKind.INDEXER) and ratio * spec.page_bytes != target:
            return None
        unified[spec] = replace(
            spec,
            block_size=spec.block_size * ratio,
            page_bytes=target,
            content_bytes=spec.content_bytes * ratio,
        )
    return [LayerSpec(layer=item.layer, spec=unified[item.spec]) for item in specs]


def _by_count(specs: Sequence[LayerSpec], version: VllmVersion) -> tuple[Group, ...]:
    buckets: dict[KvSpec, list[LayerSpec]] = {}
    for item in specs:
        buckets.setdefault(item.spec, []).append(item)
    size = group_size([len(bucket) for bucket in buckets.values()], version)
    groups = []
    for spec, bucket in buckets.items():
        count = ceil_div(len(bucket), size)
        padding = count * size - len(bucket)
        for index in range(count):
            members = tuple(bucket[index::count])
            groups.append(
                Group(spec=spec, members=members, padding_layers=size - len(members) if padding else 0)
            )
    return tuple(groups)


def group_size(bucket_sizes: list[int], version: VllmVersion) -> int:
    """Layers a group: the smallest bucket, or the largest where the two are close (factor 1.5; 1.25 in
    0.12 to 0.17; never before)."""
    smallest, largest = min(bucket_sizes), max(bucket_sizes)
    if not version.since(11, 1):
        return smallest
    factor_times_100 = 150 if version.since(18) else 125
    return largest if largest * 100 < smallest * factor_times_100 else smallest


def _packed(specs: Sequence[LayerSpec], version: VllmVersion) -> Layout:
    """DeepSeek-V4: pages of several sizes lie side by side in a block."""
    return Layout(
        groups=tuple(_whole(members) for members in pack(specs, version)), packing=packing_of(version)
    )
