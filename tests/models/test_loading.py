"""From folders and GGUF files to checkpoints: formats from headers, and what they and the config disagree on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf_builder import GgufWriter, llama
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from checkpoint_files import CODES, Tensors, tensors_of, total_bytes, write_folder
from vramledger.errors import UnknownFormat
from vramledger.evidence import EvidenceKind
from vramledger.formats.dtypes import DType
from vramledger.formats.ggml import ggml_type
from vramledger.formats.weights import (
    Bnb4,
    Dense,
    Fp8,
    Ggml,
    Granularity,
    GroupInt,
    Mxfp,
    Packing,
    WeightFormat,
    format_label,
)
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.headers import describe_headers
from vramledger.models.headers.findings import MOST_SENTENCES
from vramledger.models.loading import checkpoint_from_source, load_checkpoint
from vramledger.models.sources.load import Source, load_source
from vramledger.models.tensors import Component

SHARED = Path(__file__).resolve().parents[3] / "shared" / "models" / "gguf"

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
GPT_OSS = LLAMA | {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "head_dim": 32,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
}
DEEPSEEK: dict[str, Any] = LLAMA | {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "moe_intermediate_size": 128,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
    "n_group": 1,
    "topk_group": 1,
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": True}
FP8_BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
MXFP4 = {"quant_method": "mxfp4"}
BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
W4A16 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "strategy": "group",
                "group_size": 64,
                "symmetric": True,
            },
        }
    },
    "ignore": ["lm_head"],
}
Change = Callable[[Tensors], Tensors]


def described(config: dict[str, Any]) -> Checkpoint:
    """What the config alone gives."""
    return checkpoint_from_source(
        Source(
            id="test/model",
            where="config.json",
            config=config,
            quant_configs={},
            side_configs={},
            table=None,
            index=None,
            gguf=None,
            disk_bytes=None,
            disk_evidence=None,
            files=(),
        )
    )


def files_of(config: dict[str, Any]) -> Tensors:
    return tensors_of(described(config).stored)


def load(folder: Path, config: dict[str, Any], tensors: Tensors, **more: int) -> Checkpoint:
    return load_checkpoint(str(write_folder(folder, config, tensors, **more)))


def stored_total(checkpoint: Checkpoint) -> int:
    return sum(item.stored_bytes for item in checkpoint.stored)


def formats_of(checkpoint: Checkpoint, name: str) -> dict[WeightFormat, tuple[int, ...]]:
    """Each format of a tensor and its layers."""
    return {item.format: item.tensor.layers for item in checkpoint.stored if item.tensor.name == name}


Q_PROJ = "model.layers.{layer}.self_attn.q_proj.weight"
DOWN = "model.layers.{layer}.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("config", "quantization"),
    [
        (LLAMA, None),
        (LLAMA, AWQ),
        (LLAMA, GPTQ),
        (LLAMA, FP8_BLOCK),
        (LLAMA, W4A16),
        (LLAMA, BNB),
        (MIXTRAL, None),
        (MIXTRAL, FP8_BLOCK),
        (MIXTRAL, AWQ),
        (GPT_OSS, None),
        (GPT_OSS, MXFP4),
        (DEEPSEEK, FP8_BLOCK),
    ],
)
@pytest.mark.parametrize("files", [1, 3])
def test_files_as_described_differ_in_nothing(
    tmp_path: Path, config: dict[str, Any], quantization: dict[str, Any] | None, files: int
) -> None:
    config = config | ({"quantization_config": quantization} if quantization else {})
    alone = described(config)
    tensors = files_of(config)
    read = load(tmp_path, config, tensors, files=files)
    assert read.differences == ()
    assert read.stored == alone.stored
    assert read.quantization == alone.quantization
    assert read.disk_bytes == stored_total(read) == total_bytes(tensors)
    assert read.disk_evidence.kind is EvidenceKind.REPORTED
    assert f"{len(tensors)} tensors in {files} file(s)" in read.disk_evidence.formula
    assert read.largest_file_bytes > total_bytes(tensors) // files


@pytest.mark.parametrize("quantization", [AWQ, GPTQ, FP8_BLOCK, W4A16, BNB])
def test_a_quantised_file_whose_config_does_not_say_so(tmp_path: Path, quantization: dict[str, Any]) -> None:
    tensors = files_of(LLAMA | {"quantization_config": quantization})
    read = load(tmp_path, LLAMA, tensors)
    expected = described(LLAMA | {"quantization_config": quantization})
    assert stored_total(read) == read.disk_bytes == total_bytes(tensors)
    (label,) = {format_label(item.format) for item in expected.stored if not isinstance(item.format, Dense)}
    assert read.quantization == f"headers: {label}"
    (difference,) = read.differences
    assert difference.startswith(f"stored as {label} where the config implies bfloat16: 21 tensors, -")


def test_gpt_oss_blocks_without_a_config(tmp_path: Path) -> None:
    tensors = files_of(GPT_OSS | {"quantization_config": MXFP4})
    read = load(tmp_path, GPT_OSS, tensors)
    kinds = formats_of(read, "model.layers.{layer}.mlp.experts.gate_up_proj")
    assert kinds == {Mxfp(bits=4, packing=Packing.GPT_OSS): (0, 1, 2)}
    assert stored_total(read) == total_bytes(tensors)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 64, "desc_act": False}, GPTQ),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 64, "zero_point": True, "version": "GEMM"}, AWQ),
        ("quantize_config.json", {"w_bit": 4, "q_group_size": 64, "version": "gemm"}, AWQ),
    ],
)
@pytest.mark.parametrize("headers", [True, False])
def test_an_older_file_beside_the_config_names_the_scheme(
    tmp_path: Path, name: str, content: dict[str, Any], kind: dict[str, Any], headers: bool
) -> None:
    tensors = files_of(LLAMA | {"quantization_config": kind})
    write_folder(tmp_path, LLAMA, tensors)
    (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    read = load_checkpoint(str(tmp_path), headers=headers)
    assert stored_total(read) == total_bytes(tensors)
    assert read.differences == (f"config.json has no quantization_config; the scheme is that of {name}",)
    assert read.quantization.startswith(kind["quant_method"])


def test_an_unknown_scheme_is_read_from_the_headers(tmp_path: Path) -> None:
    strange = LLAMA | {"quantization_config": {"quant_method": "quark"}}
    tensors = files_of(LLAMA | {"quantization_config": FP8_BLOCK})
    read = load(tmp_path, strange, tensors)
    assert stored_total(read) == total_bytes(tensors)
    assert any("'quark' is not one this project can size" in text for text in read.differences)
    with pytest.raises(UnknownFormat, match="quark"):
        described(strange)


def test_an_unknown_scheme_with_unknown_parts_is_refused(tmp_path: Path) -> None:
    strange = LLAMA | {"quantization_config": {"quant_method": "quark"}}
    tensors = files_of(LLAMA | {"quantization_config": W4A16})
    tensors = {name: kind for name, kind in tensors.items() if not name.endswith(".weight_scale")}
    with pytest.raises(UnknownFormat, match="quark"):
        load(tmp_path, strange, tensors)


def test_layers_of_different_formats_are_split(tmp_path: Path) -> None:
    plain, packed = files_of(LLAMA), files_of(LLAMA | {"quantization_config": AWQ})
    tensors = {name: kind for name, kind in packed.items() if ".layers.1." not in name}
    tensors |= {name: kind for name, kind in plain.items() if ".layers.1." in name}
    read = load(tmp_path, LLAMA | {"quantization_config": AWQ}, tensors)
    awq = GroupInt(bits=4, group_size=64, packing=Packing.AWQ, scale_dtype=DType.BF16)
    assert formats_of(read, Q_PROJ) == {awq: (0, 2), Dense(dtype=DType.BF16): (1,)}
    assert stored_total(read) == read.disk_bytes == total_bytes(tensors)
    assert read.quantization == "awq: INT4 group 64 (awq)"
    (difference,) = read.differences
    assert difference.startswith(
        "stored as bfloat16 where the config implies INT4 group 64 (awq): 7 tensors, +"
    )


def test_a_group_size_other_than_the_configs(tmp_path: Path) -> None:
    tensors = files_of(LLAMA | {"quantization_config": GPTQ | {"group_size": 32}})
    read = load(tmp_path, LLAMA | {"quantization_config": GPTQ}, tensors)
    (kind,) = formats_of(read, DOWN)
    assert isinstance(kind, GroupInt)
    assert (kind.group_size, kind.act_order) == (32, True)
    assert read.quantization == "gptq: INT4 group 32 (gptq)"
    assert stored_total(read) == read.disk_bytes


def test_scales_of_another_type_and_a_static_input_scale(tmp_path: Path) -> None:
    tensors = files_of(LLAMA | {"quantization_config": FP8_BLOCK})
    for name in [name for name in tensors if name.endswith(".weight_scale_inv")]:
        tensors[name] = (DType.BF16, tensors[name][1])
        tensors[name.replace(".weight_scale_inv", ".input_scale")] = (DType.BF16, ())
    read = load(tmp_path, LLAMA | {"quantization_config": FP8_BLOCK}, tensors)
    (kind,) = formats_of(read, DOWN)
    assert kind == Fp8(
        scale=Granularity.BLOCK, scale_dtype=DType.BF16, static_input=True, scale_name="weight_scale_inv"
    )
    assert stored_total(read) == read.disk_bytes
    assert read.differences[0].startswith(
        "FP8 128x128 tiles with other scales than the config implies: 21 tensors"
    )
    assert len(read.differences) == 1


def test_plain_tensors_of_another_type(tmp_path: Path) -> None:
    tensors = {name: (DType.F32, shape) for name, (_, shape) in files_of(LLAMA).items()}
    read = load(tmp_path, LLAMA, tensors)
    assert read.disk_bytes == stored_total(read) == 2 * stored_total(described(LLAMA))
    (difference,) = read.differences
    assert difference.startswith(f"stored in float32, described in bfloat16: {len(tensors)} tensors, +")
    assert read.quantization == "bfloat16"


def test_a_tied_head_stored_twice(tmp_path: Path) -> None:
    config = LLAMA | {"tie_word_embeddings": True}
    tensors = files_of(config) | {"lm_head.weight": (DType.BF16, (1000, 256))}
    read = load(tmp_path, config, tensors)
    assert read.differences == (
        "the embedding once more, which takes no device memory: 1 tensor, 512000 B (lm_head.weight)",
    )
    assert read.disk_bytes == total_bytes(tensors) == stored_total(read) + 512000


def test_a_tied_embedding_under_the_heads_name(tmp_path: Path) -> None:
    config = LLAMA | {"tie_word_embeddings": True}
    tensors = files_of(config)
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    read = load(tmp_path, config, tensors)
    assert read.differences == ("model.embed_tokens.weight is in the file as lm_head.weight",)
    assert stored_total(read) == read.disk_bytes


def test_an_untied_head_that_the_file_lacks(tmp_path: Path) -> None:
    tensors = files_of(LLAMA)
    del tensors["lm_head.weight"]
    (difference,) = load(tmp_path, LLAMA, tensors).differences
    assert difference == (
        "the config does not tie the head to the embedding, and the file has no lm_head.weight (512000 B)"
    )


def test_missing_tensors_are_told_and_kept(tmp_path: Path) -> None:
    tensors = files_of(LLAMA)
    del tensors["model.layers.1.mlp.down_proj.weight"]
    del tensors["model.layers.0.self_attn.k_proj.weight"]
    read = load(tmp_path, LLAMA, tensors)
    assert read.differences == (
        f"described and not in the file: {DOWN}, 1 tensor, 196608 B",
        "described and not in the file: model.layers.{layer}.self_attn.k_proj.weight, 1 tensor, 32768 B",
    )
    assert read.disk_bytes == total_bytes(tensors)
    assert stored_total(read) == stored_total(described(LLAMA))


def test_tensors_that_nothing_describes(tmp_path: Path) -> None:
    tensors = files_of(LLAMA) | {
        f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": (DType.F32, (16,)) for layer in range(3)
    }
    tensors |= {f"model.layers.{layer}.adapter.proj.weight": (DType.F16, (64, 256)) for layer in range(3)}
    read = load(tmp_path, LLAMA, tensors)
    assert read.differences == (
        "in the file and not described: model.layers.{}.adapter.proj.weight, F16 [64, 256], 3 tensors, 98304 B",
        "rotary tables, not parameters: 3 tensors, 192 B (model.layers.{}.self_attn.rotary_emb.inv_freq)",
    )
    assert read.disk_bytes == total_bytes(tensors)
    assert stored_total(read) == stored_total(described(LLAMA))


def test_a_shape_that_differs(tmp_path: Path) -> None:
    tensors = files_of(LLAMA)
    tensors["model.layers.2.mlp.down_proj.weight"] = (DType.BF16, (256, 400))
    (difference,) = load(tmp_path, LLAMA, tensors).differences
    assert difference == f"{DOWN}: the file has 1 x [256, 400] where the description has 1 x [256, 384]"


def test_a_config_that_lies_about_its_width(tmp_path: Path) -> None:
    tensors = files_of(LLAMA)
    read = load(tmp_path, LLAMA | {"hidden_size": 512}, tensors)
    assert read.disk_bytes == total_bytes(tensors)
    assert read.disk_bytes < stored_total(read)
    assert any("[1000, 256] where the description has 1 x [1000, 512]" in text for text in read.differences)


def test_a_config_that_lies_about_its_layers(tmp_path: Path) -> None:
    tensors = files_of(LLAMA)
    fewer = load(tmp_path / "fewer", LLAMA | {"num_hidden_layers": 2}, tensors)
    assert len(fewer.differences) == 1
    assert "draft (MTP) layers that the config does not describe: 9 tensors" in fewer.differences[0]
    more = load(tmp_path / "more", LLAMA | {"num_hidden_layers": 4}, tensors)
    assert sum(text.startswith("described and not in the file") for text in more.differences) == 9
    assert more.disk_bytes == fewer.disk_bytes == total_bytes(tensors)


def test_draft_layers_that_the_file_lacks_are_left_out(tmp_path: Path) -> None:
    config = DEEPSEEK | {"quantization_config": FP8_BLOCK}
    whole = described(config)
    tensors = {
        name: kind for name, kind in files_of(config).items() if not name.startswith("model.layers.3.")
    }
    read = load(tmp_path, config, tensors)
    assert len(whole.model.draft_layers) == 1
    assert read.model.draft_layers == ()
    assert all(tensor.component is not Component.DRAFT for tensor in read.model.tensors)
    assert stored_total(read) == read.disk_bytes == total_bytes(tensors)
    (difference,) = read.differences
    assert difference.startswith("the config describes 1 draft (MTP) layer and the file has none;")


def test_draft_layers_that_the_config_does_not_describe(tmp_path: Path) -> None:
    config = DEEPSEEK | {"num_nextn_predict_layers": 0}
    tensors = files_of(DEEPSEEK)
    read = load(tmp_path, config, tensors)
    assert read.disk_bytes == total_bytes(tensors)
    assert read.differences[0].startswith("draft (MTP) layers that the config does not describe: ")


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name.removeprefix("model."),
        lambda name: f"language_model.{name}",
        lambda name: name.replace("model.", "model.language_model.", 1),
        lambda name: f"base_model.{name}",
        lambda name: name.replace("model.", "transformer.", 1),
    ],
)
def test_names_with_other_heads(tmp_path: Path, rename: Callable[[str], str]) -> None:
    tensors = {rename(name): kind for name, kind in files_of(MIXTRAL).items()}
    read = load(tmp_path, MIXTRAL, tensors)
    assert read.differences == ()
    assert stored_total(read) == read.disk_bytes == total_bytes(tensors)


def fused(tensors: Tensors) -> Tensors:
    """gate and up as one matrix, and query, key and value too."""
    out: Tensors = {}
    for name, (dtype, shape) in tensors.items():
        for parts, whole in (
            (("gate_proj", "up_proj"), "gate_up_proj"),
            (("q_proj", "k_proj", "v_proj"), "qkv_proj"),
        ):
            part = name.split(".")[-2] if "." in name else ""
            if part in parts:
                name = name.replace(part, whole)  # noqa: PLW2901
                rows = out.get(name, (dtype, (0, *shape[1:])))[1][0]
                shape = (rows + shape[0], *shape[1:])  # noqa: PLW2901
        out[name] = (dtype, shape)
    return out


def stacked(tensors: Tensors) -> Tensors:
    """The experts of a layer in one tensor, without `.weight`."""
    out: Tensors = {}
    for name, (dtype, shape) in tensors.items():
        head, found, tail = name.partition(".experts.")
        if not found:
            out[name] = (dtype, shape)
            continue
        key = f"{head}.experts.{tail.partition('.')[2].removesuffix('.weight')}"
        count = out.get(key, (dtype, (0, *shape)))[1][0]
        out[key] = (dtype, (count + 1, *shape))
    return out


def one_by_one(tensors: Tensors) -> Tensors:
    """gpt-oss's stacks as experts of their own, gate apart from up."""
    out: Tensors = {}
    for name, (dtype, shape) in tensors.items():
        head, found, tail = name.partition(".experts.")
        if not found:
            out[name] = (dtype, shape)
            continue
        part, bias, _ = tail.partition("_bias")
        names = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
        for expert in range(shape[0]):
            for each in names:
                suffix = ".bias" if bias else ".weight"
                out[f"{head}.experts.{expert}.{each}{suffix}"] = (
                    dtype,
                    (shape[1] // len(names), *shape[2:]),
                )
    return out


@pytest.mark.parametrize(("config", "change"), [(LLAMA, fused), (MIXTRAL, stacked), (GPT_OSS, one_by_one)])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F32])
def test_projections_fused_or_experts_split_on_one_side(
    tmp_path: Path, config: dict[str, Any], change: Change, dtype: DType
) -> None:
    tensors = {name: (dtype, shape) for name, (_, shape) in change(files_of(config)).items()}
    read = load(tmp_path, config, tensors)
    assert stored_total(read) == read.disk_bytes == total_bytes(tensors)
    if dtype is DType.BF16:
        assert read.differences == ()
    else:
        assert all(text.startswith("stored in float32") for text in read.differences)


