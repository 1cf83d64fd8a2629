from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gguf_builder import llama
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors_builder import write

from vramledger.errors import ConfigError, HeaderError, InputError, SourceError, VramledgerError
from vramledger.evidence import EvidenceKind
from vramledger.models.sources.load import is_hub_id, load_source

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "model"
    out.mkdir()
    (out / "config.json").write_text(json.dumps(CONFIG))
    return out


def add_shards(folder: Path, total: Any = 2 * 3 * 5 * 7) -> list[Path]:
    paths = [
        write(
            folder / f"model-0000{number}-of-00002.safetensors", {f"layers.{number}.w": ("BF16", [shape, 3])}
        )
        for number, shape in ((1, 5 * 2), (2, 5 * 5))
    ]
    weight_map = {f"layers.{number}.w": f"model-0000{number}-of-00002.safetensors" for number in (1, 2)}
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)
    return paths


def test_a_lone_config(folder: Path) -> None:
    for text in (str(folder), str(folder / "config.json")):
        source = load_source(text)
        assert (source.id, source.config, source.files) == ("model", CONFIG, ("config.json",))
        assert (source.table, source.index, source.gguf) == (None, None, None)
        assert source.disk_bytes is None and source.disk_evidence is None
        assert (source.quant_configs, source.side_configs, source.notes) == ({}, {}, ())
        assert source.config_view().integer("hidden_size") == 64


def test_a_lone_config_needs_no_hub_library_and_reads_one_file(folder: Path) -> None:
    script = (
        "import sys; from vramledger.models.sources.load import load_source; load_source(sys.argv[1]);"
        "assert not [name for name in sys.modules if name.startswith(('huggingface_hub', 'httpx', 'requests', 'torch'))]"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, timeout=60)


def test_a_config_by_another_name_stands_alone(folder: Path) -> None:
    add_shards(folder)
    other = (folder / "config.json").rename(folder / "wide.json")
    source = load_source(str(other))
    assert (source.id, source.table, source.files) == ("wide", None, ("wide.json",))


@pytest.mark.parametrize("name", [
    "", "config.json", "model.safetensors.index.json", "model-00002-of-00002.safetensors",
])  # fmt: skip
def test_a_sharded_checkpoint_by_any_of_its_files(folder: Path, name: str) -> None:
    paths = add_shards(folder)
    source = load_source(str(folder / name))
    assert source.table is not None and source.index is not None
    assert source.table.total_bytes == source.index.total_size_bytes == 210
    assert source.disk_bytes == sum(path.stat().st_size for path in paths)
    assert source.disk_evidence is not None and source.disk_evidence.kind is EvidenceKind.REPORTED
    assert source.notes == ()


def test_headers_can_be_left_out(folder: Path) -> None:
    paths = add_shards(folder)
    source = load_source(str(folder), headers=False)
    assert source.table is None
    assert source.disk_bytes == sum(path.stat().st_size for path in paths)


def test_a_lying_index_is_told(folder: Path) -> None:
    add_shards(folder, total=211)
    write(
        folder / "model-00002-of-00002.safetensors", {"layers.2.w": ("BF16", [25, 3]), "more": ("F32", [1])}
    )
    notes = " ".join(load_source(str(folder)).notes)
    assert "total_size 211; the headers sum up to 214 bytes" in notes
    assert "names 2 tensors and the headers hold 3" in notes


def test_a_checkpoint_with_a_shard_missing_has_no_table(folder: Path) -> None:
    add_shards(folder)[1].unlink()
    source = load_source(str(folder))
    assert source.table is None and source.disk_bytes is None and source.index is not None
    assert "1 of 2 weight files are not there" in source.notes[0]


def test_without_an_index_the_names_of_the_files_tell_what_is_missing(folder: Path) -> None:
    add_shards(folder)[1].unlink()
    (folder / "model.safetensors.index.json").unlink()
    source = load_source(str(folder))
    assert source.table is None and source.disk_bytes is None
    assert "1 of 2 weight files are not there (model-00002-of-00002.safetensors" in source.notes[0]


def test_an_index_without_its_weights_is_used_as_it_is(folder: Path) -> None:
    for path in add_shards(folder):
        path.unlink()
    source = load_source(str(folder))
    assert source.index is not None and source.index.total_size_bytes == 210
    assert (source.table, source.disk_bytes, source.notes) == (None, None, ())


