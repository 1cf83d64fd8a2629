"""Attention backends: which a model takes, and the KV block size that follows.

Source: vllm platforms/cuda.py (`check_and_update_config` to 0.17, `get_attn_backend_cls`), platforms/interface.py
(`update_block_size_for_backend` since 0.18), `get_supported_kernel_block_sizes` of v1/attention/backends.
"""

from __future__ import annotations

from vramledger.engines.vllm.capability import capability
from vramledger.engines.vllm.settings import Settings
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.mixers import CompressedAttention, LatentAttention
from vramledger.models.model import Model

# Sizes of which a block must be a multiple, by backend; its own block is the first that 16 is not a multiple of.
_KERNEL_BLOCKS: dict[str, tuple[int, ...]] = {
    "FLASHINFER": (16, 32, 64), "FLEX_ATTENTION": (1,), "HPC_ATTN": (64,), "CPU_ATTN": (16,),
    "FLASHMLA": (64,), "FLASHMLA_SPARSE": (64,), "CUTLASS_MLA": (128,), "CUTLASS_MLA_VLLM_V1": (128,),
    "FLASHMLA_VLLM_V1": (64,), "FLASHINFER_MLA": (32, 64), "TOKENSPEED_MLA": (32, 64),
    "FLASHINFER_MLA_SPARSE": (32, 64), "FLASHINFER_MLA_SPARSE_SM120": (64,), "FLASHINFER_MLA_SPARSE_SM90": (64,),
    "FLASH_ATTN_MLA_SPARSE": (64,), "FLASH_ATTN_MLA_SPARSE_FA4": (64,), "ROCM_AITER_MLA": (1,),
    "ROCM_AITER_MLA_SPARSE": (1,), "ROCM_AITER_TRITON_MLA": (1,), "XPU_MLA_SPARSE": (64,), "AMX_MLA": (32,),
    "FLASHMLA_SPARSE_DSV4": (256,), "FLASHINFER_MLA_SPARSE_DSV4": (256,), "ROCM_FLASHMLA_SPARSE_DSV4": (256,),
}  # fmt: skip
PLAIN_BLOCK = 16
CPU_BLOCK = 128
INDEXER_BLOCK = 64  # mla/indexer.py: the index keys' own kernel
V4_BLOCK = 256
M3_BLOCK = 128  # one block of the sparse selection a page (models/minimax_m3/common/sparse_attention.py)
FORCED_UNTIL = 18
"""Up to 0.17 the platform sets the block of latent attention from the flags, whatever backend is picked."""


def runs_mla(model: Model, settings: Settings) -> bool:
    """Whether latents are cached as latents: since 0.7.1, for the architectures vLLM lists (config.py use_mla,
    is_deepseek_mla); MiniCPM3 is not among them and caches expanded heads (models/minicpm3.py)."""
    return settings.version.since(7, 1) and model.model_type != "minicpm3"


def latent_mixers(model: Model, settings: Settings) -> list[LatentAttention]:
    """The layers' latent attention, where this version caches it as such."""
    if not model.has_mixer(LatentAttention) or not runs_mla(model, settings):
        return []
    return [mixer for mixer in model.token_mixers if isinstance(mixer, LatentAttention)]


def sparse_cache_type(name: str, model: Model, settings: Settings, device: Device) -> str:
    """The KV cache type of DeepSeek's sparse attention for the one asked for ("auto" included); `name` elsewhere.

    0.11.0 stores fp8_ds_mla unless bfloat16 is asked for; 0.11.1 to 0.17 for any fp8 type, for DeepSeek's own class
    (models/config.py). Since 0.18 the backend decides: FlashMLA stores fp8_ds_mla for every quantised type,
    FlashInfer plain FP8, its kernels for consumer Blackwell fp8_ds_mla even for auto
    (layers/attention/mla_attention.py). GLM's class asks for FP8 on data-centre Blackwell since 0.29.
    """
    if (
        not any(mixer.indexer is not None for mixer in latent_mixers(model, settings))
        or device.vendor != "nvidia"
    ):
        return name
    version, is_fp8 = settings.version, name.startswith("fp8")
    if not version.since(FORCED_UNTIL):
        if model.architecture != "DeepseekV32ForCausalLM":
            return name
        return "fp8_ds_mla" if is_fp8 or (name == "auto" and not version.since(11, 1)) else name
    generation = capability(device)
    if name == "auto" and model.model_type == "glm_moe_dsa" and version.since(29) and 100 <= generation < 110:
        name = "fp8_e4m3"
    backend = settings.flags.attention_backend
    match _sparse_backend(name, model, settings, generation) if backend is None else backend.upper():
        case "FLASHMLA_SPARSE" if name.startswith("fp8"):
            return "fp8_ds_mla"
        case "FLASHINFER_MLA_SPARSE_SM120" if name in ("auto", "fp8", "fp8_e4m3"):
            return "fp8_ds_mla"
        case _:
            return name


FEW_HEADS = 16


