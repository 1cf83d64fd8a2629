"""Flags, version and device turned into the numbers the engine runs with.

Source: vllm engine/arg_utils.py (`get_batch_defaults`, `EngineArgs.create_engine_config`) by version.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.requests import NO_REQUESTS
from vramledger.engines.vllm.capability import capability
from vramledger.engines.vllm.compute_dtype import compute_dtype
from vramledger.engines.vllm.context import context_len
from vramledger.engines.vllm.expert_parallel import batched_default_tokens
from vramledger.engines.vllm.flags import AUTO, ParallelPlan, VllmFlags
from vramledger.engines.vllm.lora_settings import LoraSettings, lora_settings
from vramledger.engines.vllm.version import OLDEST_READ, VllmVersion, rules_note
from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType
from vramledger.hardware.catalogue import Device
from vramledger.models.mixers import RECURRENT
from vramledger.models.model import Model
from vramledger.units import GIB

V2_RUNNER_EVERYWHERE = 29


class Settings(Struct, frozen=True, kw_only=True):
    """Numbers the engine runs with. `max_tokens` is T of the rules, `max_rows` R, `context_len` L.

    `v1` is the engine generation; `v2_runner` the second model runner of V1 (0.22 and newer).
    `in_flight_steps` is how many scheduled batches a windowed layer must keep tokens of.
    """

    version: VllmVersion
    model_type: str
    v1: bool
    v2_runner: bool
    plan: ParallelPlan
    flags: VllmFlags
    dtype: DType
    gpu_memory_utilization: float
    context_len: int
    auto_context: bool
    max_tokens: int
    max_num_seqs: int
    prefix_caching: bool
    async_scheduling: bool
    num_speculative_tokens: int
    notes: tuple[str, ...]
    lora: LoraSettings | None = None

    @property
    def max_rows(self) -> int:
        return min(self.max_num_seqs, self.max_tokens)

    def without_batches(self) -> Settings:
        """What the layout of the cache knows: not how many requests and tokens run at once, nor the engine's share."""
        flags = replace(
            self.flags,
            max_num_seqs=None,
            max_num_batched_tokens=None,
            gpu_memory_utilization=None,
            kv_cache_memory_bytes=None,
            num_gpu_blocks_override=None,
        )
        return replace(self, flags=flags, gpu_memory_utilization=0.0, max_tokens=0, max_num_seqs=0, notes=())

    def while_loading(self) -> Settings:
        """What the weights know: of these also not the cache's type and the context."""
        flags = replace(self.flags, max_model_len=None, kv_cache_dtype="auto", requests=NO_REQUESTS)
        return replace(replace(self, flags=flags).without_batches(), context_len=0)

    @property
    def in_flight_steps(self) -> int:
        """B of the rules: 1 up to 0.25; from 0.26 the concurrent batches of the executor."""
        if not self.version.since(26):
            return 1
        if not self.async_scheduling:
            return self.plan.pp
        if self.v2_runner:
            return self.plan.pp + 1
        return 2 if self.plan.pp == 1 else self.plan.pp


def resolve(
    model: Model, device: Device, version: VllmVersion, plan: ParallelPlan, flags: VllmFlags
) -> Settings:
    """Defaults of `version` filled in.

    Raises FlagError for a context above the model's own or contradictory batch limits.
    """
    note = rules_note(version)
    notes = [] if note is None else [note]
    context, auto = context_len(model, flags, version, notes)
    v1 = _generation(model, device, version, flags)
    tokens, seqs = _batch_limits(
        device,
        version,
        flags,
        context,
        v1=v1,
        world_size=plan.world_size,
        batched_tokens=batched_default_tokens(plan, flags, version) if model.is_moe else None,
    )
    hybrid = model.has_mixer(RECURRENT)
    prefix = flags.enable_prefix_caching
    if prefix is None:
        prefix = _prefix_default(model, version, v1=v1)
    dtype = compute_dtype(model, device, version, flags)
    async_default = v1 and version.since(14) and not model.is_pooling
    found = Settings(
        version=version,
        model_type=model.model_type,
        v1=v1,
        v2_runner=_v2_runner(model, version, hybrid=hybrid),
        plan=plan,
        flags=flags,
        dtype=dtype,
        gpu_memory_utilization=flags.gpu_memory_utilization or (0.92 if version.since(20) else 0.9),
        context_len=context,
        auto_context=auto,
        max_tokens=tokens,
        max_num_seqs=seqs,
        prefix_caching=prefix,
        async_scheduling=async_default if flags.async_scheduling is None else flags.async_scheduling,
        num_speculative_tokens=flags.speculative.num_speculative_tokens if flags.speculative else 0,
        notes=tuple(notes),
        lora=lora_settings(flags, version, dtype),
    )
    if device.vendor != "cpu":
        return found
    from vramledger.engines.vllm.host import on_host

    return on_host(found, model)


