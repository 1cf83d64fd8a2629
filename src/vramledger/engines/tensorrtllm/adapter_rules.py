"""A set of adapters under TensorRT-LLM: see `engines.adapter_service`.

Its caches are pages of slots. A slot is as wide as the narrowest module's A and B are at rank 1 (in + out); a page has
slots for a whole adapter of rank 8, or of the largest rank for the widest module; a module of an adapter never lies over
two pages. Source: tensorrt-llm cpp/tensorrt_llm/batch_manager/peftCacheManager.cpp (getPageManagerConfig,
getMaxNumSlots), runtime/loraCache.cpp (determineNumPages).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct

from vramledger.engines.adapter_service import AdapterService, Place, ServedAdapter
from vramledger.engines.adapter_slots import pair_elements
from vramledger.engines.partition import local_sizes
from vramledger.engines.tensorrtllm.budget import rank_terms
from vramledger.engines.tensorrtllm.options import flags_from
from vramledger.engines.tensorrtllm.ranks import RankKind, rank_kinds
from vramledger.engines.tensorrtllm.settings import resolve
from vramledger.engines.tensorrtllm.version import NEWEST, parse_version
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.placing import PlacedAdapter, PlacedPair, place
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.tensors import Role, Tensor
from vramledger.units import ceil_div, format_bytes

OPTIMAL_RANK = 8
LARGEST_RANK = 64
_LORA = ("enable_lora", "lora_device_cache_percent", "lora_host_cache_size")


class Pages(Struct, frozen=True, kw_only=True):
    """How a cache is laid out on one rank. `slot_elements` is the width of a slot, `needed_slots` what one adapter of
    the largest rank takes, below which the engine does not start."""

    slot_elements: int
    slots_per_page: int
    needed_slots: int
    element_bytes: int

    @property
    def page_bytes(self) -> int:
        return self.slots_per_page * self.slot_elements * self.element_bytes

    def slots(self, cache_bytes: int) -> int:
        """Slots of a cache of this size."""
        return cache_bytes // (self.slot_elements * self.element_bytes)

    def pages(self, cache_bytes: int) -> int:
        return ceil_div(self.slots(cache_bytes), self.slots_per_page)


def adapter_service(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    adapters: Sequence[Adapter],
    hot: int | None,
) -> AdapterService:
    """The first adapters whose pages fit the device's cache lie there (`hot` of them at most), the next in the host's."""
    if hot is not None and not 1 <= hot <= len(adapters):
        raise FlagError(
            f"--hot {hot} is not between 1 and the {len(adapters)} adapters", flag="hot", value=hot
        )
    asked = NEWEST if version is None else parse_version(version)
    flags = flags_from({**values, "enable_lora": True})
    settings = resolve(checkpoint, asked, flags)
    kind = rank_kinds(checkpoint.model, flags)[0]
    terms = rank_terms(checkpoint, settings, device, kind)
    placed = [place(adapter, checkpoint) for adapter in adapters]
    refusals = [_refusals(item) for item in placed]
    loads = [item for item, why in zip(placed, refusals, strict=True) if not why]
    pages = page_layout(loads, kind, settings.dtype.bits // 8)
    on_device = on_host = 0
    served = []
    device_pages, host_pages = (
        (pages.pages(size) if pages is not None else 0)
        for size in (terms.adapters.expected, flags.lora_host_cache_size)
    )
    count = 0
    for item, why in zip(placed, refusals, strict=True):
        taken = 0 if why or pages is None else adapter_pages(item, kind, pages)
        count += not why
        on_host += taken
        fits = on_device + taken <= device_pages and (hot is None or count <= hot)
        on_device += taken if fits and not why else 0
        where = Place.DEVICE if fits else Place.HOST if on_host <= host_pages else Place.DISK
        own = sum(_pair_elements(pair, kind) for pair in item.pairs)
        served.append(
            ServedAdapter(
                placed=item,
                place=Place.REFUSED if why else where,
                refusals=why,
                remarks=(),
                own_bytes=settings.dtype.bytes_for(own),
                slot_bytes=taken * (pages.page_bytes if pages is not None else 0),
                host_bytes=taken * (pages.page_bytes if pages is not None else 0),
            )
        )
    largest = max((use.slot_bytes for use in served), default=0)
    return AdapterService(
        engine="tensorrt-llm",
        version=str(asked),
        served=tuple(served),
        slots=max(device_pages * pages.page_bytes // largest if pages is not None and largest else 0, 1),
        rank=max((item.largest_rank for item in loads), default=0),
        processes=flags.tp_size * flags.pp_size,
        sharing=_sharing(pages, terms.adapters.expected, device_pages),
    )


def with_adapters(
    values: Mapping[str, object], service: AdapterService
) -> tuple[dict[str, object], dict[str, object]]:
    """Flags with the caches, whose size no adapter changes, and without."""
    given = {name: value for name, value in values.items() if value is not None}
    without = {name: value for name, value in given.items() if name not in _LORA}
    return given | {"enable_lora": True}, without


def page_layout(placed: Sequence[PlacedAdapter], kind: RankKind, element_bytes: int) -> Pages | None:
    """The pages of these adapters' modules; None without any."""
    widths = {pair.tensor.module: _width(pair, kind) for item in placed for pair in item.pairs}
    if not widths:
        return None
    rank = max(item.largest_rank for item in placed)
    optimal, most = min(OPTIMAL_RANK, rank), min(LARGEST_RANK, rank)
    narrow, wide = min(widths.values()), max(widths.values())
    layers = len(kind.stage.layers)
    whole = layers * sum(optimal * ceil_div(width, narrow) for width in widths.values())
    return Pages(
        slot_elements=narrow,
        slots_per_page=max(whole, ceil_div(most * wide, narrow)),
        needed_slots=ceil_div(most * layers * sum(widths.values()), narrow),
        element_bytes=element_bytes,
    )


