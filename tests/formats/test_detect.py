import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import UnknownFormat
from vramledger.formats.detect import detect_format
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
    Shape,
    WeightFormat,
    stored_bytes,
    stored_parts,
)  # fmt: skip

HALF = st.sampled_from([DType.F16, DType.BF16])
FORMATS = st.one_of(
    st.builds(Dense, dtype=st.sampled_from(list(DType))),
    st.builds(Fp8, scale=st.sampled_from([Granularity.TENSOR, Granularity.CHANNEL]), scale_dtype=HALF, static_input=st.booleans()),
    st.builds(Fp8, scale=st.just(Granularity.BLOCK), scale_name=st.sampled_from(["weight_scale_inv", "scale"])),
    st.builds(Int8, scale=st.sampled_from([Granularity.TENSOR, Granularity.CHANNEL]), scale_dtype=HALF,
              static_input=st.booleans(), zero_points=st.booleans(), smooth=st.booleans()),
    st.builds(GroupInt, bits=st.sampled_from([2, 3, 4, 8]), group_size=st.sampled_from([-1, 32, 64, 128]),
              packing=st.just(Packing.GPTQ), scale_dtype=HALF, bias=st.booleans()),
    st.builds(GroupInt, bits=st.just(4), group_size=st.sampled_from([-1, 32, 64, 128]), packing=st.just(Packing.AWQ)),
    st.builds(GroupInt, bits=st.sampled_from([2, 3, 4, 8]), group_size=st.sampled_from([-1, 32, 64, 128]),
              packing=st.just(Packing.COMPRESSED_TENSORS), scale_dtype=HALF, zero_points=st.booleans(),
              act_order=st.booleans(), shape_dtype=st.sampled_from([DType.I32, DType.I64])),
    st.builds(GroupInt, bits=st.just(4), group_size=st.sampled_from([64, 128]), packing=st.just(Packing.MODELOPT)),
    st.builds(Nvfp4, packing=st.just(Packing.MODELOPT), input_scale=st.booleans(), smooth=st.booleans()),
    st.builds(Nvfp4, packing=st.just(Packing.COMPRESSED_TENSORS), input_scale=st.booleans()),
    st.builds(Mxfp, bits=st.just(4), packing=st.sampled_from([Packing.GPT_OSS, Packing.DEEPSEEK, Packing.COMPRESSED_TENSORS, Packing.MODELOPT])),
    st.builds(Mxfp, bits=st.just(8)),
    st.builds(Bnb4, quant_type=st.sampled_from(["nf4", "fp4"]), double_quant=st.booleans()),
    st.just(Bnb8()),
)  # fmt: skip
SIDES = st.integers(1, 40).map(lambda count: 128 * count)


@given(rows=SIDES, columns=SIDES, kind=FORMATS)
def test_parts_give_back_a_format_of_equal_bytes(rows: int, columns: int, kind: WeightFormat) -> None:
    parts = {part.suffix: (part.dtype, part.shape) for part in stored_parts((rows, columns), kind)}
    found = detect_format(parts, columns=columns)
    assert type(found) is type(kind)
    assert stored_bytes((rows, columns), found) == stored_bytes((rows, columns), kind)


def test_without_columns_four_bits_in_the_largest_usual_group_are_taken() -> None:
    kind = GroupInt(bits=4, group_size=128, packing=Packing.COMPRESSED_TENSORS, zero_points=False)
    parts = {part.suffix: (part.dtype, part.shape) for part in stored_parts((256, 4096), kind)}
    assert detect_format(parts) == kind


def test_deepseek_tiles_of_a_narrow_matrix() -> None:
    parts = {".weight": (DType.F8_E4M3, (576, 7168)), ".weight_scale_inv": (DType.F32, (5, 56))}
    assert detect_format(parts) == Fp8(scale=Granularity.BLOCK, scale_name="weight_scale_inv")


SUFFIXES = st.sampled_from(
    [".weight", ".weight_scale", ".weight_scale_inv", ".scale", ".qweight", ".qzeros", ".scales", ".g_idx",
     ".weight_packed", ".weight_global_scale", ".pre_quant_scale", ".SCB", ".input_scale", ".other"]
)  # fmt: skip


@given(
    st.dictionaries(
        SUFFIXES, st.tuples(st.sampled_from(list(DType)), st.lists(st.integers(0, 9), max_size=4).map(tuple))
    )
)
def test_any_header_gives_a_format_or_a_clear_refusal(parts: dict[str, tuple[DType, Shape]]) -> None:
    try:
        detect_format(parts)
    except UnknownFormat as error:
        assert error.message


def test_unknown_parts_are_named() -> None:
    with pytest.raises(UnknownFormat, match=r"\.lookup"):
        detect_format({".lookup": (DType.U8, (3,)), ".codes": (DType.I16, (5,))})
