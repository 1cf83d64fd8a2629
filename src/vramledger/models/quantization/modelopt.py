"""ModelOpt checkpoints: `hf_quant_config.json`, or the same content in `quantization_config`."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.errors import ConfigError, UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Fp8, Granularity, GroupInt, Int8, Mxfp, Nvfp4, Packing, WeightFormat
from vramledger.models.config import Config
from vramledger.models.quantization.names import Names
from vramledger.models.quantization.scheme import Rule

MAX_LISTED = 1_000_000

DEFAULT_EXCLUDES = (
    "lm_head", "*router*", "*block_sparse_moe.gate", "*mlp.gate", "*mixer.gate", "*mlp.shared_expert_gate",
    "*output_layer*", "*mixer.conv1d", "mtp*", "*vision_tower*", "*visual*",
)  # fmt: skip
"""What ModelOpt's default configurations leave alone; used where a config has no list of its own."""


def algorithm_format(name: str, model_dtype: DType, group_size: int | None) -> WeightFormat | None:
    """The format of a `quant_algo` (modelopt/torch/export/quant_utils.py); None for one that stores weights plain.

    Raises UnknownFormat for one without a size here.
    """
    match name.upper():
        case "FP8":
            return Fp8(scale=Granularity.TENSOR, static_input=True)
        case "FP8_PER_CHANNEL_PER_TOKEN":
            return Fp8(scale=Granularity.CHANNEL)
        case "FP8_PB_WO" | "FP8_PB_REAL":
            return Fp8(scale=Granularity.BLOCK)
        case "NVFP4":
            return Nvfp4()
        case "W4A16_NVFP4":
            return Nvfp4(input_scale=False)
        case "NVFP4_AWQ":
            return Nvfp4(smooth=True)
        case "MXFP8":
            return Mxfp(bits=8)
        case "MXFP4" | "W4A8_MXFP4_FP8":
            return Mxfp(bits=4)
        case "INT8_SQ":
            return Int8(scale=Granularity.CHANNEL, static_input=True, smooth=True)
        case "W4A16_AWQ" | "W4A8_AWQ":
            return GroupInt(
                bits=4, group_size=group_size or 128, packing=Packing.MODELOPT, scale_dtype=model_dtype
            )
        case "NONE" | "":
            return None
    raise UnknownFormat(f"ModelOpt quant_algo {name!r} is not one this project can size", quant_algo=name)


def modelopt_rules(config: Config, model_dtype: DType, where: str) -> tuple[tuple[Rule, ...], Names]:
    """Rules and the list of modules left alone. Mixed precision quantises only the layers it names."""
    algorithm = config.text("quant_algo", default="")
    if algorithm.upper() == "MIXED_PRECISION":
        return mixed_rules(config, model_dtype, where), Names.of((), where)
    listed = "exclude_modules" in config or "ignore" in config
    excludes = (*config.texts("exclude_modules"), *config.texts("ignore")) if listed else DEFAULT_EXCLUDES
    kind = algorithm_format(algorithm, model_dtype, config.optional_int("group_size", minimum=0))
    rules = () if kind is None else (Rule(format=kind, lm_head=True),)
    return rules, Names.of(excludes, where)


def mixed_rules(config: Config, model_dtype: DType, where: str) -> tuple[Rule, ...]:
    """One rule for each algorithm of `quantized_layers`, with the modules it lists.

    Raises ConfigError for an entry that is not an object with a quant_algo.
    """
    layers = config.raw("quantized_layers")
    if not isinstance(layers, Mapping):
        raise config.fail("quantized_layers", "must be an object with one entry a module")
    if len(layers) > MAX_LISTED:
        raise config.fail("quantized_layers", f"has {len(layers)} entries, more than {MAX_LISTED}")
    by_algorithm: dict[tuple[str, int | None], list[str]] = {}
    for name, entry in layers.items():
        algorithm = entry.get("quant_algo") if isinstance(entry, Mapping) else None
        if not isinstance(algorithm, str):
            raise ConfigError(f"{where}: quantized_layers {name!r} has no quant_algo", file=where, key=name)
        own = Config(entry, f"{where}: quantized_layers {name!r}")
        group = own.optional_int("group_size", minimum=1)
        by_algorithm.setdefault((algorithm, group), []).append(name)
    out: list[Rule] = []
    for (algorithm, group), names in by_algorithm.items():
        kind = algorithm_format(algorithm, model_dtype, group)
        if kind is not None:
            out.append(Rule(format=kind, names=Names.of(names, where), lm_head=True))
    return tuple(out)
