"""Flags, version and device turned into the numbers the engine runs with.

Source: sglang srt/server_args.py (`__post_init__`), from 0.5.19 on srt/arg_groups; configs/model_config.py.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.sglang.backends import attention_backend, has_indexer, page_size, runs_mla
from vramledger.engines.sglang.defaults import (
    PREFILL_GRAPHS_SINCE,
    Chunk,
    Memory,
    chunk_defaults,
    decode_sizes,
    multimodal_factor,
    prefill_max,
    prefill_sizes,
    static_fraction,
)
from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.version import SglangVersion, rules_note
from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import CompressedAttention, KimiDeltaAttention
from vramledger.models.model import Model
from vramledger.units import MIB

KV_DTYPES = {
    "fp8_e5m2": 8, "fp8_e4m3": 8, "mxfp8": 8, "bf16": 16, "bfloat16": 16,
    "nvfp4": 4, "fp4_mx_block16": 4, "fp4_e2m1": 4,
}  # fmt: skip
KV_DECLARED_SINCE = (5, 4)
POSITIONS_WITHOUT_LIMIT = 2048
_COMPUTE = (DType.F16, DType.BF16, DType.F32)
_PLAIN_A2A = ("none", "deepep", "megamoe", "flashinfer")
_WITHOUT_GRAPHS = frozenset({"torch_native", "flex_attention"})
# Multimodal classes whose prefill graphs stay on (configs/model_config.py, 0.5.23) are not told apart here.


class Settings(Struct, frozen=True, kw_only=True):
    """Numbers the engine runs with.

    `gpu_mem` is MiB as the defaults see the card; `chunk` holds the chunk before DP attention divides it, and
    `chunked_prefill_size` after. `max_running_requests` is what was asked for, or what speculation asks for.
    `kv_dtype` is the name of the KV cache's type, `kv_bits` its width. `decode_sizes` and `prefill_sizes` are what is
    captured, empty where no graphs are.
    """

    version: SglangVersion
    model_type: str
    architecture: str
    flags: SglangFlags
    dtype: DType
    kv_dtype: str
    kv_bits: int
    is_mla: bool
    is_multimodal: bool
    context_len: int
    gpu_mem: float | None
    attention_backend: str
    page_size: int
    chunk: Chunk
    chunked_prefill_size: int
    mem_fraction_static: float
    max_running_requests: int | None
    swa_full_tokens_ratio: float
    decode_sizes: tuple[int, ...]
    prefill_sizes: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def step_tokens(self) -> int:
        """Tokens one attention group computes in a prefill step at most."""
        if self.chunked_prefill_size > 0:
            return self.chunked_prefill_size
        return max(self.flags.max_prefill_tokens, 1)

    @property
    def requests_asked(self) -> int | None:
        """Requests asked for in one attention group."""
        if self.max_running_requests is None:
            return None
        return max(1, self.max_running_requests // self.flags.attn_dp)


def resolve(checkpoint: Checkpoint, device: Device, version: SglangVersion, flags: SglangFlags) -> Settings:
    """Defaults of `version` filled in.

    Raises FlagError for a context above the model's own, and for types the engine does not compute in.
    """
    model = checkpoint.model
    note = rules_note(version)
    notes = [] if note is None else [note]
    if flags.spans_experts and flags.ep_size != flags.tp_size:
        notes.append(
            f"--moe-a2a-backend {flags.moe_a2a_backend} sets --ep-size to {flags.tp_size}, the ranks of tp"
        )
        flags = replace(flags, ep_size=flags.tp_size)
    mla = runs_mla(model)
    multimodal = bool(model.towers) and not flags.language_only
    gpu_mem = _gpu_mem(device)
    backend = attention_backend(model, device, version, flags)
    graphs = _captures_prefill(model, device, version, flags)
    memory = Memory(
        version=version, gpu_mem=gpu_mem, flags=flags, is_mla=mla, is_multimodal=multimodal, prefill_graphs=graphs
    )  # fmt: skip
    chunk = chunk_defaults(memory)
    fraction = flags.mem_fraction_static
    if fraction is None:
        fraction = static_fraction(memory, chunk)
        if multimodal and not (flags.disaggregation_mode == "decode" and version.since(5, 18)):
            tower = next((item for item in model.towers if item.modality != "audio"), None)
            if tower is not None:
                fraction *= multimodal_factor(version, tower.num_layers, tower.hidden_size)
                if version.since(5):
                    notes.append(
                        "mem_fraction_static is lowered for the vision tower, whose size is taken from its config"
                    )
    kv_dtype, kv_bits = _kv_dtype(checkpoint, device, version, flags)
    dtype = _compute_dtype(model, flags)
    running = flags.max_running_requests
    if running is None and flags.speculative_algorithm is not None:
        running = 48
        notes.append("max_running_requests is 48 where speculation runs and no flag says otherwise")
    ratio = flags.swa_full_tokens_ratio
    per_group = chunk.chunked_prefill_size
    if per_group > 0:
        per_group //= flags.attn_dp
    return Settings(
        version=version,
        model_type=model.model_type,
        architecture=model.architecture,
        flags=flags,
        dtype=dtype,
        kv_dtype=kv_dtype or dtype.value,
        kv_bits=kv_bits or dtype.bits,
        is_mla=mla,
        is_multimodal=multimodal,
        context_len=_context_len(model, flags, notes),
        gpu_mem=gpu_mem,
        attention_backend=backend,
        page_size=page_size(backend, model, device, version, flags),
        chunk=chunk,
        chunked_prefill_size=per_group,
        mem_fraction_static=fraction,
        max_running_requests=running,
        swa_full_tokens_ratio=0.8 if ratio is None else ratio,
        decode_sizes=_decode_sizes(flags, chunk, version) if _captures(backend, device) else (),
        prefill_sizes=prefill_sizes(prefill_max(memory, chunk))
        if graphs and _captures(backend, device)
        else (),
        notes=tuple(notes),
    )


def _gpu_mem(device: Device) -> float | None:
    """MiB as nvidia-smi counts them, torch's total where it is not known; None on a host."""
    if device.vendor == "cpu":
        return None
    return (device.smi_total_bytes or device.total_bytes) / MIB


