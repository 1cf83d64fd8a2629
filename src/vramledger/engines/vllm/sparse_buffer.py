"""What sparse attention keeps beside its cache: room to gather keys and latents, and the indexer's logits.

Source: vllm v1/worker/workspace.py (one buffer a rank, as large as its largest user wants, shared with the experts'
kernels); v1/attention/backends/mla/indexer.py (get_max_prefill_buffer_size) and flashmla_sparse.py;
model_executor/layers/sparse_attn_indexer.py; models/deepseek_v4/attention.py and nvidia/flashmla.py.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.vllm.attention_backends import runs_mla
from vramledger.engines.vllm.settings import Settings
from vramledger.formats.kv import KvFormat
from vramledger.models.mixers import CompressedAttention, LatentAttention
from vramledger.models.model import Model
from vramledger.units import MIB, ceil_div, round_up

LOGITS_BYTES = 512 * MIB  # VLLM_SPARSE_INDEXER_MAX_LOGITS_MB
SELECTION_BYTES = MIB  # RADIX_TOPK_WORKSPACE_SIZE
CONTEXTS, CONTEXTS_ABOVE_256K = 5, 2
KEYS_PER_LATENT = 8  # 576 x 2 B // 132 B
PREFILLS_AT_ONCE = 4  # PREFILL_CHUNK_SIZE
QUERY_HEADS = 64  # what the prefill kernel pads heads to


class SparseBuffer(Struct, frozen=True, kw_only=True):
    """The largest request to the shared buffer, and logits that live through the profile run's forward."""

    bytes: int
    logits_bytes: int
    formula: str


NO_SPARSE_BUFFER = SparseBuffer(bytes=0, logits_bytes=0, formula="")


def sparse_buffer(model: Model, settings: Settings, cache: KvFormat) -> SparseBuffer:
    """The buffer of DeepSeek's sparse attention; nothing for other models, and before 0.13 (releases read: 0.12
    without, 0.16 with). Logits are simulated since 0.20 (0.18.1 without, 0.20.2 with)."""
    if not settings.version.since(13):
        return NO_SPARSE_BUFFER
    wanted: list[tuple[int, str]] = []
    for mixer in set(model.token_mixers):
        if isinstance(mixer, CompressedAttention):
            wanted.append(_history(mixer, settings))
        elif not isinstance(mixer, LatentAttention) or mixer.indexer is None or not runs_mla(model, settings):
            continue
        elif cache.name == "fp8_ds_mla":
            wanted.append(_latents(mixer, settings))
        if mixer.indexer is not None:
            ratio = mixer.compress_ratio if isinstance(mixer, CompressedAttention) else 1
            wanted.append(_keys(mixer.indexer.head_dim, ratio, settings))
    if not wanted:
        return NO_SPARSE_BUFFER
    size, formula = max(wanted)
    return SparseBuffer(
        bytes=size, logits_bytes=LOGITS_BYTES if settings.version.since(20) else 0, formula=formula
    )


def _contexts(settings: Settings) -> int:
    wide = settings.version.since(33) and settings.context_len > 256 * 1024
    return CONTEXTS_ABOVE_256K if wide else CONTEXTS


def _keys(head_dim: int, ratio: int, settings: Settings) -> tuple[int, str]:
    """One byte an element and 4 of scale for each key of so many contexts."""
    count = _contexts(settings) * KEYS_PER_LATENT
    rows = count * settings.context_len // ratio
    selection = SELECTION_BYTES if settings.version.since(20) else 0
    return rows * (head_dim + 4) + selection, f"index keys: {rows} x {head_dim + 4} B + {selection}"


def _latents(mixer: LatentAttention, settings: Settings) -> tuple[int, str]:
    """Latents of so many contexts in bf16 beside the step's queries; since 0.31 its padded queries and outputs."""
    width, tokens = mixer.kv_lora_rank + mixer.rope_dim, settings.max_tokens
    heads = mixer.q_heads // settings.plan.tp
    rows = _contexts(settings) * settings.context_len
    elements = rows * width + tokens * heads * width
    formula = f"latents: 2 B x ({rows} x {width} + T {tokens} x {heads} x {width}"
    if settings.version.since(31):
        padded = round_up(heads, QUERY_HEADS)
        elements += tokens * (padded * (width + mixer.kv_lora_rank) + heads * mixer.kv_lora_rank)
        formula += f" + T x ({padded} x {width + mixer.kv_lora_rank} + {heads} x {mixer.kv_lora_rank})"
    return 2 * elements, formula + ")"


def _history(mixer: CompressedAttention, settings: Settings) -> tuple[int, str]:
    """DeepSeek-V4's compressed history, window and step of four prompts in bf16."""
    ratio = mixer.compress_ratio
    states = ceil_div(settings.context_len, ratio) if ratio > 1 else 0
    rows = states + mixer.window + settings.max_tokens
    size = PREFILLS_AT_ONCE * rows * mixer.head_dim * 2
    return (
        size,
        f"history: {PREFILLS_AT_ONCE} x ({states} + {mixer.window} + T {settings.max_tokens}) x {mixer.head_dim} x 2 B",
    )
