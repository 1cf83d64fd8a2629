"""The command as a process: exit codes, closed pipes, interrupts, odd encodings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from five_kinds import DENSE, write_config

COMMAND = [sys.executable, "-m", "vramledger"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, env=os.environ | environment, check=False, timeout=60
    )


def test_a_plan_is_printed_and_its_code_returned(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, DENSE))
    done = run("plan", config, "--device", "H100-80GB")
    assert done.returncode == 0
    assert b"verdict: holds" in done.stdout
    assert done.stderr == b""
    assert run("plan", config, "--device", "custom:8GiB").returncode == 10


def test_refusals_have_codes_and_no_traceback(tmp_path: Path) -> None:
    config = str(write_config(tmp_path, DENSE | {"model_type": "unheard_of", "architectures": ["UnheardOf"]}))
    for code, arguments in (
        (2, ("plan", config)),
        (2, ("plan", config, "--device", "none")),
        (3, ("plan", config, "--device", "H100-80GB")),
        (4, ("model", str(tmp_path / "absent" / "config.json"))),
    ):
        done = run(*arguments)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr
        assert done.stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes and signals of POSIX")
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "schema", "plan"], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize(
    "arguments", [("devices",), ("devices", "--json"), ("schema",), ("--help",), ("model", "/none", "--json")]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_message(arguments: tuple[str, ...], unbuffered: str) -> None:
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, check=False, timeout=60, env=env
        )
        assert done.returncode == 74
        said = done.stderr.decode().splitlines()
        assert said[-1] == "vramledger: the output cannot be written: No space left on device"
        assert len(said) == (2 if "/none" in arguments else 1)
        nowhere = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=full, check=False, timeout=60, env=env
        )
        assert nowhere.returncode == 74


@pytest.mark.skipif(os.name != "posix", reason="a closed descriptor of POSIX")
def test_a_closed_output_is_one_message() -> None:
    code = f"import os, sys; os.close(1); os.execv(sys.executable, {[*COMMAND, 'devices']!r})"
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 74
    assert done.stderr == b"vramledger: the output cannot be written: it is closed\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes and signals of POSIX")
def test_ctrl_c_ends_quietly() -> None:
    code = (
        "import os, signal, sys, vramledger.cli.app as app\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits SIG_IGN\n"
        "def interrupted(*a, **k): os.kill(os.getpid(), signal.SIGINT)\n"
        "app.cli.main = interrupted\n"
        "sys.exit(app.run(['devices']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert done.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals and process groups of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_ended_leaves_no_process_and_no_half_table(
    tmp_path: Path, number: signal.Signals
) -> None:
    config, out = str(write_config(tmp_path / "dense", DENSE)), tmp_path / "out"
    out.mkdir()
    asked = ["sweep", config, "-d", "all", "--kv", "all", "--weights", "all", "--tp", "1,2,4,8"]
    asked += ["--jobs", "2", "--out", str(out / "table.csv")]
    said = tmp_path / "said"
    with (
        said.open("wb") as errors,
        subprocess.Popen([*COMMAND, *asked], stderr=errors, start_new_session=True) as started,
    ):
        while started.poll() is None and not any(part.stat().st_size for part in out.iterdir()):
            time.sleep(0.01)
        started.send_signal(number)
    assert started.returncode == (-number if number is signal.SIGKILL else 128 + number)
    assert said.read_bytes() == b""
    if number is not signal.SIGKILL:
        assert list(out.iterdir()) == []
    for _ in range(500):
        try:
            os.killpg(started.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.01)
    else:
        os.killpg(started.pid, signal.SIGKILL)
        pytest.fail("a worker outlived the sweep")


def test_an_encoding_without_the_character_escapes_it(tmp_path: Path) -> None:
    config = str(write_config(tmp_path / "한국어", DENSE))
    done = run("model", config, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert b"\\ud55c" in done.stdout


def test_the_list_of_commands_loads_no_more_than_click() -> None:
    code = (
        "import sys; from vramledger.cli import main; main(['--help']); "
        "print(sorted(name for name in sys.modules if name.startswith(('vramledger.models', 'vramledger.engines', "
        "'vramledger.ledger', 'msgspec', 'json'))), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.strip() == "[]"
