"""vLLM's `--speculative-config` read, and the checkpoint of the draft that it names.

Source: vllm config/speculative.py, transformers_utils/configs/eagle.py (class names of EAGLE heads).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from msgspec.structs import replace

from vramledger.engines.option import Option, bad_value, closest
from vramledger.engines.vllm.flags import Speculation
from vramledger.models.checkpoint import Checkpoint

OWN_CHECKPOINT = ("eagle", "eagle3", "medusa", "mlp_speculator", "draft_model")
WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix")
MAX_TOKENS = 1024

# Keys that change no memory, or change it in a way that the settings read here already have.
_HARMLESS = (
    "enforce_eager", "revision", "code_revision", "disable_padded_drafter_batch", "disable_logprobs",
    "use_local_argmax_reduction", "rejection_sample_method", "synthetic_acceptance_rate", "prompt_lookup_max",
    "prompt_lookup_min", "disable_by_batch_size", "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob",
    "index_share_for_mtp_iteration",
)  # fmt: skip
_TEXTS = (
    "method",
    "quantization",
    "kv_cache_dtype",
    "attention_backend",
    "moe_backend",
    "draft_sample_method",
)
_COUNTS = ("num_speculative_tokens", "draft_tensor_parallel_size", "max_model_len")
KEYS = (*_TEXTS, *_COUNTS, "model", *_HARMLESS)


def read_speculation(option: Option, config: Mapping[str, object]) -> Speculation:
    """The draft that a JSON object asks for; `model` is a path, a hub id or a Checkpoint.

    Raises FlagError for an unknown key (with the closest ones), method or value, and what loading a model raises.
    """
    for key in config:
        if key not in KEYS:
            near = closest(key, KEYS)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise bad_value(option, config, f"has the unknown key {key!r}{hint}")
    texts = {key: _text(option, config, key) for key in _TEXTS}
    counts = {key: _count(option, config, key) for key in _COUNTS}
    tokens = counts["num_speculative_tokens"]
    if tokens is None:
        raise bad_value(
            option, config, f"must have num_speculative_tokens, a whole number from 1 to {MAX_TOKENS}"
        )
    model, method = config.get("model"), texts["method"]
    if method is None and model is None:
        raise bad_value(option, config, 'must have method, such as "mtp" or "ngram"')
    draft = None
    if method is None or method in OWN_CHECKPOINT:
        if model is None:
            raise bad_value(option, config, f"must have model, the checkpoint of the {method} draft")
        method, draft = _draft(option, config, model, method, tokens)
    elif method.endswith("mtp"):
        method = "mtp"
    elif method not in WITHOUT_MODEL:
        known = ("mtp", *OWN_CHECKPOINT, *WITHOUT_MODEL)
        near = closest(method, known)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
        raise bad_value(option, config, f"has the method {method!r}, which is not sized here; {hint}")
    return Speculation(
        method=method,
        num_speculative_tokens=tokens,
        draft=draft,
        draft_tensor_parallel_size=counts["draft_tensor_parallel_size"],
        quantization=texts["quantization"],
        kv_cache_dtype=texts["kv_cache_dtype"],
        attention_backend=texts["attention_backend"],
        moe_backend=texts["moe_backend"],
        max_model_len=counts["max_model_len"],
        probabilistic=texts["draft_sample_method"] == "probabilistic",
    )


def _draft(
    option: Option, config: Mapping[str, object], model: object, method: str | None, tokens: int
) -> tuple[str, Checkpoint]:
    """The method, told from the checkpoint where it was not given, and the draft as the engine builds it."""
    if isinstance(model, Checkpoint):
        return method or _method_of(
            model.model.id, (model.model.architecture,), model.model.model_type
        ), model
    if not isinstance(model, str | PathLike) or not fspath(model):
        raise bad_value(option, config, "has a model that is neither a path nor a hub id")
    from vramledger.models.loading import checkpoint_from_source
    from vramledger.models.sources.load import load_source

    source = load_source(fspath(model))
    view = source.config_view()
    classes, model_type = view.texts("architectures"), view.raw("model_type")
    method = method or _method_of(fspath(model), classes, model_type)
    changes: dict[str, object] = {}
    if method in ("eagle", "eagle3"):
        changes["architectures"] = [_eagle_class(name, method) for name in classes or ("LlamaForCausalLM",)]
    elif method in ("medusa", "mlp_speculator"):
        # The engine builds a head for each token asked for (config/speculative.py, num_lookahead_tokens).
        changes["num_lookahead_tokens"] = tokens
    return method, checkpoint_from_source(replace(source, config={**source.config, **changes}))


def _method_of(name: str, classes: Sequence[str], model_type: object) -> str:
    """As the engine tells it: by the draft's type, then by its class or name; else it is a plain model."""
    if model_type in ("medusa", "mlp_speculator"):
        return str(model_type)
    words = (name, *classes)
    if any("eagle3" in word.lower() for word in words):
        return "eagle3"
    if "eagle-" in name.lower() or any("eagle" in word.lower() for word in classes):
        return "eagle"
    return "draft_model"


def _eagle_class(name: str, method: str) -> str:
    """The engine's name for a head whose config names the class of its layers (EAGLEConfig)."""
    if method == "eagle3":
        return name if "Eagle3" in name else f"Eagle3{name}"
    return name if "Eagle" in name else f"Eagle{name}"


def _text(option: Option, config: Mapping[str, object], key: str) -> str | None:
    value = config.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise bad_value(option, config, f"has a {key} that is not a name")
    return value


def _count(option: Option, config: Mapping[str, object], key: str) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    limit = 2**31 if key == "max_model_len" else MAX_TOKENS
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise bad_value(option, config, f"must have {key}, a whole number from 1 to {limit}")
    return value
