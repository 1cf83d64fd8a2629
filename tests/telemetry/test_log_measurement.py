"""A log as a measurement: the engine's own figures, with the file they were read in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from vramledger import engines
from vramledger.errors import InputError
from vramledger.measurement import Measurement
from vramledger.observation import Observation
from vramledger.telemetry.log_measurement import log_measurement

START = b"""\
INFO 11-29 16:12:50 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: x
(EngineCore pid=2) INFO 11-29 16:12:59 [kv.py:1] GPU KV cache size: 8,192 tokens
"""


@pytest.fixture(autouse=True)
def spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_LOGS", {"spoken": "telemetry.spoken_log"})


def test_a_log_is_measured_with_its_digest_and_times(tmp_path: Path) -> None:
    path = tmp_path / "serve.log"
    path.write_bytes(START)
    found = log_measurement(path, now_s=1_796_000_000.0)
    assert found.engine == "spoken" and found.engine_version == "0.32.0"
    (source,) = found.sources
    assert source.sha256 == hashlib.sha256(START).hexdigest()
    assert source.size_bytes == len(START)
    assert source.from_s is not None and source.until_s == source.from_s + 9
    assert not found.notes


def test_what_was_not_read_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "serve.log"
    path.write_bytes(START + b"\xff\n")
    assert any("not UTF-8" in note for note in log_measurement(path).notes)


def test_a_log_of_no_known_engine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_bytes(b"hello\n")
    with pytest.raises(InputError, match="--engine"):
        log_measurement(path)
    assert log_measurement(path, engine="spoken").engine == "spoken"


def test_what_repeats_is_thinned_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from telemetry import spoken_log

    step = b"Running: 1 reqs, KV cache usage: %d.0%%\n"
    path = tmp_path / "serve.log"
    path.write_bytes(
        START + b"".join(step % number for number in range(9)) + b"Application startup complete.\n" + step % 9
    )
    seen: list[str] = []

    def measured(observations: Iterable[Observation]) -> Measurement:
        seen.extend(one.event for one in observations)
        return Measurement(sources=())

    monkeypatch.setattr(spoken_log, "measured", measured)
    assert log_measurement(path).engine == "spoken"
    assert seen == ["version", "kv_pool", "step", "step", "ready", "step"]
