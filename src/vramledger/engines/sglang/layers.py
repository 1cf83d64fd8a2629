"""Which layers SGLang caches how, and what a token takes in them on one rank.

Source: sglang srt/model_executor/pool_configurator.py (0.5.12 and newer), model_runner_kv_cache_mixin.py and
model_runner.py before; configs/model_config.py (heads, `is_hybrid_swa_model`, `get_hybrid_layer_ids`).
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.sglang.backends import has_indexer
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.version import SglangVersion
from vramledger.hardware.catalogue import Device
from vramledger.models.mixers import (
    RECURRENT,
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    IndexedAttention,
    LatentAttention,
    Layer,
    SharedKvAttention,
    SlidingWindowAttention,
)
from vramledger.models.model import Model
from vramledger.units import ceil_div

_HYBRID: tuple[tuple[str, tuple[int, int]], ...] = (
    ("Llama4For", (5, 8)), ("GptOssFor", (5, 8)), ("MiMoV2", (5, 8)), ("Step3p5", (5, 8)),
    ("Gemma4For", (5, 12)), ("Laguna", (5, 12)), ("Gemma4Unified", (5, 13)), ("Step3p7", (5, 15)),
    ("UnlimitedOCR", (5, 15)), ("Mellum", (5, 18)), ("MuseGlimmer", (5, 18)), ("Inkling", (5, 18)),
    ("EmbeddingGemma2", (5, 19)), ("DiffusionGemma", (5, 19)), ("GraniteSWA", (5, 19)), ("GraniteMoeSWA", (5, 19)),
    ("IQuestQ1", (5, 19)),
)  # fmt: skip
"""Classes that get a pool of their own for windowed layers, and since when (configs/model_config.py)."""

SEPARATE_V_WIDTH_SINCE = (5, 7)
DRAFT_IN_CELL_SINCE = (5, 14)
OWN_INDEX_KEYS_SINCE = (5, 18)
ASCEND_INDEX_KEYS_SINCE = (5, 20)
PACKED_CHARGED_SINCE = (5, 18)
PLAIN_ON_BLACKWELL_SINCE = (5, 12)
DSA_BLOCK = 128
SCALE_BLOCK = 16
MXFP8_BLOCK = 32


class StageCells(Struct, frozen=True, kw_only=True):
    """What a pipeline stage caches on one rank, bytes.

    `full_bytes` and `swa_bytes` are of one layer and token; `index_bytes` of all index keys of a token;
    `overdraft_bytes` is what a token takes beyond what
    the engine charges for it. `draft_layers` of a draft are as
    wide as the target's. `key_share` is the keys' part of `full_bytes`. `kind` is MHA, MLA or DSA.
    """

    kind: str
    full_layers: int
    swa_layers: int
    full_bytes: int
    swa_bytes: int
    key_share: float
    index_bytes: int
    index_layers: int
    overdraft_bytes: int
    scale_bytes: int
    draft_layers: int
    draft_bytes: int
    window: int
    is_hybrid_swa: bool
    recurrent_layers: tuple[int, ...]

    @property
    def plain_cell(self) -> int:
        """Bytes of a token in every layer that keeps it, the draft's included; no windowed pool apart."""
        return (
            self.full_bytes * self.full_layers
            + self.swa_bytes * self.swa_layers
            + self.scale_bytes
            + self.index_bytes
            + self.draft_bytes
        )

    @property
    def full_cell(self) -> int:
        """Bytes of a token of the full pool alone, the draft's included."""
        return self.full_bytes * self.full_layers + self.scale_bytes + self.index_bytes + self.draft_bytes

    @property
    def swa_cell(self) -> int:
        return self.swa_bytes * self.swa_layers


def unknown_pool(model: Model) -> str:
    """Why the pool of a model is not known from its rules here; empty where it is."""
    if model.has_mixer(CompressedAttention):
        return "the sizes of DeepSeek-V4's compressed pools: 'KV Cache is allocated' in the log"
    if model.has_mixer(IndexedAttention):
        return "the index keys' pool of this sparse attention: 'max_total_num_tokens' in the log"
    if model.has_mixer(CrossAttention) or model.encoder_layers:
        return "how the pool is shared between an encoder's and a decoder's tokens: 'max_total_num_tokens' in the log"
    return ""


def is_hybrid_swa(model: Model, settings: Settings) -> bool:
    """Whether windowed layers have a pool of their own."""
    if settings.flags.disable_hybrid_swa_memory or not has_windowed_pool(
        model.architecture, settings.version
    ):
        return False
    return any(_is_windowed(layer, model) for layer in model.layers)


