"""An engine that the experiment starts itself, ends and starts again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from vramledger.experiment.folder import ENGINE_LOG
from vramledger.experiment.left_over import end_left_over, note_started
from vramledger.experiment.result import Snapshot
from vramledger.experiment.watching import Watching
from vramledger.telemetry.engine_process import EngineProcess, free_port, launch_words

HOST = "127.0.0.1"
READY_S = 900.0
START_INTERVAL_S = 0.25
MOST_LOGS = 1000
BEFORE_LOAD, READY = "before load", "ready"

Told = Callable[[str], None]


class Launched:
    """A command that becomes an engine at an address of this machine; a context, which ends it.

    `text` is the user's own command with {model}, {host} and {port}. Every start has a log of its own in `folder`: engine.log,
    engine-2.log and so on, after those that are there. `token` is what its metrics are asked with.
    """

    def __init__(
        self,
        text: str,
        *,
        folder: Path,
        model: str = "",
        port: int | None = None,
        engine: str | None = None,
        environment: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> None:
        """Raises FlagError for a text that cannot be read."""
        self.text = text
        self.folder = folder
        self.model = model
        self.engine = engine
        self.port = port or free_port(HOST)
        self.url = f"http://{HOST}:{self.port}"
        self.command = launch_words(text, model=model, host=HOST, port=self.port)
        self.logs: tuple[Path, ...] = ()
        """Of its starts, the last one last."""
        self._token = token
        self._environment = dict(environment or {})
        self._process: EngineProcess | None = None
        self._watched: tuple[str, ...] = ()
        self._note: Path | None = None

    def __enter__(self) -> Launched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def process(self) -> EngineProcess:
        assert self._process is not None, "the engine is not started"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    def beside(self) -> Launched:
        """Another instance by the same command, on a port of its own."""
        return Launched(
            self.text,
            folder=self.folder,
            model=self.model,
            engine=self.engine,
            environment=self._environment,
            token=self._token,
        )

    def start(
        self, watching: Watching, *, ready_s: float = READY_S, told: Told = lambda _: None
    ) -> tuple[float, tuple[Snapshot, ...]]:
        """Start it and wait until it answers: the seconds that took, and memory before, once the weights were there (where its log
        tells), and when it answered. It is watched from its start. What a killed experiment left running in the same folder is ended first.

        Raises InputError where there is no such program, EngineDied where it ends first or is not ready in time.
        """
        if end_left_over(self.folder):
            told("an engine was left over by an experiment that was killed, and is ended")
        snapshots = [watching.snapshot(BEFORE_LOAD)]
        log = _fresh_log(self.folder)
        self.logs = (*self.logs, log)
        self._process = EngineProcess(self.command, url=self.url, log=log, environment=self._environment)
        name = Path(self.command[0]).name
        told(f"starting {name}")
        with watching.paced(START_INTERVAL_S):
            self._process.__enter__()
            self._note = note_started(self.folder, self._process.pid)
            self._watched = (
                watching.process(self._process.pid),
                watching.engine(self.url, engine=self.engine, token=self._token),
            )
            watching.follow(log, engine=self.engine)
            waited_s = self._process.wait_ready(ready_s, told=_each_second(told, f"starting {name}"))
        loaded = watching.loaded(since_s=snapshots[0].at_s)
        snapshots += [] if loaded is None else [loaded]
        snapshots.append(watching.snapshot(READY))
        return waited_s, tuple(snapshots)

    def stop(self, watching: Watching | None = None) -> float:
        """End it, and watch it no more; the seconds that took. Does nothing to what has ended."""
        began_s = time.monotonic()
        if self._process is not None:
            self._process.stop()
        if self._note is not None:
            self._note.unlink(missing_ok=True)
            self._note = None
        if watching is not None:
            watching.leave(*self._watched)
            self._watched = ()
        return time.monotonic() - began_s


def _each_second(told: Told, what: str) -> Callable[[float], None]:
    last = -1

    def heard(waited_s: float) -> None:
        nonlocal last
        if int(waited_s) > last:
            last = int(waited_s)
            told(f"{what}: {last} s")

    return heard


def _fresh_log(folder: Path) -> Path:
    for number in range(1, MOST_LOGS):
        path = folder / (ENGINE_LOG if number == 1 else f"engine-{number}.log")
        if not path.exists():
            return path
    return folder / f"engine-{MOST_LOGS}.log"
