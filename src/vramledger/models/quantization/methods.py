"""The other quantisation methods of config.json, one function each: rules and modules left alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Bnb4, Bnb8, Fp8, Granularity, GroupInt, Mxfp, Packing, WeightFormat
from vramledger.models.config import Config
from vramledger.models.quantization.modelopt import mixed_rules
from vramledger.models.quantization.names import Names
from vramledger.models.quantization.patterns import compile_pattern
from vramledger.models.quantization.scheme import Rule, Scope

Rules = tuple[tuple[Rule, ...], Names]

PACKED_BITS = (2, 3, 4, 8)
"""Widths that GPTQ's layout packs (vLLM, quantization/gptq.py)."""


def _bits(config: Config, *keys: str, allowed: tuple[int, ...], default: int | None = None) -> int:
    """A width in bits. Raises ConfigError for one that no kernel has."""
    key = next((key for key in keys if key in config), keys[0])
    found = config.integer(*keys, minimum=1, maximum=64) if default is None or key in config else default
    if found not in allowed:
        raise config.fail(key, f"is {found}, not one of {', '.join(map(str, allowed))}")
    return found


def _group_size(config: Config, *keys: str, default: int = 128) -> int:
    """Inputs that share a scale, -1 for all of a row. Raises ConfigError for 0."""
    found = config.integer(*keys, default=default, minimum=-1)
    if found == 0:
        raise config.fail(
            next((key for key in keys if key in config), keys[0]), "is 0; it must be -1 or at least 1"
        )
    return found


def fp8(config: Config, model: Config, model_dtype: DType, where: str) -> Rules:
    """`quant_method: fp8`: DeepSeek's 128 x 128 tiles, or one scale a tensor (AutoFP8, Mistral).

    DeepSeek-V4 (its inference/convert.py) names scales `scale`, keeps them as e8m0 where `scale_fmt` is ue8m0, and
    stores routed experts in MXFP4 where `expert_dtype` is fp4. Qwen3's releases keep scales in the model's
    own type. The projection that joins an MTP layer's two inputs (`eh_proj`) is left plain, listed or not: model
    code keeps it outside quantisation (vllm/model_executor/models/deepseek_mtp.py). A ModelOpt rework of such a checkpoint lists its NVFP4 modules in `quantized_layers`.
    """
    family = model.text("model_type", default="")
    is_v4 = family.startswith("deepseek_v4")
    block = config.integers("weight_block_size", minimum=1)
    if len(block) not in (0, 2):
        raise config.fail("weight_block_size", f"must have two sizes, not {len(block)}")
    power_of_two = is_v4 and config.text("scale_fmt", default="") == "ue8m0"
    kind: WeightFormat
    if block:
        scale_dtype = DType.F8_E8M0 if power_of_two else DType.F32
        kind = Fp8(
            scale=Granularity.BLOCK,
            block=(block[0], block[1]),
            scale_dtype=model_dtype if family.startswith("qwen3") else scale_dtype,
            scale_name="scale" if is_v4 else "weight_scale_inv",
        )
    else:
        kind = Fp8(
            scale=Granularity.TENSOR,
            static_input=config.text("activation_scheme", default="dynamic") == "static",
        )
    rules: list[Rule] = []
    if "quantized_layers" in config:
        rules.extend(mixed_rules(config, model_dtype, where))
    if is_v4 and model.text("expert_dtype", default="") == "fp4":
        rules.append(Rule(format=Mxfp(bits=4, packing=Packing.DEEPSEEK), scope=Scope.EXPERTS))
    rules.append(Rule(format=kind))
    ignored = (*config.texts("ignored_layers"), *config.texts("modules_to_not_convert"), "eh_proj")
    return tuple(rules), Names.of(ignored, where)


