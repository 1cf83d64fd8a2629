"""A process that runs command lines for the page: one after the other, able to read what the package ships and what was uploaded,
and nothing else.

A line on stdin is a JSON array of arguments. Lines on stdout are JSON objects: {"told": TEXT} for progress, at the end
{"exit_code": N, "out": TEXT, "err": TEXT}.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

LARGEST_ANSWER_CHARACTERS = 64_000_000
_LARGEST_DATA_BYTES = 6 * 1024**3
# What a confined process asks of the system that is no file of anyone's.
_SYSTEM = ("/dev/null", "/dev/urandom", "/proc/meminfo", "/proc/cpuinfo", "/sys/devices/system", "/sys/fs/cgroup", "/usr/share/zoneinfo", "/etc/localtime")  # fmt: skip
_REFUSED = frozenset(
    ["socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg", "subprocess.Popen",
     "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty", "os.link", "os.symlink", "os.kill", "os.killpg",
     "os.setxattr", "os.chroot", "sqlite3.connect", "pty.spawn", "shutil.chown"]
)  # fmt: skip
_CHANGES = frozenset(
    ["os.remove", "os.rename", "os.rmdir", "os.chmod", "os.chown", "os.truncate", "os.mkdir", "os.utime"]
)
_PARENT_S = 1.0
_TERMINATED = 128 + 15


def main(arguments: Sequence[str]) -> int:
    """Serve until stdin ends; `arguments` name the folders that may be read besides the package's own."""
    from vramledger.cli.app import run

    _limit_memory()
    _end_with(os.getppid())
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    confine([Path(each) for each in arguments])
    for line in sys.stdin.buffer:
        answered = _answer(run, msgspec.json.decode(line, type=tuple[str, ...]), out.write)
        out.write(msgspec.json.encode(answered) + b"\n")
    return 0


def confine(folders: Sequence[Path]) -> None:
    """From here on this process opens no file outside `folders`, Python and this package, changes none outside `folders`, and reaches
    no other machine or program. Cannot be undone."""
    kept = [os.path.realpath(each) for each in folders]
    package = os.path.realpath(Path(__file__).parents[1])
    readable = [
        *kept,
        package,
        *_SYSTEM,
        *{os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, *sys.path) if each},
    ]
    # What was compiled is kept for the next process, which would take half a minute for it.
    writable = [*kept, *_compiled()]

    def may_change(real: str) -> bool:
        return _within(real, writable) or (_within(real, [package]) and "__pycache__" in real)

    def refuse_reading(path: Any) -> None:
        if not _within(_real(path), readable + writable):
            raise PermissionError(13, "not to be read from the page", os.fsdecode(path))

    def watch(event: str, facts: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = facts
            if isinstance(path, int):
                return
            if not _writes(mode, flags):
                refuse_reading(path)
            elif not may_change(real := _real(path)) and real != "/dev/null":
                raise PermissionError(13, "not to be written from the page", os.fsdecode(path))
        elif event in _REFUSED:
            raise PermissionError(13, "the page's commands reach no other program or machine")
        elif event in {"os.listdir", "os.scandir"} and facts[0] is not None and not isinstance(facts[0], int):
            refuse_reading(facts[0])
        elif event in _CHANGES:
            for path in facts[: 2 if event == "os.rename" else 1]:
                if isinstance(path, int):
                    continue
                if not may_change(_real(path)):
                    raise PermissionError(13, "not to be changed from the page", os.fsdecode(path))

    _hide([*readable, *writable])
    sys.addaudithook(watch)


def _compiled() -> list[str]:
    """The folder of compiled code, made where it is not there yet; none where it cannot be."""
    from vramledger.simulation.compiled.kept import kept_folder

    try:
        folder = kept_folder()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return []
    return [os.path.realpath(folder)]


_asking = threading.local()


def _real(path: Any) -> str:
    """Where a path leads, asked for by us and so without anything hidden: a link that leads out would else seem to lead nowhere."""
    before, _asking.now = getattr(_asking, "now", False), True
    try:
        return os.path.realpath(os.fsdecode(path))
    finally:
        _asking.now = before


def _hide(readable: Sequence[str]) -> None:
    """What is outside does not seem to be there: no event tells of a question about a file, and its answer would."""
    real_stat, real_lstat, real_access = os.stat, os.lstat, os.access

    def is_seen(path: Any) -> bool:
        if isinstance(path, int) or getattr(_asking, "now", False):
            return True
        real = _real(path)
        # A folder on the way to what may be read is no secret.
        return _within(real, readable) or any(root.startswith(real.rstrip("/") + "/") for root in readable)

    def stat(path: Any, *more: Any, **named: Any) -> os.stat_result:
        if not is_seen(path):
            raise FileNotFoundError(2, os.strerror(2), os.fsdecode(path))
        return real_stat(path, *more, **named)

    def lstat(path: Any, *more: Any, **named: Any) -> os.stat_result:
        if not is_seen(path):
            raise FileNotFoundError(2, os.strerror(2), os.fsdecode(path))
        return real_lstat(path, *more, **named)

    def access(path: Any, *more: Any, **named: Any) -> bool:
        return is_seen(path) and real_access(path, *more, **named)

    os.stat, os.lstat, os.access = stat, lstat, access


def _within(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _writes(mode: str | None, flags: int) -> bool:
    if mode is not None:
        return any(sign in mode for sign in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))


def _end_with(parent: int) -> None:
    """End when the server does, however it ended: a long command does not read its input."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _limit_memory() -> None:
    import resource

    with_room = _LARGEST_DATA_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (with_room if hard == resource.RLIM_INFINITY else min(with_room, hard), hard)
    )


class _Told(StringIO):
    """stderr as a command sees it: what is written over is progress, and is passed on at once."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        super().__init__()
        self._send = send

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.startswith("\r"):
            told = text.strip()
            if told:
                self._send(msgspec.json.encode({"told": told}) + b"\n")
            return len(text)
        return super().write(text)


def _answer(
    run: Callable[[Sequence[str]], int], arguments: Sequence[str], send: Callable[[bytes], object]
) -> dict[str, object]:
    out, err = StringIO(), _Told(send)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(arguments)
        except SystemExit as ended:
            if ended.code == _TERMINATED:
                raise
            code = ended.code if isinstance(ended.code, int) else 1
        except (MemoryError, RecursionError) as problem:
            code = 1
            err.write(f"vramledger: more than this page has room for ({type(problem).__name__})\n")
        except Exception as problem:
            # A fault of ours; the terminal shows where. What was typed by others is no reason to start anew.
            code = 1
            err.write(
                f"vramledger: a fault in this program ({type(problem).__name__}); the command shows it in a terminal\n"
            )
    if out.tell() > LARGEST_ANSWER_CHARACTERS:
        return {"exit_code": 1, "out": "", "err": "vramledger: the answer is larger than a page can show\n"}
    return {"exit_code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__mp_main__":  # a process of a worker's that counts along: as confined as the worker
    _end_with(os.getppid())
    confine([Path(each) for each in sys.argv[1:]])
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
