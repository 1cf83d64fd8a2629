"""Adapters read from their files and placed on a base model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf_builder import GgufWriter
from hypothesis import given
from hypothesis import strategies as st
from safetensors_builder import write_raw

from adapter_files import lora, write_adapter
from support import DEEPSEEK_V3, LLAMA_3_1_8B, QWEN3_30B_A3B, checkpoint
from vramledger.errors import ConfigError, HeaderError, InputError, SourceError, VramledgerError
from vramledger.evidence import EvidenceKind
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.config import adapter_config
from vramledger.models.adapters.load import load_adapter
from vramledger.models.adapters.names import PartKind, parse_name
from vramledger.models.adapters.pairing import pair_up
from vramledger.models.adapters.placing import Misfit, PlacedAdapter, core, place
from vramledger.models.sources.header_table import HeaderRow
from vramledger.models.tensors import Component

RECORDED = json.loads((Path(__file__).parent / "recorded" / "peft.json").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in RECORDED["cases"]}
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "v_proj"],
}
LLAMA = checkpoint(LLAMA_3_1_8B)
ATTENTION = {"self_attn.q_proj": (4096, 4096), "self_attn.v_proj": (1024, 4096)}
"""Query and value projections of Llama 3.1 8B."""


def test_llama_8b_at_rank_8_on_queries_and_values_has_the_published_count(tmp_path: Path) -> None:
    """3,407,872 parameters, the figure PEFT prints for this much used choice."""
    tensors = lora(ATTENTION, 8, layers=range(32))
    found = load_adapter(str(write_adapter(tmp_path / "a", CONFIG, tensors)))
    assert found.parameters == 32 * 8 * (4096 + 4096 + 4096 + 1024) == 3_407_872
    assert found.disk_bytes == 2 * found.parameters
    placed = place(found, LLAMA)
    assert placed.mismatches == ()
    assert placed.elements == found.parameters
    assert placed.modules == ("q_proj", "v_proj")


@pytest.mark.parametrize("name", CASES)
def test_what_peft_saves_is_read_as_what_it_trains(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = load_adapter(str(write_adapter(tmp_path / "a", case["adapter_config"], case["tensors"])))
    assert found.parameters == case["trained"]
    placed = place(found, checkpoint(case["base"]))
    assert placed.mismatches == ()
    assert len(placed.pairs) >= len({pair.module for pair in found.pairs})
    assert placed.elements == sum(pair.elements for pair in found.pairs)


@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in ("stacked experts", "tied embedding")]
)
def test_a_config_alone_asks_for_the_pairs_that_peft_saves(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    base = checkpoint(case["base"])
    written = place(
        load_adapter(str(write_adapter(tmp_path / "a", case["adapter_config"], case["tensors"]))), base
    )
    asked = place(load_adapter(str(write_adapter(tmp_path / "b", case["adapter_config"], None))), base)
    assert asked.mismatches == ()
    assert shape_of(asked) == shape_of(written)


def shape_of(placed: PlacedAdapter) -> list[tuple[str, int, tuple[int, ...]]]:
    """Module, rank and layers of every pair, one line a layer."""
    lines = [
        (pair.tensor.module, pair.rank, (layer,)) for pair in placed.pairs for layer in pair.layers or (0,)
    ]
    return sorted(lines)


def test_a_pickle_is_not_opened_and_its_size_tells_the_element_type(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", CONFIG, None)
    wanted = 32 * 8 * (4096 + 4096 + 4096 + 1024)
    with (folder / "adapter_model.bin").open("wb") as file:
        file.truncate(2 * wanted + 12_000)
    found = load_adapter(str(folder))
    assert not found.is_read
    assert found.disk_evidence.kind is EvidenceKind.REPORTED
    assert "not opened" in found.notes[0]
    placed = place(found, LLAMA)
    assert placed.elements == wanted
    assert sum(pair.stored_bytes for pair in placed.pairs) == 2 * wanted


def test_a_file_of_the_folder_stands_for_it(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", CONFIG, lora(ATTENTION, 8))
    named = [
        load_adapter(str(folder / name)) for name in ("adapter_config.json", "adapter_model.safetensors")
    ]
    assert {adapter.parameters for adapter in named} == {load_adapter(str(folder)).parameters}


def test_another_model_s_adapter_is_named_by_what_does_not_fit(tmp_path: Path) -> None:
    tensors = lora({"self_attn.q_proj": (2048, 2048), "attention.wq": (4096, 4096)}, 8, layers=[0, 40])
    tensors |= lora({"mlp.down_proj": (4096, 14336)}, 8, layers=[31, 32, 33])
    placed = place(load_adapter(str(write_adapter(tmp_path / "a", CONFIG, tensors))), LLAMA)
    assert {(item.kind, item.text) for item in placed.mismatches} == {
        (
            Misfit.WIDTH,
            "model.layers.{}.self_attn.q_proj is adapted as [2048 x 2048] and is [4096 x 4096] in a/model",
        ),
        (Misfit.UNKNOWN_MODULE, "model.layers.{}.attention.wq is no module of a/model"),
        (
            Misfit.LAYERS,
            "model.layers.{}.self_attn.q_proj is adapted in layers 40, where a/model has none",
        ),
        (
            Misfit.LAYERS,
            "model.layers.{}.mlp.down_proj is adapted in layers 32-33, where a/model has none",
        ),
    }
    assert [pair.layers for pair in placed.pairs] == [(31,)]


def test_tokens_added_to_the_vocabulary_are_told(tmp_path: Path) -> None:
    tensors: dict[str, Any] = dict(lora(ATTENTION, 8))
    tensors["base_model.model.lm_head.weight"] = ("BF16", (128_300, 4096))
    tensors["base_model.model.model.embed_tokens.weight"] = ("BF16", (128_300, 4096))
    config = CONFIG | {"modules_to_save": ["lm_head", "embed_tokens"]}
    placed = place(load_adapter(str(write_adapter(tmp_path / "a", config, tensors))), LLAMA)
    assert {item.kind for item in placed.mismatches} == {Misfit.VOCABULARY}
    assert {item.module for item in placed.mismatches} == {"lm_head", "model.embed_tokens"}
    assert all("128300 rows" in item.text for item in placed.mismatches)


def test_an_adapter_of_experts_counts_each_of_them(tmp_path: Path) -> None:
    base = checkpoint(QWEN3_30B_A3B)
    modules = {f"mlp.experts.{expert}.gate_proj": (768, 2048) for expert in range(128)}
    tensors = lora(modules, 4, layers=range(48))
    placed = place(load_adapter(str(write_adapter(tmp_path / "a", CONFIG | {"r": 4}, tensors))), base)
    assert placed.mismatches == ()
    (pair,) = placed.pairs
    assert (pair.experts, pair.rank, len(pair.layers)) == (128, 4, 48)
    assert placed.elements == 48 * 128 * 4 * (768 + 2048)


def test_a_module_of_the_draft_is_no_second_place(tmp_path: Path) -> None:
    """DeepSeek's MTP layer has the modules of the others; an adapter of layer 0 is not one of it."""
    base = checkpoint(DEEPSEEK_V3 | {"num_nextn_predict_layers": 1})
    tensors = lora({"self_attn.o_proj": (7168, 16384)}, 4, layers=[0])
    placed = place(load_adapter(str(write_adapter(tmp_path / "a", CONFIG | {"r": 4}, tensors))), base)
    assert placed.mismatches == ()
    (pair,) = placed.pairs
    assert (pair.tensor.component, pair.layers) == (Component.DECODER, (0,))
    assert placed.elements == 4 * (7168 + 16384)


