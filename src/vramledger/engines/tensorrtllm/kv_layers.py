"""What each layer keeps for a token, and for a sequence, on one rank.

Source: tensorrt_llm/_torch/pyexecutor/resource_manager.py (`get_cache_size_per_token`,
`calculate_scaling_factor_size_bytes`), mamba_cache_manager.py.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.tensorrtllm.flags import TrtLlmFlags
from vramledger.errors import FlagError, UnknownFormat
from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.models.mixers import (
    RECURRENT,
    CompressedAttention,
    CrossAttention,
    EncoderAttention,
    FullAttention,
    GatedDeltaNet,
    KimiDeltaAttention,
    LatentAttention,
    Mamba2,
    SharedKvAttention,
    SlidingWindowAttention,
    TokenMixer,
)
from vramledger.models.model import Model
from vramledger.units import ceil_div

KV_TYPES = {"bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "nvfp4": 4, "float32": 32}
FULL_WINDOW = 0
INDEXER_BLOCK = 128


class KvLayer(Struct, frozen=True, kw_only=True):
    """One layer's cache on one rank. `token_bytes` are of one token, `state_bytes` of one sequence; `window` in tokens
    is what the model itself attends to, 0 for everything before. `index` is the layer's place in the model, -1 for a
    draft's."""

    kind: str
    token_bytes: int
    state_bytes: int = 0
    window: int = FULL_WINDOW
    index: int = -1


def kv_type(flags: TrtLlmFlags, dtype: DType, declared: str | None) -> str:
    """The cache's element type: the flag's, else what the checkpoint declares, else the model's.

    Raises FlagError for a type the engine does not have.
    """
    name = flags.kv_cache_dtype.strip().lower()
    if name == "auto":
        name = (declared or "").lower() or dtype.value
    name = "fp8" if name.startswith(("fp8", "float8")) else name
    if name not in KV_TYPES:
        raise FlagError(
            f"--kv-cache-dtype {flags.kv_cache_dtype} is not a type of TensorRT-LLM's cache; it is auto or one of "
            f"{', '.join(KV_TYPES)}",
            flag="kv_cache_dtype",
            value=flags.kv_cache_dtype,
        )
    return name


def element_bytes(elements: int, kind: str) -> int:
    """Bytes of so many elements; nvfp4 keeps an 8-bit scale for every 16 of them beside."""
    packed = ceil_div(elements * KV_TYPES[kind], 8)
    return packed + ceil_div(elements, 16) if kind == "nvfp4" else packed


def kv_elements(mixer: TokenMixer, tp: int) -> int:
    """Elements of one token on one rank: keys and values of its heads, or one latent."""
    if isinstance(mixer, LatentAttention):
        return mixer.kv_lora_rank + mixer.rope_dim
    assert isinstance(mixer, FullAttention)
    return ceil_div(mixer.kv_heads, tp) * (mixer.head_dim + mixer.v_head_dim)


def kv_layers(
    model: Model, layers: range, flags: TrtLlmFlags, dtype: DType, kind: str
) -> tuple[KvLayer, ...]:
    """The caches of a stage's layers, recurrent ones included; layers that cache nothing are left out.

    Raises FlagError for kinds of layers without rules here.
    """
    tp = 1 if flags.enable_attention_dp else flags.tp_size
    out = []
    for layer in model.layers[layers.start : layers.stop]:
        for mixer in layer.token_mixers:
            found = _layer(model, mixer, tp, flags, dtype, kind)
            if found is not None:
                out.append(replace(found, index=layer.index))
    return tuple(out)


def draft_layers(model: Model, flags: TrtLlmFlags, dtype: DType, kind: str) -> tuple[KvLayer, ...]:
    """The caches of an MTP block's or a draft model's layers; one-model drafts are on the last stage only."""
    if flags.speculative is None:
        return ()
    tp = 1 if flags.enable_attention_dp else flags.tp_size
    if flags.speculative.draft is not None:
        drafted = flags.speculative.draft.model
        found_there = kv_layers(drafted, range(drafted.num_layers), flags, dtype, kind)
        return tuple(replace(item, index=-1) for item in found_there)
    found = [
        _layer(model, mixer, tp, flags, dtype, kind)
        for layer in model.draft_layers[:1] * flags.speculative.max_draft_len
        for mixer in layer.token_mixers
    ]
    return tuple(item for item in found if item is not None)


def _layer(
    model: Model, mixer: TokenMixer, tp: int, flags: TrtLlmFlags, dtype: DType, kind: str
) -> KvLayer | None:
    if isinstance(mixer, CrossAttention | CompressedAttention):
        raise _unserved(model, type(mixer).__name__)
    if isinstance(mixer, EncoderAttention | SharedKvAttention):
        return None
    if isinstance(mixer, LatentAttention):
        size = element_bytes(kv_elements(mixer, tp), kind)
        indexer = mixer.indexer
        if indexer is not None and indexer.keeps_keys:
            # One fp8 key a token with an fp32 scale for every 128 elements.
            size += indexer.head_dim + 4 * ceil_div(indexer.head_dim, INDEXER_BLOCK)
            return KvLayer(kind="mla_indexer", token_bytes=size)
        return KvLayer(kind="mla", token_bytes=size)
    if isinstance(mixer, SlidingWindowAttention):
        return KvLayer(
            kind="sliding_window",
            token_bytes=element_bytes(kv_elements(mixer, tp), kind),
            window=mixer.window,
        )
    if isinstance(mixer, FullAttention):
        return KvLayer(kind="full_attention", token_bytes=element_bytes(kv_elements(mixer, tp), kind))
    if isinstance(mixer, RECURRENT):
        return KvLayer(kind="recurrent", token_bytes=0, state_bytes=_state(model, mixer, tp, flags, dtype))
    raise _unserved(model, type(mixer).__name__)


def _state_dtype(name: str) -> DType:
    try:
        return parse_dtype(name)
    except UnknownFormat:
        raise FlagError(
            f"--mamba-ssm-cache-dtype {name} is not a type of recurrent states: auto, bfloat16, float16 or float32",
            flag="mamba_ssm_cache_dtype",
            value=name,
        ) from None


def _state(model: Model, mixer: TokenMixer, tp: int, flags: TrtLlmFlags, dtype: DType) -> int:
    """Convolution and recurrent state of one sequence."""
    given = flags.mamba_ssm_cache_dtype
    recurrent = (model.state_dtype or dtype) if given == "auto" else _state_dtype(given)
    match mixer:
        case Mamba2():
            conv = (mixer.inner + 2 * mixer.groups * mixer.state) // tp * (mixer.conv_kernel - 1)
            state = prod((mixer.heads // tp, mixer.head_dim, mixer.state))
        case GatedDeltaNet():
            channels = 2 * mixer.k_heads * mixer.k_dim + mixer.v_heads * mixer.v_dim
            conv = channels // tp * (mixer.conv_kernel - 1)
            state = prod((mixer.v_heads // tp, mixer.v_dim, mixer.k_dim))
        case KimiDeltaAttention():
            conv = 3 * mixer.heads * mixer.head_dim // tp * (mixer.conv_kernel - 1)
            state = prod((mixer.heads // tp, mixer.head_dim, mixer.head_dim))
        case _:
            raise _unserved(model, type(mixer).__name__)
    return dtype.bytes_for(conv) + recurrent.bytes_for(state)


def _unserved(model: Model, what: str) -> FlagError:
    return FlagError(
        f"tensorrt-llm: no rules here for {what}, which {model.id} has",
        flag="engine",
        value=model.architecture,
    )
