"""What keys and values take in a cache format: elements, scales, a window in full precision, outliers.

A format is a rule with its numbers; `kv_stores` has those that papers and engines name. Here are the rules that treat
every token alike, and the way from any rule to its bytes; those with windows are in `kv_windows`.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.errors import UnknownFormat
from vramledger.formats.ggml import ggml_type
from vramledger.formats.kv import KvFormat, KvScaling, kv_bytes, latent_bytes
from vramledger.formats.kv_shapes import FULL, Latent, Shape, Side, Stored
from vramledger.formats.kv_windows import (
    Kivi,
    KvQuant,
    WholeTensor,
    kivi_bytes,
    kvquant_bytes,
    whole_tensor_bytes,
)
from vramledger.ledger import ByteRange
from vramledger.units import ceil_div, round_up


class ByToken(Struct, frozen=True, kw_only=True):
    """Elements of a width, with what vLLM stores beside them (vramledger.formats.kv). Kernels read it as it is."""

    kind: KvFormat

    @property
    def bits(self) -> tuple[int, int]:
        return self.kind.key_bits, self.kind.value_bits


class TokenGroups(Struct, frozen=True, kw_only=True):
    """Integers or small floats with `meta_bytes` of scale (and zero point) for every `group` elements, values with
    `value_meta_bytes` where that differs.

    A group lies within one head, or (`across_heads`) within the heads of one token laid end to end; 0 is a whole
    head. `latents` says whether a latent is kept so too, `exact_rope` that its rotary part stays in full precision.
    Tokens come in units of `unit_tokens`, and in each unit elements and scales are padded to `align_bytes`.
    `reads_back` says when a layer is expanded to full precision before it is read: "never", "fallback" (where no kernel reads
    it as it is), "prefill", "always".
    """

    key_bits: int
    value_bits: int
    group: int
    meta_bytes: int
    value_meta_bytes: int | None = None
    across_heads: bool = False
    latents: bool = False
    exact_rope: bool = False
    unit_tokens: int = 1
    align_bytes: int = 1
    reads_back: str = "never"

    @property
    def bits(self) -> tuple[int, int]:
        return self.key_bits, self.value_bits


class GgmlRows(Struct, frozen=True, kw_only=True):
    """GGML blocks along the row of one token's keys or values, cells in multiples of 256."""

    key_type: str
    value_type: str

    @property
    def bits(self) -> tuple[int, int]:
        return _ggml_bits(self.key_type), _ggml_bits(self.value_type)


Rule = ByToken | TokenGroups | GgmlRows | Kivi | KvQuant | WholeTensor


def stored(
    rule: Rule, shape: Shape, tokens: int, *, sequences: int = 1, prompt_tokens: int | None = None
) -> Stored:
    """The cache of one layer after `tokens` tokens of each sequence.

    Where a rule packs prompts and new tokens differently, `prompt_tokens` says how many came with the prompt; None
    takes the fullest window there can be at that length. Raises UnknownFormat where the format is not for this
    shape, saying why.
    """
    match rule:
        case ByToken():
            return _by_token(rule, shape, tokens * sequences)
        case TokenGroups():
            return _token_groups(rule, shape, tokens, sequences)
        case GgmlRows():
            return _ggml_rows(rule, shape, tokens, sequences)
        case _ if isinstance(shape, Latent):
            raise UnknownFormat("it packs keys and values of heads, not a latent")
        case Kivi():
            return kivi_bytes(rule, shape, tokens, sequences)
        case KvQuant():
            return kvquant_bytes(rule, shape, tokens, sequences)
        case WholeTensor():
            return whole_tensor_bytes(rule, shape, tokens, sequences, prompt_tokens)


def _nothing() -> ByteRange:
    return ByteRange.exact(0)


def _by_token(rule: ByToken, shape: Shape, tokens: int) -> Stored:
    kind = rule.kind
    if isinstance(shape, Latent):
        total = latent_bytes(kind, tokens=tokens, kv_lora_rank=shape.kv_lora_rank, rope_dim=shape.rope_dim)
        elements = ceil_div(shape.elements * kind.key_bits, 8) * tokens
        if kind.scaling is KvScaling.DS_MLA:
            exact = shape.rope_dim * (FULL if kind.key_bits == 8 else 1) * tokens
            packed = ceil_div(shape.kv_lora_rank * kind.key_bits, 8) * tokens
            side = Side(packed_bytes=packed + exact, scale_bytes=total - packed - exact)
        else:
            side = Side(packed_bytes=elements, scale_bytes=total - elements)
        return Stored(key=side, value=Side(), workspace=_nothing())
    slots = tokens * shape.kv_heads
    total = kv_bytes(
        kind, tokens=tokens, kv_heads=shape.kv_heads, head_dim=shape.head_dim, v_head_dim=shape.v_head_dim
    )
    key, value = _scales(kind, shape.head_dim, shape.v_head_dim)
    packed_key = slots * ceil_div(shape.head_dim * kind.key_bits, 8)
    packed_value = slots * ceil_div(shape.v_head_dim * kind.value_bits, 8)
    padding = total - packed_key - packed_value - slots * (key + value)
    return Stored(
        key=Side(packed_bytes=packed_key, scale_bytes=slots * key),
        value=Side(packed_bytes=packed_value, scale_bytes=slots * value, padding_bytes=padding),
        workspace=_nothing(),
    )


