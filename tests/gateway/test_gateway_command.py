"""The command in a process of its own: it says what it does, changes under open streams, and ends as it is told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.client import Answer, ask, request, until
from gateway.engine import DONE, EVENT_STREAM, WORD, Call, Engine
from gateway.gateway_process import GatewayProcess, admin, gateway_process, write_config
from vramledger.cli import main
from vramledger.cli.event_lines import EventLines
from vramledger.gateway.tenants.keys import new_key, read_key_hash

(KEY_A, HASH_A), (KEY_B, HASH_B) = new_key(), new_key()
PROMPT = "the-secret-prompt"
SECRETS = {
    "ENGINES_KEY": "engines-own-key",
    "SALT": "a-secret-of-salts-of-32-bytes-...",
    "ADMIN": "the-token-of-the-admin",
}


class Held:
    """Answers with a stream that ends when it is told to, other paths at once."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        if "chat" not in call.path:
            await call.whole(b'{"data": []}')
            return
        if b'"stream": true' not in call.body:
            await call.whole()
            return
        await call.write(EVENT_STREAM)
        await call.chunk(WORD)
        told = asyncio.ensure_future(self.go_on.wait())
        left = asyncio.ensure_future(call.left())
        await asyncio.wait((told, left), return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            told.cancel()
            return
        left.cancel()
        await call.chunk(DONE)
        await call.write(b"0\r\n\r\n")


class Stream:
    """An open stream of a client, its first word read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def rest(self) -> bytes:
        async with asyncio.timeout(30):
            return await self.reader.read()


@asynccontextmanager
async def open_stream(port: int, headers: str = "") -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(stream=True, headers=headers + "Connection: close\r\n", prompt=PROMPT))
    async with asyncio.timeout(30):
        await reader.readuntil(WORD)
    try:
        yield Stream(reader, writer)
    finally:
        writer.transport.abort()


def config(port: int, more: str = "") -> str:
    return f"""
drain_s = 30
[policy]
decided_by = "nobody"
[[upstream]]
url = "http://127.0.0.1:{port}"
key_env = "ENGINES_KEY"
engine = "vllm"
[salt]
secret_env = "SALT"
[admin]
token_env = "ADMIN"
[tenants.alice]
keys = ["{HASH_A.line}"]
{more}
"""


def bearer(key: str) -> str:
    return f"Authorization: Bearer {key}\r\n"


def test_a_life_with_tenants_reloads_and_a_drain(tmp_path: Path) -> None:
    async def story() -> tuple[GatewayProcess, list[Answer], str]:
        script = Held()
        answers: list[Answer] = []
        async with Engine(script) as engine:
            file = Path(write_config(tmp_path, config(engine.port)))
            async with gateway_process("--config", str(file), environment=SECRETS) as running:
                port = (await running.event("started"))["port"]
                admin_port = (await running.event("admin"))["port"]
                token = bearer(SECRETS["ADMIN"])
                async with open_stream(port, bearer(KEY_A)) as stream:
                    assert (await ask(port, request(headers=bearer(KEY_B)))).status == 401

                    file.write_text(
                        config(engine.port, f'[tenants.bob]\nkeys = ["{HASH_B.line}"]\nweight = 2')
                    )
                    running.signal(signal.SIGHUP)
                    assert (await running.event("reloaded"))["needs_restart"] == []
                    answers.append(await ask(port, request(headers=bearer(KEY_B), prompt=PROMPT)))
                    assert answers[-1].status == 200

                    file.write_text(config(engine.port, "[tenants.carol]\nwieght = 2"))
                    failed = await admin(admin_port, "/reload", method="POST", headers=token)
                    assert failed.status == 422
                    assert "tenants.carol.wieght" in str(failed.error["message"])
                    await running.event("reload-failed")
                    assert (await ask(port, request(headers=bearer(KEY_B)))).status == 200  # as before

                    other = config(engine.port).replace(
                        "drain_s = 30", 'drain_s = 25\nlisten = "127.0.0.1:1"'
                    )
                    file.write_text(other)
                    done = json.loads((await admin(admin_port, "/reload", method="POST", headers=token)).body)
                    assert done["needs_restart"] == []  # the flag goes before the file
                    assert (await ask(port, request(headers=bearer(KEY_B)))).status == 401

                    state = await admin(admin_port, "/state", headers=token)
                    told = json.loads(state.body)
                    assert [one["name"] for one in told["tenants"]] == ["alice"]
                    assert told["tenants"][0]["keys"] == [HASH_A.id]
                    assert told["tenants"][0]["open"] == told["gateway"]["in_flight"] == 1
                    assert (told["reloads"], told["failed_reloads"]) == (2, 1)
                    assert "cache_salt is set per tenant" in told["cache_salt"]
                    answers += [state, await admin(admin_port, "/metrics", headers=token)]

                    assert (await admin(admin_port, "/readyz")).status == 200
                    running.signal(signal.SIGTERM)
                    assert (await running.event("draining"))["in_flight"] == 1
                    assert (await admin(admin_port, "/readyz")).status == 503
                    with pytest.raises(OSError):
                        await ask(port, request(headers=bearer(KEY_A)))
                    script.go_on.set()
                    rest = await stream.rest()
                    assert DONE in rest
                    assert rest.endswith(b"0\r\n\r\n")
                code, errors = await running.ended()
                assert code == 0, errors
                assert running.events[-1]["event"] == "stopped"
            sent = [call for call in engine.calls if "chat" in call.path]
            assert all(b"authorization: Bearer engines-own-key\r\n" in call.head for call in sent)
            assert len({json.loads(call.body)["cache_salt"] for call in sent}) == 2
            return running, answers, errors

    running, answers, errors = asyncio.run(story())
    said = json.dumps(running.events) + errors + str([(answer.headers, answer.body) for answer in answers])
    hashes = [HASH_A.digest.hex(), HASH_B.digest.hex()]
    for secret in (KEY_A, KEY_B, PROMPT, *hashes, *SECRETS.values()):
        assert secret not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_what_runs(tmp_path: Path, number: int) -> None:
    async def story() -> None:
        async with Engine(Held()) as engine:
            upstream = f"http://127.0.0.1:{engine.port}"
            async with gateway_process(
                "--upstream", upstream, "--policy", "nobody", "--drain", "3600"
            ) as running:
                port = (await running.event("started"))["port"]
                async with open_stream(port) as stream:
                    running.signal(number)
                    await running.event("draining")
                    running.signal(number)
                    assert not (await stream.rest()).endswith(b"0\r\n\r\n")  # cut, and seen to be
                    code, errors = await running.ended()
                    assert (code, errors) == (128 + number, "")
                    assert running.events[-1]["cut_off"] == 1
                await until(lambda: engine.working == 0)

    asyncio.run(story())


def test_the_drains_bound_ends_what_runs() -> None:
    async def story() -> None:
        async with Engine(Held()) as engine:
            upstream = f"127.0.0.1:{engine.port}"
            async with gateway_process(
                "--upstream", upstream, "--policy", "nobody", "--drain", "0.2"
            ) as running:
                port = (await running.event("started"))["port"]
                admin_port = (await running.event("admin"))["port"]
                async with open_stream(port):
                    assert (await admin(admin_port, "/drain", method="POST")).status == 202
                    code, _ = await running.ended()
                    assert code == 143

    asyncio.run(story())


def test_an_engine_that_is_not_there_is_503_and_then_it_is_there() -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine:
            port = engine.port
        async with gateway_process("--upstream", f"http://127.0.0.1:{port}", "--policy", "nobody") as running:
            gateway_port = (await running.event("started"))["port"]
            away = await ask(gateway_port, request())
            assert (away.status, away.error["code"]) == (503, "upstream-unreachable")

    asyncio.run(story())


def test_what_answers_and_is_no_engine_is_not_said_to_be_silent() -> None:
    async def script(call: Call) -> None:
        await call.whole(b"{}", status=b"404 Not Found")

    async def story() -> None:
        async with (
            Engine(script) as engine,
            gateway_process("--upstream", f"http://127.0.0.1:{engine.port}") as running,
        ):
            away = await running.event("engine-away")
            assert "does not say how large its KV pool is" in str(away["message"])
            assert "requests get 503" in str(away["message"])

    asyncio.run(story())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--policy", "nobody"], 2, "no engine is named"),
        (["--upstream", "http://a/v1"], 2, "a path"),
        (["--upstream", "http://u:hunter2@a"], 2, "a user or password"),
        (["--config", "/nowhere/g.toml"], 4, "cannot be read"),
        (["--upstream", "http://a", "--policy", "best"], 2, "policy.reservation"),
        (["--upstream", "http://a", "--admin", "0.0.0.0:0", "--policy", "nobody"], 2, "admin.token_env"),
        (["--upstream", "http://a", "--tls-cert", "/nowhere.pem", "--check"], 2, "certificate"),
        (["--upstream", "http://a", "--upstream-key-env", "NOT_THERE", "--check"], 2, "NOT_THERE"),
        (["--upstream", "http://a", "--listen", "127.0.0.1:70000"], 2, "HOST:PORT"),
    ],
)
def test_wrong_input(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str) -> None:
    assert main(["gateway", "--listen", "127.0.0.1:0", *arguments]) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert "hunter2" not in captured.err + captured.out
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("flags", [["--policy", "risk"], ["--goal", "deadlines"], ["--admin", "127.0.0.1:0"]])
def test_a_flag_for_what_is_no_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: list[str]
) -> None:
    file = write_config(tmp_path, "policy = 3\nadmin = 'x'\n")
    assert main(["gateway", "--config", file, "--check", *flags]) == 2
    assert "is no table" in capsys.readouterr().err


def test_a_configuration_is_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write_config(
        tmp_path, f'[[upstream]]\nurl = "http://a:1"\n[tenants.t]\nkeys = ["{HASH_A.line}"]\n'
    )
    assert main(["gateway", "--config", file, "--check"]) == 0
    assert "in order: http://a:1; 1 tenant\n" in capsys.readouterr().out
    assert main(["gateway", "--config", file, "--check", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (told["event"], told["upstreams"], told["tenants"]) == ("checked", 1, 1)


def test_a_new_key_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway-key", "alice"]) == 0
    page = capsys.readouterr().out
    assert page.count("vl_") == 1
    assert "[tenants.alice]" in page
    assert main(["gateway-key", "a.b", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert read_key_hash(told["hash"]).id == told["key"].split("_")[1]
    assert main(["gateway-key", "not a name"]) == 2


def test_without_its_parser_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "httptools.py").write_text("raise ImportError")
    found = subprocess.run(
        [sys.executable, "-m", "vramledger", "gateway", "--upstream", "http://a"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', 'src')}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 2
    assert "pip install 'vramledger[gateway]'" in found.stderr


@pytest.mark.parametrize("as_json", [True, False])
def test_of_an_exception_its_kind_and_place_are_told_and_not_its_text(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    lines = EventLines(as_json=as_json)
    with lines.logging():
        for name in ("vramledger.gateway.desk", "asyncio"):
            try:
                raise ValueError(PROMPT)
            except ValueError:
                logging.getLogger(name).exception("the admission policy failed on request %d", 7)
    said = capsys.readouterr()
    assert PROMPT not in said.out + said.err
    assert said.out.count("the admission policy failed on request 7 (ValueError at ") == 2
    lines.say("event", "one \x1b[31m line\nand no more")
    assert capsys.readouterr().out.count("\n") == 1