def test_a_matrix_without_its_partner_is_told(tmp_path: Path) -> None:
    tensors = lora(ATTENTION, 8)
    del tensors["base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"]
    placed = place(load_adapter(str(write_adapter(tmp_path / "a", CONFIG, tensors))), LLAMA)
    assert [item.kind for item in placed.mismatches] == [Misfit.HALF]
    assert placed.elements == 8 * (2 * 8192 + 5120)


def gguf_adapter(path: Path, **keys: Any) -> Path:
    writer = GgufWriter(
        keys=[
            ("general.architecture", "str", "llama"),
            ("general.type", "str", keys.get("type", "adapter")),
            ("adapter.type", "str", keys.get("kind", "lora")),
            ("adapter.lora.alpha", "f32", 32.0),
        ]
    )
    for layer in range(32):
        for name, d_out, d_in in (("attn_q", 4096, 4096), ("ffn_down", 4096, 14336)):
            writer.tensors.append((f"blk.{layer}.{name}.weight.lora_a", [d_in, 16], "F16"))
            writer.tensors.append((f"blk.{layer}.{name}.weight.lora_b", [16, d_out], "F16"))
    writer.tensors.append(("token_embd.weight.lora_a", [16, 128256], "F16"))
    writer.tensors.append(("token_embd.weight.lora_b", [16, 4096], "F16"))
    return writer.write(path)


