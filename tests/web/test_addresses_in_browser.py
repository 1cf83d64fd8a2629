"""Addresses that an attacker made: whoever opens one sees the page, and nothing else happens."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from web_page import SHOTS, Page, Ui

pytestmark = pytest.mark.timeout(600)
HOSTILE = "<img src=x onerror=document.title='taken'>"
UNREADABLE = {"toString": 1, "valueOf": 1}


def packed(data: bytes) -> str:
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.urlsafe_b64encode(press.compress(data) + press.flush()).decode().rstrip("=")


def opens(page: Page, fragment: str) -> None:
    page.here.goto("about:blank")
    page.here.goto(f"{page.address}/#{fragment}")
    page.here.wait_for_selector("main form.controls")
    assert page.here.evaluate("[document.title.includes('taken'), ({}).taken ?? null]") == [False, None]


@pytest.mark.parametrize("tab", ["constructor", "__proto__", "toString", HOSTILE, "%00", ""])
def test_a_tab_that_is_none_is_the_first(page: Page, tab: str) -> None:
    opens(page, tab)
    assert page.here.get_attribute("nav [aria-current]", "href") == "#plan"


def test_an_address_that_unpacks_to_much_is_not_unpacked(browser: Any, ui: Ui) -> None:
    """A megabyte of it would fill a gigabyte of the browser."""
    with Page.opened(browser, ui.address, shots=SHOTS) as page:
        page.here.add_init_script(
            """(() => {
                window.unpacked = 0;
                const Whole = TransformStream;
                const own = DecompressionStream;
                window.DecompressionStream = function (kind) {
                    const count = new Whole({ transform(piece, out) { window.unpacked += piece.byteLength; out.enqueue(piece); } });
                    const real = new own(kind);
                    return { writable: real.writable, readable: real.readable.pipeThrough(count) };
                };
            })()"""
        )
        opens(page, f"plan/{packed(b' ' * 2**28)}")
        page.here.wait_for_selector(".verdict")
        assert 1_000_000 < page.here.evaluate("window.unpacked") < 2**25


@pytest.mark.parametrize(
    ("tab", "state"),
    [
        ("plan", {"source": "builtin:Llama-3.1-8B-Instruct", "names": [UNREADABLE]}),
        ("plan", {"source": "builtin:Llama-3.1-8B-Instruct", "device": HOSTILE}),
        ("compare", {"way": "__proto__"}),
        ("compare", {"way": "constructor"}),
        ("capacity", {"what": "__proto__"}),
        ("capacity", {"what": "constructor"}),
        ("diagnose", {"part": "__proto__"}),
        ("diagnose", {"part": "constructor", "set": 5, "request": [], "engine": UNREADABLE}),
        ("diagnose", {"model": UNREADABLE, "device": HOSTILE, "set": ["a=b"]}),
        ("live", None),
    ],
)
def test_a_state_of_other_kinds_shows_the_tab(page: Page, tab: str, state: object) -> None:
    opens(page, f"{tab}/{packed(json.dumps(state).encode())}")
    assert page.here.get_attribute("nav [aria-current]", "href") == f"#{tab}"
