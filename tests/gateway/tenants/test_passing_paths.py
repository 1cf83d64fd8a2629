"""Which paths pass: models and counting for all, control of the engine for nobody unless somebody says so."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.gateway.request_facts import PATHS, kind_of
from vramledger.gateway.tenants.paths import CONTROL, UNPRICED, Unpriced, is_open, read_allowed, refusal_of


def code(
    method: bytes, target: bytes, *allowed: str, unpriced: Unpriced = Unpriced.REFUSE, apart: bool = True
) -> str:
    reply = refusal_of(method, target, [*map(read_allowed, allowed)], unpriced=unpriced, tenants_apart=apart)
    if reply is None:
        return "passes"
    assert 400 <= reply.status < 500
    return str(json.loads(reply.body)["error"]["code"])


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"GET", b"/v1/models"),
        (b"GET", b"/models?x=1"),
        (b"GET", b"/v1/models/org/name"),
        (b"HEAD", b"/health"),
        (b"POST", b"/tokenize"),
        (b"POST", b"/v1/messages/count_tokens"),
        (b"GET", b"/v1/chat/completions"),
        (b"GET", b"/"),
    ],
)
def test_passes(method: bytes, target: bytes) -> None:
    assert code(method, target) == "passes"


@pytest.mark.parametrize("path", sorted(CONTROL))
@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"DELETE"])
def test_control_of_the_engine_is_guarded(path: str, method: bytes) -> None:
    target = "/" + path.replace("*", "3")
    assert code(method, target.encode()) == code(method, b"/v1//" + target.encode()) == "path-guarded"
    assert code(method, target.encode(), target) == "passes"
    escaped = "/" + "".join(f"%{byte:02x}" if chr(byte) != "/" else "/" for byte in target[1:].encode())
    assert code(method, escaped.encode()) == "path-guarded"


@pytest.mark.parametrize("path", sorted(UNPRICED))
def test_what_holds_memory_without_a_price_is_refused_or_passes_by_a_setting(path: str) -> None:
    target = ("/" + path.replace("*", "3")).encode()
    assert code(b"POST", target) == "path-unpriced"
    assert code(b"POST", target, unpriced=Unpriced.PASS) == "passes"


@pytest.mark.parametrize(
    ("method", "target", "why"),
    [
        (b"DELETE", b"/v1/chat/completions", "method-not-allowed"),
        (b"POST", b"/v1/models", "path-unknown"),
        (b"GET", b"/v1/./models", "bad-path"),
        (b"GET", b"/models/..%252fmetrics", "bad-path"),
        (b"GET", b"/models/%25252e%25252e%25252fmetrics", "bad-path"),
        (b"GET", b"/models/..%5c..%5cslots", "bad-path"),
        (b"POST", b"/x/%2e%2e/v1/chat/completions", "bad-path"),
        (b"GET", b"/metrics/", "path-guarded"),
        (b"GET", b"/v1/responses/resp_1", "path-guarded"),
        (b"POST", b"/v1/responses/resp_1/cancel", "path-guarded"),
        (b"GET", b"/docs", "path-unknown"),
        (b"GET", b"/\xff", "path-unknown"),
        (b"OPTIONS", b"*", "path-unknown"),
    ],
)
def test_does_not_pass(method: bytes, target: bytes, why: str) -> None:
    assert code(method, target) == why


def test_a_single_tenant_may_have_its_stored_answers() -> None:
    assert code(b"GET", b"/v1/responses/resp_1", apart=False) == "passes"


def test_allowed_paths_by_method_and_beneath() -> None:
    assert code(b"GET", b"/metrics", "GET /metrics") == "passes"
    assert code(b"POST", b"/metrics", "GET /metrics") == "path-guarded"
    assert code(b"POST", b"/my/own/thing", "/my/*") == "passes"
    assert code(b"POST", b"/my", "/my/*") == "path-unknown"
    for bad in ("metrics", "FETCH /metrics", "/a/../b", "/*x/*", ""):
        with pytest.raises(InputError, match="METHOD /PATH"):
            read_allowed(bad)


def test_probes_need_no_key() -> None:
    assert is_open(b"GET", b"/health")
    assert is_open(b"GET", b"/v1/health")
    assert not is_open(b"POST", b"/health")
    assert not is_open(b"GET", b"/v1/models")


@given(
    st.sampled_from(sorted(PATHS)), st.lists(st.sampled_from(["slash", "escape", "query", "v1"]), max_size=3)
)
def test_no_spelling_of_a_priced_path_passes_unpriced(path: bytes, spellings: list[str]) -> None:
    target = path
    for spelling in spellings:
        if spelling == "slash":
            target = target.replace(b"/", b"//", 1)
        elif spelling == "escape":
            target = (
                target[:-1] + b"%%%02x" % target[-1]
                if not target.endswith(b"?q") and b"%" not in target[-3:]
                else target
            )
        elif spelling == "v1" and b"v1" not in target:
            target = b"/v1" + target
        elif spelling == "query" and b"?" not in target:
            target += b"?q"
    priced = kind_of(b"POST", target) is not None
    assert priced or code(b"POST", target) != "passes"