def _sparse_backend(name: str, model: Model, settings: Settings, generation: int) -> str:
    """The backend the platform prefers (platforms/cuda.py, `_get_backend_priorities`): on data-centre Blackwell
    FlashInfer for few heads a rank and, since 0.20, for every quantised cache; FlashMLA on Hopper."""
    if generation >= 120:
        return "FLASHINFER_MLA_SPARSE_SM120"
    if generation < 100:
        return "FLASHMLA_SPARSE"
    heads = max(mixer.q_heads for mixer in latent_mixers(model, settings)) // settings.plan.tp
    prefers_flashinfer = heads <= FEW_HEADS or (name != "auto" and settings.version.since(20))
    return "FLASHINFER_MLA_SPARSE" if prefers_flashinfer or name == "fp8_e4m3" else "FLASHMLA_SPARSE"


def check_backend(model: Model, settings: Settings, device: Device) -> None:
    """Raises FlagError for a backend of the other kind of attention: latents and heads have backends of their own
    (`validate_configuration`: "MLA not supported", "non-MLA not supported", since 0.11.1)."""
    name = (settings.flags.attention_backend or "").upper()
    if not name or device.vendor == "cpu" or model.has_mixer(CompressedAttention):
        return
    latent = latent_mixers(model, settings)
    if bool(latent) == ("MLA" in name) or not settings.version.since(11, 1):
        return
    kind = "latent attention" if latent else "attention with heads"
    raise FlagError(
        f"--attention-backend {name}: the model has {kind}, which this backend does not run",
        flag="attention_backend",
        value=name,
    )


def primary_block_size(model: Model, settings: Settings, device: Device) -> int:
    """`--block-size`, or what the attention backend of this version and device wants; 16 for the plain ones.

    Raises FlagError for a block size that the backend's kernels do not take.
    """
    asked, backend = settings.flags.block_size, settings.flags.attention_backend
    backend = None if backend is None else backend.upper()
    if model.has_mixer(CompressedAttention):
        return V4_BLOCK if asked is None else _multiple(asked, (64,), "compressed attention")
    if model.model_type.startswith("minimax_m3"):
        return M3_BLOCK if asked is None else _multiple(asked, (M3_BLOCK,), "block-sparse attention")
    latent = latent_mixers(model, settings)
    if device.vendor == "cpu":
        default = PLAIN_BLOCK if latent else CPU_BLOCK
        return default if asked is None else _multiple(asked, (PLAIN_BLOCK,), "the CPU back end")
    indexed = any(mixer.indexer is not None for mixer in latent)
    if latent and settings.v1 and device.vendor != "intel" and not settings.version.since(FORCED_UNTIL):
        return _forced(asked or PLAIN_BLOCK, backend, settings, device, is_indexed=indexed)
    if indexed and settings.v1:
        return INDEXER_BLOCK if asked is None else _multiple(asked, (INDEXER_BLOCK,), "the indexer")
    if asked is not None:
        return _multiple(
            asked, _kernel_blocks(backend, latent, device), backend or "attention with paged kernels"
        )
    if device.vendor == "intel" and backend is None:
        return 64 if settings.version.since(18) else PLAIN_BLOCK
    if backend is not None:
        return _preferred(_kernel_blocks(backend, latent, device))
    if latent and settings.v1 and device.architecture == "blackwell":
        return _preferred(_KERNEL_BLOCKS["FLASHINFER_MLA"])
    return PLAIN_BLOCK


def _forced(block: int, backend: str | None, settings: Settings, device: Device, *, is_indexed: bool) -> int:
    """The block that the platform forces on latent attention up to 0.17: 64 for FlashMLA, which Hopper and
    data-centre Blackwell have kernels of, 128 for CUTLASS, the default of Blackwell to 0.14, and 64 for sparse
    attention."""
    if is_indexed:
        return INDEXER_BLOCK
    if backend is None:
        if device.architecture == "blackwell":
            backend = "FLASHINFER_MLA" if settings.version.since(15) else "CUTLASS_MLA"
        elif device.architecture == "hopper":
            backend = "FLASHMLA"
    match backend:
        case "FLASHMLA" | "FLASHMLA_VLLM_V1":
            return block if block % 64 == 0 else 64
        case "CUTLASS_MLA" | "CUTLASS_MLA_VLLM_V1":
            return block if block % 128 == 0 else 128
        case "FLASHINFER_MLA":
            return block if block == 32 or block % 64 == 0 else 64
        case _:
            return _multiple(block, (PLAIN_BLOCK,), backend or "latent attention")


def _kernel_blocks(backend: str | None, latent: list[LatentAttention], device: Device) -> tuple[int, ...]:
    """Sizes of which a block must be a multiple of one; without a named backend, of any that may be picked."""
    if backend is not None:
        return _KERNEL_BLOCKS.get(backend, (PLAIN_BLOCK,))
    if latent and device.vendor == "amd":
        return (1,)
    return (PLAIN_BLOCK,)


def _preferred(sizes: tuple[int, ...]) -> int:
    """16 where the kernels take it, else their smallest (`get_preferred_block_size`)."""
    return PLAIN_BLOCK if any(PLAIN_BLOCK % size == 0 for size in sizes) else min(sizes)


def _multiple(block: int, sizes: tuple[int, ...], who: str) -> int:
    if any(block % size == 0 for size in sizes):
        return block
    allowed = " or of ".join(map(str, sizes))
    raise FlagError(
        f"--block-size {block}: {who} takes multiples of {allowed}", flag="block_size", value=block
    )
