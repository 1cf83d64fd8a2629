"""One KV spec a layer: what a block of it holds and how many bytes that takes on one rank.

Source: vllm v1/kv_cache_interface.py, model_executor/layers/mamba/mamba_utils.py, platforms/interface.py
(alignment of recurrent pages), attention backends' supported block sizes; 0.33.0 unless a version is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.partition import local_kv_heads
from vramledger.engines.vllm.attention_backends import primary_block_size, runs_mla
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.states import recurrent_mode, recurrent_state
from vramledger.formats.dtypes import DType
from vramledger.formats.kv import KvFormat, kv_bytes, latent_bytes
from vramledger.hardware.catalogue import Device
from vramledger.models.mixers import (
    RECURRENT,
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    EncoderAttention,
    FullAttention,
    IndexedAttention,
    LatentAttention,
    Layer,
    Mamba2,
    SharedKvAttention,
    SlidingWindowAttention,
    TokenMixer,
)
from vramledger.models.model import Model
from vramledger.units import ceil_div, round_up

INDEXER_KEY_BYTES = 132  # 128 fp8 elements and one fp32 scale (vllm v1/attention/backends/mla/indexer.py)


class KvKind(StrEnum):
    FULL = "full_attention"
    WINDOW = "sliding_window"
    CHUNKED = "chunked_local"
    MLA = "mla"
    INDEXER = "mla_indexer"
    MLA_WINDOW = "sliding_window_mla"
    COMPRESSED = "compressed_mla"
    COMPRESSOR_STATE = "compressor_state"
    CROSS = "cross_attention"
    RECURRENT = "mamba"


class KvSpec(Struct, frozen=True, kw_only=True, cache_hash=True):
    """A layer's cache on one rank. Two layers whose specs are equal may share block ids.

    `page_bytes` is one block, padding included; `content_bytes` without it. `window` counts tokens (0:
    none), `max_tokens` bounds what a request can store (0: its length), `tokens_per_state` is above 1 for
    compressed histories, `checkpoint_blocks` a state's further blocks. `variant` names what else keeps layers of equal sizes apart (a draft's other backend).
    """

    kind: KvKind
    block_size: int
    page_bytes: int
    content_bytes: int
    window: int = 0
    chunk: int = 0
    max_tokens: int = 0
    tokens_per_state: int = 1
    checkpoint_blocks: int = 0
    variant: str = ""


class LayerSpec(Struct, frozen=True, kw_only=True):
    """The spec of one layer; a layer may have several (parallel hybrids, MLA with an indexer)."""

    layer: int
    spec: KvSpec


def layer_specs(
    model: Model, settings: Settings, device: Device, kv_format: KvFormat
) -> tuple[LayerSpec, ...]:
    """Specs of every decoder layer (and draft layer when speculation loads it), recurrent pages aligned."""
    block = primary_block_size(model, settings, device)
    layers = _as_run(model, settings)
    if not settings.v1 and model.encoder_layers:
        layers = _v0_encoder_decoder(layers, len(model.encoder_layers))
    if settings.flags.speculative and settings.flags.speculative.method == "mtp":
        layers += list(model.draft_layers)
    pairs = [(layer.index, mixer) for layer in layers for mixer in layer.token_mixers]
    distinct = {id(mixer): mixer for _, mixer in pairs}
    states = {
        key: recurrent_state(mixer, model, settings)
        for key, mixer in distinct.items()
        if isinstance(mixer, RECURRENT)
    }
    attention = [m for m in distinct.values() if not isinstance(m, RECURRENT) and _keeps_kv(m)]
    page = max((state.bytes for state in states.values()), default=0)
    known: dict[int, tuple[KvSpec, ...]] = {}
    if states and attention:
        block = aligned_block_size(block, page, attention, settings, kv_format)
    specs: list[LayerSpec] = []
    for index, mixer in pairs:
        found = known.get(id(mixer))
        if found is None:
            if isinstance(mixer, RECURRENT):
                found = (_recurrent_spec(mixer, states[id(mixer)].bytes, block, settings),)
            else:
                found = _attention_specs(mixer, block, settings, kv_format)
            known[id(mixer)] = found
        specs += [LayerSpec(layer=index, spec=spec) for spec in found]
    return _pad_recurrent(specs) if states else tuple(specs)


def _as_run(model: Model, settings: Settings) -> list[Layer]:
    """The layers as the engine runs them: without MLA every head has a key of nope + rope elements and a value
    padded to it; before 0.7 DeepSeek's heads were padded to 256 (config.py get_head_size)."""
    if runs_mla(model, settings):
        return list(model.layers)
    expanded: dict[int, TokenMixer] = {}

    def heads(mixer: TokenMixer) -> TokenMixer:
        if not isinstance(mixer, LatentAttention):
            return mixer
        if id(mixer) not in expanded:
            dim = mixer.nope_dim + mixer.rope_dim
            if not settings.version.since(7) and model.model_type != "minicpm3":
                dim = 256
            expanded[id(mixer)] = FullAttention(
                q_heads=mixer.q_heads, kv_heads=mixer.q_heads, head_dim=dim, v_head_dim=dim
            )
        return expanded[id(mixer)]

    return [
        replace(layer, token_mixers=tuple(heads(mixer) for mixer in layer.token_mixers))
        for layer in model.layers
    ]


