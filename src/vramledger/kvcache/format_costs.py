"""A model's cache in one format: bits stored and bits that come of it, by length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from vramledger.errors import UnknownFormat
from vramledger.formats.kv_rules import stored
from vramledger.formats.kv_shapes import FULL, Heads, Side, Stored
from vramledger.formats.kv_stores import KvStore, Windows
from vramledger.kvcache.layers import CachedLayers, cached_layers
from vramledger.ledger import ByteRange
from vramledger.models.model import Model
from vramledger.units import round_up

RING_PAGE = 256  # exllamav3 constants.py; a ring has two beside its window (modules/sliding_attn.py)


class LengthCost(Struct, frozen=True, kw_only=True):
    """All layers of one rank at `context_len` tokens in each of the asked sequences.

    `bytes` is `key` + `value` + `index_bytes`; `workspace` what reading one layer back takes beside it (the largest
    layer; None: not known).
    """

    context_len: int
    bytes: int
    key: Side
    value: Side
    index_bytes: int
    workspace: ByteRange | None


class FormatCost(Struct, frozen=True, kw_only=True):
    """One format on one model.

    `raw_bits` is the width of an element, keys and values together, before anything else is stored; `refusal` says
    why the format is not for this model, and then there are no lengths.
    """

    store: KvStore
    raw_bits: float
    lengths: tuple[LengthCost, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str = ""


def format_costs(
    model: Model, stores: Iterable[KvStore], contexts: Sequence[int], *, sequences: int = 1, tp: int = 1
) -> tuple[FormatCost, ...]:
    """What `sequences` of each length take in each format. Raises FlagError where heads and `tp` do not divide."""
    layers = cached_layers(model, tp)
    return tuple(_cost(layers, store, contexts, sequences) for store in stores)


def _cost(
    layers: Sequence[CachedLayers], store: KvStore, contexts: Sequence[int], sequences: int
) -> FormatCost:
    raw = _raw_bits(layers, store)
    if not layers:
        return FormatCost(store=store, raw_bits=raw, refusal="no layer of this model caches keys and values")
    try:
        lengths = tuple(_at(layers, store, tokens, sequences) for tokens in contexts)
    except UnknownFormat as problem:
        # Formats of vLLM name themselves in their refusal.
        reason = problem.message.replace(f"{store.name} ", "it ", 1)
        return FormatCost(store=store, raw_bits=raw, refusal=reason)
    return FormatCost(store=store, raw_bits=raw, lengths=lengths, notes=_notes(layers, store))


def _raw_bits(layers: Sequence[CachedLayers], store: KvStore) -> float:
    key_bits, value_bits = store.rule.bits
    bits = elements = 0
    for group in layers:
        key, value = _elements(group)
        bits += group.num_layers * (key * key_bits + value * value_bits)
        elements += group.num_layers * (key + value)
    return bits / elements if elements else float(key_bits + value_bits) / 2


def _elements(group: CachedLayers) -> tuple[int, int]:
    shape = group.shape
    if isinstance(shape, Heads):
        return shape.key_width, shape.value_width
    return shape.elements, 0


def _at(layers: Sequence[CachedLayers], store: KvStore, tokens: int, sequences: int) -> LengthCost:
    key, value, index = Side(), Side(), 0
    workspace: ByteRange | None = ByteRange.exact(0)
    for group in layers:
        layer, entries = _layer(group, store, tokens, sequences)
        key += layer.key.times(group.num_layers)
        value += layer.value.times(group.num_layers)
        index += group.index_bytes * entries * sequences * group.num_layers
        if workspace is not None:
            workspace = None if layer.workspace is None else workspace.upper(layer.workspace)
    return LengthCost(
        context_len=tokens,
        bytes=key.bytes + value.bytes + index,
        key=key,
        value=value,
        index_bytes=index,
        workspace=workspace,
    )


def _layer(group: CachedLayers, store: KvStore, tokens: int, sequences: int) -> tuple[Stored, int]:
    """One layer, and how many entries it keeps of each sequence."""
    if store.windows is Windows.RING and group.limit_tokens:
        ring = round_up(group.limit_tokens + 2 * RING_PAGE, RING_PAGE)
        size = ring * group.shape.elements * FULL * sequences
        return Stored(key=Side(window_bytes=size), value=Side(), workspace=ByteRange.exact(0)), ring
    entries = group.entries(tokens, slides=store.windows is not Windows.STAY)
    return stored(store.rule, group.shape, entries, sequences=sequences), entries


def _notes(layers: Sequence[CachedLayers], store: KvStore) -> tuple[str, ...]:
    notes = []
    windowed = sum(group.num_layers for group in layers if group.limit_tokens)
    if windowed and store.windows is Windows.STAY:
        notes.append(f"keeps the whole context of {windowed} windowed layers")
    if windowed and store.windows is Windows.RING:
        notes.append(f"{windowed} windowed layers have rings in full precision")
    if any(group.fixed_tokens == 0 for group in layers):
        notes.append("an encoder's output of unknown length is not counted")
    if any(group.index_bytes for group in layers):
        notes.append("index keys stay as they are")
    return tuple(notes)
