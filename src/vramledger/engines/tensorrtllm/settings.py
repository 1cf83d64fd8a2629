"""Flags with the engine's defaults filled in.

Source: tensorrt_llm/llmapi/llm_args.py, builder.py (BuildConfig) of 1.0 to the newest main.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.tensorrtllm.flags import TrtLlmFlags
from vramledger.engines.tensorrtllm.kv_layers import kv_type
from vramledger.engines.tensorrtllm.version import TrtLlmVersion
from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType, parse_dtype
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint

BATCH, NUM_TOKENS, FRACTION = 2048, 8192, 0.9
FIRST_BATCH, FIRST_INPUT = 8, 2048
"""Defaults of the examples' build.py up to 0.7: an engine took batches of whole prompts of max_input_len."""
STATE_INTERVAL = 256
_FLOATS = (DType.F32, DType.F16, DType.BF16)


class Settings(Struct, frozen=True, kw_only=True):
    """One resolved configuration. `asked_len` is max_seq_len before the pool lowers it; `uses_v2` is the quota-based
    manager; `runs_estimation` whether a dummy workload is measured before the pool is sized."""

    version: TrtLlmVersion
    flags: TrtLlmFlags
    backend: str
    dtype: DType
    cache: str
    max_batch: int
    max_tokens_a_step: int
    asked_len: int
    fraction: float
    tokens_per_block: int
    state_interval: int
    uses_v2: bool
    runs_estimation: bool
    notes: tuple[str, ...]

    @property
    def is_pytorch(self) -> bool:
        return self.backend == "pytorch"

    @property
    def rounds_up(self) -> bool:
        """Whether a begun block counts: in the C++ manager's rule, which the PyTorch back end kept up to 1.2."""
        return not (self.is_pytorch and self.version.floors_blocks)

    @property
    def element_bytes(self) -> int:
        return self.dtype.bits // 8

    @property
    def prompts_unstated(self) -> bool:
        """Whether the engine is so old that its steps are whole prompts, of a length that is not given here."""
        return not self.version.since(0, 8) and self.flags.max_num_tokens is None

    @property
    def drafted(self) -> int:
        return self.flags.speculative.max_draft_len if self.flags.speculative else 0


def check_device(device: Device) -> None:
    """Raises FlagError for a device of another maker; one of a given size may be anyone's."""
    if device.vendor not in ("nvidia", "unknown"):
        raise FlagError(
            f"tensorrt-llm runs on NVIDIA devices, not on {device.name}", flag="device", value=device.name
        )


def resolve(checkpoint: Checkpoint, version: TrtLlmVersion, flags: TrtLlmFlags) -> Settings:
    """Raises FlagError for what a back end or a version does not have."""
    model = checkpoint.model
    notes: list[str] = []
    if model.encoder_layers:
        raise FlagError(
            f"tensorrt-llm: no rules here for encoder-decoder models such as {model.id}",
            flag="engine",
            value=model.architecture,
        )
    backend = flags.backend or version.default_backend
    dtype = model.dtype if flags.dtype == "auto" else parse_dtype(flags.dtype)
    if dtype not in _FLOATS:
        raise FlagError(
            f"--dtype {dtype.value} is not a type the model runs in", flag="dtype", value=flags.dtype
        )
    length = flags.max_seq_len or model.max_position_embeddings
    if not length:
        raise FlagError(
            f"{model.id} states no longest context; give --max-seq-len", flag="max_seq_len", value=None
        )
    uses_v2 = flags.use_kv_cache_manager_v2
    if uses_v2 and (backend != "pytorch" or not version.since(1, 2)):
        raise FlagError(
            f"--use-kv-cache-manager-v2 exists in the PyTorch back end since 1.2, not in {backend} of {version}",
            flag="use_kv_cache_manager_v2",
            value=True,
        )
    if uses_v2 and flags.max_beam_width > 1:
        notes.append("the V2 manager takes no beams: the engine falls back to V1")
        uses_v2 = False
    windows = flags.max_attention_window
    if windows is not None and len(set(windows)) > 1 and flags.max_tokens is not None and not uses_v2:
        notes.append("max_tokens is ignored where layers have different windows")
    batch = flags.max_batch_size or (BATCH if version.since(0, 8) else FIRST_BATCH)
    step = flags.max_num_tokens or (NUM_TOKENS if version.since(0, 8) else batch * FIRST_INPUT)
    drafts = flags.speculative
    if drafts is not None and drafts.decoding_type == "MTP" and not model.draft_layers:
        raise FlagError(
            f"MTP needs layers that {model.id} does not have",
            flag="speculative_config",
            value=drafts.decoding_type,
        )
    estimates = backend == "pytorch" and flags.attn_backend != "VANILLA"
    return Settings(
        version=version,
        flags=flags,
        backend=backend,
        dtype=dtype,
        cache=kv_type(flags, dtype, checkpoint.declared_kv_dtype),
        max_batch=batch,
        max_tokens_a_step=step,
        asked_len=length,
        fraction=FRACTION if flags.free_gpu_memory_fraction is None else flags.free_gpu_memory_fraction,
        tokens_per_block=flags.tokens_per_block or version.default_tokens_per_block,
        state_interval=flags.mamba_state_cache_interval or STATE_INTERVAL,
        uses_v2=uses_v2,
        runs_estimation=estimates,
        notes=tuple(notes),
    )
