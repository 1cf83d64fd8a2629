"""A gateway's books as samples, and which process listens on a port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.http_server import files, serving
from vramledger.errors import SourceError
from vramledger.gateway.snapshot import GatewayState, InstanceState, QueueState
from vramledger.telemetry.probes.gateway import GatewayProbe, engine_addresses, gateway_samples
from vramledger.telemetry.probes.listener import listening_pid

STATE = {
    "gateway": msgspec.to_builtins(
        GatewayState(
            admitted=3,
            in_flight=2,
            queue=QueueState(requests=4),
            instances=(
                InstanceState(
                    name="http://127.0.0.1:8000", used_blocks=5, reserved_blocks=9, total_blocks=64
                ),
                InstanceState(name="http://127.0.0.1:8001", reserved_blocks=1),
            ),
        )
    ),
    "counters": {"rejected": 7},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["gateway", "instances", "queue", "counters", "name", "admitted", "used_blocks", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_what_is_held_is_told_by_gateway_and_by_engine() -> None:
    with serving(files({"/state": msgspec.json.encode(STATE)})) as url:
        samples = GatewayProbe(url).read(9.0)
    found = {(sample.name, sample.label): sample.value for sample in samples}
    first, second = "http://127.0.0.1:8000", "http://127.0.0.1:8001"
    assert found[("gateway_admitted_requests", "")] == 3
    assert found[("gateway_waiting_requests", "")] == 4
    assert found[("gateway_reserved_blocks", first)] == 9
    assert found[("gateway_reserved_blocks", second)] == 1
    assert found[("kv_used_blocks", first)] == 5
    # What the gateway does not know of its second engine is not told as 0.
    assert ("kv_used_blocks", second) not in found
    assert found[("total_gateway_rejected_requests", "")] == 7
    assert {sample.at_s for sample in samples} == {9.0}
    assert engine_addresses(msgspec.json.decode(msgspec.json.encode(STATE))) == (first, second)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"gateway":1}', b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_gateway_is_named(body: bytes) -> None:
    with serving(files({"/state": body})) as url, pytest.raises(SourceError, match="admin port"):
        GatewayProbe(url).read(0.0)


@given(JSON)
def test_whatever_is_answered_gives_numbers_or_nothing(answer: object) -> None:
    state = answer if isinstance(answer, dict) else {"gateway": answer}
    for sample in gateway_samples(state, at_s=0.0, source="s"):
        assert isinstance(sample.value, int | float)
    engine_addresses(state)


needs_proc = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc/net/tcp")


@needs_proc
def test_who_listens_is_found_and_who_does_not_is_not() -> None:
    script = (
        "import socket,sys\ns=socket.create_server(('127.0.0.1',0))\n"
        "print(s.getsockname()[1],flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        port = int(server.stdout.readline())
        try:
            assert listening_pid("127.0.0.1", port) == server.pid
            assert listening_pid("localhost", port) == server.pid
            # A client of that port, which is not its listener.
            with socket.create_connection(("127.0.0.1", port)) as client:
                assert listening_pid("127.0.0.1", client.getsockname()[1]) is None
            # An address that is none of this machine's (TEST-NET-3).
            assert listening_pid("203.0.113.1", port) is None
        finally:
            server.stdin.close()
    assert listening_pid("127.0.0.1", port) is None


@needs_proc
def test_a_listener_of_ipv6_is_found_too() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        assert listening_pid("::1", listener.getsockname()[1]) == os.getpid()