def fbgemm_fp8(config: Config, model: Config, _dtype: DType, where: str) -> Rules:
    """One fp32 scale a row (transformers integrations/fbgemm_fp8.py).

    Releases in this format follow the Llama 3 paper (section 6.2): attention and the first and last layer stay
    unquantised. Copies of their configs often lack the list that says so.
    """
    ignored = config.texts("modules_to_not_convert")
    if "modules_to_not_convert" not in config:
        last = model.num_layers() - 1
        ignored = ("re:.*self_attn.*", "re:.*layers[.]0[.].*", f"re:.*layers[.]{last}[.].*")
        config.assume(
            "fbgemm_fp8 without modules_to_not_convert: attention, first and last layer taken as unquantised"
        )
    rule = Rule(format=Fp8(scale=Granularity.CHANNEL))
    return (rule,), Names.of(ignored, where)


def _sixteen_bit(dtype: DType) -> DType:
    return dtype if dtype in (DType.F16, DType.BF16) else DType.F16


def gptq(config: Config, _model: Config, model_dtype: DType, where: str) -> Rules:
    """AutoGPTQ, GPTQModel and Optimum: the linears of decoder layers.

    `dynamic` (GPTQModel) has patterns: "-:" leaves modules alone, "+:" or none overrides bits and group size.
    AutoGPTQ's own configs (they have `model_file_base_name`) come from versions that store a zero bias.
    """
    base = GroupInt(
        bits=_bits(config, "bits", allowed=PACKED_BITS),
        group_size=_group_size(config, "group_size"),
        packing=Packing.GPTQ,
        zero_points=not config.flag("sym", default=True),
        act_order=config.flag("desc_act", default=False),
        scale_dtype=_sixteen_bit(model_dtype),
        bias="model_file_base_name" in config.keys() and "checkpoint_format" not in config,  # noqa: SIM118
    )
    head = config.flag("lm_head", default=False)
    rules: list[Rule] = []
    ignored = list(config.texts("modules_to_not_convert"))
    dynamic = config.optional_sub("dynamic")
    for pattern in dynamic.keys()[:4096] if dynamic is not None else ():
        mark, _, expression = pattern.partition(":") if pattern[:2] in ("+:", "-:") else ("+", ":", pattern)
        if mark == "-":
            ignored.append(f"re:{expression}")
            continue
        override = dynamic.optional_sub(pattern) if dynamic is not None else None
        if override is None:
            continue
        kind = GroupInt(
            bits=_bits(override, "bits", allowed=PACKED_BITS, default=base.bits),
            group_size=_group_size(override, "group_size", default=base.group_size),
            packing=Packing.GPTQ,
            zero_points=base.zero_points,
            scale_dtype=base.scale_dtype,
            bias=base.bias,
        )
        rules.append(Rule(format=kind, names=Names.of([f"re:{expression}"], where)))
    only = _flat_texts(config.items("modules_in_block_to_quantize"))
    names = Names.of(only, where) if only else None
    rules.append(Rule(format=base, scope=Scope.DECODER_LAYERS, names=names))
    if head:
        rules.append(Rule(format=base, names=Names.of(["lm_head", "output"], where), lm_head=True))
    return tuple(rules), Names.of(ignored, where)


def _flat_texts(items: Iterable[object]) -> list[str]:
    out: list[str] = []
    for item in items:
        out.extend(part for part in (item if isinstance(item, list) else [item]) if isinstance(part, str))
    return out


def awq(config: Config, _model: Config, model_dtype: DType, where: str) -> Rules:
    """AutoAWQ: the linears of decoder layers; a module is left alone when its name contains a listed text."""
    version = config.text("version", default="gemm").lower()
    if version not in ("gemm", "marlin", "exllama", "ipex"):
        raise UnknownFormat(
            f"{where}: AWQ version {version!r} is not one this project can size", version=version
        )
    kind = GroupInt(
        bits=_bits(config, "bits", "w_bit", allowed=(4, 8), default=4),
        group_size=_group_size(config, "group_size", "q_group_size"),
        packing=Packing.AWQ,
        scale_dtype=_sixteen_bit(model_dtype),
    )
    ignored = Names.of(config.texts("modules_to_not_convert"), where, is_substring=True)
    return (Rule(format=kind, scope=Scope.DECODER_LAYERS),), ignored


