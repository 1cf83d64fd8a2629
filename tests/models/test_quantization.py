from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import ConfigError, UnknownFormat, VramledgerError
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import (
    Bnb4,
    Bnb8,
    Dense,
    Fp8,
    Granularity,
    GroupInt,
    Int8,
    Mxfp,
    Nvfp4,
    Packing,
    WeightFormat,
)
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.quantization import DeclaredKv, QuantizationScheme, apply, read_quantization
from vramledger.models.quantization.names import Names
from vramledger.models.tensors import Component, Role, Tensor, experts, hidden, intermediate, vocab

Json = dict[str, Any]
BF16 = Dense(dtype=DType.BF16)
NVFP4 = Nvfp4()


def scheme(
    quantization: Json | None = None, *, beside: Json | None = None, dtype: DType = DType.BF16, **model: Any
) -> QuantizationScheme:
    data = dict(model)
    if quantization is not None:
        data["quantization_config"] = quantization
    extra = None if beside is None else Config({"quantization": beside}, "hf_quant_config.json")
    found = read_quantization(Config(data, "config.json"), dtype, extra)
    assert found is not None
    return found


def linear(
    name: str,
    layers: Iterable[int] = range(4),
    role: Role = Role.DOWN,
    component: Component = Component.DECODER,
    **more: Any,
) -> Tensor:
    return Tensor(name=name, role=role, axes=(hidden(256), intermediate(512)), layers=tuple(layers), linear=True,
                  component=component, **more)  # fmt: skip


def routed(name: str, count: int = 3, layers: Iterable[int] = range(4)) -> Tensor:
    axes = (experts(count), intermediate(256), hidden(512))
    return Tensor(name=name, role=Role.EXPERT_GATE, axes=axes, layers=tuple(layers), linear=True)


LM_HEAD = Tensor(name="lm_head.weight", role=Role.LM_HEAD, axes=(vocab(512), hidden(256)), linear=True)
DOWN = linear("model.layers.{layer}.mlp.down_proj.weight")


def formats(found: QuantizationScheme, tensor: Tensor) -> dict[WeightFormat, list[int]]:
    return {kind: sorted(where) for kind, where in found.formats_of(tensor, DType.BF16).items()}


def only(found: QuantizationScheme, tensor: Tensor) -> WeightFormat:
    (kind,) = formats(found, tensor)
    return kind


def llama(**more: Any) -> Config:
    data = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 5120, "num_attention_heads": 40,
        "num_hidden_layers": 40, "vocab_size": 32000, "intermediate_size": 13824, "torch_dtype": "float16",
    }  # fmt: skip
    return Config(data | more, "config.json")


def stored(config: Config, beside: Json | None = None) -> int:
    model = describe(config, "test")
    extra = None if beside is None else Config(beside, "hf_quant_config.json")
    return sum(item.stored_bytes for item in apply(model, read_quantization(config, model.dtype, extra)))


# Sizes of published checkpoints.


def test_llama_2_13b_gptq_has_autogptqs_zero_biases() -> None:
    # The publisher's page counts 13,017,996,800 elements: the base model's 13,015,864,320, 2,560 of rotary
    # buffers that old Transformers stored, and these biases.
    quantization = {"bits": 4, "group_size": 128, "desc_act": False, "quant_method": "gptq"}
    with_bias = stored(llama(quantization_config=quantization | {"model_file_base_name": "model"}))
    assert (
        with_bias - stored(llama(quantization_config=quantization))
    ) // 2 == 13_017_996_800 - 13_015_864_320 - 2_560


def test_llama_2_13b_nf4_double_quantised() -> None:
    # metadata.total_size of the published index is 7,201,770,923; each of 280 JSON texts may differ in the
    # length of one number.
    quantization = {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True, "llm_int8_skip_modules": None,
    }  # fmt: skip
    assert abs(stored(llama(quantization_config=quantization)) - 7_201_770_923) <= 280


def test_llama_3_8b_int8() -> None:
    config = llama(
        hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, num_hidden_layers=32, vocab_size=128256,
        intermediate_size=14336, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True},
    )  # fmt: skip
    assert stored(config) == 9_086_705_888


# Methods.


def test_an_unquantised_model_is_dense() -> None:
    assert read_quantization(Config({}, "config.json"), DType.BF16) is None
    model = describe(llama(), "test")
    assert {item.format for item in apply(model, None)} == {Dense(dtype=DType.F16)}


