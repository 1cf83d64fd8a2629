"""What runs the page's commands: no option and no file leads it to anything but the package and what was dropped, it reaches no program
and no machine, and it ends with who asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vramledger.cli.worker import _answer
from vramledger.engines import engine_names, find_engine
from vramledger.engines.option import OptionKind
from vramledger.errors import VramledgerError
from vramledger.web.ask import Ask, command_line
from vramledger.web.commands import COMMANDS
from vramledger.web.uploads import Upload
from web_page import ROOT

SECRET = "the-planted-secret-7431"
MODEL = "builtin:Llama-3.1-8B-Instruct"
WORKLOAD = "arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,5\n"
LOG = "INFO 01-01 00:00:00 [gpu_worker.py:1] Available KV cache memory: 10.00 GiB\n"
pytestmark = pytest.mark.timeout(600)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}


class Worker:
    """A confined process that is asked command lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, arguments: tuple[str, ...]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if "told" not in said:
                return said
        raise AssertionError(f"it ended: {self._process.wait(60)}")


@contextmanager
def worker(uploads: Path, cwd: Path) -> Iterator[Worker]:
    command = [sys.executable, "-P", "-m", "vramledger.cli.worker", str(uploads)]
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


class Place:
    """A folder of uploads, beside it a secret that a page must never see, and a name where there is nothing."""

    def __init__(self, root: Path) -> None:
        self.uploads = root / "uploads"
        self.home = root / "home"
        for folder in (self.uploads, self.home):
            folder.mkdir()
        self.secret = self.home / "secret.json"
        self.hide()
        self.held: dict[str, Upload] = {}
        for name, text in {"load.csv": WORKLOAD, "engine.log": LOG, "empty.json": "{}"}.items():
            folder = self.uploads / name.partition(".")[0]
            folder.mkdir()
            (folder / name).write_text(text)
            self.held[folder.name] = Upload(
                id=folder.name, folder=folder, names=(name,), size_bytes=len(text)
            )

    def hide(self) -> None:
        """Lay the secret there. It parses as many things, so that nobody turns away from it for what it is."""
        self.secret.write_text(
            json.dumps({"model_type": SECRET, "architectures": [SECRET], "secret": SECRET})
        )

    def find(self, key: str) -> Upload:
        if key not in self.held:
            raise VramledgerError("not held")
        return self.held[key]

    def line(self, ask: dict[str, Any]) -> tuple[str, ...] | None:
        try:
            return command_line(msgspec.convert(ask, Ask), self.find).arguments
        except VramledgerError:
            return None


BASES: dict[str, dict[str, Any]] = {
    "plan": {"sources": [MODEL], "options": {"device": "L40S"}},
    "model": {"sources": [MODEL]},
    "kv": {"sources": [MODEL]},
    "compare": {"sources": [MODEL], "options": {"device": "L40S"}},
    "fit": {"sources": [MODEL], "options": {"devices": "L40S", "context": "8K"}},
    "sweep": {"sources": [MODEL], "options": {"device": "L40S", "context": "8K"}},
    "workload": {"sources": ["upload:load"]},
    "simulate": {
        "sources": [MODEL],
        "options": {"device": "L40S", "requests": 2},
        "files": {"workload": "upload:load"},
    },
    "capacity": {
        "sources": [MODEL],
        "options": {"device": "L40S", "requests": 2},
        "files": {"workload": "upload:empty"},
    },
    "layout": {"sources": [MODEL], "options": {"device": "L40S", "prompt": "100", "output": "10"}},
    "log": {"sources": ["upload:engine"]},
    "snapshot": {"sources": ["upload:empty"]},
    "diagnose": {"sources": ["upload:engine"]},
    "reconcile": {"files": {"model": MODEL, "logs": "upload:engine"}},
    "diff": {"sources": ["upload:empty", "upload:engine"]},
    "audit": {"sources": ["upload:empty"]},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("worker"))


@pytest.fixture(scope="module")
def confined(place: Place) -> Iterator[Worker]:
    """Started in the folder where the secret lies."""
    with worker(place.uploads, place.home) as found:
        yield found


def answers(confined: Worker, place: Place, ask: dict[str, Any]) -> tuple[object, object]:
    """What is said to a question that names the secret, while it is there and while nothing is; None where it is not asked."""
    line = place.line(ask)
    if line is None:
        return None, None
    there = confined.run(line)
    place.secret.unlink()
    try:
        return there, confined.run(line)
    finally:
        place.hide()


