import pytest

from vramledger.errors import UnknownFormat
from vramledger.formats.ggml import GGML_TYPES, ggml_type


# Rows, row length and bytes as three published GGUF headers state them: a 7B Q4_K_M (Q4_K, Q6_K, F32), a 270M
# Q4_K_M (Q5_0, Q8_0) and a 135M Q4_1.
@pytest.mark.parametrize(
    ("name", "row", "rows", "size_bytes"),
    [
        ("Q6_K", 3584, 152064, 447068160),
        ("Q4_K", 3584, 152064, 306561024),
        ("Q8_0", 640, 262144, 178257920),
        ("Q5_0", 640, 256, 112640),
        ("Q4_1", 1536, 576, 552960),
        ("F32", 3584, 1, 14336),
    ],
)
def test_bytes_in_published_headers(name: str, row: int, rows: int, size_bytes: int) -> None:
    assert ggml_type(name).bytes_for(row, rows) == size_bytes


def test_bits_a_weight_are_those_the_types_are_known_by() -> None:
    bits = {kind.name: kind.block_bytes * 8 / kind.block_elements for kind in GGML_TYPES}
    assert bits["Q4_K"] == 4.5
    assert bits["Q6_K"] == 6.5625
    assert bits["IQ2_XXS"] == 2.0625
    assert bits["IQ4_NL"] == 4.5
    assert bits["MXFP4"] == 4.25
    assert bits["NVFP4"] == 4.5
    assert bits["TQ1_0"] == 1.6875


def test_numbers_and_names_are_unique() -> None:
    assert (
        len({kind.number for kind in GGML_TYPES})
        == len({kind.name for kind in GGML_TYPES})
        == len(GGML_TYPES)
    )
    assert all(ggml_type(kind.number) is ggml_type(kind.name.lower()) for kind in GGML_TYPES)


@pytest.mark.parametrize("key", [4, 31, 99, -1, "Q4_2", ""])
def test_removed_and_unknown_types_are_refused(key: int | str) -> None:
    with pytest.raises(UnknownFormat):
        ggml_type(key)


def test_a_row_must_be_whole_blocks() -> None:
    with pytest.raises(UnknownFormat, match="not a whole number"):
        ggml_type("Q4_K").bytes_for(640, 2)
