import pytest

from vramledger.errors import UnknownFormat
from vramledger.formats.dtypes import DType
from vramledger.formats.ggml import ggml_type
from vramledger.formats.weights import (
    Bnb4,
    Bnb8,
    Dense,
    Fp8,
    Ggml,
    Granularity,
    GroupInt,
    Int8,
    Mxfp,
    Nvfp4,
    Packing,
    Shape,
    StoredPart,
    WeightFormat,
    stored_bytes,
    stored_parts,
)  # fmt: skip


def shapes(shape: Shape, kind: WeightFormat) -> dict[str, tuple[str, Shape]]:
    return {part.suffix: (part.dtype.value, part.shape) for part in stored_parts(shape, kind)}


def test_gptq_packs_along_the_inputs() -> None:
    kind = GroupInt(bits=4, group_size=128, packing=Packing.GPTQ)
    assert shapes((1024, 4096), kind) == {
        ".qweight": ("int32", (512, 1024)),
        ".qzeros": ("int32", (32, 128)),
        ".scales": ("float16", (32, 1024)),
        ".g_idx": ("int32", (4096,)),
    }


def test_gptq_three_bits_one_scale_a_row() -> None:
    kind = GroupInt(bits=3, group_size=-1, packing=Packing.GPTQ, bias=True)
    assert shapes((1024, 8192), kind) == {
        ".qweight": ("int32", (768, 1024)),
        ".qzeros": ("int32", (1, 96)),
        ".scales": ("float16", (1, 1024)),
        ".g_idx": ("int32", (8192,)),
        ".bias": ("float16", (1024,)),
    }


def test_awq_packs_along_the_outputs() -> None:
    assert shapes((1024, 4096), GroupInt(bits=4, group_size=128, packing=Packing.AWQ)) == {
        ".qweight": ("int32", (4096, 128)),
        ".qzeros": ("int32", (32, 128)),
        ".scales": ("float16", (32, 1024)),
    }


def test_compressed_tensors_pack_quantized() -> None:
    kind = GroupInt(
        bits=4, group_size=32, packing=Packing.COMPRESSED_TENSORS, zero_points=True, act_order=True
    )
    assert shapes((64, 96), kind) == {
        ".weight_packed": ("int32", (64, 12)),
        ".weight_scale": ("float16", (64, 3)),
        ".weight_shape": ("int64", (2,)),
        ".weight_zero_point": ("int32", (8, 3)),
        ".weight_g_idx": ("int32", (96,)),
    }


def test_a_stack_of_experts_repeats_every_part_even_the_scalars() -> None:
    assert shapes((5, 64, 96), Nvfp4()) == {
        ".weight": ("uint8", (5, 64, 48)),
        ".weight_scale": ("float8_e4m3fn", (5, 64, 6)),
        ".weight_scale_2": ("float32", (5,)),
        ".input_scale": ("float32", (5,)),
    }
    assert stored_bytes((5, 64, 96), Nvfp4()) == 5 * (64 * 48 + 64 * 6 + 4 + 4)


def test_gpt_oss_blocks() -> None:
    assert shapes((3, 256, 320), Mxfp(bits=4, packing=Packing.GPT_OSS)) == {
        "_blocks": ("uint8", (3, 256, 10, 16)),
        "_scales": ("uint8", (3, 256, 10)),
    }


def test_fp8_tiles_round_up() -> None:
    kind = Fp8(scale=Granularity.BLOCK, scale_name="weight_scale_inv")
    assert shapes((576, 7168), kind) == {
        ".weight": ("float8_e4m3fn", (576, 7168)),
        ".weight_scale_inv": ("float32", (5, 56)),
    }


@pytest.mark.parametrize(
    ("kind", "size_bytes"),
    [
        (Dense(dtype=DType.BF16), 2 * 96 * 160),
        (Fp8(scale=Granularity.TENSOR, static_input=True), 96 * 160 + 4 + 4),
        (Fp8(scale=Granularity.CHANNEL, scale_dtype=DType.BF16), 96 * 160 + 2 * 96),
        (Int8(scale=Granularity.CHANNEL, scale_dtype=DType.BF16), 96 * 160 + 2 * 96),
        (Int8(scale=Granularity.TENSOR, zero_points=True, smooth=True), 96 * 160 + 4 + 1 + 2 * 160),
        (Mxfp(bits=8), 96 * 160 + 96 * 5),
        (Mxfp(bits=4, packing=Packing.DEEPSEEK), 96 * 80 + 96 * 5),
        (Nvfp4(packing=Packing.COMPRESSED_TENSORS, input_scale=False), 96 * 80 + 96 * 10 + 4),
        (Bnb8(), 96 * 160 + 4 * 96 + 1),
        (GroupInt(bits=4, group_size=32, packing=Packing.MODELOPT), 48 * 160 + 2 * 96 * 5 + 2 * 160),
        (Ggml(type=ggml_type("Q4_0")), 96 * 160 // 32 * 18),
    ],
)
def test_bytes_of_one_matrix(kind: WeightFormat, size_bytes: int) -> None:
    assert stored_bytes((96, 160), kind) == size_bytes


def test_bitsandbytes_keeps_a_json_text_for_each_matrix() -> None:
    text = '{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [96, 160]}'
    parts = stored_parts((96, 160), Bnb4())
    assert parts[3] == StoredPart(".weight.quant_state.bitsandbytes__nf4", DType.U8, (len(text),))
    assert parts[1] == StoredPart(".weight.absmax", DType.F32, (240,))


def test_bitsandbytes_double_quantisation_shrinks_the_scales() -> None:
    plain, double = Bnb4(), Bnb4(double_quant=True)
    saved = stored_bytes((4096, 4096), plain) - stored_bytes((4096, 4096), double)
    blocks = 4096 * 4096 // 64
    assert (
        3 * blocks - 4 * (blocks // 256) - 4 * 256 - 128
        <= saved
        <= 3 * blocks - 4 * (blocks // 256) - 4 * 256
    )


def test_a_vector_has_no_quantised_form() -> None:
    with pytest.raises(UnknownFormat, match="no matrix"):
        stored_bytes((64,), Bnb8())
