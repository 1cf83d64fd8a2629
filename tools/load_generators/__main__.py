"""Load generators against a server that answers at known instants: what they tell, and what was.

    python -m tools.load_generators [--aiperf VENV] [--guidellm VENV] [--rates 125 250] [--only NAME] [--json FILE]

VENV is an environment with aiperf, or guidellm, installed (`python -m venv VENV; VENV/bin/pip install aiperf`); without them only this
repository's own load is run. The server has one core, a generator with all its processes another. Milliseconds; pairs are median and 99th percentile.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import msgspec
from tools.gateway_overhead.__main__ import processor_s
from tools.load_generators import theirs
from tools.load_generators.cases import Case, cases, gaps_s
from tools.load_generators.figures import NS_PER_S, Told, arrivals, refused, streams, turns
from tools.load_generators.server import Note

from vramledger.telemetry.engine_process import free_port
from vramledger.telemetry.probes.proc import process_tree

PATIENCE_S = 300.0
STOPPED_AFTER_S = 5.0
Command = Callable[[Case, int, Path], list[str]]


def main() -> int:
    """Prints a line for each case and generator."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--aiperf", type=Path, help="an environment that has it")
    parser.add_argument("--guidellm", type=Path, help="an environment that has it")
    parser.add_argument("--rates", type=float, nargs="+", default=[125.0, 250.0])
    parser.add_argument("--only", nargs="+", help="names of cases, or their beginnings")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    found: list[dict[str, Any]] = []
    print(f"load {os.getloadavg()[0]:.1f} on {len(cores)} cores before the run", flush=True)
    with served({cores[0]}) as port:
        for case in cases(tuple(options.rates)):
            if options.only and not case.name.startswith(tuple(options.only)):
                continue
            for name, (command, told) in generators(options).items():
                with tempfile.TemporaryDirectory() as temporary:
                    row = figures(case, name, command, told, port, Path(temporary), {cores[-1]})
                found.append(row)
                print(json.dumps(row), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def generators(options: argparse.Namespace) -> dict[str, tuple[Command, Callable[[Case, Path], Told]]]:
    """How each is started and read."""
    found: dict[str, tuple[Command, Callable[[Case, Path], Told]]] = {"vramledger": (_our_command, _we_told)}
    if options.aiperf:
        found["aiperf"] = (
            lambda case, port, folder: theirs.aiperf_command(options.aiperf, case, port, folder),
            theirs.aiperf_told,
        )
    if options.guidellm:
        found["guidellm"] = (
            lambda case, port, folder: theirs.guidellm_command(options.guidellm, case, port, folder),
            theirs.guidellm_told,
        )
    return found


def _our_command(case: Case, port: int, folder: Path) -> list[str]:
    (folder / "case.json").write_bytes(msgspec.json.encode(case))
    here = [sys.executable, "-m", "tools.load_generators.ours"]
    return [*here, str(port), str(folder / "case.json"), str(folder / "told.json")]


def _we_told(case: Case, folder: Path) -> Told:
    return msgspec.json.decode((folder / "told.json").read_bytes(), type=Told)


def figures(
    case: Case, name: str, command: Command, told: Callable[[Case, Path], Told], port: int, folder: Path, cores: set[int]
) -> dict[str, Any]:  # fmt: skip
    """One case of one generator."""
    row: dict[str, Any] = {"case": case.name, "generator": name}
    if name == "guidellm" and case.arrivals == "gamma":
        return row | {"problem": "it has no gamma arrivals"}
    _post(port, msgspec.json.encode(case.script))
    made = command(case, port, folder)
    if name != "vramledger":
        subprocess.run(
            [str(Path(made[0]).with_name("python")), "-c", theirs.TOKENIZER, str(folder / "tokenizer")], check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    spent = run(made, case, port, folder, cores)
    notes = msgspec.json.decode(_get(port, "/notes"), type=list[Note])
    try:
        said = told(case, folder)
    except (OSError, ValueError, KeyError) as problem:
        return row | {
            "problem": f"it told nothing: {type(problem).__name__}: {problem}",
            "requests": len(notes),
        }
    if case.name in ("poisson", "gamma"):
        return row | arrivals(notes)
    if case.name == "refused":
        return row | refused(notes, said)
    if case.name == "turns":
        return row | turns(notes, said)
    row |= streams(notes, said, due_ns(case) if case.is_fixed and name != "guidellm" else None)
    row["processor s"] = round(spent(notes[0].read_ns, max(one.last_ns for one in notes)), 2)
    row["processor s of 10,000 events"] = round(
        row["processor s"] * 10_000 / sum(one.sent_events for one in notes), 2
    )
    if case.stopped_s:
        row["due"] = (
            sum(1 for _ in gaps_s(case)) if name == "vramledger" else round(case.per_s * case.seconds)
        )
    return row


def run(
    command: list[str], case: Case, port: int, folder: Path, cores: set[int]
) -> Callable[[int, int], float]:
    """Runs it to its end. What comes back tells how much processor time it had between two instants."""
    samples: list[tuple[int, float]] = []
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **theirs.ONE_PROCESS}
        )  # fmt: skip
    os.sched_setaffinity(process.pid, cores)
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(process.pid, samples, ended))
    watching.start()
    try:
        if case.stopped_s:
            _hold_still(process.pid, case.stopped_s, port)
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        _signal(process.pid, signal.SIGKILL)
        process.wait(30)
    finally:
        ended.set()
        watching.join()

    def spent(from_ns: int, to_ns: int) -> float:
        before = [used for at_ns, used in samples if at_ns <= from_ns]
        within = [used for at_ns, used in samples if at_ns <= to_ns]
        return (within[-1] if within else 0.0) - (before[-1] if before else 0.0)

    return spent


def _watch(pid: int, samples: list[tuple[int, float]], ended: threading.Event) -> None:
    while not ended.wait(0.2):
        samples.append((time.monotonic_ns(), processor_s(pid)))


def _hold_still(pid: int, seconds: float, port: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while _get(port, "/count") == b"0" and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(STOPPED_AFTER_S)
    held = _signal(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for one in held:
        os.kill(one, signal.SIGCONT)


def _signal(pid: int, what: signal.Signals) -> list[int]:
    reached = []
    for one in process_tree(pid):
        try:
            os.kill(one, what)
        except ProcessLookupError:
            continue
        reached.append(one)
    return reached


def due_ns(case: Case) -> list[int]:
    """The schedule of a fixed case."""
    at_s, found = 0.0, []
    for gap_s in gaps_s(case):
        at_s += gap_s
        found.append(int(at_s * NS_PER_S))
    return found


@contextmanager
def served(cores: set[int]) -> Iterator[int]:
    """The server's port."""
    port = free_port()
    with ExitStack() as stack:
        process = subprocess.Popen([sys.executable, "-m", "tools.load_generators.server", str(port)])
        os.sched_setaffinity(process.pid, cores)
        stack.callback(process.wait, 30)
        stack.callback(process.kill)
        end = time.monotonic() + 30
        while True:
            try:
                _get(port, "/count")
                break
            except OSError:
                if time.monotonic() > end or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield port


def _get(port: int, path: str) -> bytes:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        found: bytes = answer.read()
        return found


def _post(port: int, body: bytes) -> None:
    with urlopen(Request(f"http://127.0.0.1:{port}/script", data=body, method="POST"), timeout=30) as answer:
        answer.read()


if __name__ == "__main__":
    sys.exit(main())
