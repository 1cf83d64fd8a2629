"""KV formats against published figures, against what transformers really held, and against themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vramledger.errors import FlagError, UnknownFormat
from vramledger.formats.kv_rules import Rule, TokenGroups, stored
from vramledger.formats.kv_shapes import Heads, Latent, Stored
from vramledger.formats.kv_stores import KV_STORES, find_store
from vramledger.formats.kv_windows import Kivi, KvQuant, WholeTensor

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "recorded" / "quantized_cache.json").read_text(encoding="utf-8")
)
LAYERS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "recorded" / "cache_layers.json").read_text(encoding="utf-8")
)
LLAMA_8B = Heads(kv_heads=8, head_dim=128, v_head_dim=128)  # 32 such layers
LLAMA_2_7B = Heads(kv_heads=32, head_dim=128, v_head_dim=128)
DEEPSEEK = Latent(kv_lora_rank=512, rope_dim=64)


def held(name: str, shape: Heads | Latent, tokens: int, **given: int) -> Stored:
    return stored(find_store(name).rule, shape, tokens, **given)


def bits(rule: Rule, shape: Heads, tokens: int) -> float:
    return 8 * stored(rule, shape, tokens).bytes / (tokens * shape.elements)


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("bf16", 131072), ("lmdeploy_int8", 67584), ("lmdeploy_int4", 34816),
        ("lmdeploy_turbo", 32 * 8 * (64 + 4 + 32 + 2)), ("exl3_8", 69632), ("exl3_6", 53248),
        ("exl3_k8v4", 53248), ("exl3_4", 36864), ("exl3_3", 28672), ("exl3_2", 20480), ("nvfp4", 36864),
        ("mxfp8", 67584), ("fp8", 65536),
    ],
)  # fmt: skip
def test_bytes_a_token_of_llama_3_1_8b(name: str, bytes_per_token: int) -> None:
    assert 32 * held(name, LLAMA_8B, 256).bytes == 256 * bytes_per_token


@pytest.mark.parametrize(
    ("name", "mib"),
    [("q8_0", 544), ("q4_0", 288), ("q5_1", 384), ("q5_0", 352), ("q4_1", 320), ("iq4_nl", 288)],
)
def test_llama_cpp_at_8192_cells(name: str, mib: int) -> None:
    assert 32 * held(name, LLAMA_8B, 8192).bytes == mib * 2**20
    assert held(name, LLAMA_8B, 7937).bytes == held(name, LLAMA_8B, 8192).bytes
    assert held(name, DEEPSEEK, 256).value.bytes == 0


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [
        ("bf16", 1152), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352), ("exl3_8", 672), ("exl3_6", 544), ("exl3_4", 416),
        ("fp4_mx_block16", 288 + 36),
    ],
)  # fmt: skip
def test_bytes_of_a_latent(name: str, size_bytes: int) -> None:
    assert held(name, DEEPSEEK, 256).bytes == 256 * size_bytes


@pytest.mark.parametrize(("width", "average"), [(2, 2.33), (3, 3.33), (4, 4.33)])
def test_the_average_bits_of_kvquant_with_one_percent_of_outliers(width: int, average: float) -> None:
    assert round(bits(KvQuant(width=width, kept=0), LLAMA_2_7B, 32768), 2) == average


def test_the_average_bits_of_kivi_2_with_both_windows_full() -> None:
    assert round(bits(find_store("kivi_2").rule, LLAMA_2_7B, 32768 + 127), 2) == 3.05


def test_the_released_kvquant_keeps_42_outliers_of_4096() -> None:
    both = held("kvquant_nuq4_code", LLAMA_2_7B, 101)
    assert both.key.outlier_bytes == both.value.outlier_bytes == 100 * 42 * (4 + 4)
    assert both.value.scale_bytes == 100 * 16 * 4
    assert both.key.window_bytes == 4096 * 2


def test_kivi_packs_keys_by_the_window_and_values_by_the_token() -> None:
    rule = Kivi(key_bits=2, value_bits=2)
    one = Heads(kv_heads=1, head_dim=128, v_head_dim=128)
    full = 128 * 2
    for tokens, keys_waiting, values_waiting in (
        (1, 1, 1), (127, 127, 127), (128, 0, 128), (129, 1, 128), (255, 127, 128), (256, 0, 128), (1000, 104, 128),
    ):  # fmt: skip
        found = stored(rule, one, tokens)
        assert found.key.window_bytes == keys_waiting * full
        assert found.value.window_bytes == values_waiting * full
        # 2 bits, and a scale and a minimum of 16 bits for 32 of them.
        assert found.key.packed_bytes == (tokens - keys_waiting) * 32
        assert found.key.scale_bytes == (tokens - keys_waiting) * 128 // 32 * 4
        assert found.value.scale_bytes == (tokens - values_waiting) * 128 // 32 * 4


@pytest.mark.parametrize("case", RECORDED["cases"], ids=str)
def test_quantized_cache_holds_what_it_held(case: dict[str, Any]) -> None:
    shape = Heads(kv_heads=case["kv_heads"], head_dim=case["head_dim"], v_head_dim=case["head_dim"])
    rule = WholeTensor(
        backend=case["backend"], width=case["width"], group=case["group"], residual=case["residual"], axis=case["axis"]
    )  # fmt: skip
    prompt, tokens, sequences = case["prompt"], case["prompt"] + case["steps"], case["sequences"]
    if "refused" in case:
        with pytest.raises(UnknownFormat):
            stored(rule, shape, tokens, sequences=sequences, prompt_tokens=prompt)
        return
    found = stored(rule, shape, tokens, sequences=sequences, prompt_tokens=prompt)
    side = found.key
    assert (side.packed_bytes, side.scale_bytes, side.window_bytes) == (
        case["packed"],
        case["scales"],
        case["window"],
    )
    assert found.value == side


@pytest.mark.parametrize("case", LAYERS["cases"], ids=str)
def test_layers_take_what_their_engine_allocates(case: dict[str, Any]) -> None:
    names = {"INT4": "lmdeploy_int4", "INT8": "lmdeploy_int8", "TURBO_QUANT": "lmdeploy_turbo",
             "FP8": "fp8", "FP8_E5M2": "fp8", "NONE": "bf16"}  # fmt: skip
    shape: Heads | Latent
    if "kv_lora_rank" in case:
        shape = Latent(kv_lora_rank=case["kv_lora_rank"], rope_dim=case["rope_dim"])
    else:
        shape = Heads(kv_heads=case["kv_heads"], head_dim=case["head_dim"], v_head_dim=case["head_dim"])
    if case["engine"] == "exllamav3":
        rule = find_store(f"exl3_4:key_bits={case['key_bits']},value_bits={case['value_bits']}").rule
    else:
        rule = find_store(names[case["policy"]]).rule
        if isinstance(rule, TokenGroups):
            rule = replace(rule, unit_tokens=case["tokens"])
    found = stored(rule, shape, case["tokens"])
    assert (found.key.bytes, found.value.bytes) == (case["key"], case["value"])


def test_quantized_cache_was_recorded_for_both_backends() -> None:
    assert {case["backend"] for case in RECORDED["cases"]} == {"quanto", "hqq"}
    assert sum("refused" in case for case in RECORDED["cases"]) > 10


def test_reading_back_takes_a_layer_in_full_precision() -> None:
    full = 4096 * LLAMA_8B.elements * 2
    assert held("exl3_4", LLAMA_8B, 4096).workspace is not None
    for name, low, high in (
        ("fp8", 0, 0),
        ("kivi_2", 0, 0),
        ("exl3_4", 0, full),
        ("lmdeploy_int4", 0, full),
        ("q8_0", 0, full),
        ("fp4_mx_block16", full, full),
    ):
        workspace = held(name, LLAMA_8B, 4096).workspace
        assert workspace is not None
        assert (workspace.low, workspace.high) == (low, high), name
    workspace = held("quanto_4", LLAMA_8B, 4096, prompt_tokens=4096).workspace
    assert workspace is not None
    assert workspace.expected == 2 * full


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("kivi_2", DEEPSEEK, "latent"),
        ("kivi_2", Heads(kv_heads=1, head_dim=80, v_head_dim=80), "80"),
        ("kivi_2:residual=100", LLAMA_8B, "100"),
        ("kivi_2:key_bits=3", LLAMA_8B, "3 bits"),
        ("q8_0", Heads(kv_heads=1, head_dim=80, v_head_dim=80), "80"),
        ("nvfp4", DEEPSEEK, "latent"),
        ("fp8_ds_mla", LLAMA_8B, "latent"),
        ("quanto_4:width=3", LLAMA_8B, "2 and 4"),
        ("hqq_4:width=5", LLAMA_8B, "5"),
        ("kvquant_nuq3_code", Heads(kv_heads=1, head_dim=80, v_head_dim=80), "80"),
    ],
)
def test_what_a_format_is_not_for(name: str, shape: Heads | Latent, why: str) -> None:
    with pytest.raises(UnknownFormat, match=why):
        held(name, shape, 256)


def test_names_and_their_numbers() -> None:
    assert len({store.name for store in KV_STORES}) == len(KV_STORES)
    assert all(store.source and store.shipped_by for store in KV_STORES)
    assert find_store("KIVI-2") is find_store("kivi_2")
    assert find_store("kivi_2:group=64,residual=32").rule == Kivi(
        key_bits=2, value_bits=2, group=64, residual=32
    )
    for text in ("kivi_3", "kivi_2:groups=64", "kivi_2:group", "kivi_2:group=0", "kivi_2:group=x", "fp8:bits=4",
                 "hqq_4:axis=2", "", "quanto_4:backend=1"):  # fmt: skip
        with pytest.raises(FlagError):
            find_store(text)


SHAPES = st.builds(
    lambda heads, width: Heads(kv_heads=heads, head_dim=width, v_head_dim=width),
    st.sampled_from((1, 2, 5, 8)),
    st.sampled_from((64, 128, 256)),
)


@given(st.sampled_from(KV_STORES), SHAPES, st.integers(1, 3000), st.integers(1, 3))
def test_longer_takes_more_once_windows_have_been_packed(
    store: Any, shape: Heads, tokens: int, sequences: int
) -> None:
    """Packing a window frees bytes, so lengths are compared a whole window apart."""
    if store.name.endswith("ds_mla"):
        return
    step = max(getattr(store.rule, "residual", 1), 1)
    here = stored(store.rule, shape, tokens, sequences=sequences)
    later = stored(store.rule, shape, tokens + step, sequences=sequences)
    assert 0 < here.bytes <= later.bytes
    raw = tokens * sequences * (shape.key_width * store.rule.bits[0] + shape.value_width * store.rule.bits[1])
    assert 8 * here.bytes >= raw
    assert here.key.bytes + here.value.bytes == here.bytes


@given(st.sampled_from(KV_STORES), SHAPES, st.integers(1, 1000))
def test_sequences_add_up(store: Any, shape: Heads, tokens: int) -> None:
    if store.name.endswith("ds_mla"):
        return
    one, three = stored(store.rule, shape, tokens), stored(store.rule, shape, tokens, sequences=3)
    tables = one.key.tables_bytes + one.value.tables_bytes
    assert three.bytes - tables <= 3 * (one.bytes - tables)
    # quanto pads the last byte of each row of a group, once for all sequences.
    slack = 2 * 3 * getattr(store.rule, "group", 0) if isinstance(store.rule, WholeTensor) else 0
    assert three.bytes - tables >= 3 * (one.bytes - tables) - slack


@given(st.sampled_from((16, 32, 64, 128)), st.integers(1, 1000), st.integers(0, 400))
def test_the_fullest_window_is_the_most_a_length_can_hold(residual: int, prompt: int, steps: int) -> None:
    rule = WholeTensor(backend="quanto", width=4, residual=residual)
    known = stored(rule, LLAMA_8B, prompt + steps, prompt_tokens=prompt)
    assert known.bytes <= stored(rule, LLAMA_8B, prompt + steps).bytes
