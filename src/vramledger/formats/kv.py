"""What a token takes in a KV cache, by element format.

Names are those of vLLM's `--kv-cache-dtype` (vllm/config/cache.py); sizes are those of its cache specs
(vllm/v1/kv_cache_interface.py and the backends' cache shapes). Every size is for one layer on one rank.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.units import ceil_div


class KvScaling(StrEnum):
    """What is stored beside the elements."""

    NONE = "none"
    PER_TOKEN_HEAD = "per_token_head"  # noqa: S105 - one fp32 scale for each of K and V, per token and head
    GROUP_16 = "group_16"  # one e4m3 scale for every 16 elements
    TURBOQUANT = "turboquant"
    DS_MLA = "ds_mla"


class KvFormat(Struct, frozen=True, kw_only=True):
    """`name` as the engine's flag spells it; widths of a key and a value element, in bits."""

    name: str
    key_bits: int
    value_bits: int
    scaling: KvScaling = KvScaling.NONE


_PLAIN = {
    "float32": KvFormat(name="float32", key_bits=32, value_bits=32),
    "float16": KvFormat(name="float16", key_bits=16, value_bits=16),
    "bfloat16": KvFormat(name="bfloat16", key_bits=16, value_bits=16),
}
_QUANTIZED = {
    item.name: item
    for item in (
        KvFormat(name="fp8", key_bits=8, value_bits=8),
        KvFormat(name="fp8_e4m3", key_bits=8, value_bits=8),
        KvFormat(name="fp8_e5m2", key_bits=8, value_bits=8),
        KvFormat(name="fp8_inc", key_bits=8, value_bits=8),
        KvFormat(name="int8_per_token_head", key_bits=8, value_bits=8, scaling=KvScaling.PER_TOKEN_HEAD),
        KvFormat(name="fp8_per_token_head", key_bits=8, value_bits=8, scaling=KvScaling.PER_TOKEN_HEAD),
        KvFormat(name="int4_per_token_head", key_bits=4, value_bits=4, scaling=KvScaling.PER_TOKEN_HEAD),
        KvFormat(name="nvfp4", key_bits=4, value_bits=4, scaling=KvScaling.GROUP_16),
        KvFormat(name="nvfp4_4over6", key_bits=4, value_bits=4, scaling=KvScaling.GROUP_16),
        KvFormat(name="turboquant_k8v4", key_bits=8, value_bits=4, scaling=KvScaling.TURBOQUANT),
        KvFormat(name="turboquant_4bit_nc", key_bits=4, value_bits=4, scaling=KvScaling.TURBOQUANT),
        KvFormat(name="turboquant_k3v4_nc", key_bits=3, value_bits=4, scaling=KvScaling.TURBOQUANT),
        KvFormat(name="turboquant_3bit_nc", key_bits=3, value_bits=3, scaling=KvScaling.TURBOQUANT),
        KvFormat(name="fp8_ds_mla", key_bits=8, value_bits=8, scaling=KvScaling.DS_MLA),
        KvFormat(name="nvfp4_ds_mla", key_bits=4, value_bits=4, scaling=KvScaling.DS_MLA),
    )
}
KV_FORMAT_NAMES: tuple[str, ...] = (*_PLAIN, *_QUANTIZED)


def kv_format(name: str, model_dtype: DType) -> KvFormat:
    """The format a flag names; "auto" and "" mean the model's own element type.

    Raises UnknownFormat for a name the engine does not have, and where "auto" meets a model type narrower
    than 16 bits.
    """
    key = name.strip().lower()
    if key in _QUANTIZED:
        return _QUANTIZED[key]
    dtype = model_dtype if key in ("auto", "") else parse_dtype(key)
    if dtype.value not in _PLAIN:
        raise UnknownFormat(f"{name!r} is not a KV cache format this project knows", kv_cache_dtype=name)
    return _PLAIN[dtype.value]


def kv_bytes(kind: KvFormat, *, tokens: int, kv_heads: int, head_dim: int, v_head_dim: int) -> int:
    """Bytes of the keys and values of `tokens` tokens, one layer, `kv_heads` heads of the rank.

    Raises UnknownFormat for the latent-only formats.
    """
    return tokens * kv_heads * _head_bytes(kind, head_dim, v_head_dim)


def _head_bytes(kind: KvFormat, head_dim: int, v_head_dim: int) -> int:
    """Bytes of one token in one head."""
    key, value = ceil_div(head_dim * kind.key_bits, 8), ceil_div(v_head_dim * kind.value_bits, 8)
    match kind.scaling:
        case KvScaling.NONE:
            return key + value
        case KvScaling.PER_TOKEN_HEAD:
            return key + value + 2 * DType.F32.bytes_for(1)
        case KvScaling.GROUP_16:
            return key + value + ceil_div(head_dim, 16) + ceil_div(v_head_dim, 16)
        case KvScaling.TURBOQUANT:
            # An 8-bit key needs no norm; narrower keys keep one in fp16, values a scale and a zero in fp16.
            total = key + (0 if kind.key_bits == 8 else 2) + value + 4
            return total + total % 2
        case KvScaling.DS_MLA:
            raise UnknownFormat(f"{kind.name} stores a latent, not keys and values", kv_cache_dtype=kind.name)


def latent_bytes(kind: KvFormat, *, tokens: int, kv_lora_rank: int, rope_dim: int) -> int:
    """Bytes of `tokens` latents of multi-head latent attention, one layer; there are no values beside them.

    fp8_ds_mla keeps the latent in fp8 with one fp32 scale for every 128 elements and the rotary part in
    bf16: 656 bytes for 512 + 64. nvfp4_ds_mla keeps the latent in fp4 with an e4m3 scale for every 16 and
    the rotary part in fp8: 352 bytes for 512 + 64. Raises UnknownFormat for the formats that only exist for heads.
    """
    if kind.name == "fp8_ds_mla":
        scales = DType.F32.bytes_for(ceil_div(kv_lora_rank, 128))
        return tokens * (kv_lora_rank + scales + DType.BF16.bytes_for(rope_dim))
    if kind.name == "nvfp4_ds_mla":
        return tokens * (ceil_div(kv_lora_rank, 2) + ceil_div(kv_lora_rank, 16) + rope_dim)
    if kind.scaling is not KvScaling.NONE:
        raise UnknownFormat(f"{kind.name} is not a format for a latent", kv_cache_dtype=kind.name)
    return tokens * ceil_div((kv_lora_rank + rope_dim) * kind.key_bits, 8)
