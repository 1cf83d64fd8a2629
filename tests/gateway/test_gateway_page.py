"""The page says what the code does: every setting as it is declared, every code that a client may see."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools.gateway_reference import PAGE, SECTIONS, docstrings, written

import vramledger.gateway
from vramledger.gateway.tenants.request_headers import KEY_HEADERS, WISH_HEADERS

ROOT = Path(vramledger.gateway.__file__).parent
ADMIN_ALONE = {"browser", "bad-host", "bad-token", "unknown-path", "reload-failed", "no-metrics"}
ITSELF = {
    "bad-target",
    "transfer-coding",
    "http-version",
    "request-timeout",
    "too-many-headers",
    "head-too-large",
    "body-too-large",
}
"""Of what is no proper request; the page has their statuses."""


def test_the_reference_is_that_of_the_settings() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "python -m tools.gateway_reference writes it anew"


def test_every_setting_says_what_it_is() -> None:
    for _, kind, _ in SECTIONS:
        fields = {field for field in kind.__struct_fields__ if field not in ("tenants", "upstream")}
        undone = fields - docstrings(kind).keys()
        assert undone <= {
            "admin",
            "salt",
            "policy",
            "tokens",
            "telemetry",
            "shared",
            "envoy",
            "limits",
            "timeouts",
        }


def codes() -> set[str]:
    """Literals that stand in the place of a code in the gateway's own answers."""
    found = set()
    for path in [*ROOT.glob("*.py"), *(ROOT / "tenants").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("error_reply", "_refused"):
                place = node.args[1]
                if isinstance(place, ast.Constant) and isinstance(place.value, str):
                    found.add(place.value)
    return found


def test_every_code_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = codes()
    assert {"path-guarded", "bad-body", "upstream-timeout", "bad-salt"} <= found
    assert {code for code in found - ADMIN_ALONE - ITSELF if f"`{code}`" not in page} == set()


@pytest.mark.parametrize("name", sorted(KEY_HEADERS | WISH_HEADERS))
def test_every_header_that_is_heeded_is_on_the_page(name: bytes) -> None:
    assert f"`{name.decode()}" in PAGE.read_text(encoding="utf-8").lower()