def test_every_command_of_the_page_is_tried_here() -> None:
    assert BASES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_of_a_command_reads_or_tells_of_what_lies_elsewhere(
    confined: Worker, place: Place, command: str
) -> None:
    """Of whatever option: an answer holds nothing of the file, and is the same whether there is one."""
    rules = COMMANDS[command]
    base = BASES[command]
    for option in rules.options:
        for shape in ("{path}", "@{path}", "file://{path}", "a={path}", '{{"model": "{path}"}}'):
            given = {**base.get("options", {}), option: shape.format(path=place.secret)}
            there, absent = answers(confined, place, {"command": command, **base, "options": given})
            assert there == absent, (option, shape)
            assert SECRET not in str(there)


# Kinds that are read as text; the others are numbers and words of a list, which are read by one reader each.
PATHLIKE = [
    (engine, option.name)
    for engine in engine_names()
    for option in find_engine(engine)[0].OPTIONS
    if option.kind
    not in (OptionKind.SWITCH, OptionKind.COUNT, OptionKind.COUNTS, OptionKind.NUMBER, OptionKind.SIGNED)
]


@pytest.mark.parametrize("engine", engine_names())
def test_no_flag_of_an_engine_does(confined: Worker, place: Place, engine: str) -> None:
    names = [name for of, name in PATHLIKE if of == engine]
    assert names
    for name in names:
        for shape in (
            "{path}",
            "a={path}",
            '{{"model": "{path}", "method": "eagle", "num_speculative_tokens": 1}}',
        ):
            given = {"device": "L40S", "engine": engine, name: shape.format(path=place.secret)}
            there, absent = answers(
                confined, place, {"command": "plan", "sources": [MODEL], "options": given}
            )
            assert there == absent, (name, shape)
            assert SECRET not in str(there)


@pytest.mark.parametrize(
    "source",
    [
        "{secret}",
        "builtin:{secret}",
        "builtin:../../../../{secret}",
        "upload:{secret}",
        "upload:../home/secret.json",
        "@{secret}",
        "file://{secret}",
        "-",
        "hf/model",
    ],
)
def test_no_source_does(place: Place, source: str) -> None:
    """What a command is given by name is a built-in model or a file that was dropped, before anything is run."""
    named = source.format(secret=place.secret)
    for command, rules in COMMANDS.items():
        asks: list[dict[str, Any]] = [{"command": command, "sources": [named]}]
        asks += [{"command": command, "files": {name: named}} for name in rules.files]
        for ask in asks:
            line = place.line(ask)
            assert line is None or str(place.secret) not in line