def _scales(kind: KvFormat, head_dim: int, v_head_dim: int) -> tuple[int, int]:
    """Bytes beside a key and a value of one head, as kv_bytes counts them in its sum."""
    match kind.scaling:
        case KvScaling.PER_TOKEN_HEAD:
            return 4, 4
        case KvScaling.GROUP_16:
            return ceil_div(head_dim, 16), ceil_div(v_head_dim, 16)
        case KvScaling.TURBOQUANT:
            return (0 if kind.key_bits == 8 else 2), 4
        case _:
            return 0, 0


def _token_groups(rule: TokenGroups, shape: Shape, tokens: int, sequences: int) -> Stored:
    units = ceil_div(tokens, rule.unit_tokens) * sequences
    full = units * rule.unit_tokens * shape.elements * FULL
    if isinstance(shape, Latent):
        if not rule.latents:
            raise UnknownFormat("it packs keys and values of heads, not a latent")
        width = shape.kv_lora_rank if rule.exact_rope else shape.elements
        side = _grouped(rule, width, rule.unit_tokens, units, rule.key_bits, rule.meta_bytes)
        if rule.exact_rope:
            side += Side(packed_bytes=units * rule.unit_tokens * shape.rope_dim * FULL)
            full = 0
        return Stored(key=side, value=Side(), workspace=_read_back(rule.reads_back, full))
    value_meta = rule.meta_bytes if rule.value_meta_bytes is None else rule.value_meta_bytes
    sides = []
    for dim, bits, meta in (
        (shape.head_dim, rule.key_bits, rule.meta_bytes),
        (shape.v_head_dim, rule.value_bits, value_meta),
    ):
        width, rows = (dim * shape.kv_heads, 1) if rule.across_heads else (dim, shape.kv_heads)
        sides.append(_grouped(rule, width, rows * rule.unit_tokens, units, bits, meta))
    return Stored(key=sides[0], value=sides[1], workspace=_read_back(rule.reads_back, full))


def _grouped(rule: TokenGroups, width: int, rows: int, units: int, bits: int, meta_bytes: int) -> Side:
    """Units of so many rows, each of `width` elements."""
    group = rule.group or width
    if width % group:
        raise UnknownFormat(f"{width} elements are not a whole number of groups of {group}")
    packed, scales = rows * ceil_div(width * bits, 8), rows * (width // group) * meta_bytes
    padded = round_up(packed, rule.align_bytes) + round_up(scales, rule.align_bytes)
    return Side(
        packed_bytes=units * packed,
        scale_bytes=units * scales,
        padding_bytes=units * (padded - packed - scales),
    )


def _read_back(when: str, full_bytes: int) -> ByteRange:
    low = full_bytes if when == "always" else 0
    expected = full_bytes if when in ("prefill", "always") else 0
    return ByteRange(low, expected, 0 if when == "never" else full_bytes)


GGML_CELLS = 256


def _ggml_bits(name: str) -> int:
    """The bits of an element in its name's first number: q5_1 has five and a block's scale and minimum."""
    digits = "".join(char for char in name if char.isdigit() or char == "_").strip("_").split("_")[0]
    return int(digits)


def _ggml_rows(rule: GgmlRows, shape: Shape, tokens: int, sequences: int) -> Stored:
    """llama.cpp's llama-kv-cache.cpp: a cell has one row of keys and one of values. Flash attention on CUDA expands a
    layer to fp16 for batches (ggml-cuda/fattn-common.cuh), and reads it as it is for single tokens."""
    cells = ceil_div(tokens, GGML_CELLS) * GGML_CELLS * sequences
    if isinstance(shape, Latent):
        widths, full = (shape.elements, 0), cells * shape.elements * FULL
    else:
        widths, full = (shape.key_width, shape.value_width), cells * shape.elements * FULL
    sides = []
    for width, name, bits in zip(widths, (rule.key_type, rule.value_type), rule.bits, strict=True):
        total = ggml_type(name).bytes_for(width, cells)
        packed = cells * width * bits // 8
        sides.append(Side(packed_bytes=packed, scale_bytes=total - packed))
    plain = all(bits >= 16 for bits in rule.bits)
    return Stored(key=sides[0], value=sides[1], workspace=_read_back("never" if plain else "prefill", full))
