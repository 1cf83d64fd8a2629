"""From a model's config.json and hf_quant_config.json to its quantisation scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import format_label
from vramledger.models.config import Config
from vramledger.models.quantization import methods
from vramledger.models.quantization.compressed_tensors import compressed_rules
from vramledger.models.quantization.modelopt import modelopt_rules
from vramledger.models.quantization.names import Names
from vramledger.models.quantization.scheme import DeclaredKv, QuantizationScheme

_METHODS: dict[str, Callable[[Config, Config, DType, str], methods.Rules]] = {
    "fp8": methods.fp8,
    "fbgemm_fp8": methods.fbgemm_fp8,
    "gptq": methods.gptq,
    "awq": methods.awq,
    "bitsandbytes": methods.bitsandbytes,
    "mxfp4": methods.mxfp4,
    "auto-round": methods.auto_round,
    "intel/auto-round": methods.auto_round,
}
_NESTED = ("text_config", "language_config", "llm_config")


def read_quantization(
    config: Config, model_dtype: DType, hf_quant_config: Config | None = None
) -> QuantizationScheme | None:
    """The scheme of a checkpoint, None where it is not quantised.

    `config` is config.json whole, `hf_quant_config` ModelOpt's file beside it. Raises UnknownFormat naming
    a method this project cannot size; ConfigError for a config that lacks what its method needs.
    """
    own, where = _own_section(config)
    beside = hf_quant_config.optional_sub("quantization") if hf_quant_config is not None else None
    method = _method(own)
    if own is None or (beside is not None and method == "modelopt"):
        if beside is None:
            return None
        scheme = _modelopt(beside, model_dtype, "hf_quant_config.json: quantization")
        return _with_kv(scheme, (beside, "hf_quant_config.json"), (own, where))
    if method in ("modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mxfp8"):
        scheme = _modelopt(own.optional_sub("quantization") or own, model_dtype, where)
    elif method in ("compressed-tensors", "compressed_tensors"):
        rules = compressed_rules(own, config, model_dtype, where)
        scheme = QuantizationScheme(method=method, rules=rules, ignored=Names.of(own.texts("ignore"), where))
    elif method in _METHODS:
        rules, ignored = _METHODS[method](own, config, model_dtype, where)
        scheme = QuantizationScheme(method=method, rules=rules, ignored=ignored)
    else:
        raise UnknownFormat(
            f"{where}: quant_method {method!r} is not one this project can size", quant_method=method
        )
    return _with_kv(scheme, (own, where), (beside, "hf_quant_config.json"))


def _own_section(config: Config) -> tuple[Config | None, str]:
    for key in ("quantization_config", "compression_config"):
        section = config.optional_sub(key)
        if section is not None:
            return section, f"config.json: {key}"
    for outer in _NESTED:
        inner = config.raw(outer)
        if isinstance(inner, Mapping) and isinstance(inner.get("quantization_config"), Mapping):
            return config.sub(outer).sub("quantization_config"), f"config.json: {outer}.quantization_config"
    return None, ""


def _method(section: Config | None) -> str:
    """The method's name; ModelOpt and llm-compressor files without one are known by their keys."""
    if section is None:
        return ""
    stated = section.text("quant_method", default="").lower()
    if stated:
        return stated
    if "quant_algo" in section or "quantization" in section:
        return "modelopt"
    if "config_groups" in section:
        return "compressed-tensors"
    if section.raw("load_in_4bit") is True or section.raw("load_in_8bit") is True:
        return "bitsandbytes"
    raise section.fail("quant_method", "is missing, and no other key says how the weights are stored")


def _modelopt(section: Config, model_dtype: DType, where: str) -> QuantizationScheme:
    rules, ignored = modelopt_rules(section, model_dtype, where)
    return QuantizationScheme(method="modelopt", rules=rules, ignored=ignored)


def _with_kv(scheme: QuantizationScheme, *sections: tuple[Config | None, str]) -> QuantizationScheme:
    declared = next(
        (
            kv
            for section, where in sections
            if section is not None
            for kv in (_declared_kv(section, where),)
            if kv
        ),
        None,
    )
    kinds = dict.fromkeys(format_label(rule.format) for rule in scheme.rules)
    summary = f"{scheme.method}: {', '.join(kinds) or 'no weights'}"
    return QuantizationScheme(
        method=scheme.method,
        rules=scheme.rules,
        ignored=scheme.ignored,
        text_only=any(f"config.json: {outer}." in where for _, where in sections for outer in _NESTED),
        declared_kv=declared,
        summary=summary + (f", {declared.dtype} KV cache" if declared else ""),
    )


def _declared_kv(section: Config, where: str) -> DeclaredKv | None:
    """`kv_cache_quant_algo`, or `kv_cache_scheme` as text or as {num_bits, type}."""
    for key in ("kv_cache_quant_algo", "kv_cache_scheme"):
        value = section.raw(key)
        if isinstance(value, str) and value and value.lower() not in ("none", "auto"):
            return DeclaredKv(dtype=value.lower(), source=f"{where}: {key}")
        if isinstance(value, Mapping):
            bits, kind = value.get("num_bits"), value.get("type")
            if not isinstance(bits, int) or not isinstance(kind, str):
                raise section.fail(key, "must say num_bits and type")
            names = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4", (4, "int"): "int4"}
            return DeclaredKv(dtype=names.get((bits, kind), f"{kind}{bits}"), source=f"{where}: {key}")
    return None
