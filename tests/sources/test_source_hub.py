"""Against a real server on this machine: what is asked for, and what is said when it does not answer."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub
from safetensors_builder import Shapes, write

from vramledger.errors import ConfigError, HeaderError, SourceError
from vramledger.models.sources.load import Source, load_source

hub_library = pytest.importorskip("huggingface_hub")
pytest.importorskip("huggingface_hub.constants")

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}
SHARDS: dict[str, Shapes] = {
    f"model-{number:05d}-of-00003.safetensors": {f"model.layers.{number}.w": ("BF16", [211, 103])}
    for number in (1, 2, 3)
}


def checkpoint(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    for name, tensors in SHARDS.items():
        write(folder / name, tensors)
    weight_map = {tensor: name for name, tensors in SHARDS.items() for tensor in tensors}
    index = {"metadata": {"total_size": 3 * 211 * 103 * 2}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "original").mkdir()
    (folder / "original" / "consolidated.safetensors").write_bytes(b"never read")
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(hub_library.constants, "HF_HUB_OFFLINE", False)
    hub_library.close_session()
    served = Hub(folder=checkpoint(tmp_path / "served"))
    server = served.start()
    yield served
    hub_library.close_session()
    server.shutdown()
    server.server_close()


def load(hub: Hub, tmp_path: Path, text: str = "org/model", *, headers: bool = True) -> Source:
    return load_source(text, endpoint=hub.endpoint, cache_dir=tmp_path / "cache", headers=headers)


def header_end(path: Path) -> int:
    return 8 + int(struct.unpack("<Q", path.read_bytes()[:8])[0])


def test_a_sharded_model_is_read_without_a_byte_of_its_weights(hub: Hub, tmp_path: Path) -> None:
    source = load(hub, tmp_path)
    assert (source.id, source.config, source.notes) == ("org/model", CONFIG, ())
    assert source.quant_configs == {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}}
    assert source.index is not None and source.index.shards == tuple(SHARDS)
    assert (
        source.table is not None
        and source.table.total_bytes == source.index.total_size_bytes == 3 * 211 * 103 * 2
    )
    assert source.disk_bytes == sum((hub.folder / name).stat().st_size for name in SHARDS)
    assert source.disk_evidence is not None and COMMIT[:12] in source.disk_evidence.source
    for name in SHARDS:
        end = header_end(hub.folder / name)
        assert hub.ranges_of(name) == [(0, 7), (8, end - 1)]
        assert hub.sent_bytes[name] == end
    assert not any("consolidated" in path for _, path, *_ in hub.requests)
    assert sorted(source.files) == sorted(path.name for path in hub.folder.iterdir() if path.is_file())


def test_a_second_look_downloads_nothing_and_headers_can_be_left_out(hub: Hub, tmp_path: Path) -> None:
    load(hub, tmp_path)
    hub.requests.clear()
    source = load(hub, tmp_path, headers=False)
    assert source.table is None and source.index is not None and source.disk_bytes is not None
    assert [path for _, path, *_ in hub.requests] == ["/api/models/org/model/revision/main"]


def test_a_redirect_keeps_the_range_and_drops_the_token(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    mirror = Hub(folder=hub.folder)
    server = mirror.start()
    hub.cdn = mirror.endpoint
    try:
        source = load(hub, tmp_path)
    finally:
        server.shutdown()
        server.server_close()
    assert source.table is not None and source.table.tensor_count == 3
    assert {token for *_, token in hub.requests} == {"Bearer hf_secret"}
    assert {token for *_, token in mirror.requests} == {None}
    name = next(iter(SHARDS))
    assert mirror.ranges_of(name) == [(0, 7), (8, header_end(hub.folder / name) - 1)]


def test_a_failing_request_is_tried_again(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    hub.failures_left = 2
    assert load(hub, tmp_path).table is not None


def test_a_server_that_ignores_ranges_is_not_read(hub: Hub, tmp_path: Path) -> None:
    hub.ranges = False
    with pytest.raises(SourceError, match="ignores byte ranges"):
        load(hub, tmp_path)


def test_a_lying_header_length_asks_for_nothing_more(hub: Hub, tmp_path: Path) -> None:
    name = next(iter(SHARDS))
    (hub.folder / name).write_bytes(struct.pack("<Q", 10**11) + bytes(1000))
    with pytest.raises(HeaderError, match="100000000000"):
        load(hub, tmp_path)
    assert hub.ranges_of(name) == [(0, 7)]


def test_a_huge_config_is_not_downloaded(hub: Hub, tmp_path: Path) -> None:
    hub.stated_sizes["config.json"] = 10**9
    with pytest.raises(SourceError, match="1000000000 bytes"):
        load(hub, tmp_path)
    assert [path for _, path, *_ in hub.requests] == ["/api/models/org/model/revision/main"]


def test_a_broken_config_is_a_config_error(hub: Hub, tmp_path: Path) -> None:
    (hub.folder / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        load(hub, tmp_path)


@pytest.mark.parametrize(("status", "code", "said"), [
    (403, "GatedRepo", "is gated"), (404, "RepoNotFound", "is not on the hub"),
    (404, "RevisionNotFound", "no such revision"), (500, "", "could not be read from the hub"),
])  # fmt: skip
def test_errors_say_what_to_do(hub: Hub, tmp_path: Path, status: int, code: str, said: str) -> None:
    hub.error = (status, code)
    with pytest.raises(SourceError, match=said) as caught:
        load(hub, tmp_path)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("answer", [
    b"[]", b"{", b"null", b"{}", b'{"id": "a", "sha": "x", "siblings": [1]}', b'{"id": "a", "sha": "x", "siblings": 5}',
    b'{"id": "a", "siblings": []}', b'{"id": "a", "sha": "../../x", "siblings": [{"rfilename": "config.json"}]}',
])  # fmt: skip
def test_an_answer_that_is_not_a_hubs(hub: Hub, tmp_path: Path, answer: bytes) -> None:
    hub.answer = answer
    with pytest.raises(SourceError) as caught:
        load(hub, tmp_path)
    assert caught.value.message.startswith("org/model")


def test_a_revision_and_a_name_that_are_not_there(hub: Hub, tmp_path: Path) -> None:
    assert load(hub, tmp_path, "org/model@main").id == "org/model"
    with pytest.raises(SourceError, match="no such revision"):
        load(hub, tmp_path, "org/model@v9")
    with pytest.raises(SourceError, match="not on the hub"):
        load(hub, tmp_path, "org/other")


def test_gguf_only_repositories_name_their_files(hub: Hub, tmp_path: Path) -> None:
    for path in hub.folder.iterdir():
        if path.is_file():
            path.unlink()
    (hub.folder / "m-Q4_K_M.gguf").write_bytes(b"GGUF")
    with pytest.raises(SourceError, match=r"m-Q4_K_M\.gguf"):
        load(hub, tmp_path)


def test_without_a_network_the_cache_is_read(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(hub, tmp_path)
    gone = "http://127.0.0.1:9"
    source = load_source("org/model", endpoint=gone, cache_dir=tmp_path / "cache")
    assert source.config == CONFIG and source.index is not None
    assert source.table is None and source.disk_bytes is None
    assert "local cache" in source.notes[0]
    with pytest.raises(SourceError, match="cannot be reached"):
        load_source("org/other", endpoint=gone, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(hub_library.constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert load(hub, tmp_path).config == CONFIG
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE"):
        load(hub, tmp_path, "org/other")
    assert hub.requests == []


def test_cached_weights_are_read_from_the_cache(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(hub, tmp_path)
    snapshot = tmp_path / "cache" / "models--org--model" / "snapshots" / COMMIT
    assert (snapshot / "config.json").is_symlink()
    blobs = snapshot.parents[1] / "blobs"
    for name in SHARDS:
        (blobs / f"blob-{name}").write_bytes((hub.folder / name).read_bytes())
        (snapshot / name).symlink_to(blobs / f"blob-{name}")
    hub.requests.clear()
    online = load(hub, tmp_path)
    assert [path for _, path, *_ in hub.requests] == ["/api/models/org/model/revision/main"]
    monkeypatch.setattr(hub_library.constants, "HF_HUB_OFFLINE", True)
    offline = load(hub, tmp_path)
    assert online.table is not None and offline.table is not None
    assert online.table.rows == offline.table.rows
    assert offline.disk_bytes == online.disk_bytes
    (blobs / f"blob-{name}").unlink()
    broken = load(hub, tmp_path)
    assert broken.table is None and "1 of 3 weight files are not there" in " ".join(broken.notes)


def test_the_environment_names_the_endpoint(hub: Hub, tmp_path: Path) -> None:
    script = "import sys; from vramledger.models.sources.load import load_source; print(load_source('org/model').table.total_bytes)"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{3 * 211 * 103 * 2}\n", "")


def test_without_the_extra_the_way_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SourceError, match=r"pip install 'vramledger\[hub\]'"):
        load_source("org/model")
