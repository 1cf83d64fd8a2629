"""What attention backends keep beside the KV pool, by name: workspaces, split-KV accumulators, gather buffers.

Source: vllm v1/attention/backends (flash_attn.py, flashinfer.py, triton_attn.py, flex_attention.py, rocm_aiter_fa.py)
and mla/, layers/attention/mla_attention.py, release by release; sizes inside kernels from flash-attention
(hopper/flash_api.cpp: out_accum, softmax_lse_accum) and FlashMLA (csrc/flash_api.cpp). A backend's metadata builder is
made after the pool is sized, so the profile run sees none of its buffers unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.engines.entry import entry
from vramledger.engines.vllm.attention_backends import latent_mixers
from vramledger.engines.vllm.capability import capability
from vramledger.engines.vllm.graphs import GraphPlan
from vramledger.engines.vllm.sampler import USUAL_SMS
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import AFTER_LOAD, ByteRange, Entry, Lifetime, Owner, Phase
from vramledger.models.mixers import FullAttention, LatentAttention
from vramledger.models.model import Model
from vramledger.units import MIB, ceil_div, round_up

FLASHINFER_BYTES = 394 * MIB  # VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE
FLASHINFER_BYTES_BEFORE_0_11_1 = 256 * MIB
PREFILL_BYTES_PER_ELEMENT = 16  # FLASHINFER_PREFILL_WORKSPACE_BYTES_PER_ELEM
LATENT_BYTES = 128 * MIB  # FLASHINFER_MLA_WORKSPACE_BUFFER_SIZE, SM100Workspace
LATENT_BYTES_WITH_LSE = 256 * MIB
LARGEST_CUTLASS_BYTES = 400 * MIB
MLA_WORKSPACE_TOKENS = 65536
SEGMENTS = 16  # NUM_PAR_SOFTMAX_SEGMENTS
SEGMENTS_SM120 = 64
LAUNCH_GRID = 128  # MIN_LAUNCH_GRID_SIZE_2D
WORK_PER_SPLIT = 512  # _MIN_WORK_PER_SPLIT
SPLITS_BEFORE_0_20 = 4
CONTEXT_TOKENS_ROCM = 32 * 1024  # _CP_TOKENS_PER_ITER_ROCM
PARTITION_ROCM = 256  # _PARTITION_SIZE_ROCM
_DECODE = frozenset({Phase.DECODE})


class Heads(Struct, frozen=True, kw_only=True):
    """The widest attention with heads on one rank."""

    query: int
    key: int
    dim: int
    value_dim: int


def widest_heads(model: Model, settings: Settings) -> Heads | None:
    """Head counts of one rank, of the layer with most query elements; None without such attention."""
    tp, best = settings.plan.tp, None
    # Equal layers share one mixer object, which is cheaper to tell apart than to hash.
    for mixer in {id(mixer): mixer for layer in model.layers for mixer in layer.token_mixers}.values():
        if isinstance(mixer, FullAttention):
            found = Heads(
                query=max(mixer.q_heads // tp, 1),
                key=max(mixer.kv_heads // tp, 1),
                dim=mixer.head_dim,
                value_dim=mixer.v_head_dim,
            )
            if best is None or found.query * found.dim > best.query * best.dim:
                best = found
    return best


def chosen_backend(model: Model, settings: Settings, device: Device) -> str:
    """The backend by vLLM's name: the flag's, else what the platform prefers for heads or latents (platforms/cuda.py
    `_get_backend_priorities`, rocm.py), "" where none of these rules speaks of it (V0, CPU)."""
    named = settings.flags.attention_backend
    if named is not None:
        return named.upper().removesuffix("_VLLM_V1")
    if not settings.v1 or device.vendor == "cpu":
        return ""
    version, generation = settings.version, capability(device)
    if latent_mixers(model, settings):
        if device.vendor != "nvidia":
            return "TRITON_MLA"
        if device.architecture == "blackwell":
            return (
                "FLASHINFER_MLA"
                if version.since(15)
                else "CUTLASS_MLA"
                if version.since(10)
                else "TRITON_MLA"
            )
        if generation // 10 == 9:
            return "FLASH_ATTN_MLA" if version.since(11, 2) else "FLASHMLA"
        return "TRITON_MLA"
    if device.vendor == "amd":
        return "ROCM_ATTN" if version.since(11) else "TRITON_ATTN"
    if device.vendor != "nvidia":
        return ""
    if device.architecture == "blackwell" and version.since(10):
        return "FLASHINFER"
    return "FLASH_ATTN" if generation >= 80 else "TRITON_ATTN" if version.since(13) else ""


class AttentionWorkspace(Struct, frozen=True, kw_only=True):
    """Buffers of the attention backend. `charged` is whether the profile run sees them."""

    bytes: ByteRange
    charged: bool
    source: str
    formula: str


NO_ATTENTION_WORKSPACE = AttentionWorkspace(bytes=ByteRange.exact(0), charged=False, source="", formula="")


def backend_workspace(
    model: Model, settings: Settings, device: Device, backend: str, *, experts_bytes: int
) -> AttentionWorkspace:
    """The backend's own lasting workspace. `experts_bytes` is what the buffer shared with the experts' kernels
    has already."""
    match backend:
        case "FLASHINFER":
            return _flashinfer(model, settings, device)
        case "FLASHINFER_MLA" | "TOKENSPEED_MLA":
            size = LATENT_BYTES_WITH_LSE if settings.plan.dcp > 1 else LATENT_BYTES
            return _workspace(size, "mla/flashinfer_mla.py", f"{size} B, made by the first decode")
        case "CUTLASS_MLA":
            return AttentionWorkspace(
                bytes=ByteRange(LATENT_BYTES, LATENT_BYTES, LARGEST_CUTLASS_BYTES),
                charged=True,
                source="vllm mla/cutlass_mla.py: 128 MiB when the module is imported, grown by large batches",
                formula=f"{LATENT_BYTES} B at least",
            )
        case "TRITON_MLA":
            return _triton_latents(model, settings, device, experts_bytes)
        case "TRITON_ATTN":
            return _triton(model, settings, device)
        case "ROCM_AITER_FA":
            heads = widest_heads(model, settings)
            size = (
                0 if heads is None else 2 * CONTEXT_TOKENS_ROCM * heads.key * heads.dim * _element(settings)
            )
            return _workspace(
                size, "rocm_aiter_fa.py", f"2 x {CONTEXT_TOKENS_ROCM} tokens of keys of a context"
            )
        case _:
            return NO_ATTENTION_WORKSPACE


def _workspace(size: int, file: str, formula: str) -> AttentionWorkspace:
    return AttentionWorkspace(
        bytes=ByteRange.exact(size),
        charged=False,
        source=f"vllm v1/attention/backends/{file}",
        formula=formula,
    )


def _element(settings: Settings) -> int:
    return settings.dtype.bits // 8


def _flashinfer(model: Model, settings: Settings, device: Device) -> AttentionWorkspace:
    """256 MiB up to 0.11.0, 394 MiB since; since 0.26 as much as the heads of a full batch want. Data-centre Blackwell
    runs TensorRT-LLM's kernels on a buffer of their own (since 0.11) and needs the other only where those cannot."""
    heads = widest_heads(model, settings)
    if heads is None:
        return NO_ATTENTION_WORKSPACE
    base = FLASHINFER_BYTES if settings.version.since(11, 1) else FLASHINFER_BYTES_BEFORE_0_11_1
    own, formula = base, f"{base} B"
    if settings.version.since(26):
        wanted = settings.max_tokens * heads.query * heads.dim * PREFILL_BYTES_PER_ELEMENT
        own = max(base, wanted)
        formula = f"max({base}, T {settings.max_tokens} x {heads.query} x {heads.dim} x 16 B = {wanted})"
    if device.architecture == "blackwell" and settings.version.since(11):
        return AttentionWorkspace(
            bytes=ByteRange(base, base, base + own),
            charged=False,
            source="vllm v1/attention/backends/flashinfer.py: TensorRT-LLM's kernels, FlashInfer's own where they cannot",
            formula=f"{base} B for TensorRT-LLM's, {formula} for FlashInfer's",
        )
    return _workspace(own, "flashinfer.py, shared by all layers", formula)