def test_deepseek_fp8_leaves_head_and_mtp_projection() -> None:
    found = scheme({"quant_method": "fp8", "weight_block_size": [128, 128]}, model_type="deepseek_v3")
    assert only(found, DOWN) == Fp8(scale=Granularity.BLOCK, scale_name="weight_scale_inv")
    assert only(found, LM_HEAD) == BF16
    assert only(found, linear("model.layers.{layer}.eh_proj.weight", [61], component=Component.DRAFT)) == BF16


def test_deepseek_v4_experts_are_mxfp4() -> None:
    found = scheme(
        {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"},
        model_type="deepseek_v4", expert_dtype="fp4",
    )  # fmt: skip
    assert only(found, routed("layers.{layer}.ffn.experts.{expert}.w1.weight")) == Mxfp(
        bits=4, packing=Packing.DEEPSEEK
    )
    assert only(found, linear("layers.{layer}.attn.wq_a.weight")) == Fp8(
        scale=Granularity.BLOCK, scale_dtype=DType.F8_E8M0, scale_name="scale"
    )


def test_a_rework_of_deepseek_v4_keeps_fp8_beside_nvfp4_experts() -> None:
    found = scheme(
        {
            "quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0", "quant_algo": "MIXED_PRECISION",
            "ignore": ["*.attn.*", "head", "mtp.*"],
            "quantized_layers": {f"layers.{n}.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16} for n in range(4)},
        },
        model_type="deepseek_v4", expert_dtype="fp4",
    )  # fmt: skip
    assert only(found, routed("layers.{layer}.ffn.experts.{expert}.w1.weight")) == NVFP4
    assert only(found, linear("layers.{layer}.attn.wq_a.weight")) == Fp8(
        scale=Granularity.BLOCK, scale_dtype=DType.F8_E8M0, scale_name="scale"
    )
    assert isinstance(only(found, routed("mtp.{layer}.ffn.experts.{expert}.w1.weight", layers=[0])), Mxfp)


def test_static_fp8_with_its_two_names_for_the_list() -> None:
    for key in ("ignored_layers", "modules_to_not_convert"):
        found = scheme(
            {"quant_method": "fp8", "activation_scheme": "static", key: ["model.vision_tower", "lm_head"]}
        )
        assert only(found, DOWN) == Fp8(scale=Granularity.TENSOR, static_input=True)
        tower = Tensor(name="vision_tower.blocks.{block}.fc1.weight", role=Role.OTHER, axes=(hidden(8), hidden(8)),
                       copies=3, linear=True, component=Component.VISION)  # fmt: skip
        assert only(found, tower) == BF16


def test_awq_reads_its_list_as_substrings_and_stays_in_decoder_layers() -> None:
    found = scheme(
        {"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["visual", "down"]}
    )
    assert only(found, DOWN) == BF16
    up = linear("model.layers.{layer}.mlp.up_proj.weight")
    assert only(found, up) == GroupInt(bits=4, group_size=64, packing=Packing.AWQ, scale_dtype=DType.BF16)
    assert (
        only(found, linear("mtp.layers.{layer}.mlp.up_proj.weight", [0], component=Component.DRAFT)) == BF16
    )


def test_gptq_dynamic_rules_and_head() -> None:
    found = scheme(
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True,
         "dynamic": {"-:.*shared.*": {}, r"+:.*\.2\..*down.*": {"bits": 8, "group_size": 64}}},
    )  # fmt: skip
    four = GroupInt(bits=4, group_size=128, packing=Packing.GPTQ, zero_points=False, scale_dtype=DType.BF16)
    eight = GroupInt(bits=8, group_size=64, packing=Packing.GPTQ, zero_points=False, scale_dtype=DType.BF16)
    assert formats(found, DOWN) == {eight: [2], four: [0, 1, 3]}
    assert only(found, linear("model.layers.{layer}.mlp.shared_expert.up_proj.weight")) == BF16
    assert only(found, LM_HEAD) == four


def test_gpt_oss_quantises_only_experts() -> None:
    found = scheme(
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    )
    assert only(found, routed("model.layers.{layer}.mlp.experts.gate_up_proj")) == Mxfp(
        bits=4, packing=Packing.GPT_OSS
    )
    assert only(found, DOWN) == BF16


def test_bitsandbytes_lists_replace_the_default() -> None:
    assert only(scheme({"quant_method": "bitsandbytes", "load_in_8bit": True}), LM_HEAD) == BF16
    listed = scheme(
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["model.visual"]}
    )
    assert only(listed, LM_HEAD) == Bnb4(quant_type="fp4")
    assert only(scheme({"load_in_8bit": True, "quant_method": ""}), DOWN) == Bnb8()


def group(
    bits: int,
    kind: str,
    strategy: str,
    size: int | None = None,
    *,
    inputs: Json | None = None,
    targets: Iterable[str] = ("Linear",),
) -> Json:
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": size, "symmetric": True}
    return {"weights": weights, "input_activations": inputs, "targets": list(targets)}


def compressed(stored_as: str, ignore: Iterable[str] = (), **groups: Json) -> Json:
    return {
        "quant_method": "compressed-tensors",
        "format": stored_as,
        "ignore": list(ignore),
        "config_groups": groups,
    }


def test_compressed_tensors_groups_and_patterns() -> None:
    found = scheme(
        compressed(
            "pack-quantized", ["lm_head", "re:.*self_attn.*", r"re:.*mlp\.gate$"],
            a=group(4, "int", "group", 32), b=group(8, "int", "channel", targets=[r"re:.*layers\.[13]\.mlp.*"]),
        )
    )  # fmt: skip
    four = GroupInt(
        bits=4, group_size=32, packing=Packing.COMPRESSED_TENSORS, zero_points=False, scale_dtype=DType.BF16
    )
    eight = GroupInt(
        bits=8, group_size=-1, packing=Packing.COMPRESSED_TENSORS, zero_points=False, scale_dtype=DType.BF16
    )
    assert formats(found, DOWN) == {eight: [1, 3], four: [0, 2]}
    assert only(found, linear("model.layers.{layer}.self_attn.o_proj.weight")) == BF16
    assert only(found, LM_HEAD) == BF16
    assert only(found, linear("model.layers.{layer}.mlp.gate_proj.weight", [0])) == four


@pytest.mark.parametrize(
    ("stored_as", "weights", "kind"),
    [
        ("float-quantized", group(8, "float", "channel"), Fp8(scale=Granularity.CHANNEL, scale_dtype=DType.BF16)),
        ("int-quantized", group(8, "int", "channel"), Int8(scale=Granularity.CHANNEL, scale_dtype=DType.BF16)),
        ("nvfp4-pack-quantized", group(4, "float", "tensor_group", 16, inputs={"dynamic": "local"}),
         Nvfp4(packing=Packing.COMPRESSED_TENSORS)),
        ("mxfp4-pack-quantized", group(4, "float", "group", 32), Mxfp(bits=4, packing=Packing.COMPRESSED_TENSORS)),
        ("float-quantized", group(8, "float", "tensor", inputs={"dynamic": False}),
         Fp8(scale=Granularity.TENSOR, scale_dtype=DType.BF16, static_input=True)),
    ],
)  # fmt: skip
def test_compressed_tensors_formats(stored_as: str, weights: Json, kind: WeightFormat) -> None:
    assert only(scheme(compressed(stored_as, a=weights)), DOWN) == kind


def test_a_scheme_in_the_text_config_leaves_towers_plain() -> None:
    inner = {"quantization_config": compressed("pack-quantized", a=group(4, "int", "group", 32))}
    found = read_quantization(
        Config({"model_type": "kimi_k25", "text_config": inner}, "config.json"), DType.BF16
    )
    tower = Tensor(name="vision_tower.blocks.{block}.wo.weight", role=Role.OTHER, axes=(hidden(64), hidden(64)),
                   copies=3, linear=True, component=Component.VISION)  # fmt: skip
    assert found is not None
    assert only(found, tower) == BF16
    kind = only(found, DOWN)
    assert isinstance(kind, GroupInt)
    assert kind.shape_dtype is DType.I32


def test_modelopt_lists_of_open_names() -> None:
    found = scheme(beside={
        "quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head", "model.layers.1*", "model.layers.12.*", "mtp*", "*.self_attn.o_proj"],
    })  # fmt: skip
    tensor = linear("model.layers.{layer}.mlp.down_proj.weight", [0, 1, 2, 10, 12])
    assert formats(found, tensor) == {BF16: [1, 10, 12], NVFP4: [0, 2]}
    assert (
        only(found, linear("mtp.layers.{layer}.mlp.up_proj.weight", [0], component=Component.DRAFT)) == BF16
    )
    assert only(found, linear("model.layers.{layer}.self_attn.o_proj.weight")) == BF16
    assert found.declared_kv == DeclaredKv(dtype="fp8", source="hf_quant_config.json: kv_cache_quant_algo")


