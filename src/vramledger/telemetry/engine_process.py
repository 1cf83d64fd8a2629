"""An engine started by us: its process group, its log, and when it is ready."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from vramledger.errors import FlagError, InputError, SourceError, VramledgerError
from vramledger.telemetry.web import fetch

POLL_S = 0.1
STOP_S = 20.0
TAIL_BYTES = 4096


class EngineDied(VramledgerError):
    """The engine ended, or did not become ready in time; `facts` hold its exit code, its log and the end of it."""

    code = "engine"
    exit_code = 15


def launch_words(text: str, *, model: str, host: str, port: int) -> tuple[str, ...]:
    """A user's own command as a list, with {model}, {host} and {port} filled in.

    Raises FlagError for a text that names something else in braces, that no shell would split, or that holds nothing.
    """
    try:
        words = tuple(word.format(model=model, host=host, port=port) for word in shlex.split(text))
    except (ValueError, KeyError, IndexError, AttributeError) as problem:
        raise FlagError(
            f"--launch cannot be read: {problem}; it may hold {{model}}, {{host}} and {{port}}",
            flag="launch",
        ) from None
    if not words:
        raise FlagError("--launch is empty; give the engine's command", flag="launch")
    return words


class EngineProcess:
    """A command in a process group of its own, its output in a file.

    A context manager: leaving it stops the whole group, first politely. `url` is where it will listen.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        url: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = tuple(command)
        self.url = url
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EngineProcess:
        try:
            with signals_later():
                self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        try:
            with self.log.open("wb") as out:
                # The command is the user's own, given as a list; no shell reads it.
                self._process = subprocess.Popen(  # noqa: S603
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
        except FileNotFoundError:
            raise InputError(
                f"there is no program {self.command[0]!r}; install the engine or name its command with --launch",
                command=self.command[0],
            ) from None
        except OSError as problem:
            raise InputError(
                f"{self.command[0]} cannot be started: {problem.strerror or problem}", command=self.command[0]
            ) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the engine is not started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return None if self._process is None else self._process.poll()

    def wait_ready(self, timeout_s: float, *, told: Callable[[float], None] | None = None) -> float:
        """Wait until the health address answers 200; returns the seconds it took. `told` hears how long it has been.

        Raises EngineDied where the engine ends first or is not ready in time.
        """
        start = time.monotonic()
        while True:
            waited = time.monotonic() - start
            if self.exit_code is not None:
                raise self._died(f"the engine ended with {self._ending()} before it was ready")
            if is_healthy(self.url):
                return waited
            if waited > timeout_s:
                raise self._died(f"the engine was not ready after {timeout_s:.0f} s")
            if told is not None:
                told(waited)
            time.sleep(POLL_S)

    def check(self, patience_s: float = STOP_S) -> None:
        """Raises EngineDied where it has ended or is no longer healthy since it was ready.

        A server whose worker died may answer for a moment more, or say no before it ends: one that is not healthy is waited for.
        """
        start = time.monotonic()
        while self.exit_code is None:
            if is_healthy(self.url):
                return
            if time.monotonic() - start > patience_s:
                raise self._died("the engine is no longer healthy")
            time.sleep(POLL_S)
        raise self._died(f"the engine ended with {self._ending()} while it was asked")

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End the group: SIGTERM, after `timeout_s` SIGKILL. Does nothing to what has ended."""
        process = self._process
        if process is None:
            return
        for sign, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, timeout_s)):
            try:
                os.killpg(process.pid, sign)
            except (ProcessLookupError, PermissionError):
                break
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
            if sign is signal.SIGTERM:
                self._end_rest(process.pid)
            break
        process.wait(timeout_s)

    @staticmethod
    def _end_rest(group: int) -> None:
        """Workers whose parent ended without them."""
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def _ending(self) -> str:
        return ending_of(self.exit_code)

    def _died(self, what: str) -> EngineDied:
        tail = ""
        if self.log.exists():
            with self.log.open("rb") as file:
                file.seek(max(self.log.stat().st_size - TAIL_BYTES, 0))
                tail = file.read(TAIL_BYTES).decode("utf-8", "replace")
        return EngineDied(
            f"{what}; its log is {self.log}: vramledger diagnose {self.log}",
            log=str(self.log),
            exit_code=self.exit_code,
            tail=tail,
        )


@contextmanager
def signals_later() -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP that come while it is open are raised when it ends: a process that is started but not yet known
    would be left behind. Signals are for the main thread; in another one this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        sign: signal.signal(sign, lambda number, _: came.append(number))
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(sign) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, signal.SIG_DFL if handler is None else handler)
    for number in came:
        signal.raise_signal(number)


def ending_of(exit_code: int | None) -> str:
    """ "signal SIGKILL", "exit code 3"."""
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-exit_code}"


def is_healthy(url: str, timeout_s: float = 2.0) -> bool:
    """Whether GET url/health answers 200 (vLLM, SGLang, llama.cpp's server and TensorRT-LLM's all have it)."""
    try:
        return fetch(f"{url}/health", limit_s=timeout_s).status == 200
    except SourceError:
        return False


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port