def test_a_fused_projection_of_the_wrong_size(tmp_path: Path) -> None:
    tensors = fused(files_of(LLAMA))
    tensors["model.layers.1.self_attn.qkv_proj.weight"] = (DType.BF16, (400, 256))
    (difference,) = load(tmp_path, LLAMA, tensors).differences
    assert "qkv_proj: the file holds 102400 elements where the description" in difference
    assert difference.endswith("has 98304")


def test_every_difference_is_counted(tmp_path: Path) -> None:
    tensors = files_of(LLAMA)
    tensors |= {
        f"extra_{letter}.weight": (DType.F32, (ord(letter),)) for letter in "abcdefghijklmnopqrstuvwxyz"
    }
    differences = load(tmp_path, LLAMA, tensors).differences
    assert len(differences) == MOST_SENTENCES + 1
    assert differences[0].startswith("in the file and not described: extra_z.weight, F32 [122], 1 tensor")
    assert differences[-1] == "and 6 more differences of 408 B or less each"


def test_names_from_a_file_are_printable(tmp_path: Path) -> None:
    tensors = files_of(LLAMA) | {"a\u001b[31m\u202e" + "b" * 500: (DType.F32, (3,))}
    (difference,) = load(tmp_path, LLAMA, tensors).differences
    assert difference.isprintable()
    assert len(difference) < 300


