"""The line that starts an engine carries the flags of the plan: all of them, and no others."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from vramledger.engines import engine_names, find_engine, find_serving
from vramledger.engines.option import OptionKind
from vramledger.engines.serving import REQUEST_FLAGS
from vramledger.engines.start_line import FILE_NAME, StartLine, start_line
from vramledger.errors import FlagError
from vramledger.planning import plan

MODEL = "builtin:Qwen3-30B-A3B"
_VALUES = {
    OptionKind.COUNT: "4K",
    OptionKind.COUNT_OR_AUTO: "4K",
    OptionKind.SIGNED: "3",
    OptionKind.NUMBER: "0.5",
    OptionKind.TEXT: "word",
    OptionKind.SWITCH: True,
    OptionKind.COUNTS: "2,2",
    OptionKind.JSON: '{"a": 1}',
    OptionKind.TEXTS: ("one", "two"),
}


def _started(engine: str, **flags: object) -> StartLine:
    serving = find_serving(engine)
    assert serving is not None
    return start_line(serving, find_engine(engine)[0].OPTIONS, model="org/name", values=flags)


@pytest.mark.parametrize("engine", engine_names())
def test_each_flag_is_carried_or_said_to_be_left_out(engine: str) -> None:
    bare = _started(engine)
    for option in find_engine(engine)[0].OPTIONS:
        value = option.choices[0] if option.choices else _VALUES[option.kind]
        found = _started(engine, **{option.name: value})
        if option.name in REQUEST_FLAGS:
            assert found == bare
        else:
            assert (found.command != bare.command) != bool(found.left_out), option.flag


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", {"tensor_parallel_size": 2, "max_model_len": "16K", "gpu_memory_utilization": 0.8, "enforce_eager": True}),
        ("vllm", {"kv_cache_dtype": "fp8", "enable_prefix_caching": False, "max_num_seqs": 64}),
        ("sglang", {"tp_size": 2, "context_length": "16K", "mem_fraction_static": 0.8, "disable_cuda_graph": True}),
        ("llamacpp", {"ctx_size": "16K", "cache_type_k": "q8_0", "cache_type_v": "q8_0", "parallel": 2}),
        ("tensorrt-llm", {"tp_size": 2, "max_seq_len": "16K", "free_gpu_memory_fraction": 0.8}),
    ],
)  # fmt: skip
def test_the_flags_of_the_line_give_the_same_plan(engine: str, flags: dict[str, Any]) -> None:
    names = {alias: each for each in find_engine(engine)[0].OPTIONS for alias in (each.flag, *each.aliases)}
    words = iter(shlex.split(_started(engine, **flags).command))
    again: dict[str, Any] = {}
    for word in words:
        negated = word.replace("--no-", "--", 1)
        if negated in names and names[negated].kind is OptionKind.SWITCH:
            again[names[negated].name] = word == negated
        elif word in names:
            again[names[word].name] = next(words)
    assert plan(MODEL, "H100", engine=engine, **again) == plan(MODEL, "H100", engine=engine, **flags)


def test_what_vllm_reads_from_its_environment_stands_before_the_command() -> None:
    found = _started(
        "vllm", pp_layer_partition="20,28", use_flashinfer_sampler=False, pipeline_parallel_size=2
    )
    assert found.command == (
        "VLLM_PP_LAYER_PARTITION=20,28 VLLM_USE_FLASHINFER_SAMPLER=0 vllm serve org/name --pipeline-parallel-size 2"
    )


def test_what_tensorrt_llm_reads_from_a_file_is_written_before_the_command() -> None:
    yaml = pytest.importorskip("yaml")
    found = _started(
        "tensorrt-llm",
        tp_size=2,
        free_gpu_memory_fraction=0.8,
        tokens_per_block=64,
        cuda_graph=False,
        speculative_config={"decoding_type": "MTP"},
        max_attention_window=(4096, 8192),
    )
    first, *inside, _, command = found.command.splitlines()
    assert first == f"cat > {FILE_NAME} <<'END'"
    assert command == f"trtllm-serve org/name --tp_size 2 --extra_llm_api_options {FILE_NAME}"
    assert yaml.safe_load("\n".join(inside)) == {
        "kv_cache_config": {
            "free_gpu_memory_fraction": 0.8,
            "tokens_per_block": 64,
            "max_attention_window": [4096, 8192],
        },
        "cuda_graph_config": None,
        "speculative_config": {"decoding_type": "MTP"},
    }


def test_a_setting_of_a_part_that_is_switched_on_keeps_it() -> None:
    yaml = pytest.importorskip("yaml")
    for order in (("cuda_graph", "cuda_graph_max_batch_size"), ("cuda_graph_max_batch_size", "cuda_graph")):
        given = {name: True if name == "cuda_graph" else 64 for name in order}
        inside = _started("tensorrt-llm", **given).command.splitlines()[1:-2]
        assert yaml.safe_load("\n".join(inside)) == {"cuda_graph_config": {"max_batch_size": 64}}


def test_devices_of_llamacpp_are_those_it_may_see() -> None:
    assert _started("llamacpp", gpus=3).command == "CUDA_VISIBLE_DEVICES=0,1,2 llama-server -m org/name"


def test_text_is_quoted_for_a_shell() -> None:
    serving = find_serving("vllm")
    assert serving is not None
    config = {"method": "ngram", "prompt": "it's $HOME"}
    found = start_line(
        serving,
        find_engine("vllm")[0].OPTIONS,
        model="./a b;rm",
        values={"speculative_config": json.dumps(config)},
    )
    words = shlex.split(found.command)
    assert words[:3] == ["vllm", "serve", "./a b;rm"]
    assert json.loads(words[4]) == config


def test_a_value_that_the_flag_does_not_take_is_refused() -> None:
    with pytest.raises(FlagError, match="--max-num-seqs"):
        _started("vllm", max_num_seqs="many")