def has_windowed_pool(architecture: str, version: SglangVersion) -> bool:
    """Whether a release gives the windowed layers of a class a pool of their own."""
    return any(architecture.startswith(prefix) and version.since(*since) for prefix, since in _HYBRID)


def _is_windowed(layer: Layer, model: Model) -> bool:
    for mixer in layer.token_mixers:
        if isinstance(mixer, SharedKvAttention):
            source = model.layers[mixer.source_layer]
            return _is_windowed(source, model) if source.index != layer.index else False
        if isinstance(mixer, SlidingWindowAttention | ChunkedAttention):
            return True
    return False


def stage_cells(model: Model, settings: Settings, device: Device, layers: range) -> StageCells:
    """The cells of one pipeline stage."""
    mine = [layer for layer in model.layers if layer.index in layers]
    recurrent = model.has_mixer(RECURRENT)
    keeping = [layer for layer in mine if _keeps_kv(layer)] if recurrent else mine
    hybrid = is_hybrid_swa(model, settings)
    windowed = [layer for layer in keeping if hybrid and _is_windowed(layer, model)]
    full = len(keeping) - len(windowed)
    kind = "DSA" if has_indexer(model) else "MLA" if settings.is_mla else "MHA"
    full_bytes, scale_bytes, key_share = _full_layer(model, settings, device, kind, full)
    index_layers = _index_layers(mine, settings, device) if kind == "DSA" else 0
    index_key = _index_key_bytes(model, settings, device)
    stored_key = _stored_index_key(model, settings, device)
    index_bytes = index_key * index_layers
    drafted = _draft_layers(model, settings)
    target_layers = full or len(windowed)
    per_draft = full_bytes * full + scale_bytes
    draft_bytes = int(per_draft * drafted / target_layers) if drafted and target_layers else 0
    if drafted:
        draft_bytes += index_key * drafted
    return StageCells(
        kind=kind,
        full_layers=full,
        swa_layers=len(windowed),
        full_bytes=full_bytes,
        swa_bytes=_swa_layer(model, settings) if windowed else 0,
        key_share=key_share,
        index_bytes=index_bytes,
        index_layers=index_layers,
        overdraft_bytes=(stored_key - index_key) * index_layers
        + _latent_overdraft(model, settings, device) * full,
        scale_bytes=scale_bytes,
        draft_layers=drafted,
        draft_bytes=draft_bytes,
        window=_window(model),
        is_hybrid_swa=hybrid,
        recurrent_layers=tuple(
            layer.index for layer in mine if any(isinstance(mixer, RECURRENT) for mixer in layer.token_mixers)
        ),
    )


def _keeps_kv(layer: Layer) -> bool:
    return any(isinstance(mixer, FullAttention | LatentAttention) for mixer in layer.token_mixers)