def test_modelopt_without_a_list_takes_modelopts_defaults() -> None:
    found = scheme(beside={"quant_algo": "FP8"})
    assert only(found, LM_HEAD) == BF16
    assert only(found, DOWN) == Fp8(scale=Granularity.TENSOR, static_input=True)
    assert only(scheme(beside={"quant_algo": "FP8", "exclude_modules": []}), LM_HEAD) != BF16


def test_modelopt_mixed_precision_quantises_what_it_names() -> None:
    layers: Json = {f"model.layers.{n}.mlp.down_proj": {"quant_algo": "FP8"} for n in (0, 2)}
    layers |= {
        f"model.layers.1.mlp.experts.{e}.gate_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}
        for e in range(3)
    }
    found = scheme({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers,
                    "kv_cache_scheme": {"num_bits": 8, "type": "float"}})  # fmt: skip
    assert formats(found, DOWN) == {Fp8(scale=Granularity.TENSOR, static_input=True): [0, 2], BF16: [1, 3]}
    gate = routed("model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight")
    assert formats(found, gate) == {Nvfp4(input_scale=False): [1], BF16: [0, 2, 3]}
    assert found.declared_kv == DeclaredKv(
        dtype="fp8", source="config.json: quantization_config: kv_cache_scheme"
    )
    with pytest.raises(UnknownFormat, match="3 of 4 experts of layer 1"):
        formats(found, routed("model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", count=4))


