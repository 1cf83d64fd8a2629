"""An adapter on a hub: its config is downloaded, of its weights the header alone is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub

from adapter_files import lora, write_adapter
from vramledger.errors import SourceError
from vramledger.models.adapters.load import load_adapter

hub_library = pytest.importorskip("huggingface_hub")
pytest.importorskip("huggingface_hub.constants")

CONFIG = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
TENSORS = lora({"self_attn.q_proj": (512, 256)}, 8)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(hub_library.constants, "HF_HUB_OFFLINE", False)
    hub_library.close_session()
    served = Hub(folder=write_adapter(tmp_path / "served", CONFIG, TENSORS))
    server = served.start()
    yield served
    hub_library.close_session()
    server.shutdown()
    server.server_close()


def test_of_the_weights_only_the_header_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    found = load_adapter("org/model", endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    assert found.parameters == 2 * 8 * (512 + 256)
    assert found.id == "org/model"
    ranges = hub.ranges_of("adapter_model.safetensors")
    assert ranges[0] == (0, 7)
    assert max(last for _, last in ranges) < found.disk_bytes


def test_without_a_network_the_cache_is_read(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_adapter("org/model", endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(hub_library.constants, "HF_HUB_OFFLINE", True)
    cached = load_adapter("org/model", endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
    assert not cached.is_read
    assert cached.config.rank == 8
    with pytest.raises(SourceError, match=r"download adapter_config\.json first"):
        load_adapter("org/other", endpoint=hub.endpoint, cache_dir=tmp_path / "cache")
