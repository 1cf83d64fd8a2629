"""Formats that keep some tokens in full precision: KIVI, KVQuant, and transformers' quantised cache."""

from __future__ import annotations

from msgspec import Struct

from vramledger.errors import UnknownFormat
from vramledger.formats.kv_shapes import FULL, Heads, Side, Stored
from vramledger.ledger import ByteRange
from vramledger.units import ceil_div


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


def kivi_bytes(rule: Kivi, shape: Heads, tokens: int, sequences: int) -> Stored:
    """One layer of so many sequences. Raises UnknownFormat where groups or 32-bit words are not whole."""
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
    return Stored(key=sides[0], value=sides[1], workspace=ByteRange.exact(0))


def kvquant_bytes(rule: KvQuant, shape: Heads, tokens: int, sequences: int) -> Stored:
    """One layer of so many sequences. Raises UnknownFormat for heads that the released code cannot pack."""
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
    return Stored(key=sides[0], value=sides[1], workspace=ByteRange.exact(0))


def whole_tensor_bytes(
    rule: WholeTensor, shape: Heads, tokens: int, sequences: int, prompt_tokens: int | None
) -> Stored:
    """One layer of so many sequences, as kv_rules.stored takes them. Raises UnknownFormat where groups are not whole."""
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
