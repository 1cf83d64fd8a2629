"""Hypothetical weight formats: the bytes of the real releases in those formats."""

from __future__ import annotations

import pytest

from support import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    GPT_OSS_20B,
    LLAMA_3_1_8B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    QWEN3_32B_AWQ,
    QWEN3_235B_A22B_FP8,
    checkpoint,
)
from vramledger import plan
from vramledger.errors import FlagError
from vramledger.evidence import EvidenceKind
from vramledger.formats.weights import Dense
from vramledger.models.tensors import Component, Role
from vramledger.search.weights import FORMATS, STORED, restored, weight_names

MODELS = {
    "dense": LLAMA_3_1_8B,
    "mixture": QWEN3_30B_A3B,
    "fp8": DEEPSEEK_V3,
    "mxfp4": GPT_OSS_20B,
    "towers": GEMMA_3_27B,
}
CHANGING = [name for name in weight_names() if FORMATS[name].section is not None]


def test_awq_and_fp8_tiles_are_those_of_qwens_own_releases() -> None:
    release = checkpoint(QWEN3_32B_AWQ)
    made = restored(checkpoint(QWEN3_32B | {"torch_dtype": "float16"}), "awq-int4")
    assert made.stored == release.stored
    assert made.quantization == release.quantization
    plain = {name: value for name, value in QWEN3_235B_A22B_FP8.items() if name != "quantization_config"}
    release, made = checkpoint(QWEN3_235B_A22B_FP8), restored(checkpoint(plain), "fp8-block")
    assert made.stored == release.stored
    assert made.disk_bytes == release.disk_bytes


def test_an_unquantised_model_is_bf16_already_and_a_quantised_one_is_unpacked() -> None:
    dense = checkpoint(LLAMA_3_1_8B)
    assert restored(dense, "bf16") is dense
    assert restored(dense, STORED) is dense
    made = restored(checkpoint(DEEPSEEK_V3), "bf16")
    assert {type(item.format) for item in made.stored} == {Dense}
    assert made.disk_bytes > 1.9 * checkpoint(DEEPSEEK_V3).disk_bytes


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", CHANGING)
def test_only_matrices_of_the_decoders_layers_change(kind: str, name: str) -> None:
    source = checkpoint(MODELS[kind])
    made = restored(source, name)
    for item in made.stored:
        tensor = item.tensor
        changes = tensor.linear and tensor.component is Component.DECODER and tensor.role is not Role.LM_HEAD
        assert isinstance(item.format, Dense) is not changes, tensor.name
    assert sum(item.tensor.total_elements for item in made.stored) == sum(
        tensor.total_elements for tensor in source.model.tensors
    )
    assert made.disk_bytes == sum(item.stored_bytes for item in made.stored)
    assert made.disk_evidence.kind is EvidenceKind.CALCULATED
    assert "hypothetical" in made.disk_evidence.source
    assert "hypothetical" in made.differences[0]


@pytest.mark.parametrize("name", CHANGING)
def test_fewer_bits_are_fewer_bytes(name: str) -> None:
    made = restored(checkpoint(LLAMA_3_1_8B), name)
    matrices = [item for item in made.stored if not isinstance(item.format, Dense)]
    bits = (
        8 * sum(item.stored_bytes for item in matrices) / sum(item.tensor.total_elements for item in matrices)
    )
    least = {1: 8, 2: 4}[FORMATS[name].loss]
    assert least < bits < least + 0.6


def test_a_plan_says_that_its_weights_are_hypothetical() -> None:
    answer = plan(restored(checkpoint(LLAMA_3_1_8B), "gptq-int4"), "L4", max_model_len=8192)
    assert answer.inputs.quantization == "gptq: INT4 group 128 (gptq)"
    assert any("hypothetical" in note for note in answer.notes)


def test_a_file_that_an_engine_converts_to_is_no_checkpoint_here() -> None:
    with pytest.raises(FlagError, match="converts"):
        restored(checkpoint(LLAMA_3_1_8B), "q4_k_m")


def test_an_unknown_format_is_refused_with_the_nearest() -> None:
    with pytest.raises(FlagError, match="awq-int4"):
        restored(checkpoint(LLAMA_3_1_8B), "awq")
