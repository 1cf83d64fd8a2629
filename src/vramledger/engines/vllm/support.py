"""What releases of vLLM list, and what a version therefore cannot serve.

`support.json` is written by tools/pack_vllm_support.py from the releases themselves. A name's value there is the
runs of releases that list it ("0.8.3-0.23.0", "0.10.1.1-" to the newest). Between two releases that were read the
registry's own table of removed classes decides, or nothing does.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from vramledger.engines.vllm.capability import known_capability
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.version import VllmVersion, parse_version
from vramledger.formats.weights import Bnb4, Bnb8, Ggml, Mxfp, Nvfp4, WeightFormat
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import RECURRENT, LatentAttention
from vramledger.models.model import Model

_FILE = Path(__file__).with_name("support.json")


class _Support(Struct, frozen=True):
    releases: tuple[str, ...]
    removed: dict[str, str]
    plugins: tuple[str, ...]
    architectures: dict[str, str]
    transformers: dict[str, str]
    quantization: dict[str, str]
    min_capability: dict[str, str]
    flags: dict[str, str]
    attention_backends: dict[str, str]
    moe_backends: dict[str, str]
    kv_cache_dtypes: dict[str, str]
    block_sizes: dict[str, str]
    lora: dict[str, str]
    lora_embedding: dict[str, str]
    lora_head: dict[str, str]
    lora_stacks: dict[str, str]


@cache
def _support() -> _Support:
    return msgspec.json.decode(_FILE.read_bytes(), type=_Support)


@cache
def _read_releases() -> tuple[VllmVersion, ...]:
    return tuple(parse_version(release) for release in _support().releases)


@cache
def _runs(section: str, name: str) -> tuple[tuple[VllmVersion, VllmVersion | None], ...]:
    """First and last release of each run; no last one where the newest that was read is in it."""
    spans: dict[str, str] = getattr(_support(), section)
    out = []
    for span in spans.get(name, "").split():
        first, _, last = span.partition("-")
        out.append((parse_version(first), parse_version(last) if last else None))
    return tuple(out)


@lru_cache(maxsize=4096)
def listed(section: str, name: str, version: VllmVersion) -> bool | None:
    """Whether `version` lists `name`; None where no release tells: between two that differ, or before the first
    that was read. Versions after the newest that was read are taken as it."""
    releases = _read_releases()
    runs = _runs(section, name)
    if not runs:
        return False
    before = max((release for release in releases if release <= version), default=None)
    after = min((release for release in releases if release >= version), default=releases[-1])
    if before is None:
        return None if _in(runs, after) else False
    lower, upper = _in(runs, before), _in(runs, after)
    if lower == upper:
        return lower
    last = _support().removed.get(name) if section == "architectures" else None
    if last is not None and lower:
        gone = parse_version(last)
        return (version.minor, 0) <= (gone.minor, 0)
    return None


def _in(runs: tuple[tuple[VllmVersion, VllmVersion | None], ...], version: VllmVersion) -> bool:
    return any(first <= version and (last is None or version <= last) for first, last in runs)


def names(section: str) -> tuple[str, ...]:
    """Every name of a section, whichever release lists it."""
    return tuple(getattr(_support(), section))


def when(section: str, name: str) -> str:
    """ "releases read list it from 0.10.1.1 on", "... up to 0.23.0" or "... from 0.9.0 to 0.12.0"; "" for an unknown name."""
    runs = _runs(section, name)
    if not runs:
        return ""
    first, last = runs[0][0], runs[-1][1]
    oldest = _read_releases()[0]
    if last is None:
        return f"the first release read that lists it is {first}"
    if first == oldest:
        return f"the last release read that lists it is {last}"
    return f"the releases read that list it are {first} to {last}"


class Problem(Struct, frozen=True, kw_only=True):
    """Why a version may not serve a checkpoint. `certain` is set where it cannot; otherwise a fallback may."""

    certain: bool
    text: str


def support_problems(checkpoint: Checkpoint, settings: Settings, device: Device) -> tuple[Problem, ...]:
    """What this version does not list of the model's class and its quantisation, and what the device is too old
    for. Empty where nothing speaks against the plan."""
    found = (
        _class_problem(checkpoint.model, settings.version),
        _method_problem(checkpoint, settings, device),
        _sparse_problem(checkpoint.model, settings, device),
        _lora_problem(checkpoint.model, settings),
    )
    return tuple(problem for problem in found if problem is not None)


def support_notes(checkpoint: Checkpoint, settings: Settings) -> tuple[str, ...]:
    """What is not known about the class: no release lists it, or only those around this version were read."""
    model, version = checkpoint.model, settings.version
    name = model.architecture
    native, through = _class_listed(name, version)
    if native is False and through is True:
        return (f"vllm {version} runs {name} through Transformers",)
    if native or through:
        return ()
    if native is None or through is None:
        section = "architectures" if native is None else "transformers"
        return (f"whether vllm {version} lists {name} was not read; {when(section, name)}",)
    if not _ever(name) and _class_problem(model, version) is None:
        return (f"no vllm release lists {name}; its sizes are those of the layers it is built from",)
    return ()


# The suffix of a class says its task; a model is served under another of them by an adapter
# (config/model.py, _SUFFIX_TO_DEFAULTS; models/adapters.py).
_SUFFIXES = (
    "ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel", "ForTextEncoding", "EmbeddingModel",
    "ForSequenceClassification", "ForTokenClassification", "ClassificationModel", "ForRewardModeling", "RewardModel",
    "Model",
)  # fmt: skip


def _spellings(name: str) -> tuple[str, ...]:
    suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        return (name,)
    return (name, *(name.removesuffix(suffix) + other for other in _SUFFIXES if other != suffix))


def _class_listed(name: str, version: VllmVersion) -> tuple[bool | None, bool | None]:
    """Listed with code of its own, and listed as run through Transformers."""
    found = [listed("architectures", spelling, version) for spelling in _spellings(name)]
    native = True if True in found else None if None in found else False
    return native, listed("transformers", name, version)


def class_lists(section: str, name: str, version: VllmVersion) -> bool | None:
    """Whether a release lists a model class, under any of its spellings, in a section of what classes offer;
    None where no release that was read tells. A class that runs through Transformers is asked as such."""
    native, through = _class_listed(name, version)
    asked = (name,) if listed("architectures", name, version) is not False else _spellings(name)
    if native is False and through is not False:
        asked = ("TransformersForCausalLM", "TransformersMoEForCausalLM")
    found = [listed(section, spelling, version) for spelling in asked]
    return True if True in found else None if None in found else False


def _ever(name: str) -> bool:
    known = _support()
    return any(
        spelling in known.architectures or spelling in known.transformers for spelling in _spellings(name)
    )


def _class_problem(model: Model, version: VllmVersion) -> Problem | None:
    name = model.architecture
    native, through = _class_listed(name, version)
    if native is not False or through is not False:
        return None
    reason = _no_fallback(model, version)
    known = _ever(name)
    if not known and reason is None:
        return None
    listing = next(
        (
            when(section, spelling)
            for section in ("architectures", "transformers")
            for spelling in _spellings(name)
            if when(section, spelling)
        ),
        "no release does",
    )
    text = f"vllm {version} does not list {name} ({listing})"
    if name in _support().plugins:
        return Problem(certain=False, text=f"{text}; it needs a plugin")
    if reason is not None:
        return Problem(certain=True, text=f"{text}, and {reason}")
    return Problem(certain=False, text=f"{text}; whether Transformers' code for it runs instead is not known")


TRANSFORMERS_SINCE = (7, 2)


def _no_fallback(model: Model, version: VllmVersion) -> str | None:
    """Why the class cannot run through Transformers either; None where it may.

    Source: model_executor/models/transformers (utils.py and base.py, release by release): decoders of attention
    alone; other modalities since 0.10, experts since 0.11.1 (registry.py, `_TRANSFORMERS_BACKEND_MODELS`).
    """
    if not version.since(*TRANSFORMERS_SINCE):
        return "this version runs nothing through Transformers"
    if model.encoder_layers:
        return "encoder-decoder models do not run through Transformers"
    if model.has_mixer(RECURRENT):
        return "models with recurrent states do not run through Transformers"
    if model.towers and not version.since(10):
        return "models of several modalities run through Transformers since 0.10"
    if model.is_moe and not version.since(11, 1):
        return "mixtures of experts run through Transformers since 0.11.1"
    return None


# The release from which a class has no implementation of its own (models/registry.py). Sizes go by this: it also knows
# releases between those that `support.json` was packed from.
_LEFT_SINCE = {
    "SmolLM3ForCausalLM": 10,
    "Dots1ForCausalLM": 23,
    "GPTBigCodeForCausalLM": 25,
    "Starcoder2ForCausalLM": 25,
    "OlmoForCausalLM": 26,
    "Olmo2ForCausalLM": 26,
    "Olmo3ForCausalLM": 29,
    "HunYuanDenseV1ForCausalLM": 29,
    "HunYuanMoEV1ForCausalLM": 29,
    "ArceeForCausalLM": 32,
    "GlmForCausalLM": 32,
    "GPTNeoXForCausalLM": 32,
    "PhiForCausalLM": 32,
    "SeedOssForCausalLM": 32,
}


def has_left(name: str, version: VllmVersion) -> bool:
    """Whether a class that had an implementation of its own runs through Transformers, if at all."""
    since = _LEFT_SINCE.get(name)
    return since is not None and version.since(since)


def _lora_problem(model: Model, settings: Settings) -> Problem | None:
    """Adapters on a class that does not take them (config/lora.py, verify_with_model_config), or on a vocabulary
    above what the kernels of the head take (lora/layers/logits_processor.py)."""
    if settings.lora is None:
        return None
    name, version = model.architecture, settings.version
    if class_lists("lora", name, version) is False and _ever(name):
        return Problem(certain=True, text=f"vllm {version} takes no LoRA adapters for {name}")
    most = 258_048 if version.since(18) else 257_024
    rows = model.vocab_size + settings.lora.extra_vocab
    if rows > most and class_lists("lora_head", name, version):
        return Problem(
            certain=True,
            text=f"vllm {version} gives a head with adapters at most {most} tokens, and the vocabulary has {rows}",
        )
    return None


# What a release may call the method of a checkpoint. More than one where the name changed.
_METHODS: dict[str, tuple[str, ...]] = {
    "awq": ("awq",),
    "gptq": ("gptq",),
    "compressed-tensors": ("compressed-tensors",),
    "compressed_tensors": ("compressed-tensors",),
    "fp8": ("fp8",),
    "fbgemm_fp8": ("fbgemm_fp8",),
    "bitsandbytes": ("bitsandbytes",),
    "mxfp4": ("mxfp4",),
    "auto-round": ("auto-round", "inc"),
    "intel/auto-round": ("auto-round", "inc"),
    "gguf": ("gguf",),
}


def methods_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The engine's names for the checkpoint's quantisation; empty for an unquantised one."""
    kinds = {type(item.format) for item in checkpoint.stored}
    if Ggml in kinds:
        return ("gguf",)
    method = checkpoint.quantization.partition(":")[0]
    if method == "modelopt":
        return _modelopt_names({item.format for item in checkpoint.stored})
    if method in _METHODS:
        return _METHODS[method]
    return ("bitsandbytes",) if kinds & {Bnb4, Bnb8} else ()