def test_a_part_of_no_known_type_keeps_the_configs_format(tmp_path: Path) -> None:
    config = LLAMA | {"quantization_config": W4A16}
    tensors = files_of(config)
    tensors = {name: kind for name, kind in tensors.items() if not name.endswith("down_proj.weight_scale")}
    read = load(tmp_path, config, tensors)
    assert set(formats_of(read, DOWN)) == set(formats_of(described(config), DOWN))
    assert any(
        "no known format" in text and "and INT4 group 64 (compressed-tensors) is kept" in text
        for text in read.differences
    )


def test_bitsandbytes_texts_differ_by_a_few_bytes(tmp_path: Path) -> None:
    config = LLAMA | {"quantization_config": BNB}
    tensors = {
        name: (dtype, (shape[0] + 2,)) if "quant_state" in name else (dtype, shape)
        for name, (dtype, shape) in files_of(config).items()
    }
    read = load(tmp_path, config, tensors)
    assert read.differences == ()
    assert any(isinstance(item.format, Bnb4) for item in read.stored)
    assert read.disk_bytes == total_bytes(tensors)


def index_only(
    folder: Path, config: dict[str, Any], tensors: Tensors, total: int | None = None
) -> Checkpoint:
    """A folder with an index and no weight files."""
    write_folder(folder, config, tensors, files=2)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    index = folder / "model.safetensors.index.json"
    if total is not None:
        content = json.loads(index.read_text(encoding="utf-8"))
        content["metadata"]["total_size"] = total
        index.write_text(json.dumps(content), encoding="utf-8")
    return load_checkpoint(str(folder))


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL, LLAMA | {"quantization_config": AWQ}, DEEPSEEK])
def test_an_index_as_described(tmp_path: Path, config: dict[str, Any]) -> None:
    tensors = files_of(config)
    read = index_only(tmp_path, config, tensors)
    assert read.differences == ()
    assert read.disk_bytes == total_bytes(tensors)
    assert read.disk_evidence.formula == "metadata.total_size"