def _captures(backend: str, device: Device) -> bool:
    """Whether any graph is captured: not under backends that switch graphs off after the share of memory was set
    (server_args.py, `_handle_attention_backend_compatibility`), nor on a host (model_executor/model_runner.py, without
    torch.compile)."""
    return backend not in _WITHOUT_GRAPHS and device.vendor != "cpu"


def _decode_sizes(flags: SglangFlags, chunk: Chunk, version: SglangVersion) -> tuple[int, ...]:
    if flags.disable_cuda_graph or flags.disaggregation_mode == "prefill":
        return ()
    return decode_sizes(
        chunk.decode_max_bs, speculative=flags.speculative_algorithm is not None, version=version
    )


def _captures_prefill(model: Model, device: Device, version: SglangVersion, flags: SglangFlags) -> bool:
    """Whether prefill is captured without a flag asking for it (arg_groups/cuda_graph_hook.py; server_args.py,
    `_handle_piecewise_cuda_graph`, in 0.5.10 to 0.5.14)."""
    if not version.since(*PREFILL_GRAPHS_SINCE) or device.vendor != "nvidia":
        return False
    if flags.disable_cuda_graph or flags.disable_prefill_cuda_graph:
        return False
    if flags.pp_size > 1 or flags.dcp_size > 1 or model.towers or model.has_mixer(CompressedAttention):
        return False
    if version.since(5, 18):
        return flags.moe_a2a_backend in _PLAIN_A2A and not model.has_mixer(KimiDeltaAttention)
    blocked = flags.speculative_algorithm is not None or flags.enable_dp_attention or flags.enable_lora
    blocked = blocked or flags.enable_hierarchical_cache or flags.disaggregation_mode != "null"
    return not blocked and flags.moe_a2a_backend == "none"


def _compute_dtype(model: Model, flags: SglangFlags) -> DType:
    """`auto` runs float32 checkpoints in float16, Gemma's in bfloat16 (configs/model_config.py)."""
    if flags.dtype not in ("auto", ""):
        dtype = parse_dtype(flags.dtype)
        if dtype not in _COMPUTE:
            raise FlagError(f"--dtype {flags.dtype} is not a compute type", flag="dtype", value=flags.dtype)
        return dtype
    if model.dtype is DType.F32:
        return DType.BF16 if model.model_type.startswith("gemma") else DType.F16
    return model.dtype if model.dtype in _COMPUTE else DType.BF16


def _kv_dtype(
    checkpoint: Checkpoint, device: Device, version: SglangVersion, flags: SglangFlags
) -> tuple[str, int]:
    """Name and width of the KV cache's type; "" and 0 for the model's own. Sparse latents are fp8 on data-centre
    Blackwell (`_dsa_kv_cache_dtype_default`)."""
    asked = flags.kv_cache_dtype.strip().lower()
    if asked in ("auto", ""):
        if has_indexer(checkpoint.model) and device.architecture == "blackwell":
            return "fp8_e4m3", 8
        declared = (checkpoint.declared_kv_dtype or "").lower()
        if "fp8" in declared and version.since(*KV_DECLARED_SINCE):
            return "fp8_e4m3", 8
        return "", 0
    if asked not in KV_DTYPES:
        raise FlagError(
            f"--kv-cache-dtype {flags.kv_cache_dtype} is not one of auto, {', '.join(KV_DTYPES)}",
            flag="kv_cache_dtype",
            value=flags.kv_cache_dtype,
        )
    return asked, KV_DTYPES[asked]


def _context_len(model: Model, flags: SglangFlags, notes: list[str]) -> int:
    """The config's positions, times a rope factor that states no original length (hf_transformers_utils.py,
    `get_context_length`); a longer one only by SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.

    Raises FlagError where the flag asks for more.
    """
    derived = model.max_position_embeddings or POSITIONS_WITHOUT_LIMIT
    if model.max_position_embeddings:
        plain = [rope for rope in model.rope if not rope.original_positions and rope.scaling != "llama3"]
        derived = int(max((rope.factor for rope in plain), default=1.0) * derived)
    asked = flags.context_length
    if asked is None:
        return derived
    if asked > derived:
        notes.append(
            f"context_length {asked} is above the {derived} tokens of the config: "
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN has to be set"
        )
    return asked
