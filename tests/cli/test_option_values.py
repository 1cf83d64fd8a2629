"""What a person writes for a flag, and the value it becomes."""

from __future__ import annotations

import pytest
from msgspec.structs import fields

from vramledger.engines.option import parse_count
from vramledger.engines.requests import Requests
from vramledger.engines.vllm.flags import ParallelPlan, Speculation, VllmFlags
from vramledger.engines.vllm.options import OPTIONS, read_flags
from vramledger.errors import FlagError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("32768", 32768), ("32k", 32000), ("32K", 32768), ("25.6k", 25600), ("1m", 10**6), ("1M", 2**20),
        ("8g", 8 * 10**9), ("8G", 8 * 2**30), ("-1", -1), (" 7 ", 7), ("1.0005k", 1000),
    ],
)  # fmt: skip
def test_counts_have_the_engines_own_units(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("text", ["", "k", "1.5", "1.5K", "1e3", "0x10", "32 kk", "1" * 5000, "٣", "nan"])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="whole"):
        parse_count(text)


def test_every_flag_of_the_engine_has_an_option() -> None:
    named = {option.name for option in OPTIONS}
    flags = {item.name for item in fields(VllmFlags)} - {"speculative", "requests"}
    asked = {item.name for item in fields(Requests)}
    assert flags | asked | {"speculative_config"} <= named
    assert len({spelling for option in OPTIONS for spelling in (option.flag, *option.aliases)}) == sum(
        1 + len(option.aliases) for option in OPTIONS
    )


def test_nothing_given_is_the_default() -> None:
    assert read_flags({"max_model_len": None, "enforce_eager": None}) == (ParallelPlan(), VllmFlags())


def test_text_and_values_read_alike() -> None:
    as_text = {
        "tp": "4", "max_model_len": "auto", "gpu_memory_utilization": "0.85", "enforce_eager": "true",
        "kv_cache_memory_bytes": "8G", "pp_layer_partition": "3,5", "kv_cache_dtype": " fp8 ",
        "speculative_config": '{"method": "deepseek_mtp", "num_speculative_tokens": 3}',
    }  # fmt: skip
    as_values = {
        "tensor_parallel_size": 4, "max_model_len": -1, "gpu_memory_utilization": 0.85, "enforce_eager": True,
        "kv_cache_memory_bytes": 8 * 2**30, "pp_layer_partition": (3, 5), "kv_cache_dtype": "fp8",
        "speculative": Speculation(method="mtp", num_speculative_tokens=3),
    }  # fmt: skip
    assert read_flags(as_text) == read_flags(as_values)


@pytest.mark.parametrize(
    ("limits", "text_only"), [('{"image": 0, "video": 0}', True), ('{"image": 2}', False)]
)
def test_no_items_of_any_modality_is_text_only(limits: str, text_only: bool) -> None:
    assert read_flags({"limit_mm_per_prompt": limits})[1].language_model_only is text_only


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("max_num_seqs", "many", "whole number"),
        ("max_num_seqs", True, "whole number"),
        ("max_num_seqs", 2.5, "whole number"),
        ("max_num_seqs", "9" * 18 + "T", "out of range"),
        ("tensor_parallel_size", "9" * 30, "out of range"),
        ("tensor_parallel_size", 2**70, "out of range"),
        ("max_num_seqs", 0, "at least 1"),
        ("max_num_seqs", "1" * 20_000, "too long"),
        ("gpu_memory_utilization", "most", "not a number"),
        ("gpu_memory_utilization", float("nan"), "not a number"),
        ("gpu_memory_utilization", "1.5", "at most 1"),
        ("enforce_eager", "perhaps", "neither true nor false"),
        ("dtype", "int3", "not one of auto"),
        ("dtype", 16, "not a name"),
        ("kv_cache_dtype", "  ", "not a name"),
        ("pp_layer_partition", "3,x", "list of whole numbers"),
        ("pp_layer_partition", 7, "list of whole numbers"),
        ("tp", "0", "outside 1 to 4096"),
        ("speculative_config", '{"method":', "not JSON: Expecting value at character 10"),
        ("speculative_config", "[1]", "not a JSON object"),
        ("speculative_config", "[" * 9000, "not JSON"),
        ("speculative_config", '{"method": "mtp"}', "num_speculative_tokens"),
        ("speculative_config", '{"num_speculative_tokens": 2}', "must have method"),
        (
            "speculative_config",
            '{"method": "eagle3", "num_speculative_tokens": 2}',
            "must have model",
        ),
        ("limit_mm_per_prompt", '{"smell": 1}', "'smell'"),
        ("limit_mm_per_prompt", '{"image": -1}', "whole number"),
    ],
)
def test_wrong_values_name_the_flag_and_the_reason(name: str, value: object, says: str) -> None:
    with pytest.raises(FlagError, match=says) as caught:
        read_flags({name: value})
    assert "flag" in caught.value.facts
    assert len(caught.value.message) < 400