def _v0_encoder_decoder(layers: list[Layer], count: int) -> list[Layer]:
    """V0 sizes the pool by the config's num_hidden_layers, which for encoder-decoders is the encoder's, and
    counts each layer's self-attention once (worker/cache_engine.py)."""
    first = replace(layers[0], token_mixers=layers[0].token_mixers[:1])
    return [replace(first, index=index) for index in range(count)]


def _keeps_kv(mixer: TokenMixer) -> bool:
    return not isinstance(mixer, SharedKvAttention | EncoderAttention)


def _recurrent_spec(mixer: TokenMixer, content: int, block: int, settings: Settings) -> KvSpec:
    """Mamba-2 may write the state at a block boundary from within a prefill since 0.32, into a block more
    (mamba_mixer2.py; KDA does with FlashKDA kernels, which are left out)."""
    mode = recurrent_mode(settings)
    checkpoint = mode == "align" and isinstance(mixer, Mamba2) and settings.version.since(32)
    return KvSpec(
        kind=KvKind.RECURRENT,
        block_size=block if mode != "none" else settings.context_len,
        page_bytes=content,
        content_bytes=content,
        checkpoint_blocks=int(checkpoint),
    )


def _pad_recurrent(specs: list[LayerSpec]) -> tuple[LayerSpec, ...]:
    """Recurrent pages raised to the largest attention page."""
    target = max(
        (item.spec.page_bytes for item in specs if item.spec.kind is not KvKind.RECURRENT), default=0
    )
    padded = {
        spec: replace(spec, page_bytes=max(target, spec.page_bytes))
        for spec in {item.spec for item in specs}
        if spec.kind is KvKind.RECURRENT
    }
    return tuple(LayerSpec(layer=item.layer, spec=padded.get(item.spec, item.spec)) for item in specs)


def _attention_specs(
    mixer: TokenMixer, block: int, settings: Settings, kv_format: KvFormat
) -> tuple[KvSpec, ...]:
    tp = settings.plan.tp
    match mixer:
        case SharedKvAttention() | EncoderAttention():
            return ()
        case LatentAttention():
            page = latent_bytes(
                kv_format, tokens=block, kv_lora_rank=mixer.kv_lora_rank, rope_dim=mixer.rope_dim
            )
            spec = KvSpec(kind=KvKind.MLA, block_size=block, page_bytes=page, content_bytes=page)
            if mixer.indexer is None or not mixer.indexer.keeps_keys:
                return (spec,)
            keys = block * INDEXER_KEY_BYTES
            return (spec, KvSpec(kind=KvKind.INDEXER, block_size=block, page_bytes=keys, content_bytes=keys))
        case CompressedAttention():
            return _compressed_specs(mixer, block)
        case FullAttention():
            v_head_dim = mixer.v_head_dim if settings.version.since(14) else mixer.head_dim
            if isinstance(mixer, SlidingWindowAttention) and _windows_choose(settings):
                block = SMALLEST_KERNEL_BLOCK
            page = kv_bytes(
                kv_format,
                tokens=block,
                kv_heads=local_kv_heads(mixer.kv_heads, tp),
                head_dim=mixer.head_dim,
                v_head_dim=v_head_dim,
            )
            base = KvSpec(kind=KvKind.FULL, block_size=block, page_bytes=page, content_bytes=page)
            if isinstance(mixer, SlidingWindowAttention):
                return (replace(base, kind=KvKind.WINDOW, window=mixer.window),)
            if isinstance(mixer, ChunkedAttention):
                return (replace(base, kind=KvKind.CHUNKED, chunk=mixer.chunk),)
            if isinstance(mixer, CrossAttention) and settings.v1:
                return (replace(base, kind=KvKind.CROSS, max_tokens=mixer.max_encoder_tokens),)
            if isinstance(mixer, IndexedAttention):
                return (base, _index_keys(mixer, block, settings))
            return (base,)
    return ()


