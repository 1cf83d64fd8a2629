"""What vLLM's CPU platform changes after the defaults are filled in.

Source: vllm platforms/cpu.py (`check_and_update_config`) of 0.10 to 0.32, for x86 with AVX-512 BF16 and without
AMX tiles; AMX keeps prefix caching and chunked prefill for latents from 0.31.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.engines.vllm.settings import Settings
from vramledger.models.mixers import CompressedAttention, LatentAttention
from vramledger.models.model import Model

WHOLE_PROMPT_TOKENS = 2048  # SchedulerConfig.DEFAULT_MAX_NUM_BATCHED_TOKENS
FP32_STATES_SINCE = 29


def on_host(settings: Settings, model: Model) -> Settings:
    """Settings of a CPU: nothing is scheduled ahead, latents run without prefix caching and take whole
    prompts, recurrent states are fp32 unless a flag names a 2-byte type for gated delta layers."""
    out = replace(settings, async_scheduling=False)
    if model.has_mixer((LatentAttention, CompressedAttention)):
        out = replace(
            out,
            prefix_caching=False,
            max_tokens=max(settings.context_len, WHOLE_PROMPT_TOKENS),
        )
    if settings.version.since(FP32_STATES_SINCE) and settings.flags.mamba_ssm_cache_dtype == "auto":
        out = replace(out, flags=replace(settings.flags, mamba_ssm_cache_dtype="float32"))
    return out
