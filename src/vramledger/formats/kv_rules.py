"""What keys and values take in a cache format: elements, scales, a window in full precision, outliers.

A format is one of the rules below with its numbers; `kv_stores` has those that papers and engines name. Sizes are
of one layer on one rank, for `sequences` that are equally long. Full precision has 2 bytes an element.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict, astuple

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.ggml import ggml_type
from vramledger.formats.kv import KvFormat, KvScaling, kv_bytes, latent_bytes
from vramledger.ledger import ByteRange
from vramledger.units import ceil_div, round_up

FULL = DType.BF16.bytes_for(1)


class Heads(Struct, frozen=True, kw_only=True):
    """What a layer caches of a token: `kv_heads` keys of `head_dim` and as many values of `v_head_dim`."""

    kv_heads: int
    head_dim: int
    v_head_dim: int

    @property
    def key_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        return self.kv_heads * self.v_head_dim

    @property
    def elements(self) -> int:
        return self.key_width + self.value_width


class Latent(Struct, frozen=True, kw_only=True):
    """What a layer of multi-head latent attention caches of a token: one vector for all heads."""

    kv_lora_rank: int
    rope_dim: int

    @property
    def elements(self) -> int:
        return self.kv_lora_rank + self.rope_dim


Shape = Heads | Latent


class Side(Struct, frozen=True, kw_only=True):
    """Bytes of the keys, or of the values.

    `window_bytes` are tokens kept in full precision, `tables_bytes` what is held once, whatever the length.
    """

    packed_bytes: int = 0
    scale_bytes: int = 0
    window_bytes: int = 0
    outlier_bytes: int = 0
    tables_bytes: int = 0
    padding_bytes: int = 0

    @property
    def bytes(self) -> int:
        return sum(astuple(self))

    def __add__(self, other: Side) -> Side:
        return Side(**{name: size + getattr(other, name) for name, size in asdict(self).items()})

    def times(self, count: int) -> Side:
        """So many of it."""
        return Side(**{name: size * count for name, size in asdict(self).items()})


class Stored(Struct, frozen=True, kw_only=True):
    """One layer's cache. A latent is all key. `workspace` is what reading it back takes beside it, one layer at a
    time, None where that is not known."""

    key: Side
    value: Side
    workspace: ByteRange | None

    @property
    def bytes(self) -> int:
        return self.key.bytes + self.value.bytes


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


class Kivi(Struct, frozen=True, kw_only=True):
    """KIVI: keys in groups of tokens for each channel, values in groups of channels for each token; a scale and a
    minimum in fp16 a group.

    Keys wait in full precision until `residual` of them can be packed at once; of values the newest `residual`
    always are. KIVI (arXiv 2402.02750) section 3.3; released models/llama_kivi.py and quant/new_pack.py.
    """

    key_bits: int
    value_bits: int
    group: int = 32
    residual: int = 128

    @property
    def bits(self) -> tuple[int, int]:
        return self.key_bits, self.value_bits


class KvQuant(Struct, frozen=True, kw_only=True):
    """KVQuant: keys on a scale for each channel known beforehand, values on one for each token, `outliers` of a
    thousand apart, the first `kept` tokens in full precision.

    The paper's count (arXiv 2401.18079, section 3 and its table of average bits): outliers are an fp16 value and a
    16-bit index, with a 32-bit row pointer a token; a value's token has its scale and offset in fp16. As
    `released` (deployment/transformers, QuantK and QuantV) values and indices take 4 bytes, their number is fixed,
    each channel has its own fp32 table of levels and each value's token another.
    """

    width: int
    outliers: int = 10
    kept: int = 1
    released: bool = False

    @property
    def bits(self) -> tuple[int, int]:
        return self.width, self.width


class WholeTensor(Struct, frozen=True, kw_only=True):
    """Transformers' QuantizedCache: everything in groups of `group` elements with scale and zero point in the model's
    type, and a window of up to `residual` - 1 new tokens; when it is full, all is read back and packed again.

    A prompt is packed whole. `backend` is "quanto" or "hqq". transformers cache_utils.py, optimum-quanto's packed
    tensors and hqq's BitPack.
    """

    backend: str
    width: int
    group: int = 64
    residual: int = 128
    axis: int = 0

    @property
    def bits(self) -> tuple[int, int]:
        return self.width, self.width


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
            return _kivi(rule, shape, tokens, sequences)
        case KvQuant():
            return _kvquant(rule, shape, tokens, sequences)
        case WholeTensor():
            return _whole_tensor(rule, shape, tokens, sequences, prompt_tokens)


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


def _kivi(rule: Kivi, shape: Heads, tokens: int, sequences: int) -> Stored:
    if rule.residual % rule.group:
        raise UnknownFormat(f"a window of {rule.residual} tokens is not whole groups of {rule.group}")
    if shape.v_head_dim % rule.group:
        raise UnknownFormat(f"{shape.v_head_dim} channels of a value are not whole groups of {rule.group}")
    for bits, count in ((rule.key_bits, rule.residual), (rule.value_bits, shape.v_head_dim)):
        if bits not in (2, 4, 8) or count % (32 // bits):
            raise UnknownFormat(f"{count} elements of {bits} bits do not fill whole 32-bit words")
    waiting, newest = tokens % rule.residual, min(tokens, rule.residual)
    sides = []
    for width, bits, kept in (
        (shape.key_width, rule.key_bits, waiting),
        (shape.value_width, rule.value_bits, newest),
    ):
        packed = (tokens - kept) * width * sequences
        sides.append(
            Side(
                packed_bytes=packed * bits // 8,
                scale_bytes=packed // rule.group * 2 * FULL,
                window_bytes=kept * width * FULL * sequences,
            )
        )
    return Stored(key=sides[0], value=sides[1], workspace=_nothing())


def _kvquant(rule: KvQuant, shape: Heads, tokens: int, sequences: int) -> Stored:
    if rule.released and (shape.head_dim % 32 or shape.v_head_dim % 32):
        raise UnknownFormat(f"heads of {shape.head_dim} are not whole rows of 32 elements")
    kept = min(tokens, rule.kept)
    packed = (tokens - kept) * sequences
    levels = 2**rule.width
    sides = []
    for width, is_key in ((shape.key_width, True), (shape.value_width, False)):
        if rule.released:
            # top-k of either end: int((1 - threshold) / 2 * width) + 1, 21 and 21 for 4096.
            slots = 2 * (width * rule.outliers // 2000 + 1) if rule.outliers else 0
            outliers = packed * slots * 8
            scales, tables = (0, width * levels * 4 + 3 * width * 4) if is_key else (packed * levels * 4, 0)
        else:
            outliers = packed * (ceil_div(width * rule.outliers, 1000) * 4 + 4) if rule.outliers else 0
            scales, tables = (0, width * 4 + levels * 2) if is_key else (packed * 4, levels * 2)
        sides.append(
            Side(
                packed_bytes=packed * ceil_div(width * rule.width, 8),
                scale_bytes=scales,
                window_bytes=kept * width * FULL * sequences,
                outlier_bytes=outliers,
                tables_bytes=tables,
            )
        )
    return Stored(key=sides[0], value=sides[1], workspace=_nothing())


def _whole_tensor(
    rule: WholeTensor, shape: Heads, tokens: int, sequences: int, prompt_tokens: int | None
) -> Stored:
    prompt = max(1, tokens - rule.residual + 1) if prompt_tokens is None else prompt_tokens
    if tokens and not 1 <= prompt <= tokens:
        raise ValueError(f"a prompt of {prompt} tokens in a cache of {tokens}")
    waiting = _waiting(rule, tokens - prompt) if tokens else 0
    packed = tokens - waiting
    # It is packed with the prompt and again each time the window is full: whole groups at the first two are at all.
    first = prompt if prompt_tokens is not None else packed
    again = min(first + max(rule.residual, 2), packed)
    sides = []
    for width in (shape.key_width, shape.value_width):
        for count in (first, again):
            _packed_groups(rule, count * width * sequences)
        sides.append(
            Side(
                packed_bytes=_packed_groups(rule, packed * width * sequences),
                scale_bytes=packed * width * sequences // rule.group * 2 * FULL,
                window_bytes=waiting * width * FULL * sequences,
            )
        )
    # update(): what was packed is expanded, then joined with the window and the new token.
    read_back = (packed + tokens) * shape.elements * FULL * sequences
    return Stored(key=sides[0], value=sides[1], workspace=ByteRange.exact(read_back))


def _waiting(rule: WholeTensor, new_tokens: int) -> int:
    """Tokens of the window after that many single steps: it is packed by the step that would fill it, and a first
    token always waits."""
    return new_tokens % max(rule.residual, 2)


_HQQ_BITS = (1, 2, 3, 4, 8)


def _packed_groups(rule: WholeTensor, elements: int) -> int:
    """Bytes of `elements` packed in groups.

    quanto packs rows (a row is a group) 8 / bits to a byte, the last byte padded. hqq packs along the group (axis 0)
    or along the rows (axis 1), 3-bit values ten to 32 bits.
    """
    width, group = rule.width, rule.group
    if elements % group:
        raise UnknownFormat(f"{elements} elements are not a whole number of groups of {group}")
    groups = elements // group
    if rule.backend == "quanto":
        if width not in (2, 4):
            raise UnknownFormat(f"quanto packs 2 and 4 bits, not {width}")
        return ceil_div(groups * width, 8) * group
    if width not in _HQQ_BITS:
        raise UnknownFormat(f"hqq packs 1, 2, 3, 4 or 8 bits, not {width}")
    if width == 3:
        if rule.axis:
            raise UnknownFormat("hqq packs 3 bits along axis 0 only")
        return ceil_div(group, 10) * 4 * groups
    count = groups if rule.axis else group
    if count * width % 8:
        raise UnknownFormat(f"{count} rows of {width} bits are not whole bytes")
    return groups * group * width // 8