def _windows_choose(settings: Settings) -> bool:
    """In 0.25 to 0.29 a windowed layer takes the smallest block its kernels know, whatever `--block-size` says;
    beside other layers it is stretched to their page (layers/attention/attention.py)."""
    return settings.version.since(25) and not settings.version.since(30)


def _index_keys(mixer: IndexedAttention, block: int, settings: Settings) -> KvSpec:
    """Index keys beside keys and values, in the model's type unless asked otherwise: one a token, or one a
    group (models/minimax_m3/common/indexer.py, models/qwen4_exp/common/qsa_cache.py; the ring of keys not yet
    pooled, one block a request, is left out)."""
    per_key = mixer.indexer.tokens_per_key
    keys = settings.dtype.bytes_for(block // per_key * mixer.indexer.head_dim)
    return KvSpec(
        kind=KvKind.INDEXER,
        block_size=block,
        page_bytes=keys,
        content_bytes=keys,
        tokens_per_state=per_key,
    )


SMALLEST_KERNEL_BLOCK = 16
V4_WINDOW_BLOCK = 64
V4_ALIGNMENT = 576  # pages of the fp8_ds_mla layout, which every default backend stores


def _compressed_specs(mixer: CompressedAttention, block: int) -> tuple[KvSpec, ...]:
    """DeepSeek-V4's caches: the window, the compressed history, its index keys and the compressors' states.

    Source: vllm models/deepseek_v4/attention.py and compressor.py, v1/attention/backends/mla/sparse_swa.py.
    A state of the history or the window is 448 fp8, 64 rotary bf16 and 8 bytes of scales.
    """
    nope = mixer.head_dim - mixer.rope_dim
    row = nope + DType.BF16.bytes_for(mixer.rope_dim) + ceil_div(nope, 64) + 1
    specs = [_v4_spec(KvKind.MLA_WINDOW, V4_WINDOW_BLOCK, V4_WINDOW_BLOCK * row, window=mixer.window)]
    ratio = mixer.compress_ratio
    if ratio <= 1:
        return tuple(specs)
    states = block // ratio
    specs.append(_v4_spec(KvKind.COMPRESSED, block, states * row, tokens_per_state=ratio))
    specs.append(_compressor_state(mixer.head_dim, ratio))
    if mixer.indexer is not None and mixer.indexer.keeps_keys:
        key = mixer.indexer.head_dim + DType.F32.bytes_for(mixer.indexer.head_dim // 128)
        specs.append(_v4_spec(KvKind.INDEXER, block, states * key, tokens_per_state=ratio))
        specs.append(_compressor_state(mixer.indexer.head_dim, ratio))
    return tuple(specs)


def _v4_spec(
    kind: KvKind, block_size: int, content: int, *, window: int = 0, tokens_per_state: int = 1
) -> KvSpec:
    return KvSpec(
        kind=kind,
        block_size=block_size,
        page_bytes=round_up(content, V4_ALIGNMENT),
        content_bytes=content,
        window=window,
        tokens_per_state=tokens_per_state,
    )


def _compressor_state(head_dim: int, ratio: int) -> KvSpec:
    """fp32 value and score of each token still to be compressed; windows that overlap (ratio 4) keep two of
    each. The block sizes are fixed so that a page is about as large as one of the history."""
    overlap = 2 if ratio == 4 else 1
    block = 4 if ratio == 4 else 8
    content = block * DType.F32.bytes_for(2 * overlap * head_dim)
    return _v4_spec(KvKind.COMPRESSOR_STATE, block, content, window=overlap * ratio)


def aligned_block_size(
    block: int, state_bytes: int, attention: Sequence[TokenMixer], settings: Settings, kv_format: KvFormat
) -> int:
    """The attention block size whose page is not below a recurrent page (platforms/interface.py)."""
    pages = [
        spec.page_bytes for mixer in attention for spec in _attention_specs(mixer, block, settings, kv_format)
    ]
    unit = max(block, 128) if any(isinstance(mixer, LatentAttention) for mixer in attention) else block
    per_token = max(pages) // block
    return unit * ceil_div(state_bytes, unit * per_token)