def _triton(model: Model, settings: Settings, device: Device) -> AttentionWorkspace:
    """Partial outputs of a split softmax for the small batches that take it (triton_attn.py, since 0.13)."""
    heads = widest_heads(model, settings)
    if heads is None or not settings.version.since(13):
        return NO_ATTENTION_WORKSPACE
    rows = LAUNCH_GRID // heads.key
    segments = SEGMENTS
    if device.compute_capability == "12.0" and settings.version.since(32):
        wide = ((device.sm_count or USUAL_SMS) - 1) // (SEGMENTS * heads.key)
        if wide > 0:
            rows, segments = max(min(wide, rows), ceil_div(rows, SEGMENTS_SM120 // SEGMENTS)), SEGMENTS_SM120
    padded = 1 << (heads.dim - 1).bit_length()
    size = rows * heads.query * segments * (padded + 2) * 4
    formula = f"{rows} rows x {heads.query} heads x {segments} segments x ({padded} + 2) x 4 B"
    return _workspace(size, "triton_attn.py", formula)


def _triton_latents(
    model: Model, settings: Settings, device: Device, experts_bytes: int
) -> AttentionWorkspace:
    """Partial outputs of a split KV: 4 splits up to 0.19, one for every 512 tokens of a full context since, at most
    two a multiprocessor. Held for all sequences since 0.25, within the budget only since 0.33."""
    latent = latent_mixers(model, settings)
    if not latent:
        return NO_ATTENTION_WORKSPACE
    version, splits = settings.version, SPLITS_BEFORE_0_20
    if version.since(20):
        ideal = max(settings.context_len // WORK_PER_SPLIT, 1)
        splits = min(1 << (ideal - 1).bit_length(), 2 * (device.sm_count or USUAL_SMS))
    heads = max(latent[0].q_heads // settings.plan.tp, 1) * settings.plan.dcp
    rows = settings.max_num_seqs * (1 + settings.num_speculative_tokens if version.since(32) else 1)
    width = latent[0].kv_lora_rank + 1
    size = rows * heads * splits * width * 4
    formula = f"{rows} rows x {heads} heads x {splits} splits x {width} x 4 B"
    if not version.since(25):
        one = heads * splits * width * 4
        return AttentionWorkspace(
            bytes=ByteRange(one, size, size),
            charged=False,
            source="vllm v1/attention/backends/mla/triton_mla.py, a tensor of each decode step",
            formula=formula,
        )
    return AttentionWorkspace(
        bytes=ByteRange.exact(max(size - experts_bytes, 0)),
        charged=version.since(33),
        source="vllm v1/attention/backends/mla/triton_mla.py, in the buffer shared with the experts' kernels",
        formula=f"{formula}, less {experts_bytes} B of the experts' kernels",
    )


def mla_prefill_tokens(settings: Settings, block_size: int) -> int:
    """Rows of the chunked prefill's workspace: min(max(8 L, 4 x max_num_seqs x block), 65536), whole blocks
    (`determine_chunked_prefill_workspace_size`)."""
    wanted = max(8 * settings.context_len, 4 * settings.max_num_seqs * block_size)
    return round_up(min(wanted, MLA_WORKSPACE_TOKENS), block_size)


def buffer_entries(
    model: Model,
    settings: Settings,
    device: Device,
    backend: str,
    block_sizes: Sequence[int],
    *,
    num_blocks: int,
) -> list[Entry]:
    """Smaller things of the backend and of latents, made after the pool and outside the budget.

    `block_sizes` are the groups' blocks, `num_blocks` the pool's.
    """
    out = []
    seqs = settings.max_num_seqs
    latent = latent_mixers(model, settings) if "MLA" in backend else []
    if latent and settings.v1 and not any(mixer.indexer for mixer in latent) and device.vendor != "cpu":
        out.append(_latent_gather(latent[0], settings, max(block_sizes, default=1)))
    pages = sum(ceil_div(settings.context_len, size) for size in block_sizes)
    if backend == "FLASHINFER" and pages:
        out.append(
            entry(
                Owner.WORKSPACE, "page indices of attention", AFTER_LOAD, seqs * pages * 4,
                calculated(
                    "vllm v1/attention/backends/flashinfer.py paged_kv_indices",
                    f"max_num_seqs {seqs} x {pages} pages of a full context x 4 B",
                ),
                inside=False,
            )
        )  # fmt: skip
    elif backend == "FLEX_ATTENTION" and pages:
        out.append(
            entry(
                Owner.WORKSPACE, "block maps of attention", AFTER_LOAD, seqs * num_blocks * 8,
                calculated(
                    "vllm v1/attention/backends/flex_attention.py persistent_physical_to_logical",
                    f"max_num_seqs {seqs} x {num_blocks} blocks x 8 B",
                ),
                inside=False,
            )
        )  # fmt: skip
    elif backend in ("ROCM_ATTN", "ROCM_AITER_FA"):
        heads = widest_heads(model, settings)
        if heads is not None:
            out.append(_partitions(heads, settings))
    return out


def _latent_gather(latent: LatentAttention, settings: Settings, block_size: int) -> Entry:
    rows = mla_prefill_tokens(settings, block_size)
    dcp = settings.plan.dcp
    if dcp > 1:
        rows += rows // dcp
    width = latent.kv_lora_rank + latent.rope_dim
    return entry(
        Owner.WORKSPACE, "gathered latents of chunked prefill", AFTER_LOAD, rows * width * _element(settings),
        calculated(
            "vllm layers/attention/mla_attention.py chunked_prefill_workspace",
            f"{rows} tokens x {width} x {_element(settings)} B",
        ),
        inside=False,
    )  # fmt: skip


def _partitions(heads: Heads, settings: Settings) -> Entry:
    """Paged attention's partial outputs: every row of a decode has as many partitions as the longest one, so one long
    context among many short ones makes them all long."""
    parts = ceil_div(settings.context_len, PARTITION_ROCM)
    row = heads.query * parts * (heads.value_dim * _element(settings) + 2 * 4)
    return entry(
        Owner.WORKSPACE, "partial outputs of paged attention", _DECODE, ByteRange(row, row, row * settings.max_rows),
        calculated(
            "vllm v1/attention/ops/chunked_prefill_paged_decode.py, rocm_aiter_fa.py",
            f"1 to {settings.max_rows} rows x {heads.query} heads x {parts} partitions of {PARTITION_ROCM} tokens x "
            f"({heads.value_dim} x {_element(settings)} + 8) B",
        ),
        lifetime=Lifetime.ITERATION,
        inside=False,
    )  # fmt: skip


def split_accumulators(
    model: Model, settings: Settings, device: Device, backend: str, graphs: GraphPlan
) -> tuple[int, str]:
    """Partial outputs that graphs of decode steps hold for attention split over the KV, and their formula.

    FlashAttention 3 (Hopper) is captured with a fixed number of splits (16 up to 0.10, 32 since); FlashMLA keeps one
    part for each sequence and each multiprocessor. Other backends hold theirs elsewhere or none.
    """
    rows = max(graphs.full, default=0)
    if not rows or capability(device) // 10 != 9:
        return 0, ""
    latent = latent_mixers(model, settings) if "MLA" in backend else []
    if backend in ("FLASH_ATTN", "FLASH_ATTN_MLA"):
        heads = widest_heads(model, settings) if backend == "FLASH_ATTN" else None
        if backend == "FLASH_ATTN_MLA" and latent:
            count, width = max(latent[0].q_heads // settings.plan.tp, 1), latent[0].kv_lora_rank
        elif heads is not None:
            count, width = heads.query, heads.value_dim
        else:
            return 0, ""
        splits = 32 if settings.version.since(11) else 16
        size = splits * count * rows * (width + 1) * 4
        return size, f"{splits} splits x {count} heads x {rows} rows x ({width} + 1) x 4 B"
    if backend == "FLASHMLA" and latent:
        parts = rows + (device.sm_count or USUAL_SMS)
        count, width = max(latent[0].q_heads // settings.plan.tp, 1), latent[0].kv_lora_rank
        return parts * count * (width + 1) * 4, f"{parts} parts x {count} heads x ({width} + 1) x 4 B"
    return 0, ""