def bitsandbytes(config: Config, _model: Config, model_dtype: DType, where: str) -> Rules:
    """Every linear except those listed; with no list, the head stays (transformers, `get_keys_to_not_convert`)."""
    skipped = config.texts("llm_int8_skip_modules")
    kind: WeightFormat
    if config.flag("load_in_4bit", "_load_in_4bit", default=False):
        kind = Bnb4(
            quant_type=config.text("bnb_4bit_quant_type", default="fp4")[:8],
            double_quant=config.flag("bnb_4bit_use_double_quant", default=False),
            dtype=model_dtype,
        )
    else:
        kind = Bnb8()
    return (Rule(format=kind, lm_head=bool(skipped)),), Names.of(skipped, where)


def mxfp4(config: Config, _model: Config, _dtype: DType, where: str) -> Rules:
    """gpt-oss: only the experts (transformers integrations/mxfp4.py)."""
    rule = Rule(format=Mxfp(bits=4, packing=Packing.GPT_OSS), scope=Scope.EXPERTS)
    return (rule,), Names.of(config.texts("modules_to_not_convert"), where)


def auto_round(config: Config, _model: Config, model_dtype: DType, where: str) -> Rules:
    """AutoRound: `extra_config` overrides bits and group size module by module; 16 bits leave one alone."""
    packing = config.text("packing_format", default="auto_round:auto_gptq")
    if not any(known in packing for known in ("gptq", "awq", "exllamav2", "triton")):
        raise UnknownFormat(
            f"{where}: AutoRound packing {packing!r} is not one this project can size", packing=packing
        )
    bits = _bits(config, "bits", allowed=(*PACKED_BITS, 16))
    group = _group_size(config, "group_size")

    def group_int(bits: int, group_size: int) -> GroupInt:
        return GroupInt(
            bits=bits,
            group_size=group_size,
            packing=Packing.AWQ if "awq" in packing else Packing.GPTQ,
            scale_dtype=_sixteen_bit(model_dtype),
        )

    rules: list[Rule] = []
    ignored: list[str] = []
    extra = config.raw("extra_config")
    by_width: dict[tuple[int, int], list[str]] = {}
    for name, entry in extra.items() if isinstance(extra, Mapping) else ():
        override = Config(entry if isinstance(entry, Mapping) else {}, f"{where}: extra_config")
        width = _bits(override, "bits", allowed=(*PACKED_BITS, 16, 32), default=bits)
        size = _group_size(override, "group_size", default=group)
        if width >= 16:
            ignored.append(name)
        else:
            by_width.setdefault((width, size), []).append(name)
    for (width, size), names in by_width.items():
        rules.append(
            Rule(format=group_int(width, size), names=Names.of([_as_entry(n) for n in names], where))
        )
    key = "block_name_to_quantize" if "block_name_to_quantize" in config else "to_quant_block_names"
    blocks = config.raw(key)
    texts = [blocks] if isinstance(blocks, str) else _flat_texts(config.items(key))
    listed = [part.strip() for text in texts for part in text.split(",")]
    names_of_blocks = Names.of(listed, where) if listed else None
    if bits < 16:
        rules.append(Rule(format=group_int(bits, group), scope=Scope.DECODER_LAYERS, names=names_of_blocks))
    return tuple(rules), Names.of([_as_entry(name) for name in ignored], where)


def _as_entry(name: str) -> str:
    """AutoRound writes patterns without a mark; one has a character that no module name has."""
    if any(mark in name for mark in "*+\\[(^$"):
        compile_pattern(name, "extra_config")
        return f"re:{name}"
    return name