def _modelopt_names(formats: set[WeightFormat]) -> tuple[str, ...]:
    """ModelOpt's FP8, NVFP4 and MXFP8 are methods of their own, NVFP4 under the name nvfp4 in 0.8."""
    if any(isinstance(kind, Nvfp4) for kind in formats):
        return ("modelopt_fp4", "nvfp4", "modelopt_mixed")
    if any(isinstance(kind, Mxfp) and kind.bits == 8 for kind in formats):
        return ("modelopt_mxfp8", "modelopt_mixed")
    return ("modelopt", "modelopt_mixed")


PLUGINS = ("gguf", "bitsandbytes")
"""Methods that left the core for a package of their own (0.24 and 0.28)."""


def _method_problem(checkpoint: Checkpoint, settings: Settings, device: Device) -> Problem | None:
    """A method that the version lacks, or that it refuses on a device of this generation."""
    version = settings.version
    methods = methods_of(checkpoint)
    asked = settings.flags.quantization
    if not methods and asked is not None:
        methods = (asked,)
    if not methods:
        return None
    states = [listed("quantization", method, version) for method in methods]
    if not any(state is not False for state in states):
        told = next(
            (when("quantization", method) for method in methods if when("quantization", method)),
            "no release does",
        )
        plugin = methods[0] in PLUGINS
        text = f"vllm {version} does not list the quantisation {methods[0]} ({told})"
        return Problem(certain=not plugin, text=f"{text}; it needs a plugin" if plugin else text)
    return _too_old(methods, version, device)


