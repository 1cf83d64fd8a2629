"""Engines asked over HTTP: recorded answers of real ones, served by a local server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.http_server import files, serving
from vramledger.errors import InputError, SourceError
from vramledger.ledger import Owner
from vramledger.measurement import Measurement
from vramledger.telemetry.exposition import parse_exposition
from vramledger.telemetry.metrics_reading import engine_figures, engine_of, engine_pools, metrics_measurement
from vramledger.telemetry.probes.engine import (
    MetricsProbe,
    engine_measurement,
    metrics_url,
    server_info_measurement,
)

RECORDED = Path(__file__).parents[1] / "engines" / "recorded" / "metrics"
VLLM = (RECORDED / "vllm-0.32.0.metrics").read_bytes()


def test_a_running_engine_tells_its_pool() -> None:
    with serving(files({"/metrics": VLLM})) as url:
        found = engine_measurement(url, clock=lambda: 7.0)
    assert found.engine == "vllm"
    (pool,) = found.pools
    assert pool.num_blocks is not None
    assert pool.tokens is not None
    assert pool.block_size is not None
    assert pool.tokens.expected == pool.num_blocks.expected * pool.block_size
    assert found.sources[0].from_s == 7.0
    assert ("block_size", pool.block_size) in found.settings


def test_a_probe_samples_by_the_engines_table() -> None:
    with serving(files({"/metrics": VLLM})) as url:
        probe = MetricsProbe(url)
        samples = probe.read(5.0)
    names = {sample.name for sample in samples}
    assert {"running_requests", "waiting_requests", "kv_usage_ratio", "total_preempted_requests"} <= names
    assert {sample.source for sample in samples} == {f"metrics:{url}/metrics"}
    assert {sample.at_s for sample in samples} == {5.0}


def test_metrics_of_nobody_are_refused() -> None:
    page = {
        "/metrics": b"process_cpu_seconds_total 1\nprocess_resident_memory_bytes 2\n",
        "/other": b"<html>",
    }
    with serving(files(page)) as url:
        with pytest.raises(SourceError, match="no metric of an engine"):
            MetricsProbe(url).read(1.0)
        with pytest.raises(SourceError, match="no engine known here"):
            engine_measurement(url)
        with pytest.raises(InputError, match="holds no metric"):
            engine_measurement(f"{url}/other")


def test_names_that_several_programs_have_tell_no_engine() -> None:
    assert engine_of(parse_exposition(b"process_resident_memory_bytes 2\n")) is None
    assert engine_of(parse_exposition(b"vllm:num_requests_running 2\n")) == "vllm"


def test_lines_that_are_no_metric_are_told() -> None:
    found = metrics_measurement(b"vllm:num_requests_running 2\n?\n", "m")
    assert found.notes == ("m: 1 lines are no metric (line 2)",)


def test_numbers_beyond_all_sizes_are_left_out() -> None:
    body = b"sglang:weight_memory_usage_gb 1e300\nsglang:kv_cache_memory_usage_gb 0.5\nsglang:max_total_num_tokens 1e30\n"
    found = metrics_measurement(body, "m")
    assert [figure.bytes.expected for figure in found.figures] == [2**29]
    assert found.pools == ()


def test_an_address_with_a_path_is_asked_as_it_is() -> None:
    assert metrics_url("http://h:1") == "http://h:1/metrics"
    assert metrics_url("http://h:1/prometheus/metrics") == "http://h:1/prometheus/metrics"


def test_what_no_engine_answers_is_refused() -> None:
    for body in (b"", b"[]", b"{}", b"\xff", b'{"a": ' * 5000):
        with pytest.raises(InputError):
            server_info_measurement(body, "info.json")


def test_sizes_of_ranks_are_figures_of_theirs_and_the_smallest_pool_is_the_pool() -> None:
    from vramledger.observation import Sample

    def of(name: str, value: float, rank: int, label: str = "") -> Sample:
        return Sample(at_s=1.0, source="m", name=name, value=value, rank=rank, label=label)

    samples = [
        of("weights_bytes", 11, 0), of("weights_bytes", 13, 1), of("kv_cache_bytes", 17, 0), of("graph_bytes", 2, 0, "a"),
        of("graph_bytes", 3, 0, "b"), of("graph_bytes", 0, 1), of("kv_pool_tokens", 900, 0), of("kv_pool_tokens", 800, 1),
    ]  # fmt: skip
    figures = [
        (figure.owners[0], figure.ranks, figure.bytes.expected) for figure in engine_figures(samples, "m")
    ]
    assert figures == [
        (Owner.WEIGHTS, (0,), 11),
        (Owner.WEIGHTS, (1,), 13),
        (Owner.KV_CACHE, (0,), 17),
        (Owner.GRAPH_POOL, (0,), 5),
    ]
    (pool,) = engine_pools(samples, "m")
    assert pool.tokens is not None
    assert pool.tokens.expected == 800


@given(st.binary(max_size=200), st.integers(0, len(VLLM)))
def test_cut_and_spoilt_answers_are_read_or_refused(junk: bytes, at: int) -> None:
    try:
        assert isinstance(metrics_measurement(VLLM[:at] + junk, "m"), Measurement)
    except InputError as problem:
        assert problem.message.startswith("m holds")


PROPS = b'{"default_generation_settings": {"n_ctx": 2048}, "total_slots": 2, "model_path": "m.gguf", "build_info": "b6000-abc"}'
SLOTS = (
    b'[{"id": 0, "n_ctx": 2048, "is_processing": true, "n_prompt_tokens": 31}, '
    b'{"id": 1, "n_ctx": 2048, "is_processing": false, "n_prompt_tokens": 17}]'
)
STATES = b'{"model_path": "m", "version": "0.5.5", "internal_states": [{"memory_usage": {"weight": 14.9, "kvcache": 50.1}}]}'
STEPS = b'[{"iter": 3, "kvCacheStats": {"maxNumBlocks": 101, "usedNumBlocks": 7, "tokensPerBlock": 32}}]'
MODELS = b'{"object": "list", "data": [{"id": "m", "owned_by": "vllm", "root": "org/m", "parent": null, "max_model_len": 4096}]}'
LLAMACPP = b"llamacpp:requests_processing 1\nllamacpp:prompt_tokens_total 5\n"


@pytest.mark.parametrize(
    ("body", "engine"),
    [(PROPS, "llamacpp"), (SLOTS, "llamacpp"), (STATES, "sglang"), (STEPS, "tensorrt-llm"), (MODELS, "vllm")],
)
def test_a_saved_answer_is_known_by_its_signs(body: bytes, engine: str) -> None:
    assert server_info_measurement(body, "saved.json").engine == engine
    with pytest.raises(InputError, match=r"saved\.json"):
        server_info_measurement(body[:-1], "saved.json")


def test_an_old_answer_without_signs_needs_the_engines_name() -> None:
    body = b'{"model_path": "m", "version": "0.3.0", "mem_fraction_static": 0.9}'
    with pytest.raises(InputError, match="signs of none"):
        server_info_measurement(body, "old.json")
    assert server_info_measurement(body, "old.json", engine="sglang").model == "m"


def test_llamacpp_is_measured_by_all_that_it_answers() -> None:
    with serving(files({"/metrics": LLAMACPP, "/props": PROPS, "/slots": SLOTS})) as url:
        found = engine_measurement(url)
    assert (found.engine, found.engine_version, found.model) == ("llamacpp", "b6000", "m.gguf")
    assert any("/v1/models answers 404" in note for note in found.notes)


def test_what_is_told_beside_the_metrics_is_sampled_too() -> None:
    with serving(files({"/metrics": LLAMACPP, "/slots": SLOTS})) as url:
        samples = MetricsProbe(url).read(5.0)
    values = {(sample.source.partition(":")[0], sample.name): sample.value for sample in samples}
    assert values["metrics", "running_requests"] == 1
    assert (values["endpoint", "kv_used_tokens"], values["endpoint", "kv_evictable_tokens"]) == (31, 17)


def test_an_engine_whose_metrics_are_json_is_known_too() -> None:
    with serving(files({"/metrics": STEPS})) as url:
        values = {sample.name: sample.value for sample in MetricsProbe(url).read(5.0)}
        found = engine_measurement(url)
    assert values["kv_pool_blocks"] == 101
    assert found.engine == "tensorrt-llm"
    assert found.pools[0].tokens is not None
    assert found.pools[0].tokens.expected == 101 * 32
