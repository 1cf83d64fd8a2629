"""Tab Live before llama.cpp's own server and a real gateway: blocks fall while a request runs, decisions come with their reasons, an engine
that ends is told, and only what may be looked at is."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from llamacpp_server import llamacpp_server, needs_llamacpp
from small_models import served_model_file
from vramledger.telemetry.engine_process import free_port
from vramledger.telemetry.probes.listener import listening_pid
from web_page import SHOTS, WAIT_MS, Page, Ui, printed, serving

CELLS = 1024
SERVED = ("-c", str(CELLS), "-np", "2", "--kv-unified", "--metrics", "--slots", "--props", "-lv", "4")
pytestmark = [needs_llamacpp, pytest.mark.timeout(600)]


class Running(NamedTuple):
    """The page before a running engine and its gateway."""

    ui: Ui
    engine: int
    gateway: int


@contextmanager
def gateway_before(engine: int) -> Iterator[dict[str, int]]:
    """Its ports, once it knows the engine."""
    command = [
        sys.executable, "-m", "vramledger", "gateway", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
        "--upstream", f"http://127.0.0.1:{engine}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            ports = {}
            assert process.stdout is not None
            for line in process.stdout:
                said = json.loads(line)
                if said["event"] in ("started", "admin"):
                    ports[said["event"]] = said["port"]
                if said["event"] == "engine-up":
                    break
            yield ports
        finally:
            process.kill()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("live")
    with llamacpp_server(folder, *SERVED) as engine, gateway_before(engine) as ports:
        pid = listening_pid("127.0.0.1", engine)
        options = [
            f"--engine=http://127.0.0.1:{engine}",
            f"--gateway=http://127.0.0.1:{ports['admin']}",
            f"--log={folder / 'server.log'}",
        ]
        with serving(folder, *options, *([f"--pid={pid}"] if pid is not None else [])) as ui:
            yield Running(ui=ui, engine=engine, gateway=ports["started"])


def asked(port: int, tokens: int, words: int = 1) -> threading.Thread:
    """A request that is answered with so many tokens, on its way."""

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        body = {
            "messages": [{"role": "user", "content": "word " * words}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"}
        )
        connection.getresponse().read()
        connection.close()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def fact(page: Page, name: str) -> str:
    return str(page.here.inner_text(f".facts.live div:has(dt:text-is('{name}')) .value")).strip()


def opened(browser: Any, ui: Ui, **how: Any) -> Any:
    return Page.opened(browser, ui.address, shots=SHOTS, **how)


ROW = "(said) => [...document.querySelectorAll('.decisions tbody tr')].some((row) => said.every((each) => row.innerText.includes(each)))"
FREE = "Number(document.querySelector('.facts.live .value').innerText.replace(/,/g, ''))"


def test_blocks_fall_while_a_request_runs_and_its_decision_is_there(browser: Any, running: Running) -> None:
    with opened(browser, running.ui) as page:
        page.tab("live").here.wait_for_selector(".facts.live")
        command = page.command()
        assert command.startswith("vramledger watch --url http://127.0.0.1:")
        told = printed(f"{command} --looks 1")
        assert told["engine"]["total_blocks"] == CELLS
        assert f"of {CELLS:,} tokens" in page.says(".facts.live")
        assert told["engine"]["model"].rsplit("/", 1)[-1] in page.says(".live-state")
        free = int(fact(page, "KV free").replace(",", ""))
        request = asked(running.gateway, 300)
        page.waits_for(ROW, ["running", "admit, fits: needs", "+ at most 300"])
        page.waits_for(f"(free) => {FREE} < free - 50", free)
        assert fact(page, "Running") == "1"
        page.shot("live-running")
        request.join(300)
        page.waits_for(ROW, ["completed", "+ 300"])
        page.waits_for(f"(free) => {FREE} === free", CELLS)
        asked(running.gateway, 8, words=4000).join(60)
        page.waits_for(ROW, ["never-fits", f"the model takes {CELLS:,}"])
        assert (
            page.here.locator(".chart [role=img]").nth(0).get_attribute("aria-label").startswith("KV pool: ")
        )


def test_what_was_measured_is_set_against_a_plan(browser: Any, running: Running, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    ask = [
        f"{served_model_file()}",
        "--engine=llamacpp",
        "-d",
        "custom:8GiB",
        "-c",
        str(CELLS),
        "--parallel=2",
        "--kv-unified",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "vramledger", "plan", *ask, "--json"],
        capture_output=True,
        check=True,
        timeout=120,
    )
    plan.write_bytes(done.stdout)
    with opened(browser, running.ui) as page:
        page.tab("live").here.wait_for_selector(".owners")
        commands = page.here.locator("section.command code").all_inner_texts()
        measure = next(line for line in commands if line.startswith("vramledger measure "))
        measured = printed(measure)
        shown = page.here.locator("table:has(.owners) tbody tr").count()
        assert shown == len(measured["figures"]) + len(measured["pools"])
        page.here.set_input_files("input[type=file]", str(plan))
        page.here.wait_for_selector(".reconciliation")
        # The same by hand: the document that the page was given, and the command that it shows.
        (tmp_path / "measurement.json").write_text(json.dumps(measured))
        shown_line = next(
            line
            for line in page.here.locator("section.command code").all_inner_texts()
            if "reconcile" in line
        )
        found = printed(shown_line, folder=tmp_path)
        tone = {"inside": "good", "outside": "bad", "untold": "unsure"}[found["standing"]]
        assert page.here.get_attribute(".reconciliation .verdict", "class") == f"verdict {tone}"
        (tokens,) = [line for line in found["lines"] if line["unit"] == "tokens"]
        assert (tokens["predicted"]["expected"], tokens["measured"]["expected"]) == (CELLS, CELLS)
        (row,) = page.here.locator(".reconciliation tr:has(th:text-is('tokens'))").all_inner_texts()
        assert row.count(f"{CELLS:,}") >= 2


def test_a_plan_kept_in_its_tab_can_be_chosen_and_looks_go_on_meanwhile(
    browser: Any, running: Running
) -> None:
    with opened(browser, running.ui) as page:
        page.tab("live").here.wait_for_selector(".facts.live")
        before = page.here.locator("details.numbers table tbody tr").count()
        page.tab("plan").here.click("button:text-is('Keep for Compare')")
        page.tab("live").here.wait_for_selector(".facts.live")
        page.waits_for(
            "(before) => document.querySelectorAll('details.numbers table tbody tr').length > before", before
        )
        page.here.locator("fieldset select").select_option(index=1)
        page.here.wait_for_selector(".reconciliation")
        # A plan of another engine and model: that these differ is what explains the rest.
        shown = page.says(".reconciliation")
        assert "engine\tvllm\tllamacpp" in shown
        assert page.here.get_attribute(".reconciliation .verdict", "class") == "verdict bad"


def test_an_engine_that_ends_is_told_and_what_it_told_last_stays(
    browser: Any, ui: Ui, tmp_path: Path
) -> None:
    """Named in the page: of this machine, where the page is for this machine alone."""
    with opened(browser, ui) as page:
        page.tab("live")
        with llamacpp_server(tmp_path, *SERVED) as port:
            page.here.fill("input[placeholder='http://127.0.0.1:8000']", f"http://127.0.0.1:{port}")
            page.here.click("button[type=submit]")
            page.here.wait_for_selector(".live-state .chip.good")
            assert "An engine does not tell why" in page.says(".shown")
        page.here.wait_for_selector(".live-state .chip.bad")
        assert "As last told at" in page.says(".shown")
        assert fact(page, "KV free") == f"{CELLS:,}"
        said = page.says(".live-state")
        assert (
            "does not answer" in said
            and f"127.0.0.1:{port}" in said
            and re.search(r"since \d\d:\d\d:\d\d", said)
        )
        page.shot("live-ended")
        page.here.click("button:text-is('Stop')")
        page.waits_for("() => document.querySelector('.live-state').innerText.includes('stopped')")


def test_the_picture_can_be_held_still(browser: Any, running: Running) -> None:
    with opened(browser, running.ui) as page:
        page.tab("live").here.wait_for_selector(".facts.live")
        page.here.click("button:text-is('Pause the picture')")
        held = page.says(".live-state")
        assert "picture paused" in held
        page.here.wait_for_timeout(2_500)
        assert page.says(".live-state") == held
        page.here.click("button:text-is('Go on')")
        page.waits_for(
            "(held) => document.querySelector('.live-state').innerText !== held && !document.querySelector('.live-state').innerText.includes('paused')",
            held,
        )


@pytest.mark.parametrize(
    "address",
    [
        "http://192.0.2.7:8000",
        "http://localhost.example:80",
        "http://127.0.0.1:8000/metrics?x=1",
        "ftp://127.0.0.1",
    ],
)
def test_what_may_not_be_looked_at_is_refused_with_the_reason(page: Page, address: str) -> None:
    page.tab("live").here.fill("input[placeholder='http://127.0.0.1:8099']", address)
    page.here.click("button[type=submit]")
    page.here.wait_for_selector("[role=alert]")
    said = page.says("[role=alert]")
    assert address.split("?", maxsplit=1)[0] in said
    assert "vramledger ui --gateway" in said or "http://HOST:PORT" in said or "is not an address" in said


def test_a_shared_address_makes_nobody_look(browser: Any, ui: Ui) -> None:
    """Who follows a link has its form filled, and decides."""
    with opened(browser, ui) as page:
        page.tab("live").here.fill(
            "input[placeholder='http://127.0.0.1:8000']", f"http://127.0.0.1:{free_port()}"
        )
        page.waits_for("() => location.hash.startsWith('#live/')")
        address = page.here.evaluate("location.href")
    with opened(browser, ui) as page:
        page.here.goto(address)
        page.here.wait_for_selector("h2:text-is('Nothing is looked at yet')")
        assert page.here.input_value("input[placeholder='http://127.0.0.1:8000']").startswith(
            "http://127.0.0.1:"
        )
        assert [url for url in page.asked if "/api/live/" in url] == []


@pytest.mark.parametrize(("width", "scheme", "language"), [(1280, "light", "en-US"), (390, "dark", "ko-KR")])
def test_it_is_there_for_everyone(
    browser: Any, running: Running, width: int, scheme: str, language: str
) -> None:
    with opened(browser, running.ui, width=width, scheme=scheme, language=language) as page:
        asked(running.gateway, 60)
        page.tab("live").here.wait_for_selector(".decisions tbody tr", timeout=WAIT_MS)
        page.here.wait_for_selector(".owners")
        page.shot(f"live-{width}-{scheme}-running")
        assert page.broken_rules() == []
        assert page.overflow_px() <= 0