def _too_old(methods: tuple[str, ...], version: VllmVersion, device: Device) -> Problem | None:
    """The engine's own check of the compute capability (config/vllm.py, `_get_quantization_config`)."""
    capability = known_capability(device)
    if capability is None:
        return None
    method = next((name for name in methods if listed("quantization", name, version)), methods[0])
    called = (method, *_CALLED.get(method, ()))
    needed = [
        int(key.rpartition(" ")[2])
        for key in names("min_capability")
        if key.rpartition(" ")[0] in called and listed("min_capability", key, version)
    ]
    least = min(needed, default=0)
    if capability >= least:
        return None
    return Problem(
        certain=True,
        text=f"vllm {version} runs {method} on compute capability {least // 10}.{least % 10} and newer, "
        f"and {device.name} has {capability // 10}.{capability % 10}",
    )


# Classes behind a method whose own name is another's.
_CALLED: dict[str, tuple[str, ...]] = {
    "awq": ("auto_awq",),
    "gptq": ("auto_gptq",),
    "compressed-tensors": ("compressed_tensors",),
}


def _sparse_problem(model: Model, settings: Settings, device: Device) -> Problem | None:
    """DeepSeek's sparse attention has kernels for Hopper, data-centre Blackwell and, since 0.24, consumer
    Blackwell (`supports_compute_capability` of v1/attention/backends/mla/*sparse*.py)."""
    capability = known_capability(device)
    if capability is None:
        return None
    if not any(
        isinstance(mixer, LatentAttention) and mixer.indexer is not None for mixer in model.token_mixers
    ):
        return None
    if 90 <= capability < 110 or (capability >= 120 and settings.version.since(24)):
        return None
    return Problem(
        certain=True,
        text=f"vllm {settings.version} has no kernels for sparse latent attention on {device.name} "
        f"(compute capability {capability // 10}.{capability % 10})",
    )
