"""Models made on the spot are what their config says, and the same on every machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tools.real_engines.cases import config_of
from tools.real_engines.models import make_model

from vramledger.planning import load_model

KINDS = ("llama-gqa", "qwen3-moe", "gemma-3", "deepseek-v2", "gpt-oss")


@pytest.mark.parametrize("kind", KINDS)
def test_the_headers_hold_what_the_architecture_describes(kind: str, tmp_path: Path) -> None:
    stored = make_model(tmp_path, config_of(kind))
    assert (tmp_path / "model.safetensors").stat().st_size > stored
    found = load_model(tmp_path)
    assert found.differences == ()
    assert found.disk_bytes == stored


def test_one_seed_makes_one_file(tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "other"):
        make_model(tmp_path / name, config_of("llama-mqa"))
        digests.add(hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_every_byte_and_every_id_has_a_word(tmp_path: Path) -> None:
    make_model(tmp_path, config_of("llama-gqa"))
    words = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert sorted(words.values()) == list(range(config_of("llama-gqa")["vocab_size"]))