def test_pytorch_weights_have_a_size_and_no_table(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(bytes(1009))
    source = load_source(str(folder))
    assert (source.table, source.disk_bytes) == (None, 1009)
    index = {"metadata": {"total_size": 7}, "weight_map": {"a": "pytorch_model.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    source = load_source(str(folder))
    assert source.index is not None and source.disk_bytes == 1009
    write(folder / "model.safetensors", {"a": ("F32", [1])})
    source = load_source(str(folder))
    assert source.index is None and source.table is not None and source.table.total_bytes == 4


def test_one_safetensors_file_of_several(folder: Path) -> None:
    write(folder / "model.safetensors", {"a": ("F32", [1])})
    write(folder / "other.safetensors", {"a": ("F32", [3])})
    source = load_source(str(folder / "other.safetensors"))
    assert source.table is not None and source.table.total_bytes == 12


def test_neighbours_are_read_by_name(folder: Path) -> None:
    (folder / "hf_quant_config.json").write_text('{"a": 1}')
    (folder / "quantize_config.json").write_text('{"bits": 4}')
    (folder / "generation_config.json").write_text('{"b": 2}')
    (folder / "preprocessor_config.json").write_text("{")
    source = load_source(str(folder))
    assert source.quant_configs == {"hf_quant_config.json": {"a": 1}, "quantize_config.json": {"bits": 4}}
    assert source.side_configs == {"generation_config.json": {"b": 2}}
    assert "preprocessor_config.json is not valid JSON" in source.notes[0]
    (folder / "quantize_config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"quantize_config\.json"):
        load_source(str(folder))


def test_a_gguf_file_or_a_folder_of_one(tmp_path: Path) -> None:
    path = llama().write(tmp_path / "small-Q4_0.gguf")
    for text in (str(path), str(tmp_path)):
        source = load_source(text)
        assert source.gguf is not None and source.table is not None
        assert source.config["model_type"] == "llama"
        assert (source.id, source.disk_bytes) == ("small-Q4_0", path.stat().st_size)
        assert source.table.total_bytes == source.gguf.total_bytes
    llama().write(tmp_path / "mmproj-small.gguf")
    assert load_source(str(tmp_path)).id == "small-Q4_0"
    llama().write(tmp_path / "small-Q8_0.gguf")
    with pytest.raises(SourceError, match=r"small-Q4_0\.gguf, small-Q8_0\.gguf"):
        load_source(str(tmp_path))


def test_links_as_the_hub_cache_has_them(folder: Path, tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for number, path in enumerate([*add_shards(folder), folder / "config.json"]):
        path.rename(blobs / str(number))
        path.symlink_to(blobs / str(number))
    (folder / "generation_config.json").symlink_to(blobs / "gone")
    source = load_source(str(folder))
    assert source.table is not None and source.table.total_bytes == 210
    assert "generation_config.json" not in source.files


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_an_empty_text_is_said_to_be_empty(text: str) -> None:
    with pytest.raises(InputError, match="MODEL is empty"):
        load_source(text)


@pytest.mark.parametrize("text", [
    "nothing/here/at/all", "./absent", "absent.json", "org/absent.gguf", "/dev/null", "a\0b", "x" * 5000,
    "~nobody-of-this-name/x", "org/../name", "-x/y", "\x1b[31m", "\udcff",
])  # fmt: skip
def test_what_is_nothing_says_what_was_tried(text: str) -> None:
    with pytest.raises(SourceError) as caught:
        load_source(text)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no config\.json"):
        load_source(str(tmp_path))
    write(tmp_path / "model.safetensors", {"a": ("F32", [1])})
    with pytest.raises(SourceError, match=r"no config\.json beside model\.safetensors"):
        load_source(str(tmp_path / "model.safetensors"))


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(SourceError):
        load_source(str(folder))
    os.mkfifo(folder / "model.gguf")
    with pytest.raises(SourceError, match="not a regular file"):
        load_source(str(folder / "model.gguf"))


def test_a_shard_that_lies_is_a_header_error(folder: Path) -> None:
    add_shards(folder)[0].write_bytes(b"\xff" * 64)
    with pytest.raises(HeaderError, match="model-00001-of-00002"):
        load_source(str(folder))


@pytest.mark.parametrize(("text", "expected"), [
    ("meta-llama/Llama-3.1-8B", True), ("gpt2", True), ("org/name@refs/pr/3", True), ("org/name@v1.0", True),
    ("org/name@", False), ("a/b/c", False), ("../x", False), ("org/name@../x", False), ("org/", False), ("", False),
    ("org/model.gguf", False), ("config.json", False), ("a--b/c", False), ("org/na me", False), ("org/name\n", False),
])  # fmt: skip
def test_hub_ids(text: str, expected: bool) -> None:
    assert is_hub_id(text) is expected


NAMES = ["config.json", "hf_quant_config.json", "model.safetensors.index.json", "model.safetensors", "m.gguf"]


@given(files=st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=80), min_size=1))
@settings(deadline=2000, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_folders_of_random_files_are_read_or_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    for name, data in {"config.json": b"{}", **files}.items():
        (tmp_path / name).write_bytes(data)
    for text in [str(tmp_path), *(str(tmp_path / name) for name in files)]:
        try:
            load_source(text)
        except VramledgerError as error:
            error.message.encode()
