"""What identifies a model and an engine's build does not move."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import gguf_builder
import pytest
from hub_server import COMMIT, Hub
from safetensors_builder import Shapes, write

from vramledger.errors import FlagError, SourceError
from vramledger.manifest.identity import FileIdentity, engine_identity, files_identity
from vramledger.manifest.model_files import identify

SHAPES: Shapes = {"model.w": ("BF16", [64, 32])}


def folder(path: Path, *, weight: bytes = b"\0") -> Path:
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.json").write_text('{"model": {}}')
    (path / "chat_template.jinja").write_text("{{ messages }}")
    (path / "README.md").write_text("a page")
    file = write(path / "model.safetensors", SHAPES)
    data = file.read_bytes()
    file.write_bytes(data[:-1] + weight)
    return path


def covers(files: tuple[FileIdentity, ...]) -> dict[str, str]:
    return {file.name: file.covers for file in files}


def test_a_folder_is_its_files_and_of_weights_the_header(tmp_path: Path) -> None:
    found = identify(str(folder(tmp_path / "a"))).identity
    assert found.scheme == "layout"
    assert found.revision.startswith("layout-sha256:")
    assert covers(found.files) == {
        "chat_template.jinja": "content",
        "config.json": "content",
        "model.safetensors": "header",
        "tokenizer.json": "content",
    }
    template = hashlib.sha256(b"{{ messages }}").hexdigest()
    assert found.template_sha256 == f"sha256:{template}"
    assert found.tokenizer_sha256 is not None


def test_other_weights_of_one_shape_are_told_apart_where_they_are_hashed(tmp_path: Path) -> None:
    one, other = folder(tmp_path / "a"), folder(tmp_path / "b", weight=b"\1")
    assert identify(str(one)).identity.revision == identify(str(other)).identity.revision
    hashed = [identify(str(path), hash_weights=True).identity for path in (one, other)]
    assert hashed[0].revision != hashed[1].revision
    assert {item.scheme for item in hashed} == {"content"}
    assert hashed[0].revision.startswith("content-sha256:")


def test_any_file_that_decides_changes_the_revision_and_a_page_does_not(tmp_path: Path) -> None:
    path = folder(tmp_path / "a")
    before = identify(str(path)).identity
    (path / "README.md").write_text("another page")
    assert identify(str(path)).identity == before
    (path / "chat_template.jinja").write_text("{{ other }}")
    after = identify(str(path)).identity
    assert after.revision != before.revision
    assert after.template_sha256 != before.template_sha256
    assert after.tokenizer_sha256 == before.tokenizer_sha256


def test_the_order_of_files_is_nothing() -> None:
    files = tuple(
        FileIdentity(name=name, size_bytes=1, covers="content", sha256="ab" * 32)
        for name in ("model.safetensors", "config.json")
    )
    assert files_identity("m", files) == files_identity("m", files[::-1])


def test_a_config_alone_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}')
    assert identify(str(path), hash_weights=True).identity.scheme == "layout"


def test_a_gguf_file_is_its_header_or_its_content(tmp_path: Path) -> None:
    path = gguf_builder.llama().write(tmp_path / "small.gguf")
    (tmp_path / "other.gguf").write_bytes(b"not read")
    found = identify(str(path)).identity
    assert covers(found.files) == {"small.gguf": "header"}
    assert found.id == "small"
    whole = identify(str(path), hash_weights=True).identity
    assert whole.files[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert whole.scheme == "content"


def test_a_header_that_cannot_be_leaves_the_size(tmp_path: Path) -> None:
    path = folder(tmp_path / "a")
    (path / "model.safetensors").write_bytes(b"\xff" * 40)
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    (path / "broken.gguf").write_bytes(b"GGUF\xff\xff")
    found = covers(identify(str(path)).identity.files)
    assert found["broken.gguf"] == "size"
    assert (found["model.safetensors"], found["pytorch_model.bin"]) == ("size", "size")


@pytest.mark.parametrize("text", ["", "no/such/place/here", "org/na me", "/dev/null"])
def test_what_is_no_model_is_named(text: str) -> None:
    with pytest.raises(SourceError):
        identify(text)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(SourceError, match="holds no file of a model"):
        identify(str(tmp_path))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    library = pytest.importorskip("huggingface_hub")
    pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(library.constants, "HF_HUB_OFFLINE", False)
    library.close_session()
    served = Hub(folder=folder(tmp_path / "served"))
    server = served.start()
    yield served
    library.close_session()
    server.shutdown()
    server.server_close()


def test_a_repository_is_its_commit_and_is_read_at_it(tmp_path: Path, hub: Hub) -> None:
    found = identify("org/model", endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    assert found.identity.revision == f"hub:org/model@{COMMIT}"
    assert found.identity.scheme == "hub-commit"
    assert found.model == f"org/model@{COMMIT}"


@pytest.mark.parametrize(
    ("text", "kept", "scheme"),
    [
        ("a" * 40, "commit:" + "a" * 40, "commit"),
        ("git:" + "a" * 40, "commit:" + "a" * 40, "commit"),
        ("sha256:" + "b" * 64, "file:sha256:" + "b" * 64, "file"),
        ("wheel:sha256:" + "b" * 64, "wheel:sha256:" + "b" * 64, "file"),
        ("vllm/vllm-openai@sha256:" + "c" * 64, "vllm/vllm-openai@sha256:" + "c" * 64, "container"),
        ("ghcr.io:443/x/y:v1@sha256:" + "c" * 64, "ghcr.io:443/x/y:v1@sha256:" + "c" * 64, "container"),
    ],
)
def test_builds_of_an_engine(text: str, kept: str, scheme: str) -> None:
    found = engine_identity("vllm", "0.27.1", text, allow_unpinned=False)
    assert (found.revision, found.scheme) == (kept, scheme)
    assert found.text == f"vllm 0.27.1 {kept}"


@pytest.mark.parametrize(
    "text", ["", "main", "v0.27.1", "a" * 39, "A" * 40, "vllm:latest", "sha256:" + "b" * 63, "x@sha256:y"]
)
def test_a_build_that_moves_is_refused(text: str) -> None:
    with pytest.raises(FlagError, match="moves or is no revision"):
        engine_identity("vllm", "0.27.1", text, allow_unpinned=True)


def test_an_unknown_build_is_refused_or_marked() -> None:
    with pytest.raises(FlagError, match="give --engine-revision"):
        engine_identity("vllm", "0.27.1", None, allow_unpinned=False)
    marked = engine_identity("vllm", "0.27.1", None, allow_unpinned=True)
    assert marked.scheme == "unpinned"
    assert marked.text == "vllm 0.27.1 unpinned"


def test_an_identity_is_json(tmp_path: Path) -> None:
    import msgspec

    found = identify(str(folder(tmp_path / "a"))).identity
    assert json.loads(msgspec.json.encode(found))["scheme"] == "layout"
