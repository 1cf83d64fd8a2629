"""What an instance has, from what engines really answered, and from what was given."""

from __future__ import annotations

import json
from functools import partial

import pytest

from vramledger.engines.full_pool import WhenFull
from vramledger.errors import InputError, SourceError
from vramledger.gateway.live.capacity import Capacity, Given, capacity_of
from vramledger.gateway.live.watching import only
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.telemetry.probes.engine import told_measurement, told_paths
from vramledger.telemetry.web import Answer

BASE = "http://engine"


def said(answers: dict[str, str], given: Given = Given()) -> Capacity:  # noqa: B008
    def ask(url: str) -> Answer:
        path = url.removeprefix(BASE)
        if path not in answers:
            raise SourceError(f"{url} is not there", source=url)
        return Answer(url=url, status=200, kind="", body=answers[path].encode())

    return capacity_of(told_measurement(BASE, ask), given, where=BASE)


VLLM = {
    "/metrics": 'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0\n'
    'vllm:cache_config_info{block_size="128",cache_dtype="auto",enable_prefix_caching="True",engine="0",'
    'kv_cache_size_tokens="8192",num_gpu_blocks="64"} 1.0\n',
    "/version": '{"version":"0.32.0"}',
    "/v1/models": '{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"vllm","root":"tiny","parent":null,"max_model_len":4096}]}',
}
LLAMACPP = {
    "/props": '{"default_generation_settings":{"n_ctx":2048},"total_slots":4,"model_path":"m.gguf","build_info":"b11549-x"}',
    "/slots": '[{"id":0,"n_ctx":2048,"is_processing":false}]',
}
SGLANG = {
    "/server_info": json.dumps(
        {
            "version": "0.5.23",
            "model_path": "m",
            "page_size": 16,
            "context_length": 4096,
            "internal_states": [
                {
                    "memory_usage": {"token_capacity": 8192},
                    "effective_max_running_requests_per_dp": 24,
                }
            ],
        }
    )
}
TENSORRT_LLM = {
    "/metrics": '[{"iter":7,"kvCacheStats":{"maxNumBlocks":100,"tokensPerBlock":32,"usedNumBlocks":3,"freeNumBlocks":97}}]'
}


def test_vllm_has_one_block_less_than_it_says() -> None:
    has = said(VLLM)
    assert (has.engine, has.version, has.when_full) == ("vllm", "0.32.0", WhenFull.RECOMPUTE)
    assert (has.layout.num_blocks, has.layout.usable_blocks, has.layout.key_tokens) == (64, 63, 128)
    assert (has.max_model_len, has.max_running, has.step_tokens) == (4096, 63, None)
    assert has.keeps_prefixes and not has.notes


def test_vllm_with_groups_of_layers_is_counted_in_tokens_or_by_the_plans_groups() -> None:
    grouped = {**VLLM, "/metrics": VLLM["/metrics"].replace('"8192"', '"6000"')}
    has = said(grouped)
    assert has.layout.num_blocks == 6000 // 128
    assert "groups of layers" in has.notes[0]
    planned = PoolLayout(
        num_blocks=70,
        groups=(
            BlockGroup(block_tokens=128),
            BlockGroup(kind=GroupKind.WINDOW, block_tokens=128, window_tokens=256),
        ),
        reserved_blocks=1,
    )
    both = said(grouped, Given(layout=planned))
    assert (both.layout.num_blocks, len(both.layout.groups)) == (64, 2)
    assert "64 blocks, 70 were given" in both.notes[0]


def test_of_what_the_engine_says_and_what_was_given_the_smaller_goes_and_is_told() -> None:
    has = said(VLLM, Given(max_model_len=2048, max_running=16, pool_tokens=4096, step_tokens=512))
    assert (has.max_model_len, has.max_running, has.step_tokens) == (2048, 16, 512)
    assert has.layout.usable_blocks == 32
    assert [note.partition(":")[0] for note in has.notes] == ["the pool", "max_model_len"]
    assert said(VLLM, Given(pool_tokens=1 << 20)).layout.usable_blocks == 63


@pytest.mark.parametrize(
    ("given", "cells", "when_full"),
    [
        (Given(), 2048, WhenFull.FAIL),
        (Given(kv_unified=True), 2048, WhenFull.FAIL),
        (Given(kv_unified=False), 8192, WhenFull.NEVER),
        (Given(pool_tokens=8192), 8192, WhenFull.NEVER),
        (Given(pool_tokens=2048), 2048, WhenFull.FAIL),
    ],
)
def test_llamacpps_slots_share_cells_unless_somebody_says_otherwise(
    given: Given, cells: int, when_full: WhenFull
) -> None:
    has = said(LLAMACPP, given)
    assert (has.engine, has.layout.usable_blocks, has.when_full) == ("llamacpp", cells, when_full)
    assert (has.max_model_len, has.max_running, has.keeps_prefixes) == (2048, 4, False)
    assert bool(has.notes) is (given == Given())


def test_sglang_and_tensorrt_llm() -> None:
    sglang = said(SGLANG)
    assert (sglang.layout.num_blocks, sglang.layout.key_tokens, sglang.max_running) == (512, 16, 24)
    assert (sglang.max_model_len, sglang.when_full) == (4096, WhenFull.RECOMPUTE)
    tensorrt = said(TENSORRT_LLM)
    assert (tensorrt.engine, tensorrt.layout.num_blocks, tensorrt.layout.key_tokens) == (
        "tensorrt-llm",
        100,
        32,
    )
    assert tensorrt.when_full is WhenFull.NEVER


def test_an_engine_that_says_nothing_is_served_by_what_is_given_and_as_though_it_failed_when_full() -> None:
    with pytest.raises(InputError, match="manifest"):
        capacity_of(None, Given(max_model_len=100), where=BASE)
    unknown = partial(capacity_of, None, where=BASE)
    assert unknown(Given(pool_tokens=1000)).when_full is WhenFull.FAIL
    known = unknown(Given(pool_tokens=1000, engine="vllm", max_model_len=500, max_running=9))
    assert (known.when_full, known.max_model_len, known.max_running) == (WhenFull.RECOMPUTE, 500, 9)
    assert known.notes


def test_all_that_may_be_asked_is_known_beforehand() -> None:
    assert {"/metrics", "/version", "/v1/models"} <= set(told_paths("vllm"))
    assert "/props" not in told_paths("vllm")
    assert {"/props", "/slots", "/server_info"} <= set(told_paths())


def test_of_an_exposition_only_the_lines_that_matter_are_read() -> None:
    body = b'# HELP a\na 1\nab{x="y"} 2\nb 3\n'
    assert only(body, (b"a",)) == b'a 1\nab{x="y"} 2'
