"""KV caches and recurrent states by layer.

Source: llama.cpp src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-kv-cache-dsa.cpp (constructors),
llama-memory-recurrent.cpp, llama-hparams.cpp (n_embd_k_gqa, n_embd_r, n_embd_s).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.engines.llamacpp.architectures import Architecture
from vramledger.engines.llamacpp.file_tensors import FileTensor
from vramledger.engines.llamacpp.settings import Settings, window_cells
from vramledger.errors import UnknownArchitecture
from vramledger.formats.ggml import ggml_type
from vramledger.models.mixers import (
    RECURRENT,
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    EncoderAttention,
    FullAttention,
    GatedDeltaNet,
    IndexedAttention,
    KimiDeltaAttention,
    LatentAttention,
    Mamba1,
    Mamba2,
    RwkvMixer,
    SharedKvAttention,
    ShortConvolution,
    SlidingWindowAttention,
    TokenMixer,
)
from vramledger.models.model import Model

STATE_BYTES = 4
"""R and S are F32."""


class LayerCache(Struct, frozen=True, kw_only=True):
    """What one layer keeps. Widths are elements of a row of one token; `value_width` is 0 where values lie in the
    keys; `cells` is of one stream. `is_index` marks the keys of an indexer, in a cache of their own."""

    layer: int
    is_windowed: bool
    cells: int
    key_width: int
    value_width: int
    key_bytes: int
    value_bytes: int
    is_index: bool = False

    @property
    def bytes(self) -> int:
        return self.key_bytes + self.value_bytes


class LayerState(Struct, frozen=True, kw_only=True):
    """The constant state of one recurrent layer: R (convolutions, token shifts) and S."""

    layer: int
    shift_bytes: int
    state_bytes: int

    @property
    def bytes(self) -> int:
        return self.shift_bytes + self.state_bytes


class Caches(Struct, frozen=True, kw_only=True):
    """All layers of a model. `window` is 0 where nothing is windowed; `window_layers` also names layers that read a
    windowed cache of another."""

    caches: tuple[LayerCache, ...]
    states: tuple[LayerState, ...]
    window: int
    window_layers: frozenset[int]
    cells: int
    window_cells: int


def caches_of(
    model: Model, architecture: Architecture, settings: Settings, tensors: Sequence[FileTensor]
) -> Caches:
    """What every layer caches under `settings`.

    Raises UnknownArchitecture for token mixers that llama.cpp has no cache for here, by name.
    """
    windowed = architecture.windows and settings.build.has_windows
    latent_files = settings.build.has_latents and any(".attn_k_b." in item.name for item in tensors)
    full = settings.context_per_sequence if settings.streams > 1 else settings.context
    window = max((_window(mixer) for mixer in model.token_mixers), default=0) if windowed else 0
    short = window_cells(settings, window) if window else 0
    layers = frozenset(
        layer.index
        for layer in model.layers
        for mixer in layer.token_mixers
        if windowed and (_window(mixer) or _reads_window(model, mixer))
    )
    values = [_dims(mixer, latent_files)[1] for mixer in model.token_mixers if _keeps(mixer, settings)]
    widest = max(values, default=0)
    pads_values = not settings.flash and len(set(values)) > 1
    caches, states = [], []
    for layer in model.layers:
        for mixer in layer.token_mixers:
            if isinstance(mixer, RECURRENT):
                states.append(_state(model, layer.index, mixer, settings))
            elif _keeps(mixer, settings):
                key, value = _dims(mixer, latent_files)
                value = widest if pads_values and value else value
                cells = short if layer.index in layers else full
                rows = cells * settings.streams
                caches.append(
                    LayerCache(
                        layer=layer.index,
                        is_windowed=layer.index in layers,
                        cells=cells,
                        key_width=key,
                        value_width=value,
                        key_bytes=_row(settings.key_type, key) * rows,
                        value_bytes=_row(settings.value_type, value) * rows if value else 0,
                    )
                )
    if architecture.name == "deci":
        caches.extend(_empty(model, full, settings, widest if pads_values or not settings.flash else 0))
    caches.extend(_indexes(model, full, settings))
    return Caches(
        caches=tuple(caches),
        states=tuple(states),
        window=window,
        window_layers=layers,
        cells=full,
        window_cells=short,
    )


def _indexes(model: Model, cells: int, settings: Settings) -> list[LayerCache]:
    """Keys of sparse attention's indexers (llama-kv-cache-dsa.cpp)."""
    found = []
    for layer in model.layers:
        for mixer in layer.token_mixers:
            if isinstance(mixer, LatentAttention) and mixer.indexer is not None and mixer.indexer.keeps_keys:
                width = mixer.indexer.head_dim
                found.append(
                    LayerCache(
                        layer=layer.index,
                        is_windowed=False,
                        cells=cells,
                        key_width=width,
                        value_width=0,
                        key_bytes=_row(settings.key_type, width) * cells * settings.streams,
                        value_bytes=0,
                        is_index=True,
                    )
                )
    return found


