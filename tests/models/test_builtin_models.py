"""Models that come with the package: what they are, that they are the published ones, and where they may stand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tools import builtin_models
from vramledger import load_model, plan
from vramledger.cli import main
from vramledger.errors import InputError, SourceError
from vramledger.manifest.model_files import identify
from vramledger.models import builtin
from vramledger.models.mixers import (
    GatedDeltaNet,
    LatentAttention,
    Mamba2,
    MixtureOfExperts,
    SlidingWindowAttention,
)
from vramledger.models.sources.load import load_source
from vramledger.report.schema import schema_of

ROOT = Path(__file__).parents[2]
BUFFERS = {"gemma-4-31B-it": 60 + 2 * 1152}
"""Elements of the files that are no parameters: a scalar for each of 60 layers, and the mean and deviation of 1,152 channels of images."""


@pytest.mark.parametrize("name", builtin.names())
def test_each_has_the_published_number_of_parameters(name: str) -> None:
    """Where the published files hold more than the model in memory, the note says what; they never hold less."""
    item, checkpoint = builtin.find(name), load_model(f"builtin:{name}")
    assert item.published_parameters is not None
    counts = checkpoint.model.parameter_counts()
    if item.published_note == "exact":
        assert counts.total + BUFFERS.get(name, 0) == item.published_parameters
    else:
        assert counts.total < item.published_parameters <= counts.total * 1.27
        assert "MTP" in item.published_note or "tied" in item.published_note or "scale" in item.published_note


def test_the_kinds_of_models_that_are_cached_differently_are_there() -> None:
    mixers: set[type] = set()
    formats: set[str] = set()
    for name in builtin.names():
        checkpoint = load_model(f"builtin:{name}")
        formats.add(checkpoint.quantization.partition(" ")[0].partition(":")[0])
        for layer in checkpoint.model.layers:
            mixers |= {type(mixer) for mixer in (*layer.token_mixers, layer.channel_mixer)}
    assert {LatentAttention, SlidingWindowAttention, GatedDeltaNet, Mamba2, MixtureOfExperts} <= mixers
    assert len(formats) >= 4


def test_the_file_is_that_of_the_collected_configs() -> None:
    packed = json.loads(gzip.decompress(builtin_models.PACKED.read_bytes()))
    committed = builtin_models.TARGET.read_text(encoding="utf-8")
    assert builtin_models.text_of(packed) == committed, "run `python -m tools.builtin_models`"
    assert len(committed.encode()) < 300_000


@pytest.mark.parametrize("name", ["Llama-3.1-8B-Instruct", "DeepSeek-V3", "gpt-oss-120b"])
def test_a_plan_is_that_of_the_folder_with_the_same_config(name: str) -> None:
    here = plan(f"builtin:{name}", device="H200-141GB", tp=8)
    there = plan(ROOT / "examples" / name, device="H200-141GB", tp=8)
    assert here.kv_pool == there.kv_pool
    assert here.ranks == there.ranks


def test_a_published_index_gives_the_size_on_disk() -> None:
    checkpoint = load_model("builtin:Mistral-7B-Instruct-v0.3")
    assert checkpoint.disk_bytes == 14_496_047_104
    assert checkpoint.disk_evidence.kind.value == "reported"
    assert load_model("builtin:Qwen3-8B").disk_evidence.kind.value == "calculated"


def test_a_config_that_was_written_anew_says_so() -> None:
    notes = load_model("builtin:Mixtral-8x7B-Instruct-v0.1").model.notes
    assert any("no original was found" in note for note in notes)
    assert not load_model("builtin:Qwen3-8B").model.notes


@pytest.mark.parametrize("text", ["builtin:QWEN3-8b", "builtin:Qwen/Qwen3-8B", " builtin:Qwen3-8B "])
def test_names_are_found_without_case_and_as_hub_ids(text: str) -> None:
    assert load_source(text).id == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("gpt-oss", ("gpt-oss-20b", "gpt-oss-120b")),
        ("Lama-3.1-8B-Instruct", ("Llama-3.1-8B-Instruct",)),
        ("meta/Llama-3.3-70B", ("Llama-3.3-70B-Instruct",)),
        ("", ()),
        ("x" * 100_000, ()),
        ("../../etc/passwd", ()),
    ],
)
def test_a_wrong_name_is_told_those_it_may_have_meant(wrong: str, near: tuple[str, ...]) -> None:
    with pytest.raises(SourceError, match="model --list") as refusal:
        load_source(f"builtin:{wrong}")
    closest = refusal.value.facts["closest"]
    assert isinstance(closest, tuple)
    assert closest[: len(near)] == near
    assert len(refusal.value.message) < 500


def test_the_prefix_wins_over_a_file_and_a_path_may_still_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: dict[str, Any] = dict(builtin.find("Qwen3-0.6B").config)
    folder = tmp_path / "builtin:Qwen3-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_source("builtin:Qwen3-8B").id == "Qwen/Qwen3-8B"
    assert load_source("./builtin:Qwen3-8B").config == config


def test_a_manifest_names_no_built_in_model() -> None:
    with pytest.raises(InputError, match="no revision and no weights"):
        identify("builtin:Qwen3-8B")


def test_the_list_names_each_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "--list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("builtin_models")).validate(document)
    assert [item["model"] for item in document["models"]] == [f"builtin:{name}" for name in builtin.names()]
    assert all(item["source"] for item in document["models"])
    assert main(["model", "--list"]) == 0
    page = capsys.readouterr().out
    for item in builtin.models():
        assert f"builtin:{item.name} " in page
        assert f"{item.id}: " in page
    assert main(["model"]) == 2
    assert main(["model", "builtin:Qwen3-8B", "--list"]) == 2