def test_an_adapter_of_llama_cpp_is_read_under_its_names(tmp_path: Path) -> None:
    found = load_adapter(str(gguf_adapter(tmp_path / "a.gguf")))
    assert (found.config.rank, found.config.alpha, found.is_gguf) == (16, 32.0, True)
    placed = place(found, LLAMA)
    assert placed.mismatches == ()
    assert placed.elements == 16 * (32 * (4096 + 4096 + 4096 + 14336) + 128256 + 4096)
    assert found.disk_bytes == 2 * placed.elements


@pytest.mark.parametrize(("key", "value"), [("type", "model"), ("kind", "control_vector")])
def test_a_gguf_file_that_is_no_adapter_is_refused(key: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"is '{value}', not"):
        load_adapter(str(gguf_adapter(tmp_path / "a.gguf", **{key: value})))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"r": 0}, "r is 0"),
        ({"r": "8"}, "r must be a whole number"),
        ({"r": 2**40}, "outside 1 to"),
        ({"r": None}, "r is missing"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"rank_pattern": {"q_proj": 0}}, "q_proj is 0"),
        ({"rank_pattern": [1]}, "rank_pattern must be an object"),
        ({"target_modules": [1]}, "target_modules holds 1"),
        ({"lora_alpha": "x"}, "lora_alpha must be a number"),
    ],
)
def test_a_config_that_cannot_be_is_refused_by_its_key(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        adapter_config(CONFIG | change, "adapter_config.json")


def test_a_pattern_that_could_run_for_hours_is_refused(tmp_path: Path) -> None:
    config = CONFIG | {"target_modules": "(a+)+(b+)+$"}
    with pytest.raises(ConfigError, match="too involved"):
        place(load_adapter(str(write_adapter(tmp_path / "a", config, None))), LLAMA)


def test_what_is_no_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        load_adapter("  ")
    with pytest.raises(SourceError, match="neither"):
        load_adapter(str(tmp_path / "missing"))
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(SourceError, match="is not an adapter_config"):
        load_adapter(str(tmp_path / "notes.txt"))
    with pytest.raises(SourceError, match=r"has no adapter_config\.json"):
        load_adapter(str(tmp_path))
    (tmp_path / "adapter_config.json").write_text(json.dumps(CONFIG))
    write_raw(tmp_path / "adapter_model.safetensors", b"{}", 0)
    with pytest.raises(HeaderError, match="no tensors"):
        load_adapter(str(tmp_path))


@given(st.binary(max_size=200))
def test_any_bytes_give_an_adapter_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    folder = write_adapter(tmp_path_factory.mktemp("a"), CONFIG, None)
    (folder / "adapter_model.safetensors").write_bytes(raw)
    try:
        found = load_adapter(str(folder))
    except VramledgerError:
        return
    assert isinstance(found, Adapter)


@given(
    st.dictionaries(
        st.sampled_from([*CONFIG, "rank_pattern", "modules_to_save", "layers_to_transform", "bias"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
)
def test_any_config_gives_one_or_an_error_of_ours(data: dict[str, Any]) -> None:
    try:
        found = adapter_config(data, "adapter_config.json")
    except VramledgerError:
        return
    assert found.rank >= 1
    assert found.largest_rank >= found.rank


def test_a_module_of_too_many_shapes_is_refused() -> None:
    rows = [
        HeaderRow(
            template="m.lora_A.weight",
            dtype="F16",
            shape=(4, width),
            count=1,
            layers=(),
            tensor_bytes=8 * width,
        )
        for width in range(1, 300)
    ]
    with pytest.raises(HeaderError, match="shapes of rank 4"):
        pair_up(rows, "a.safetensors")


@given(
    st.integers(1, 64),
    st.dictionaries(
        st.sampled_from(["q_proj", "k_proj", "o_proj"]), st.tuples(st.integers(1, 99), st.integers(1, 99))
    ),
    st.sets(st.integers(0, 20), min_size=1),
)
def test_every_element_of_every_pair_is_counted_once(
    rank: int, modules: dict[str, tuple[int, int]], layers: set[int]
) -> None:
    rows = []
    for name, (d_out, d_in) in modules.items():
        runs = tuple(range(layer, layer + 1) for layer in sorted(layers))
        for end, shape in (("A", (rank, d_in)), ("B", (d_out, rank))):
            rows.append(
                HeaderRow(
                    template=f"model.layers.{{}}.{name}.lora_{end}.weight", dtype="F32", shape=shape,
                    count=len(layers), layers=runs, tensor_bytes=4 * shape[0] * shape[1],
                )
            )  # fmt: skip
    pairs, extras, alone = pair_up(rows, "a")
    assert extras == () and alone == ()
    assert sum(pair.elements for pair in pairs) * 4 == sum(row.total_bytes for row in rows)
    assert sum(pair.stored_bytes for pair in pairs) == sum(row.total_bytes for row in rows)


@pytest.mark.parametrize(
    ("name", "module", "kind"),
    [
        ("base_model.model.model.layers.{}.q.lora_A.weight", "model.layers.{}.q", PartKind.A),
        ("base_model.model.model.layers.{}.q.lora_B.default.weight", "model.layers.{}.q", PartKind.B),
        ("base_model.model.model.embed_tokens.lora_embedding_A", "model.embed_tokens", PartKind.EMBEDDING_A),
        ("base_model.model.lm_head.modules_to_save.default.weight", "lm_head", PartKind.FULL),
        ("base_model.model.score.weight", "score", PartKind.FULL),
        ("base_model.model.q.lora_magnitude_vector.default.weight", "q", PartKind.MAGNITUDE),
        ("blk.{}.ffn_up.weight.lora_b", "blk.{}.ffn_up", PartKind.B),
        ("base_model.model.x.lora_E", "x", PartKind.OTHER),
    ],
)
def test_a_tensor_s_name_says_what_it_is(name: str, module: str, kind: PartKind) -> None:
    assert parse_name(name) == (module, kind)


def test_a_module_is_the_same_under_the_wrappers_of_its_class() -> None:
    plain = "model.layers.{}.mlp.up_proj"
    assert (
        core(plain) == core("model.language_model.layers.{}.mlp.up_proj") == core(f"language_model.{plain}")
    )
    assert core("lm_head") == "lm_head"


def test_ranks_by_pattern_are_the_largest_a_slot_must_hold() -> None:
    config = adapter_config(CONFIG | {"rank_pattern": {"o_proj": 64, "q_proj": 2}}, "a")
    assert config.largest_rank == 64
