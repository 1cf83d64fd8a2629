"""Machine code that an earlier process left: what cannot be read of it is made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numba")

from vramledger.simulation.compiled import jit


def twice(value: int) -> int:
    return 2 * value


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_code_is_compiled_again(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "FOLDER", tmp_path)
    assert jit.entry(twice)(21) == 42
    files = list(tmp_path.rglob(f"*.{ending}"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:20])
    assert jit.entry(twice)(21) == 42
    assert all(file.stat().st_size > 20 for file in tmp_path.rglob(f"*.{ending}"))