@pytest.mark.parametrize("kind", ["symlink", "inside a checkpoint", "named in an index"])
def test_what_was_dropped_leads_nowhere_else(confined: Worker, place: Place, kind: str) -> None:
    """No upload makes a link; were there one, or a name that leads out, it is not followed."""
    folder = place.uploads / kind.replace(" ", "-")
    folder.mkdir()
    if kind == "symlink":
        (folder / "config.json").symlink_to(place.secret)
    elif kind == "inside a checkpoint":
        (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
        (folder / "quantize_config.json").symlink_to(place.secret)
        (folder / "model.safetensors.index.json").symlink_to(place.secret)
    else:
        (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
        index = {
            "metadata": {"total_size": 1},
            "weight_map": {"a": "../../home/secret.json", "b": str(place.secret)},
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for command in (
        ["plan", str(folder), "--device=L40S", "--json"],
        ["model", str(folder), "--json"],
        ["model", str(folder / "config.json"), "--json"],
    ):
        said = confined.run(tuple(command))
        assert said["exit_code"] != 0
        assert SECRET not in json.dumps(said)


ATTEMPTS = {
    "read a file": "open(SECRET_FILE).read()",
    "read it by its descriptor's name": "open('/proc/self/environ').read()",
    "read the password file": "open('/etc/passwd').read()",
    "open it low down": "os.open(SECRET_FILE, os.O_RDONLY)",
    "read it through a link": "open(LINK).read()",
    "read it by way of the uploads": "open(UPLOADS + '/../home/secret.json').read()",
    "list a folder": "os.listdir(HOME)",
    "walk a folder": "list(os.scandir('/'))",
    "write a file": "open(HOME + '/new', 'w')",
    "append to one": "open(SECRET_FILE, 'a')",
    "remove one": "os.remove(SECRET_FILE)",
    "move one in": "os.rename(SECRET_FILE, UPLOADS + '/mine')",
    "move one out": "os.rename(UPLOADS + '/load/load.csv', HOME + '/out')",
    "link to one": "os.link(SECRET_FILE, UPLOADS + '/hard')",
    "make a link": "os.symlink(SECRET_FILE, UPLOADS + '/soft')",
    "copy one": "shutil.copy(SECRET_FILE, UPLOADS + '/copy')",
    "make a folder": "os.mkdir(HOME + '/folder')",
    "change its rights": "os.chmod(SECRET_FILE, 0o777)",
    "cut it": "os.truncate(SECRET_FILE, 0)",
    "start a program": "subprocess.run(['true'])",
    "start a shell": "os.system('true')",
    "become another program": "os.execv('/bin/true', ['true'])",
    "spawn one": "os.posix_spawn('/bin/true', ['true'], {})",
    "split": "os.fork()",
    "connect": "socket.create_connection(('127.0.0.1', 9), timeout=1)",
    "listen": "socket.socket().bind(('127.0.0.1', 0))",
    "look a name up": "socket.getaddrinfo('localhost', 80)",
    "send": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "end another process": "os.kill(os.getppid(), 0)",
    "keep a database": "sqlite3.connect(HOME + '/x.db')",
}


@pytest.mark.parametrize("how", ["confine", "a process that counts along"])
def test_a_confined_process_reaches_nothing_else(place: Place, how: str) -> None:
    link = place.uploads / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(place.secret)
    begin = (
        "from vramledger.cli.worker import confine; confine([pathlib.Path(UPLOADS)])"
        if how == "confine"
        else "sys.argv = ['worker', UPLOADS]; import runpy; runpy.run_module('vramledger.cli.worker', run_name='__mp_main__')"
    )
    script = textwrap.dedent(f"""
        import glob, json, os, pathlib, shutil, socket, sqlite3, subprocess, sys
        UPLOADS, HOME, SECRET_FILE, LINK = {str(place.uploads)!r}, {str(place.home)!r}, {str(place.secret)!r}, {str(link)!r}
        {begin}
        found = {{}}
        for what, attempt in {ATTEMPTS!r}.items():
            try:
                eval(attempt)
                found[what] = "done"
            except PermissionError as problem:
                found[what] = "page" in str(problem)
        seen = [pathlib.Path(SECRET_FILE).exists(), os.path.isfile(SECRET_FILE), os.access(SECRET_FILE, os.R_OK), bool(glob.glob(SECRET_FILE)),
                os.path.lexists(LINK) and os.path.exists(LINK), pathlib.Path("/etc/passwd").exists()]
        own = [pathlib.Path(UPLOADS, "load", "load.csv").read_text(), pathlib.Path(UPLOADS).is_dir(), os.listdir(UPLOADS + "/load")]
        pathlib.Path(UPLOADS, "written").write_text("x")
        print(json.dumps([found, seen, own]))
    """)
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=place.home,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found, seen, own = json.loads(done.stdout)
    assert {what: said for what, said in found.items() if said is not True} == {}
    assert seen == [False] * len(seen)
    assert own == [WORKLOAD, True, ["load.csv"]]
    assert sorted(path.name for path in place.home.iterdir()) == ["secret.json"]
    assert SECRET in place.secret.read_text()


def test_what_counts_along_answers_the_same(confined: Worker) -> None:
    """Processes that a command starts for itself are confined too, and still do their part."""
    ask = ("sweep", MODEL, "--device=L40S", "--context=4K,8K,16K", "--json")
    alone, together = (confined.run((*ask[:-1], f"--jobs={jobs}", "--json")) for jobs in (1, 2))
    assert alone["exit_code"] == together["exit_code"] == 0, together["err"]
    assert alone["out"] == together["out"]


def test_a_fault_is_an_answer_and_the_next_question_has_its_own() -> None:
    def run(arguments: Sequence[str]) -> int:
        return 1 // len(arguments)

    told: list[bytes] = []
    failed = _answer(run, (), told.append)
    assert failed["exit_code"] == 1
    assert "ZeroDivisionError" in str(failed["err"])
    assert "Traceback" not in str(failed["err"])
    assert _answer(run, ("plan",), told.append) == {"exit_code": 1, "out": "", "err": ""}
