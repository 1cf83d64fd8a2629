"""Cache formats by name: those that papers describe and engines ship, each a rule with its numbers and source."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import fields, replace

from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType
from vramledger.formats.kv import kv_format
from vramledger.formats.kv_rules import ByToken, GgmlRows, Rule, TokenGroups
from vramledger.formats.kv_windows import Kivi, KvQuant, WholeTensor


class Windows(StrEnum):
    """What a code keeps of layers with a window."""

    SLIDE = "slide"  # the window, in the format
    STAY = "stay"  # every token, in the format: it does not know windows
    RING = "ring"  # a ring in full precision, as long as the window and two pages of 256, from the first token on


class KvStore(Struct, frozen=True, kw_only=True):
    """One format as somebody ships it."""

    name: str
    shipped_by: str
    rule: Rule
    source: str
    windows: Windows = Windows.SLIDE


def _vllm(name: str, kind: str | None = None) -> KvStore:
    return KvStore(
        name=name,
        shipped_by="vLLM",
        rule=ByToken(kind=kv_format(kind or name, DType.BF16)),
        source="vllm v1/kv_cache_interface.py and the backends' cache shapes",
    )


def _sglang(name: str, rule: TokenGroups) -> KvStore:
    return KvStore(name=name, shipped_by="SGLang", rule=rule, source="sglang srt/mem_cache/memory_pool.py")


def _lmdeploy(name: str, key_bits: int, value_bits: int, value_meta_bytes: int = 4) -> KvStore:
    rule = TokenGroups(
        key_bits=key_bits, value_bits=value_bits, group=0, meta_bytes=4, value_meta_bytes=value_meta_bytes,
        unit_tokens=64, align_bytes=256, reads_back="prefill",
    )  # fmt: skip
    source = "lmdeploy pytorch/engine/cache_engine/schema.py, quant_policy; kernels/cuda/flatten_kv_cache.py"
    return KvStore(name=name, shipped_by="LMDeploy", rule=rule, source=source)


def _exllama(name: str, key_bits: int, value_bits: int) -> KvStore:
    rule = TokenGroups(
        key_bits=key_bits, value_bits=value_bits, group=32, meta_bytes=2, across_heads=True, latents=True,
        exact_rope=True, unit_tokens=256, reads_back="fallback",
    )  # fmt: skip
    return KvStore(
        name=name,
        shipped_by="ExLlamaV3",
        rule=rule,
        source="exllamav3 cache/quant.py, cache/mla.py, modules/sliding_attn.py",
        windows=Windows.RING,
    )


def _ggml(name: str) -> KvStore:
    return KvStore(
        name=name,
        shipped_by="llama.cpp",
        rule=GgmlRows(key_type=name, value_type=name),
        source="llama.cpp src/llama-kv-cache.cpp, ggml-common.h",
    )


def _kivi(bits: int) -> KvStore:
    return KvStore(
        name=f"kivi_{bits}",
        shipped_by="KIVI",
        rule=Kivi(key_bits=bits, value_bits=bits),
        source="arXiv 2402.02750 section 3; KIVI models/llama_kivi.py, quant/new_pack.py",
        windows=Windows.STAY,
    )


def _kvquant(width: int, *, released: bool) -> KvStore:
    paper, code = "arXiv 2401.18079", "KVQuant deployment/transformers, QuantK and QuantV"
    return KvStore(
        name=f"kvquant_nuq{width}" + ("_code" if released else ""),
        shipped_by="KVQuant",
        rule=KvQuant(width=width, released=released),
        source=code if released else paper,
        windows=Windows.STAY,
    )


def _transformers(backend: str, width: int) -> KvStore:
    return KvStore(
        name=f"{backend}_{width}",
        shipped_by="Transformers",
        rule=WholeTensor(backend=backend, width=width),
        source=f"transformers cache_utils.py QuantizedLayer, {'optimum-quanto' if backend == 'quanto' else backend}",
        windows=Windows.STAY,
    )


_LATENT_FP4 = TokenGroups(
    key_bits=4, value_bits=4, group=16, meta_bytes=1, across_heads=True, latents=True, reads_back="always"
)

KV_STORES: tuple[KvStore, ...] = (
    _vllm("bf16", "bfloat16"),
    _vllm("fp8"),
    _vllm("fp8_per_token_head"),
    _vllm("int8_per_token_head"),
    _vllm("int4_per_token_head"),
    _vllm("nvfp4"),
    _vllm("turboquant_k8v4"),
    _vllm("turboquant_4bit_nc"),
    _vllm("turboquant_k3v4_nc"),
    _vllm("turboquant_3bit_nc"),
    _vllm("fp8_ds_mla"),
    _vllm("nvfp4_ds_mla"),
    _sglang("mxfp8", TokenGroups(key_bits=8, value_bits=8, group=32, meta_bytes=1)),
    _sglang("fp4_mx_block16", _LATENT_FP4),
    _lmdeploy("lmdeploy_int8", 8, 8),
    _lmdeploy("lmdeploy_int4", 4, 4),
    _lmdeploy("lmdeploy_turbo", 4, 2, value_meta_bytes=2),
    _exllama("exl3_8", 8, 8),
    _exllama("exl3_6", 6, 6),
    _exllama("exl3_k8v4", 8, 4),
    _exllama("exl3_4", 4, 4),
    _exllama("exl3_3", 3, 3),
    _exllama("exl3_2", 2, 2),
    _ggml("q8_0"),
    _ggml("q5_1"),
    _ggml("q5_0"),
    _ggml("q4_1"),
    _ggml("q4_0"),
    _ggml("iq4_nl"),
    _transformers("quanto", 4),
    _transformers("quanto", 2),
    _transformers("hqq", 8),
    _transformers("hqq", 4),
    _transformers("hqq", 3),
    _transformers("hqq", 2),
    _kivi(4),
    _kivi(2),
    _kvquant(4, released=False),
    _kvquant(3, released=False),
    _kvquant(2, released=False),
    _kvquant(4, released=True),
    _kvquant(3, released=True),
    _kvquant(2, released=True),
)
_BY_NAME = {store.name: store for store in KV_STORES}
_ALIASES = {"float16": "bf16", "fp16": "bf16", "bfloat16": "bf16", "f16": "bf16", "auto": "bf16", "fp8_e4m3": "fp8",
            "fp8_e5m2": "fp8"}  # fmt: skip
_LARGEST = 65_536
_MOST = {"key_bits": 16, "value_bits": 16, "width": 16, "outliers": 1000, "axis": 1, "meta_bytes": 16,
         "align_bytes": 4096}  # fmt: skip


def find_store(text: str) -> KvStore:
    """The format "kivi_2", or with its numbers changed: "kivi_2:group=64,residual=32".

    Raises FlagError for a name or a number that no format has.
    """
    name, _, numbers = text.strip().partition(":")
    key = name.strip().lower().replace("-", "_")
    found = _BY_NAME.get(_ALIASES.get(key, key))
    if found is None:
        raise FlagError(
            f"--format {name!r} is no KV format known here; known: {', '.join(_BY_NAME)}",
            flag="format",
            value=text,
        )
    if not numbers:
        return found
    known = {item.name for item in fields(found.rule) if type(getattr(found.rule, item.name)) is int}
    changes: dict[str, int] = {}
    for part in numbers.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*([0-9]{1,6})\s*", part)
        if match is None or match[1] not in known:
            offer = f"its numbers are {', '.join(sorted(known))}" if known else "it has no numbers to change"
            raise FlagError(
                f"--format {text!r}: {part!r} does not set a number of {found.name}; {offer}",
                flag="format",
                value=text,
            )
        changes[match[1]] = int(match[2])
        least = 0 if match[1] in ("outliers", "kept", "axis", "meta_bytes") else 1
        most = _MOST.get(match[1], _LARGEST)
        if not least <= changes[match[1]] <= most:
            raise FlagError(
                f"--format {text!r}: {match[1]} is from {least} to {most}", flag="format", value=text
            )
    shown = ",".join(f"{key}={value}" for key, value in changes.items())
    return replace(found, name=f"{found.name}:{shown}", rule=replace(found.rule, **changes))
