"""The container images without a container engine: what the file says, whether the locks suffice, and that the commands start."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.distributions import Distributions

from clean_install import PATIENCE_S, CleanInstall, link_distributions, required_by
from containerfile import CONTAINERFILE, ROOT, default_base, stages
from vramledger.cli.app import cli

IMAGES = ("gateway", "ui")
GATEWAY = """
listen = "127.0.0.1:0"
[[upstream]]
url = "http://127.0.0.1:9"
[admin]
listen = "127.0.0.1:0"
"""


def pins(name: str) -> dict[str, Requirement]:
    """What a lock pins, by name."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line.removesuffix("\\").strip()) for line in lines if "==" in line.partition(";")[0]]
    return {canonicalize_name(item.name): item for item in found}


def extras_of(image: str) -> list[str]:
    """The extras that `make lock` locks for an image."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{image.upper()}_EXTRAS := (.+)$", makefile, re.MULTILINE)
    assert found is not None
    return found[1].split()


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("hadolint has no wheel for this machine")
    done = subprocess.run(
        [program, "--no-color", str(CONTAINERFILE)],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == ""
    assert done.returncode == 0


def test_the_base_is_one_release_of_a_python_that_is_supported() -> None:
    found = re.fullmatch(r"docker\.io/library/python:(3\.\d+)\.\d+-slim-[a-z]+", default_base())
    assert found is not None
    classifiers = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"Programming Language :: Python :: {found[1]}"' in classifiers


def test_the_gateway_is_what_is_built_without_a_target() -> None:
    assert list(stages())[-2:] == ["ui", "gateway"]


@pytest.mark.parametrize("image", IMAGES)
def test_nobody_in_it_is_root_and_nothing_is_left_of_the_build(image: str) -> None:
    """The user is a number, as Kubernetes' runAsNonRoot needs; only the environment is copied from the stages that build."""
    stage = stages()[image]
    (user,) = stage.values("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert stage.values("COPY") == [f"--from={image}-environment /opt/vramledger /opt/vramledger"]
    runtime = stages()["runtime"]
    assert stage.base == "runtime"
    assert runtime.values("COPY") == []
    assert f"--uid {user.partition(':')[0]} " in runtime.values("RUN")[0]
    assert not stage.values("RUN")


@pytest.mark.parametrize("image", IMAGES)
def test_its_command_is_one_of_ours(image: str) -> None:
    stage = stages()[image]
    assert stage.words("ENTRYPOINT") == ["vramledger"]
    arguments = stage.words("CMD")
    assert arguments[0] == image
    command = cli.get_command(click.Context(cli), image)
    assert command is not None
    command.make_context(image, arguments[1:])
    assert all(port.isdecimal() and int(port) > 1023 for port in stage.values("EXPOSE")[0].split())


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    ignored = CONTAINERFILE.with_name("Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = [line[1:] for line in ignored if line.startswith("!")]
    assert ignored[1] == "*"
    for stage in stages().values():
        for value in stage.values("COPY"):
            if value.startswith("--from="):
                continue
            for name in value.split()[:-1]:
                assert (ROOT / name).exists()
                assert any(Path(name).match(pattern) for pattern in sent), f"{name} is not sent"


@pytest.mark.parametrize("image", IMAGES)
def test_its_lock_has_what_the_extras_need_as_the_tests_have_it(built: Distributions, image: str) -> None:
    locked, tested = pins(image), pins("dev")
    needed = {name for extra in ("", *extras_of(image)) for name in required_by(built.wheel, extra)}
    assert needed <= locked.keys()
    assert {name: item.specifier for name, item in locked.items()} == {
        name: tested[name].specifier for name in locked
    }


@pytest.mark.parametrize("image", IMAGES)
def test_its_command_starts_answers_and_ends_when_told(
    installed: CleanInstall, tmp_path: Path, image: str
) -> None:
    """With what the image's lock has and nothing more, under the image's own command; files and ports are this test's."""
    parts = tmp_path / "parts"
    here = [name for name, item in pins(image).items() if item.marker is None or item.marker.evaluate()]
    link_distributions(here, parts)
    config = tmp_path / "gateway.toml"
    config.write_text(GATEWAY, encoding="utf-8")
    arguments = [
        str(config) if word == "/etc/vramledger/gateway.toml" else word
        for word in stages()[image].words("CMD")
    ]
    more = {"gateway": ["--json"], "ui": ["--port", "0"]}[image]
    with running([str(installed.script), *arguments, *more], tmp_path, parts) as process:
        address = {"gateway": gateway_address, "ui": page_address}[image](process)
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(address, timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not list(tmp_path.glob("vramledger-*")), "what was dropped on the page is still there"


@contextmanager
def running(command: list[str], folder: Path, parts: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(parts),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder),
    }
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def said_until(process: subprocess.Popen[str], pattern: str) -> str:
    """What a process has said once a pattern is in it."""
    path = Path(f"/proc/{process.pid}/cwd").resolve() / "said.txt"
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        text = path.read_text(encoding="utf-8")
        found = re.search(pattern, text)
        if found is not None:
            return found[1]
        assert process.poll() is None, text
        time.sleep(0.05)
    raise AssertionError(f"no {pattern!r} in {path.read_text(encoding='utf-8')!r}")


def gateway_address(process: subprocess.Popen[str]) -> str:
    line = said_until(process, r'(\{[^\n]*"event": ?"admin"[^\n]*\})\n')
    return f"http://127.0.0.1:{json.loads(line)['port']}/healthz"


def page_address(process: subprocess.Popen[str]) -> str:
    return said_until(process, r"(http://\S+)").replace("0.0.0.0", "127.0.0.1")


@pytest.mark.skipif(
    "VRAMLEDGER_NETWORK" not in os.environ, reason="installs from an index: make release-check"
)
@pytest.mark.parametrize("image", IMAGES)
def test_the_steps_of_its_build_are_followed(clone: Path, tmp_path: Path, image: str) -> None:
    """Each RUN of the stages that build, in order, with this machine's paths and Python."""
    venv.create(tmp_path / "python", with_pip=True)
    places = {
        "/opt/vramledger": tmp_path / "opt",
        "/wheels": tmp_path / "wheels",
        "/requirements.txt": tmp_path / "lock.txt",
    }
    shutil.copy(clone / "requirements" / f"{image}.txt", places["/requirements.txt"])
    environment = {**os.environ, "PATH": f"{tmp_path / 'python' / 'bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    for name in ("wheel", f"{image}-environment"):
        for value in stages()[name].values("RUN"):
            step = value
            for there, here in places.items():
                step = step.replace(there, str(here))
            done = subprocess.run(
                ["sh", "-c", step],
                cwd=clone,
                env=environment,
                check=False,
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    script = places["/opt/vramledger"] / "bin" / "vramledger"
    helped = subprocess.run(
        [script, image, "--help"], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert helped.returncode == 0
    size = sum(path.stat().st_size for path in places["/opt/vramledger"].rglob("*") if path.is_file())
    assert size < {"gateway": 150, "ui": 800}[image] * 2**20
