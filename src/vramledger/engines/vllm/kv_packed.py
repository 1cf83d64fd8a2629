"""DeepSeek-V4's caches in one pool: layers with pages of several sizes side by side in each block.

Source: vllm v1/core/kv_cache_utils.py: group_and_unify_kv_cache_specs, _get_kv_cache_groups_uniform_groups and
_get_kv_cache_config_deepseek_v4 (0.20 to 0.22), _get_kv_cache_config_packed (0.23 to 0.26),
_get_packed_kv_cache_layout (0.27, 0.28), _get_packed_kv_cache_groups (0.29 and newer; kv_cache_planning.py in
0.33).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from msgspec.structs import replace

from vramledger.engines.vllm.kv_specs import KvKind, LayerSpec
from vramledger.engines.vllm.version import VllmVersion
from vramledger.units import ceil_div

Members = tuple[LayerSpec, ...]


class Packing(StrEnum):
    """How a block is divided among layers whose pages differ.

    TUPLES: as many times one page of every size as the fullest group has layers of one size. SLOTS: for every
    size as many pages as the fullest group has. OVERLAY: the widest group's pages, one after the other.
    """

    NONE = "none"
    TUPLES = "tuples"
    SLOTS = "slots"
    OVERLAY = "overlay"


def packing_of(version: VllmVersion) -> Packing:
    """The rule of a version; builds between 0.26.0 and 0.27 already overlay."""
    if not version.since(23):
        return Packing.TUPLES
    return Packing.OVERLAY if version.since(26, 1) else Packing.SLOTS


def block_bytes(packing: Packing, groups: Sequence[Sequence[int]]) -> int:
    """Bytes of one pool block, from the pages of each group's layers on a stage; the history group is first."""
    counts = [Counter(pages) for pages in groups]
    if packing is Packing.TUPLES:
        deepest = max((count for sizes in counts for count in sizes.values()), default=0)
        return deepest * sum(counts[0])
    if packing is Packing.SLOTS:
        sizes = {page for group in counts for page in group}
        return sum(page * max(group[page] for group in counts) for page in sizes)
    return max((sum(pages) for pages in groups), default=0)


def pack(specs: Sequence[LayerSpec], version: VllmVersion) -> tuple[Members, ...]:
    """Layers of each group, the compressed history's first; pages raised where the version wants equal ones.

    A bucket (one kind, block size and window) that repeats a pattern of page sizes is split so that all
    groups hold about as many repeats; the number is the one that wastes least, found by trial.
    """
    buckets = _buckets(specs)
    if packing_of(version) is not Packing.OVERLAY:
        buckets = [buckets[0], *(_raised(bucket, buckets[0]) for bucket in buckets[1:])]
    depths = [_depth(bucket) for bucket in buckets]
    if version.since(29):
        mixed = [_is_pattern(bucket) and len(_pages(bucket)) > 1 for bucket in buckets]
        least = max((depth for depth, mix in zip(depths, mixed, strict=True) if mix), default=0)
        even = [depth for depth, bucket in zip(depths, buckets, strict=True) if _is_pattern(bucket)]
        splits = [_is_pattern(bucket) and least > 0 for bucket in buckets]
    else:
        least, even, splits = depths[0], depths, [False, *(True for _ in buckets[1:])]
    repeats = _repeats(even, least) if least else 0
    groups: list[Members] = []
    for bucket, depth, split in zip(buckets, depths, splits, strict=True):
        groups += _split(bucket, ceil_div(depth, repeats) if split else 1)
    return tuple(groups)


def _buckets(specs: Sequence[LayerSpec]) -> list[Members]:
    """Layers that need the same blocks, the whole history's before the windows."""
    found: dict[tuple[bool, int, int], list[LayerSpec]] = {}
    for item in specs:
        found.setdefault((item.spec.window > 0, item.spec.block_size, item.spec.window), []).append(item)
    return [tuple(found[key]) for key in sorted(found, key=lambda key: key[0])]


def _raised(bucket: Members, history: Members) -> Members:
    """Pages raised to the next size the history has, so that both can lie in one tensor."""
    sizes = sorted(_pages(history))
    out = []
    for item in bucket:
        page = next((size for size in sizes if size >= item.spec.page_bytes), item.spec.page_bytes)
        out.append(replace(item, spec=replace(item.spec, page_bytes=page)))
    return tuple(out)


def _pages(bucket: Members) -> Counter[int]:
    return Counter(item.spec.page_bytes for item in bucket)


def _depth(bucket: Members) -> int:
    return max(_pages(bucket).values())


def _is_pattern(bucket: Members) -> bool:
    return len(set(_pages(bucket).values())) == 1


def _repeats(depths: Sequence[int], least: int) -> int:
    """The repeats a group that need the fewest empty places over all buckets, the larger one of equals."""
    choices = range(least, max(least, *depths) + 1)
    return min(choices, key=lambda size: (sum(-depth % size for depth in depths), -size))


def _split(bucket: Members, count: int) -> list[Members]:
    """`count` groups, every `count`-th repeat in one, so that pipeline stages share them evenly."""
    if count == 1:
        return [bucket]
    by_page: dict[int, list[LayerSpec]] = {}
    for item in bucket:
        by_page.setdefault(item.spec.page_bytes, []).append(item)
    repeats = list(zip(*by_page.values(), strict=True))
    return [tuple(item for repeat in repeats[index::count] for item in repeat) for index in range(count)]


def is_packed(specs: Sequence[LayerSpec]) -> bool:
    """Whether a model's caches need packing: single-vector windows beside pages of other sizes."""
    return any(item.spec.kind is KvKind.MLA_WINDOW for item in specs) and len(_pages(tuple(specs))) > 1
