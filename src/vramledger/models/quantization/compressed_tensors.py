"""compressed-tensors configs (llm-compressor's output): groups of targets with a scheme each."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Fp8, Granularity, GroupInt, Int8, Mxfp, Nvfp4, Packing, WeightFormat
from vramledger.models.config import Config
from vramledger.models.quantization.names import Names
from vramledger.models.quantization.scheme import Rule

_LINEAR_CLASSES = frozenset({"Linear", "LinearBase", "FusedMoE"})


WHOLE_WORD_BITS = (1, 2, 4, 8)
"""Widths that fill the int32 words of the packed layout; others leave bits of each word unused."""


def compressed_rules(config: Config, model: Config, model_dtype: DType, where: str) -> tuple[Rule, ...]:
    """One rule a group, those that name modules before those that name the class Linear.

    Source: compressed-tensors 0.20, quantization/quant_scheme.py and utils/match.py. Moonshot's own exporter
    (Kimi K2) keeps `weight_shape` in int32, the library in int64. Raises UnknownFormat for a storage format
    (sparse, marlin) without a size here, ConfigError for a config without groups.
    """
    groups = config.sub("config_groups")
    is_moonshot = model.text("model_type", default="").startswith("kimi_k2")
    stored_as = config.text("format", default="")
    named: list[Rule] = []
    by_class: list[Rule] = []
    for key in groups.keys()[:256]:
        group = groups.optional_sub(key)
        weights = group.optional_sub("weights") if group is not None else None
        if group is None or weights is None:
            continue
        kind = group_format(
            weights,
            group.optional_sub("input_activations"),
            group.text("format", default=stored_as),
            model_dtype,
        )
        if is_moonshot and isinstance(kind, GroupInt):
            kind = replace(kind, shape_dtype=DType.I32)
        targets = group.texts("targets")
        if not targets or _LINEAR_CLASSES.intersection(targets):
            by_class.append(Rule(format=kind, lm_head=True))
        names = [target for target in targets if target not in _LINEAR_CLASSES]
        if names:
            named.append(Rule(format=kind, names=Names.of(names, where), lm_head=True))
    return (*named, *by_class)


def group_format(weights: Config, inputs: Config | None, stored_as: str, model_dtype: DType) -> WeightFormat:
    """The format of one group's `weights` (num_bits, type, strategy, group_size), with scales in the model's type."""
    if "marlin" in stored_as or "sparse" in stored_as or stored_as == "dense":
        raise UnknownFormat(
            f"compressed-tensors format {stored_as!r} is not one this project can size", format=stored_as
        )
    bits = weights.integer("num_bits", minimum=1, maximum=32)
    kind = weights.text("type", default="int")
    group_size = weights.optional_int("group_size", minimum=-1) or -1
    strategy = weights.text("strategy", default="group" if group_size > 0 else "tensor")
    zero_points = not weights.flag("symmetric", default=True)
    static = inputs is not None and inputs.raw("dynamic") is False
    if kind == "float" and bits == 4:
        if group_size == 32:
            return Mxfp(bits=4, packing=Packing.COMPRESSED_TENSORS)
        return Nvfp4(packing=Packing.COMPRESSED_TENSORS, input_scale=inputs is not None)
    if kind == "float" and bits == 8:
        if strategy == "group" and group_size == 32:
            return Mxfp(bits=8, packing=Packing.COMPRESSED_TENSORS)
        rows, columns = (*weights.integers("block_structure", minimum=1), 128, 128)[:2]
        return Fp8(
            scale=_granularity(strategy), block=(rows, columns), scale_dtype=model_dtype, static_input=static
        )
    if kind == "int" and bits in WHOLE_WORD_BITS and (stored_as == "pack-quantized" or bits < 8):
        return GroupInt(
            bits=bits,
            group_size=group_size if strategy == "group" else -1,
            packing=Packing.COMPRESSED_TENSORS,
            zero_points=zero_points,
            act_order=weights.raw("actorder") in ("group", True),
            scale_dtype=model_dtype,
        )
    if kind == "int" and bits == 8:
        return Int8(
            scale=_granularity(strategy),
            scale_dtype=model_dtype,
            static_input=static,
            zero_points=zero_points,
        )
    raise UnknownFormat(
        f"compressed-tensors weights of type {kind} with {bits} bits are not known", bits=bits
    )


def _granularity(strategy: str) -> Granularity:
    try:
        return Granularity(strategy)
    except ValueError:
        raise UnknownFormat(
            f"compressed-tensors strategy {strategy!r} is not known", strategy=strategy
        ) from None
