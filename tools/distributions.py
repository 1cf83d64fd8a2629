"""The wheel and the sdist of a source tree, built as a release builds them: `python -m tools.distributions [OUT]` (dist by default).

Built by hatchling itself, without an environment of its own, so that it needs no network. Nothing but the sources goes into
the bytes: times in the archives are SOURCE_DATE_EPOCH, or hatchling's own constant without it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[1]


class Distributions(Struct, frozen=True, kw_only=True):
    wheel: Path
    sdist: Path


def build(source: Path, out: Path) -> Distributions:
    """Both of them into `out`, which is made and must hold no other build."""
    _hatchling(source, out, "sdist", "wheel")
    return Distributions(wheel=_only(out, "*.whl"), sdist=_only(out, "*.tar.gz"))


def build_wheel(source: Path, out: Path) -> Path:
    _hatchling(source, out, "wheel")
    return _only(out, "*.whl")


def clone(root: Path, to: Path) -> Path:
    """What a clone of `root` would have, with what is changed or new and not ignored; a folder without git as it is."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=False,
        capture_output=True,
    )
    if listed.returncode:
        shutil.copytree(root, to, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist"))
        return to
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = root / name
        if path.is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to / name)
    return to


def _hatchling(source: Path, out: Path, *targets: str) -> None:
    chosen = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out.resolve()), *chosen]
    done = subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} in {source}:\n{done.stdout}{done.stderr}")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} should hold one {pattern}, not {len(found)}; empty it first")
    return found[0]


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    made = build(ROOT, out)
    print(made.sdist)
    print(made.wheel)


if __name__ == "__main__":
    main()