def test_an_index_of_other_names_and_another_size(tmp_path: Path) -> None:
    tensors = files_of(LLAMA)
    del tensors["model.layers.2.mlp.up_proj.weight"]
    tensors["model.vision.proj.weight"] = (DType.BF16, (3, 5))
    total = stored_total(described(LLAMA)) * 2
    read = index_only(tmp_path, LLAMA, tensors, total)
    assert read.disk_bytes == total
    assert len(read.differences) == 3
    size, absent, alien = read.differences
    assert f"states a total size of {total} bytes" in size
    assert size.endswith("(-50.00%)")
    assert absent.startswith("described and not all in the index: 3 tensors")
    assert alien == "in the index and not described: 1 tensor (model.vision.proj.weight)"


def test_what_is_odd_about_the_files_is_noted(tmp_path: Path) -> None:
    tensors = files_of(LLAMA)
    write_folder(tmp_path, LLAMA, tensors, files=2)
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    content["metadata"]["total_size"] += 7
    index.write_text(json.dumps(content), encoding="utf-8")
    notes = load_checkpoint(str(tmp_path)).model.notes
    assert any(f"the headers sum up to {total_bytes(tensors)} bytes" in note for note in notes)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    partial = load_checkpoint(str(tmp_path))
    assert any("1 of 2 weight files are not there" in note for note in partial.model.notes)
    assert partial.disk_evidence.formula == "metadata.total_size"