def _generation(model: Model, device: Device, version: VllmVersion, flags: VllmFlags) -> bool:
    """V1 is the default from 0.8 and the only one from 0.11; before, unsupported cases fall back to V0."""
    if version.since(11):
        if flags.use_v1 is False:
            raise _no_generation("V0 left vllm with 0.11", flags, version)
        return True
    if flags.use_v1 and version < OLDEST_READ:
        raise _no_generation(f"the first release read that has V1 is {OLDEST_READ}", flags, version)
    if flags.use_v1 is not None:
        return flags.use_v1
    if not version.since(8):
        return False
    old_gpu = device.vendor == "nvidia" and capability(device) < 80
    recurrent = model.has_mixer(RECURRENT)
    unsupported = old_gpu or bool(model.encoder_layers) or (recurrent and not version.since(10))
    return not (unsupported or (model.is_pooling and not version.since(9, 2)))


def _no_generation(why: str, flags: VllmFlags, version: VllmVersion) -> FlagError:
    flag = "--use-v1" if flags.use_v1 else "--no-use-v1"
    return FlagError(f"{flag} with vllm {version}: {why}", flag="use_v1", value=flags.use_v1)


def _prefix_default(model: Model, version: VllmVersion, *, v1: bool) -> bool:
    """Prefix caching without a flag: in V1 for decoders; since 0.29 for hybrids of attention and recurrent
    layers too, never for models without attention or with an encoder (config/model.py
    is_prefix_caching_supported, engine/arg_utils.py)."""
    if not v1 or model.is_pooling or model.encoder_layers:
        return False
    if not model.has_mixer(RECURRENT):
        return True
    return version.since(29) and not all(isinstance(mixer, RECURRENT) for mixer in model.token_mixers)


def _v2_runner(model: Model, version: VllmVersion, *, hybrid: bool) -> bool:
    """Which models run on the V2 runner: dense Qwen3 in 0.22, Llama and Mistral from 0.23, most dense models
    from 0.25, everything from 0.29 (vllm v1/worker/gpu, release by release)."""
    if version.since(V2_RUNNER_EVERYWHERE):
        return True
    if hybrid or model.is_moe or model.towers or model.encoder_layers or model.is_pooling:
        return False
    name = model.architecture
    if version.since(25):
        return True
    if version.since(23):
        return name.startswith(("Qwen3For", "LlamaFor", "MistralFor"))
    return version.since(22) and name.startswith("Qwen3For")


def _batch_limits(
    device: Device,
    version: VllmVersion,
    flags: VllmFlags,
    context: int,
    *,
    v1: bool,
    world_size: int,
    batched_tokens: int | None = None,
) -> tuple[int, int]:
    """max_num_batched_tokens and max_num_seqs; `batched_tokens` is the former's default where experts take padded
    batches."""
    tokens = flags.max_num_batched_tokens
    seqs = flags.max_num_seqs
    small_by_name = ("a100", "gb10") if version.since(33) else ("a100",)
    name = device.name.lower()
    large = device.total_bytes >= 70 * GIB and not any(part in name.split() for part in small_by_name)
    if not v1:
        default_tokens = max(context, 2048)
        if flags.enable_chunked_prefill or (
            flags.enable_chunked_prefill is None and context > 32768 and version.since(5)
        ):
            default_tokens = 2048 if version.since(6, 4) else 512
        default_seqs = 256
    elif device.vendor == "cpu":
        default_tokens = (4096 if flags.offline else 2048) * world_size
        default_seqs = (256 if flags.offline else 128) * world_size
    elif not version.since(9):
        named = version.since(7) and any(part in name for part in ("h100", "h200", "mi300"))
        default_tokens = {
            (True, True): 16384,
            (True, False): 8192,
            (False, True): 8192,
            (False, False): 2048,
        }[(named, flags.offline)]
        default_seqs = 1024 if not version.since(8, 5) or named else 256
    elif version.since(28) and device.total_bytes >= 160 * GIB:
        default_tokens, default_seqs = 16384, 1024
    else:
        default_tokens = (16384 if flags.offline else 8192) if large else (8192 if flags.offline else 2048)
        default_seqs = 1024 if large else 256
    if batched_tokens is not None:
        default_tokens, default_seqs = batched_tokens, min(default_seqs, batched_tokens)
    if seqs is None:
        seqs = default_seqs
        if tokens is not None:
            seqs = min(seqs, tokens)
    if tokens is None:
        tokens = min(default_tokens, seqs * context) if v1 else default_tokens
        if v1 and flags.enable_chunked_prefill is False:
            tokens = max(tokens, context)
        tokens = max(tokens, seqs) if v1 else tokens
    elif _is_whole_prefill(version, flags, context, v1=v1) and tokens < context:
        raise FlagError(
            f"--max-num-batched-tokens {tokens} is below --max-model-len {context}, which without chunked prefill "
            "no prompt of that length gets past",
            flag="max_num_batched_tokens",
            value=tokens,
        )
    elif tokens < seqs:
        raise FlagError(
            f"--max-num-batched-tokens {tokens} is below --max-num-seqs {seqs}",
            flag="max_num_batched_tokens",
            value=tokens,
        )
    return tokens, seqs


def _is_whole_prefill(version: VllmVersion, flags: VllmFlags, context: int, *, v1: bool) -> bool:
    """Whether prompts surely run in one step: as the flag says; by default in V0 up to 32768 tokens."""
    if flags.enable_chunked_prefill is not None or flags.max_model_len == AUTO:
        return flags.enable_chunked_prefill is False and flags.max_model_len != AUTO
    return not v1 and (context <= 32768 or not version.since(5))
