"""Values that vLLM's own flags take by name, checked against what a version lists.

Source: support.json (v1/attention/backends/registry.py, config/kernel.py, config/cache.py and
layers/quantization/__init__.py of each release).
"""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.engines.requests import REQUEST_NAMES, WHOLE_VOCABULARY
from vramledger.engines.vllm.attention_backends import check_backend, primary_block_size
from vramledger.engines.vllm.load_peak import check_load_format
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.spikes import max_logprobs
from vramledger.engines.vllm.support import listed, names, when
from vramledger.engines.vllm.version import VllmVersion
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint

ONLINE_QUANTIZATION = ("fp8", "bitsandbytes")

# What `--quantization` may say for a checkpoint of a method; the first is the method's own name.
QUANTIZATION_NAMES: dict[str, tuple[str, ...]] = {
    "awq": ("awq", "awq_marlin", "auto_awq"),
    "gptq": ("gptq", "gptq_marlin", "gptq_marlin_24", "auto_gptq"),
    "compressed-tensors": ("compressed-tensors",),
    "fp8": ("fp8", "deepseek_v4_fp8"),
    "fbgemm_fp8": ("fbgemm_fp8",),
    "modelopt": ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"),
    "bitsandbytes": ("bitsandbytes",),
    "mxfp4": ("mxfp4", "gpt_oss_mxfp4"),
    "auto-round": ("auto-round", "auto_round", "inc"),
    "gguf": ("gguf",),
}


NOT_FLAGS = (
    frozenset(
        (
            "adapter",
            "offline",
            "use_v1",
            "pp_layer_partition",
            "allow_long_max_model_len",
            "attention_backend",
            "use_flashinfer_sampler",
        )
    )
    | REQUEST_NAMES
)
"""Ours, or environment variables of vLLM in some or all releases."""

ELSEWHERE = frozenset(
    ("num_redundant_experts", "speculative_config", "speculative", "eplb_window_size", "all2all_backend")
)
"""Flags that older or newer releases have under another name (--eplb-config, --speculative-model),
or as an environment variable (VLLM_ALL2ALL_BACKEND)."""


def check_flags(given: Iterable[str], version: VllmVersion) -> None:
    """Raises FlagError for a flag that the version surely does not have, naming the releases that do."""
    for name in given:
        flag = f"--{name.replace('_', '-')}"
        if name in NOT_FLAGS or name in ELSEWHERE or listed("flags", flag, version) is not False:
            continue
        raise FlagError(f"vllm {version} has no {flag}: {when('flags', flag)}", flag=name)


def check_names(checkpoint: Checkpoint, settings: Settings, device: Device) -> None:
    """Raises FlagError for a backend or a KV cache type that the version does not list, for a backend or a block
    size that the model's attention does not take, and for a quantisation that is neither the checkpoint's own nor
    one the engine makes while loading."""
    flags, version = settings.flags, settings.version
    if flags.attention_backend is not None:
        _check_listed("attention_backend", flags.attention_backend.upper(), "attention_backends", version)
        check_backend(checkpoint.model, settings, device)
    if flags.moe_backend is not None:
        _check_listed("moe_backend", flags.moe_backend.lower().replace("-", "_"), "moe_backends", version)
    if flags.kv_cache_dtype not in ("", "auto"):
        _check_listed("kv_cache_dtype", flags.kv_cache_dtype.lower(), "kv_cache_dtypes", version)
    if flags.block_size is not None:
        if listed("block_sizes", "16", version) and not listed("block_sizes", str(flags.block_size), version):
            sizes = [size for size in names("block_sizes") if listed("block_sizes", size, version)]
            raise FlagError(
                f"--block-size {flags.block_size} is not one that vllm {version} takes: "
                f"{', '.join(sorted(sizes, key=int))}",
                flag="block_size",
                value=flags.block_size,
            )
        primary_block_size(checkpoint.model, settings, device)
    _check_quantization(checkpoint, flags.quantization)
    if flags.load_format != "auto" or flags.model_loader_extra_config:
        check_load_format(settings)
    _check_requests(checkpoint, settings)


def _check_requests(checkpoint: Checkpoint, settings: Settings) -> None:
    """Requests for more log-probabilities than `--max-logprobs` are refused (sampling_params.py); beam search asks for
    two a beam (entrypoints, beam_search). Prompts of embeddings need their flag."""
    asked = settings.flags.requests
    if asked.prompt_embeds and not settings.flags.enable_prompt_embeds:
        raise FlagError(
            f"--prompt-embeds {asked.prompt_embeds}: vllm takes embeddings with --enable-prompt-embeds alone",
            flag="prompt_embeds",
            value=asked.prompt_embeds,
        )
    beams = 2 * asked.beams if asked.beams > 1 else None
    vocab = checkpoint.model.vocab_size
    limit = max_logprobs(settings, vocab)
    for name, count in (
        ("prompt_logprobs", asked.prompt_logprobs),
        ("logprobs", asked.logprobs),
        ("beams", beams),
    ):
        wanted = vocab if count == WHOLE_VOCABULARY else count
        if wanted is None or wanted <= limit:
            continue
        why = "two log-probabilities a beam are" if name == "beams" else f"{wanted} are"
        raise FlagError(
            f"--{name.replace('_', '-')} {asked.beams if name == 'beams' else count}: {why} above --max-logprobs "
            f"{limit}, and vllm refuses such requests; give --max-logprobs {wanted} (or -1)",
            flag=name,
            value=count,
        )


def _check_quantization(checkpoint: Checkpoint, quantization: str | None) -> None:
    if quantization is None:
        return
    method = checkpoint.quantization.partition(":")[0]
    allowed = QUANTIZATION_NAMES.get(method, ONLINE_QUANTIZATION)
    if quantization not in allowed:
        stored = (
            f"the checkpoint is {method}"
            if method in QUANTIZATION_NAMES
            else "the checkpoint is not quantised"
        )
        raise FlagError(
            f"--quantization {quantization}: {stored}, which takes {' or '.join(allowed)}",
            flag="quantization",
            value=quantization,
        )


def _check_listed(flag: str, value: str, section: str, version: VllmVersion) -> None:
    """Refuse what the version surely lacks: an unknown name with the closest ones, a known one with when it was."""
    if listed(section, value, version) is not False:
        return
    spelled = f"--{flag.replace('_', '-')} {value}"
    told = when(section, value)
    if told:
        raise FlagError(f"{spelled} is not one of vllm {version}: {told}", flag=flag, value=value)
    known = [name for name in names(section) if listed(section, name, version) is not False]
    closest = _closest(value, known)
    raise FlagError(
        f"{spelled} is not one of vLLM's; did you mean {', '.join(closest)}?",
        flag=flag,
        value=value,
        closest=closest,
    )


def _closest(value: str, known: Iterable[str]) -> list[str]:
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(value.lower(), by_lower, n=3)
    return [by_lower[name] for name in near] or sorted(by_lower.values())