def test_auto_round_overrides() -> None:
    found = scheme({"quant_method": "auto-round", "bits": 4, "group_size": 128, "packing_format": "auto_round:auto_gptq",
                    "extra_config": {"model.layers.1.mlp.down_proj": {"bits": 16},
                                     "model.layers.2.mlp.down_proj": {"bits": 8}}})  # fmt: skip
    four, eight = (
        GroupInt(bits=b, group_size=128, packing=Packing.GPTQ, scale_dtype=DType.BF16) for b in (4, 8)
    )
    assert formats(found, DOWN) == {eight: [2], four: [0, 3], BF16: [1]}


def test_format_of_one_module() -> None:
    found = scheme({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.2.mlp.down_proj"]})
    assert found.format_of("model.layers.2.mlp.down_proj", DOWN, DType.BF16) == BF16
    assert found.format_of("model.layers.3.mlp.down_proj", DOWN, DType.BF16) == Fp8(scale=Granularity.TENSOR)


def test_apply_splits_only_where_layers_differ() -> None:
    quantization = {
        "quant_method": "fp8",
        "modules_to_not_convert": [f"model.layers.{n}.mlp.down_proj" for n in (0, 39)],
    }
    model = describe(llama(quantization_config=quantization), "test")
    items = apply(model, scheme(quantization, dtype=model.dtype))
    down = [item for item in items if item.tensor.name.endswith("down_proj.weight")]
    assert [item.tensor.layers for item in down] == [tuple(range(1, 39)), (0, 39)]
    assert sum(item.tensor.total_elements for item in items) == sum(t.total_elements for t in model.tensors)
    assert len(items) == len(model.tensors) + 1


# Names.


@pytest.mark.parametrize(
    ("entry", "module", "named"),
    [
        ("model.language_model.layers.2.mlp.down_proj", "language_model.model.layers.{layer}.mlp.down_proj", [2]),
        ("backbone.layers.2.mixer.in_proj", "model.layers.{layer}.mixer.in_proj", [2]),
        ("model.layers.2", "model.layers.{layer}.mlp.down_proj", [2]),
        ("model.layers.2.mlp", "mtp.layers.{layer}.mlp.down_proj", []),
        ("gate", "model.layers.{layer}.block_sparse_moe.gate", [0, 1, 2, 3]),
        ("gate", "model.layers.{layer}.mlp.gate_proj", []),
        ("visual", "model.visual.blocks.{layer}.attn.qkv", [0, 1, 2, 3]),
        ("model.layers.1.mlp.gate_up_proj", "model.layers.{layer}.mlp.up_proj", [1]),
        ("model.layers.1.linear_attn.in_proj_qkvz", "model.layers.{layer}.linear_attn.in_proj_z", [1]),
        ("model.layers.1.self_attn.indexers_proj", "model.layers.{layer}.self_attn.indexer.weights_proj", [1]),
        ("model.layers.*.self_attn", "model.layers.{layer}.self_attn.o_proj", [0, 1, 2, 3]),
        ("re:visual.*", "model.visual.merger.{layer}.fc", [0, 1, 2, 3]),
        (r"re:model\.layers\.[02]\..*", "model.layers.{layer}.mlp.down_proj", [0, 2]),
        ("re:.*down", "model.layers.{layer}.mlp.down_proj", [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_one_entry(entry: str, module: str, named: list[int]) -> None:
    tensor = linear(module + ".weight")
    assert sorted(Names.of([entry], "test").select(tensor, module)) == named


def test_a_fused_module_is_named_when_all_its_parts_are() -> None:
    module = "model.layers.{layer}.self_attn.qkv_proj"
    parts = [f"model.layers.{n}.self_attn.{part}_proj" for n in (1, 2) for part in "qkv"]
    assert sorted(Names.of(parts, "test").select(linear(module + ".weight"), module)) == [1, 2]
    assert sorted(Names.of(parts[:-1], "test").select(linear(module + ".weight"), module)) == [1]


def test_stacked_experts_are_named_one_by_one() -> None:
    module = "model.layers.{layer}.mlp.experts.gate_up_proj"
    entries = [f"model.layers.3.mlp.experts.{e}.{part}_proj" for e in range(3) for part in ("gate", "up")]
    assert sorted(Names.of(entries, "test").select(routed(module), module)) == [3]


# Hostile and large input.


def test_unknown_methods_are_named() -> None:
    for method in ("hqq", "quanto", "aqlm"):
        with pytest.raises(UnknownFormat, match=method):
            scheme({"quant_method": method})
    with pytest.raises(UnknownFormat, match="marlin-24"):
        scheme(compressed("marlin-24", a=group(4, "int", "group", 128)))
    with pytest.raises(UnknownFormat, match="W9A9"):
        scheme(beside={"quant_algo": "W9A9"})


@pytest.mark.parametrize(
    "quantization",
    [
        {},
        {"quant_method": 3},
        {"quant_method": "gptq", "bits": 1},
        {"quant_method": "gptq", "bits": "four"},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": 3}},
        compressed("float-quantized", ["re:(a+)+$"], a=group(8, "float", "channel")),
        compressed("float-quantized", ["re:.*.*.*.*.*.*x"], a=group(8, "float", "channel")),
        compressed("float-quantized", ["re:["], a=group(8, "float", "channel")),
        compressed("float-quantized", ["re:" + "a" * 1000], a=group(8, "float", "channel")),
    ],
)
def test_broken_configs_are_refused_with_the_place(quantization: Json) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        scheme(quantization)


KEYS = (
    "bits", "group_size", "weight_block_size", "modules_to_not_convert", "ignored_layers", "config_groups", "ignore",
    "format", "dynamic", "lm_head", "version", "quant_algo", "quantized_layers", "exclude_modules", "kv_cache_scheme",
    "kv_cache_quant_algo", "extra_config", "packing_format", "block_name_to_quantize", "bnb_4bit_quant_type",
    "load_in_4bit", "modules_in_block_to_quantize", "llm_int8_skip_modules", "scale_fmt",
)  # fmt: skip
METHODS = (
    "fp8",
    "fbgemm_fp8",
    "gptq",
    "awq",
    "bitsandbytes",
    "mxfp4",
    "auto-round",
    "modelopt",
    "compressed-tensors",
)
ENTRIES = st.sampled_from(
    ["re:.*", "re:(", "a*b*", "*", ".", "", "model.layers.1*", "layers.99999999999", "-:x", "+:*", "Linear"]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(allow_nan=True),
    st.text(max_size=5),
    ENTRIES,
    st.sampled_from(["NVFP4", "FP8", "MIXED_PRECISION", "group", "float", "int", "channel"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["quant_algo", "weights", "num_bits", "type", "targets", "a.1.b", "bits"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(method=st.sampled_from(METHODS), section=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_any_section_gives_a_scheme_or_a_clear_refusal(method: str, section: Json) -> None:
    try:
        found = scheme(section | {"quant_method": method}, model_type="deepseek_v4")
        for tensor in (DOWN, LM_HEAD, routed("model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight")):
            assert sum(len(where) for where in formats(found, tensor).values()) in (1, 4)
    except VramledgerError as error:
        assert error.message


def test_twenty_thousand_names_each_decide_their_own_tensor() -> None:
    names = {f"language_model.model.layers.{n}.block_sparse_moe.experts.{e}.w{p}": {"quant_algo": "NVFP4"}
             for n in range(57) for e in range(128) for p in (1, 2, 3)}  # fmt: skip
    tensors = [
        routed(f"model.layers.{{layer}}.block_sparse_moe.experts.{{expert}}.w{p}.weight", 128, range(60))
        for p in (1, 2, 3)
    ]
    found = scheme(beside={"quant_algo": "MIXED_PRECISION", "quantized_layers": names})
    for tensor in tensors:
        assert formats(found, tensor) == {NVFP4: list(range(57)), BF16: [57, 58, 59]}
