"""Who answers at an address, by answers as engines really give them, and by hostile ones; the pool they confirm; the shapes that are asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.http_server import answer, files, serving
from vramledger.errors import FlagError, InputError, SourceError, VramledgerError
from vramledger.evidence import measured
from vramledger.experiment.instance import find_instance
from vramledger.experiment.pool_confirmed import pool_confirmed, with_log
from vramledger.experiment.warm_up import LONG_OUTPUT_TOKENS, POOL_SHARE, shapes_of
from vramledger.gateway.snapshot import GatewayState, InstanceState
from vramledger.measurement import MeasuredPool, Measurement
from vramledger.planning import load_model, plan
from vramledger.pool import IntRange, KvPool

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "Llama-3.1-8B-Instruct")


def vllm(root: str = "tiny", *, served: str = "tiny") -> dict[str, bytes]:
    card = {
        "id": served,
        "object": "model",
        "owned_by": "vllm",
        "root": root,
        "parent": None,
        "max_model_len": 4096,
    }
    return {
        "/metrics": b'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0\n'
        b'vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0",kv_cache_size_tokens="8192",num_gpu_blocks="64"} 1.0\n',
        "/version": b'{"version":"0.32.0"}',
        "/v1/models": json.dumps({"object": "list", "data": [card]}).encode(),
    }


def test_a_vllm_server_is_known_by_its_answers_and_its_vocabulary_by_the_models_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 4096}}), encoding="utf-8")
    with serving(files(vllm(str(tmp_path)))) as url:
        found = find_instance(f"{url}/v1/", pid=1)
    target = found.target
    assert (target.engine, target.engine_version, target.model) == ("vllm", "0.32.0", "tiny")
    assert (target.context_len, found.vocab_size, target.pid) == (4096, 4096, 1)
    # 64 blocks, one of which nobody gets, and a block a sequence.
    assert found.at_once == 63
    assert found.notes == ()
    assert pool_confirmed(found.measurement).words == "the engine says 8,192 tokens in 64 blocks of 128"


def test_what_is_not_served_is_not_asked_for() -> None:
    with serving(files(vllm())) as url:
        with pytest.raises(FlagError, match=r"serves no model 'other'; it serves 'tiny'"):
            find_instance(url, model="other", pid=1)
        assert find_instance(url, model="tiny", pid=1).target.model == "tiny"


def test_a_server_that_shows_nothing_but_its_models_is_asked_all_the_same() -> None:
    body = b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"someone"}]}'
    with serving(files({"/v1/models": body})) as url:
        found = find_instance(url, pid=1)
    assert (found.target.model, found.target.engine, found.target.context_len) == ("m", None, None)
    assert any("does not show which engine it is" in note for note in found.notes)
    assert any("how long a request may be" in note for note in found.notes)


def test_where_nothing_serves_a_model_nothing_is_begun() -> None:
    with serving(files({})) as url, pytest.raises(SourceError, match="names no model"):
        find_instance(url)
    with pytest.raises(SourceError, match="cannot be asked"):
        find_instance("http://127.0.0.1:9")
    with pytest.raises(FlagError):
        find_instance("ftp://127.0.0.1")


def admin(*names: str) -> dict[str, bytes]:
    state = GatewayState(instances=tuple(InstanceState(name=name) for name in names))
    return {"/state": msgspec.json.encode({"gateway": state})}


def test_the_engine_behind_a_gateway_is_told_by_its_admin_port() -> None:
    models = {"/v1/models": vllm()["/v1/models"]}
    with (
        serving(files(vllm())) as engine,
        serving(files(models)) as url,
        serving(files(admin(engine))) as books,
    ):
        found = find_instance(url, gateway_url=books, pid=1)
        assert (found.target.url, found.target.engine_url, found.target.gateway_url) == (url, engine, books)
        assert found.target.context_len == 4096


def test_where_the_engine_is_not_reached_the_gateways_word_of_its_pool_goes() -> None:
    models = {"/v1/models": b'{"object":"list","data":[{"id":"m"}]}'}
    engine = InstanceState(name="http://127.0.0.1:9", engine="vllm", total_blocks=63, block_size=128)
    state = msgspec.json.encode({"gateway": GatewayState(instances=(engine,))})
    with serving(files(models)) as url, serving(files({"/state": state})) as books:
        found = find_instance(url, gateway_url=books, pid=1)
    pool = pool_confirmed(found.measurement)
    # The gateway counts what requests may get; vLLM's null block is of the pool all the same.
    assert (pool.engine_tokens, pool.block_size) == (8192, 128)
    assert pool.source.startswith(books)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("http://127.0.0.1:1", "http://127.0.0.1:2"), "has 2 engines"),
        (("the big one",), "does not tell its engine's address"),
    ],
)
def test_an_engine_that_a_gateway_does_not_tell_has_to_be_named(names: tuple[str, ...], words: str) -> None:
    with serving(files(vllm())) as engine, serving(files(admin(*names))) as books:
        with pytest.raises(InputError, match=words):
            find_instance(engine, gateway_url=books)
        assert find_instance(engine, gateway_url=books, engine_url=engine, pid=1).target.engine_url == engine


def test_a_gateway_whose_books_are_not_shown_is_recognised_and_its_process_not_taken_for_the_engines() -> (
    None
):
    def respond(request: Any) -> None:
        if request.path == "/v1/models":
            answer(request, 200, vllm()["/v1/models"])
        else:
            answer(request, 403, b'{"error":{"message":"not passed on","code":"path-guarded"}}')

    with serving(respond) as url:
        found = find_instance(url)
    assert found.target.pid is None
    assert any("is a vramledger gateway: give its admin address by --gateway" in note for note in found.notes)


HOSTILE = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["data", "id", "owned_by", "max_model_len", "version", "total_slots"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode()),
)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(st.sampled_from(["/metrics", "/version", "/props", "/slots", "/v1/models"]), HOSTILE))
def test_whatever_is_answered_an_instance_is_found_or_an_error_says_why(answers: dict[str, bytes]) -> None:
    with serving(files(answers)) as url:
        try:
            find_instance(url, pid=1)
        except VramledgerError as problem:
            assert problem.message


def planned_pool() -> KvPool:
    found = plan(load_model(EXAMPLE), "H100-80GB", engine="vllm==0.32.0", max_model_len=8192).kv_pool
    assert found is not None
    return found


def told(tokens: int | None, blocks: int | None = None, block_size: int | None = 16) -> Measurement:
    def exact(value: int | None) -> IntRange | None:
        return None if value is None else IntRange(value, value, value)

    pool = MeasuredPool(
        evidence=measured("the engine"), tokens=exact(tokens), num_blocks=exact(blocks), block_size=block_size
    )
    return Measurement(sources=(), engine="vllm", pools=(pool,))


def test_a_pool_within_the_plans_range_is_as_planned() -> None:
    pool = planned_pool()
    for tokens in (pool.tokens.low, pool.tokens.expected, pool.tokens.high):
        found = pool_confirmed(told(tokens), pool)
        assert found.agrees
        assert "as planned" in found.words
    assert (found.planned_tokens_low, found.planned_tokens_high) == (pool.tokens.low, pool.tokens.high)


def test_a_pool_outside_the_plans_range_is_told_by_how_much() -> None:
    pool = planned_pool()
    fewer = pool_confirmed(told(pool.tokens.low - 1600), pool)
    assert fewer.agrees is False
    assert "; 1,600 fewer than the plan's" in fewer.words
    more = pool_confirmed(told(None, pool.tokens.high // 16 + 100), pool)
    assert more.agrees is False
    assert " more than the plan's" in more.words


def test_an_engine_that_tells_no_pool_confirms_nothing() -> None:
    found = pool_confirmed(Measurement(sources=(), engine="vllm"), planned_pool())
    assert (found.engine_tokens, found.agrees) == (None, None)
    assert found.words.startswith("the engine does not tell how large its KV pool is; planned are")


@pytest.mark.parametrize(
    ("slots", "shared", "tokens"), [(1, None, 512), (4, True, 512), (4, False, 2048), (4, None, None)]
)
def test_slots_hold_what_they_share_or_as_many_each(
    slots: int, shared: bool | None, tokens: int | None
) -> None:
    said = Measurement(sources=(), engine="llamacpp", settings=(("total_slots", slots), ("n_ctx_slot", 512)))
    assert pool_confirmed(said, shares_cells=shared).engine_tokens == tokens


def test_a_log_that_is_not_read_is_a_note(tmp_path: Path) -> None:
    said = Measurement(sources=(), engine="llamacpp")
    assert with_log(said, ()) is said
    assert with_log(said, (tmp_path / "engine.log",)).notes


@given(
    context_len=st.integers(1, 1 << 20),
    at_once=st.integers(1, 4096),
    pool_tokens=st.none() | st.integers(1, 1 << 22),
    longest=st.none() | st.integers(1, 1 << 20),
)
def test_every_shape_fits_the_pool_and_the_longest_is_as_long_as_may_be(
    context_len: int, at_once: int, pool_tokens: int | None, longest: int | None
) -> None:
    shapes = shapes_of(context_len, at_once, pool_tokens, longest_prompt_tokens=longest)
    room = (pool_tokens or context_len) * POOL_SHARE
    for shape in shapes:
        tokens = shape.prompt_tokens + shape.output_tokens
        assert min(shape.prompt_tokens, shape.output_tokens, shape.at_once) >= 1
        together = 1 if shape.repeats_prompt else shape.at_once
        assert together * tokens <= max(room, 2)
        assert tokens <= max(context_len, 2)
        assert shape.at_once <= max(at_once, 2)
    long = next(shape for shape in shapes if shape.name == "the longest prompt")
    if longest is None and pool_tokens is None and context_len > 100:
        assert long.prompt_tokens + LONG_OUTPUT_TOKENS == int(context_len * POOL_SHARE)
    if longest is not None:
        assert long.prompt_tokens <= longest


def test_batch_sizes_double_up_to_what_runs_at_once() -> None:
    counts = [shape.at_once for shape in shapes_of(4096, 24, 65_536) if "together" in shape.name]
    assert counts == [2, 4, 8, 16, 24]
