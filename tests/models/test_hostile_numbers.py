"""Quantisation and rope sections of published configs with values that no producer writes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import H100, LLAMA_3_1_8B, QWEN3_32B_AWQ, checkpoint, published
from vramledger.engines.vllm.planner import plan
from vramledger.errors import ConfigError, UnknownFormat, VramledgerError
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.models.sources.load import Source

QUANTISATION = ("quantization_config", "compression_config")
ROPE = ("rope_scaling", "rope_parameters")

hostile = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, -1, -2, 3, 5, 7, 31, 33, 65, 2**31, 2**63, 1e308, -1e308, 0.0, -0.5, 1e-300]),
    st.sampled_from([float("nan"), float("inf"), -float("inf"), True, False, None, "", "fp8", "128", "nan"]),
    st.sampled_from([[], {}, [0], [0, 0], [128], [-1, 128], [[1]], {"a": 1}, {"num_bits": 8}, [None]]),
    st.floats(),
    st.text(max_size=8),
)


def sections(keys: tuple[str, ...]) -> list[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Model, its files, and where in config.json one of `keys` is an object."""
    out = []
    for name, files in sorted(published().items()):
        for path in _objects(files["config.json"], keys):
            out.append((name, files, path))
    return out


def _objects(config: dict[str, Any], keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key in keys:
        if isinstance(config.get(key), dict) and config[key]:
            yield (key,)
        for outer in ("text_config", "llm_config", "language_config"):
            inner = config.get(outer)
            if isinstance(inner, dict) and isinstance(inner.get(key), dict) and inner[key]:
                yield (outer, key)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything below `value`, itself left out; of long lists the first few."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for count, (key, item) in enumerate(inner):
        if count >= 40:
            return
        yield (*path, key)
        yield from leaves(item, (*path, key))


def read(name: str, files: dict[str, Any]) -> Checkpoint:
    return checkpoint_from_source(
        Source(
            id=name,
            where="config.json",
            config=files["config.json"],
            quant_configs={key: value for key, value in files.items() if key != "config.json"},
            side_configs={},
            table=None,
            index=None,
            gguf=None,
            disk_bytes=None,
            disk_evidence=None,
            files=tuple(files),
        )
    )


def check_mutated(data: st.DataObject, found: list[tuple[str, dict[str, Any], tuple[str, ...]]]) -> None:
    name, files, path = data.draw(st.sampled_from(found))
    config = copy.deepcopy(files["config.json"])
    section = config
    for key in path:
        section = section[key]
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(leaves(section))
        if not places:
            break
        *parents, last = data.draw(st.sampled_from(places))
        owner: Any = section
        for key in parents:
            owner = owner[key]
        owner[last] = copy.deepcopy(data.draw(hostile))
    try:
        subject = read(name, {**files, "config.json": config})
        answer = plan(subject, H100)
    except VramledgerError as refusal:
        assert refusal.message
        assert len(refusal.message) < 2000
        return
    for rank in answer.ranks:
        assert all(entry.bytes.low >= 0 for entry in rank.entries)


@settings(max_examples=150)
@given(st.data())
def test_a_quantisation_section_is_read_or_refused(data: st.DataObject) -> None:
    check_mutated(data, sections(QUANTISATION))


@settings(max_examples=150)
@given(st.data())
def test_a_rope_section_is_read_or_refused(data: st.DataObject) -> None:
    check_mutated(data, sections(ROPE))


def quantised(**section: Any) -> Checkpoint:
    return checkpoint(LLAMA_3_1_8B | {"quantization_config": section})


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"quant_method": "gptq", "bits": 5, "group_size": 128}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -2}, "group_size"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:q_proj": {"group_size": 0}}}, "group_size"),
        ({"quant_method": "awq", "bits": 5, "group_size": 128}, "bits"),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 0}, "q_group_size"),
        ({"quant_method": "auto-round", "bits": 6}, "bits"),
        ({"quant_method": "auto-round", "bits": 4, "extra_config": {"q_proj": {"bits": 9}}}, "bits"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
    ],
)
def test_numbers_no_kernel_has_are_refused_by_key(section: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        quantised(**section)
    assert refusal.value.facts["key"] == key


def test_packed_widths_that_leave_bits_unused_have_no_size_here() -> None:
    weights = {"num_bits": 5, "type": "int", "strategy": "group", "group_size": 128}
    group = {"targets": ["Linear"], "weights": weights}
    with pytest.raises(UnknownFormat, match="5 bits"):
        quantised(
            quant_method="compressed-tensors", format="pack-quantized", config_groups={"group_0": group}
        )


def test_listed_modules_of_modelopt_have_positive_groups() -> None:
    layers = {"model.layers.0.mlp.gate_proj": {"quant_algo": "W4A16_AWQ", "group_size": -128}}
    with pytest.raises(ConfigError, match="group_size"):
        quantised(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)


@pytest.mark.parametrize("factor", [0, -4.0, float("nan"), float("inf"), 1e17, "8"])
def test_a_rope_factor_is_above_0_and_within_reach(factor: Any) -> None:
    with pytest.raises(ConfigError, match="factor"):
        checkpoint(QWEN3_32B_AWQ | {"rope_scaling": {"rope_type": "linear", "factor": factor}})