def adapter_pages(placed: PlacedAdapter, kind: RankKind, pages: Pages) -> int:
    """Pages of one adapter on a rank: its modules in order of layers, none over two pages."""
    rows = sorted(
        (layer, pair.tensor.module, ceil_div(pair.rank * _width(pair, kind), pages.slot_elements))
        for pair in placed.pairs
        for layer in pair.layers
        if layer in kind.stage.layers
    )
    page = slot = 0
    for _, _, slots in rows:
        if slot + slots > pages.slots_per_page:
            page, slot = page + 1, 0
        slot += slots
    return page + 1


def _width(pair: PlacedPair, kind: RankKind) -> int:
    """A and B of one matrix at rank 1 on a rank."""
    return _pair_elements(pair, kind) // (pair.rank * max(_layers(pair, kind), 1)) or 1


def _layers(pair: PlacedPair, kind: RankKind) -> int:
    return sum(layer in kind.stage.layers for layer in pair.layers) if pair.layers else 1


def _pair_elements(pair: PlacedPair, kind: RankKind) -> int:
    def local(tensor: Tensor, axis: int) -> int:
        if tensor.role in (Role.EMBEDDING, Role.LM_HEAD):
            return tensor.shape[axis]
        sizes = local_sizes(tensor, kind.cuts)
        return sizes[axis] if tensor.num_experts or axis == 0 else prod(sizes[1:])

    return pair_elements(pair, local, layers=kind.stage.layers)


def _refusals(placed: PlacedAdapter) -> tuple[str, ...]:
    config = placed.adapter.config
    out = ["is a GGUF adapter, which only llama.cpp reads"] if placed.adapter.is_gguf else []
    if config.use_dora:
        out.append("is weight-decomposed (DoRA), which this description does not size")
    return (*out, *(item.text for item in placed.mismatches))


def _sharing(pages: Pages | None, cache_bytes: int, device_pages: int) -> tuple[str, ...]:
    out = [
        "requests of all adapters whose pages are on the device share a batch; one that finds no page is passed over"
    ]
    if pages is not None:
        out.append(
            f"the device's cache of {format_bytes(cache_bytes)} is {device_pages} pages of "
            f"{format_bytes(pages.page_bytes)}"
        )
        if pages.slots(cache_bytes) < pages.needed_slots:
            out.append(
                "the engine does not start: one adapter of the largest rank needs "
                f"{pages.needed_slots} slots, and the device's cache has {pages.slots(cache_bytes)}; raise "
                "--lora-device-cache-percent"
            )
    return tuple(out)