def _empty(model: Model, cells: int, settings: Settings, width: int) -> list[LayerCache]:
    """Layers without attention that are listed all the same, their values padded where all are."""
    size = _row(settings.value_type, width) * cells * settings.streams if width else 0
    return [
        LayerCache(
            layer=layer.index,
            is_windowed=False,
            cells=cells,
            key_width=0,
            value_width=width,
            key_bytes=0,
            value_bytes=size,
        )
        for layer in model.layers
        if not layer.token_mixers
    ]


def _row(kind: str, width: int) -> int:
    return ggml_type(kind).bytes_for(width, 1)


def _window(mixer: TokenMixer) -> int:
    if isinstance(mixer, SlidingWindowAttention):
        return mixer.window
    return mixer.chunk if isinstance(mixer, ChunkedAttention) else 0


def _reads_window(model: Model, mixer: TokenMixer) -> bool:
    if not isinstance(mixer, SharedKvAttention):
        return False
    return any(_window(item) for item in model.layers[mixer.source_layer].token_mixers)


def _keeps(mixer: TokenMixer, settings: Settings) -> bool:
    if isinstance(mixer, (CompressedAttention, IndexedAttention, CrossAttention)):
        raise UnknownArchitecture(
            f"llama.cpp's cache for {type(mixer).__name__} has no rules here", mixer=type(mixer).__name__
        )
    if isinstance(mixer, EncoderAttention):
        return settings.build.caches_encoders
    return not isinstance(mixer, (SharedKvAttention, *RECURRENT))


def _dims(mixer: TokenMixer, latent_files: bool) -> tuple[int, int]:
    """Elements of K and V a token. A latent is one row of keys; files without its tensors keep every head."""
    if isinstance(mixer, LatentAttention):
        if latent_files:
            return mixer.kv_lora_rank + mixer.rope_dim, 0
        return mixer.q_heads * (mixer.nope_dim + mixer.rope_dim), mixer.q_heads * mixer.v_head_dim
    assert isinstance(mixer, FullAttention)
    return mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.v_head_dim


def _state(model: Model, layer: int, mixer: TokenMixer, settings: Settings) -> LayerState:
    match mixer:
        case Mamba1():
            shift, state = (mixer.conv_kernel - 1) * mixer.inner, mixer.state * mixer.inner
        case Mamba2():
            channels = mixer.inner + 2 * mixer.groups * mixer.state
            shift, state = (mixer.conv_kernel - 1) * channels, mixer.state * mixer.inner
        case GatedDeltaNet():
            inner = mixer.v_heads * mixer.v_dim
            shift = (mixer.conv_kernel - 1) * (inner + 2 * mixer.k_heads * mixer.k_dim)
            state = mixer.k_dim * inner
        case KimiDeltaAttention():
            width = mixer.heads * mixer.head_dim
            shift, state = 3 * (mixer.conv_kernel - 1) * width, mixer.head_dim * width
        case ShortConvolution():
            shift, state = mixer.channels * (mixer.kernel - 1), 0
        case RwkvMixer():
            shift, state = 2 * model.hidden_size, mixer.state_elements - 2 * model.hidden_size
        case _:
            raise UnknownArchitecture(
                f"llama.cpp's state for {type(mixer).__name__} has no rules here", mixer=type(mixer).__name__
            )
    return LayerState(
        layer=layer,
        shift_bytes=shift * STATE_BYTES * settings.slots,
        state_bytes=max(state, 0) * STATE_BYTES * settings.slots,
    )