def local_heads(total: int, settings: Settings) -> int:
    """KV heads of a rank: divided and rounded down, at least one (`ModelConfig.get_num_kv_heads`)."""
    return max(1, total // (settings.flags.attn_tp // settings.flags.dcp_size))


def _full_layer(
    model: Model, settings: Settings, device: Device, kind: str, layers: int
) -> tuple[int, int, float]:
    """Bytes of a token in one full layer, of all layers' scales, and the keys' share of the former.

    The engine takes one width for all layers, the first full one's here.
    """
    if kind != "MHA":
        mixer = next(mixer for mixer in model.token_mixers if isinstance(mixer, LatentAttention))
        width = mixer.kv_lora_rank + mixer.rope_dim
        if kind == "DSA" and _is_packed(settings, device) and settings.version.since(*PACKED_CHARGED_SINCE):
            return mixer.kv_lora_rank + mixer.kv_lora_rank // DSA_BLOCK * 4 + mixer.rope_dim * 2, 0, 1.0
        if settings.kv_bits == 4:
            return width // 2, width // SCALE_BLOCK * layers, 1.0
        return width * settings.kv_bits // 8, 0, 1.0
    found = _first_full(model, settings)
    if found is None:
        return 0, 0, 0.5
    heads, head_dim = local_heads(found.kv_heads, settings), found.head_dim
    value_dim = found.v_head_dim if settings.version.since(*SEPARATE_V_WIDTH_SINCE) else head_dim
    if settings.kv_bits == 4:
        scales = heads * (head_dim // SCALE_BLOCK) * 2 * layers
        return heads * (head_dim // 2) * 2, scales, 0.5
    elements = heads * (head_dim + value_dim)
    scales = elements * layers // MXFP8_BLOCK if settings.kv_dtype == "mxfp8" else 0
    return elements * settings.kv_bits // 8, scales, head_dim / (head_dim + value_dim)


def _latent_overdraft(model: Model, settings: Settings, device: Device) -> int:
    """Bytes of a packed latent beyond what is charged: releases before 0.5.18 counted the plain width."""
    mixer = next((mixer for mixer in model.token_mixers if isinstance(mixer, LatentAttention)), None)
    if mixer is None or mixer.indexer is None or settings.version.since(*PACKED_CHARGED_SINCE):
        return 0
    if not _is_packed(settings, device):
        return 0
    return mixer.kv_lora_rank // DSA_BLOCK * 4 + mixer.rope_dim


def _is_packed(settings: Settings, device: Device) -> bool:
    """Whether fp8 latents are stored with their scales and a 16-bit rotary part (`calculate_mla_kv_cache_dim`):
    TensorRT-LLM's kernels, the default on data-centre Blackwell since 0.5.12, and TileLang's take plain ones."""
    plain = settings.attention_backend in ("trtllm", "tilelang") or device.vendor != "nvidia"
    default = device.architecture == "blackwell" and settings.version.since(*PLAIN_ON_BLACKWELL_SINCE)
    return settings.kv_dtype == "fp8_e4m3" and not plain and not default


def _index_key_bytes(model: Model, settings: Settings, device: Device) -> int:
    """One index key: fp8 with an fp32 scale for every 128 elements; in the model's type on Ascend since 0.5.20. 0 without them."""
    indexer = next(
        (
            mixer.indexer
            for mixer in model.token_mixers
            if isinstance(mixer, LatentAttention) and mixer.indexer
        ),
        None,
    )
    if indexer is None:
        return 0
    if device.vendor == "huawei" and settings.version.since(*ASCEND_INDEX_KEYS_SINCE):
        return indexer.head_dim * settings.kv_bits // 8
    return ceil_div(indexer.head_dim + indexer.head_dim // DSA_BLOCK * 4, max(indexer.tokens_per_key, 1))


def _stored_index_key(model: Model, settings: Settings, device: Device) -> int:
    """What an index key takes; more than is charged on Ascend before 0.5.20 (npu/memory_pool_npu.py)."""
    charged = _index_key_bytes(model, settings, device)
    if not charged or device.vendor != "huawei":
        return charged
    indexers = (mixer.indexer for mixer in model.token_mixers if isinstance(mixer, LatentAttention))
    return next(indexer.head_dim for indexer in indexers if indexer is not None) * settings.kv_bits // 8


def _index_layers(layers: list[Layer], settings: Settings, device: Device) -> int:
    """Layers with index keys: all of them before 0.5.18 and on Ascend, those that keep their own since."""
    indexers = [
        mixer.indexer
        for layer in layers
        for mixer in layer.token_mixers
        if isinstance(mixer, LatentAttention) and mixer.indexer is not None
    ]
    if not settings.version.since(*OWN_INDEX_KEYS_SINCE) or device.vendor == "huawei":
        return len(indexers)
    return sum(indexer.keeps_keys for indexer in indexers)


def _first_full(model: Model, settings: Settings) -> FullAttention | None:
    mixers = [mixer for mixer in model.token_mixers if isinstance(mixer, FullAttention)]
    plain = [mixer for mixer in mixers if not isinstance(mixer, SlidingWindowAttention | ChunkedAttention)]
    if is_hybrid_swa(model, settings) and plain:
        return plain[0]
    return mixers[0] if mixers else None


def _swa_layer(model: Model, settings: Settings) -> int:
    mixer = next(
        mixer for mixer in model.token_mixers if isinstance(mixer, SlidingWindowAttention | ChunkedAttention)
    )
    elements = local_heads(mixer.kv_heads, settings) * (mixer.head_dim + mixer.v_head_dim)
    if settings.kv_dtype == "mxfp8":
        return elements + elements // MXFP8_BLOCK
    return elements * settings.kv_bits // 8


def _window(model: Model) -> int:
    for mixer in model.token_mixers:
        if isinstance(mixer, SlidingWindowAttention):
            return mixer.window
        if isinstance(mixer, ChunkedAttention):
            return mixer.chunk
    return 0


def _draft_layers(model: Model, settings: Settings) -> int:
    """Layers of a draft with a KV cache like the target's: MTP layers of the checkpoint, else what the flag says (1)."""
    if not settings.flags.has_draft_model or not settings.version.since(*DRAFT_IN_CELL_SINCE):
        return 0
    return draft_layers(model, settings)


def draft_layers(model: Model, settings: Settings) -> int:
    """Layers of the draft; 0 without one."""
    if not settings.flags.has_draft_model:
        return 0
    return settings.flags.draft_layers or len(model.draft_layers) or 1