def test_an_index_of_packed_weights_without_a_scheme(tmp_path: Path) -> None:
    read = index_only(tmp_path, LLAMA, files_of(LLAMA | {"quantization_config": AWQ}))
    assert any(text.startswith("parts named .qweight, and no quantisation") for text in read.differences)


def test_headers_without_a_description(tmp_path: Path) -> None:
    tensors = files_of(MIXTRAL)
    source = load_source(str(write_folder(tmp_path, {"model_type": "unheard_of"}, tensors)))
    summary = describe_headers(source)
    assert summary is not None
    assert (
        summary.total_bytes == total_bytes(tensors) == sum(item.total_bytes or 0 for item in summary.patterns)
    )
    assert summary.tensor_count == len(tensors) == sum(item.count for item in summary.patterns)
    assert summary.bytes_by_dtype == (("BF16", total_bytes(tensors)),)
    assert summary.elements_by_dtype == (("BF16", total_bytes(tensors) // 2),)
    assert summary.num_layers == 3
    assert summary.patterns[0].template == "model.layers.{}.block_sparse_moe.experts.{}.w1.weight"
    assert describe_headers(load_source(str(tmp_path), headers=False)) is None


def mixed(writer: GgufWriter) -> GgufWriter:
    """Value projections in Q8_0 in every second layer, as the mixed types of llama.cpp are."""
    writer.tensors = [
        (name, dims, "Q8_0" if name.endswith("attn_v.weight") and int(name.split(".")[1]) % 2 else kind)
        for name, dims, kind in writer.tensors
    ]
    return writer


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_files_types_are_its_tensors(tmp_path: Path, tied: bool) -> None:
    writer = mixed(llama(tied=tied))
    read = load_checkpoint(str(writer.write(tmp_path / "model.gguf")))
    assert read.differences == ()
    assert read.disk_bytes == stored_total(read) == sum(writer.sizes())
    q4, q8 = Ggml(type=ggml_type("Q4_0")), Ggml(type=ggml_type("Q8_0"))
    assert formats_of(read, "model.layers.{layer}.self_attn.v_proj.weight") == {q4: (0, 2), q8: (1,)}
    assert formats_of(read, "model.norm.weight") == {Dense(dtype=DType.F32): ()}
    assert read.quantization == "gguf: Q4_0, Q8_0"


@pytest.mark.parametrize("merged", [True, False])
def test_a_gguf_mixture(tmp_path: Path, merged: bool) -> None:
    writer = llama()
    writer.keys += [("llama.expert_count", "u32", 4), ("llama.expert_used_count", "u32", 2)]
    tensors: list[tuple[str, list[int], str]] = []
    for name, dims, kind in writer.tensors:
        part = name.split(".")[2] if name.startswith("blk.") else ""
        if part not in ("ffn_gate", "ffn_up", "ffn_down"):
            tensors.append((name, dims, kind))
        elif merged:
            tensors.append((name.replace(part, f"{part}_exps"), [*dims, 4], kind))
        else:
            tensors += [(name.replace(part, f"{part}.{expert}"), dims, kind) for expert in range(4)]
    tensors += [(f"blk.{layer}.ffn_gate_inp.weight", [64, 4], "F32") for layer in range(3)]
    writer.tensors = [*tensors, ("rope_freqs.weight", [8], "F32")]
    read = load_checkpoint(str(writer.write(tmp_path / "model.gguf")))
    assert read.differences == ("rotary tables, not parameters: 1 tensor, 32 B (rope_freqs.weight)",)
    assert read.disk_bytes == sum(writer.sizes()) == stored_total(read) + 32


def test_a_gguf_file_that_lacks_a_tensor(tmp_path: Path) -> None:
    writer = llama()
    writer.tensors = [tensor for tensor in writer.tensors if tensor[0] != "blk.1.ffn_up.weight"]
    read = load_checkpoint(str(writer.write(tmp_path / "model.gguf")))
    assert read.differences == (
        "described and not in the file: model.layers.{layer}.mlp.up_proj.weight, 1 tensor, 12288 B",
    )


@pytest.mark.skipif(not SHARED.is_dir(), reason="the header tables of real GGUF files are not here")
@pytest.mark.parametrize(
    "name", ["DeepSeek-R1-Distill-Qwen-7B", "SmolLM2-135M-Instruct.Q4_1", "gemma-3-270m-q4_k_m"]
)
def test_real_gguf_files(tmp_path: Path, name: str) -> None:
    content = json.loads((SHARED / f"{name}.json").read_text(encoding="utf-8"))
    writer = GgufWriter()
    for key, value in content["metadata"].items():
        if isinstance(value, dict):
            writer.keys.append((key, "arr", ("u8", [0] * value["array_length"])))
        elif not key.startswith("GGUF."):
            kind = {bool: "bool", int: "u32", float: "f32", str: "str"}[type(value)]
            writer.keys.append((key, kind, value))
    writer.tensors = [(tensor, dims, kind) for tensor, dims, kind, *_ in content["tensors"]]
    read = load_checkpoint(str(writer.write(tmp_path / "model.gguf")))
    assert read.differences == ()
    assert read.disk_bytes == stored_total(read) == content["tensor_bytes"]


SMALL = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([64, 128, 192, 256]),
        "intermediate_size": st.sampled_from([96, 128, 320]),
        "num_attention_heads": st.sampled_from([4, 8]),
        "num_key_value_heads": st.sampled_from([1, 2, 4]),
        "head_dim": st.sampled_from([16, 32, 64]),
        "num_hidden_layers": st.integers(1, 4),
        "vocab_size": st.integers(16, 999),
        "tie_word_embeddings": st.booleans(),
        "torch_dtype": st.sampled_from(["bfloat16", "float16", "float32"]),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    dims=SMALL,
    family=st.sampled_from([LLAMA, MIXTRAL, GPT_OSS, DEEPSEEK]),
    quantization=st.sampled_from([None, AWQ, GPTQ, FP8_BLOCK, W4A16, BNB]),
    experts=st.integers(2, 5),
    files=st.sampled_from([1, 2]),
)
def test_what_is_written_from_a_description_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    dims: dict[str, Any],
    family: dict[str, Any],
    quantization: dict[str, Any] | None,
    experts: int,
    files: int,
) -> None:
    # bitsandbytes replaces linear layers, and a stack of experts is none.
    assume(not (family is GPT_OSS and quantization is BNB))
    config = family | dims
    if "num_local_experts" in family:
        config["num_local_experts"] = experts
    if "n_routed_experts" in family:
        config |= {
            "n_routed_experts": experts,
            "first_k_dense_replace": min(1, dims["num_hidden_layers"] - 1),
        }
    if quantization:
        config["quantization_config"] = quantization
    alone = described(config)
    tensors = tensors_of(alone.stored)
    read = load(tmp_path_factory.mktemp("model"), config, tensors, files=files)
    assert read.differences == ()
    assert read.stored == alone.stored
    assert read.disk_bytes == stored_total(read) == total_bytes(tensors)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[dict[str, Any], Tensors]:
    """A checkpoint with some of its tensors renamed, reshaped, retyped, dropped or put beside."""
    config = draw(st.sampled_from([LLAMA, MIXTRAL, DEEPSEEK, GPT_OSS]))
    quantization = draw(st.sampled_from([None, AWQ, GPTQ, FP8_BLOCK, W4A16, BNB]))
    tensors = files_of(config | ({"quantization_config": quantization} if quantization else {}))
    shapes = st.lists(st.integers(0, 300), max_size=4).map(tuple)
    suffixes = st.sampled_from(
        [".qweight", ".scales", ".g_idx", ".weight_scale", ".weight_packed", "_blocks", ".SCB"]
    )
    for name in draw(st.lists(st.sampled_from(sorted(tensors)), max_size=12, unique=True)):
        dtype, shape = tensors[name]
        match draw(st.integers(0, 4)):
            case 0:
                del tensors[name]
            case 1:
                tensors[name] = (dtype, draw(shapes))
            case 2:
                tensors[name] = (
                    draw(st.sampled_from(sorted(kind for kind in CODES if kind.bits >= 8))),
                    shape,
                )
            case 3:
                tensors[name.rpartition(".")[0] + draw(suffixes)] = tensors.pop(name)
            case _:
                tensors[name.rpartition(".")[0] + draw(suffixes)] = (dtype, draw(shapes))
    kept = draw(st.booleans())
    return config | ({"quantization_config": quantization} if quantization and kept else {}), tensors


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=damaged())
def test_damaged_headers_are_told_and_never_fail(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[dict[str, Any], Tensors]
) -> None:
    config, tensors = case
    read = load(tmp_path_factory.mktemp("model"), config, tensors)
    assert read.disk_bytes == total_bytes(tensors)
    whole = {(t.name, t.component, layer) for t in read.model.tensors for layer in t.layers or (t.copies,)}
    held = [
        (item.tensor.name, item.tensor.component, layer)
        for item in read.stored
        for layer in item.tensor.layers or (item.tensor.copies,)
    ]
    assert len(held) == len(set(held))
    assert set(held) == whole
    if stored_total(read) != read.disk_bytes:
        assert read.differences
