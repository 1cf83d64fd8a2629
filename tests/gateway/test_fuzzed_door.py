"""Hostile HTTP and JSON at the whole door (tools.gateway_fuzz does more of it, for longer): answers are the engine's or 4xx, the engine
sees what was let through and nothing else, and nothing is held afterwards."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest
from tools.gateway_fuzz.answers import OWN_STATUS, engine_problems, guarded_word
from tools.gateway_fuzz.attack import Attack
from tools.gateway_fuzz.bodies import CANARY
from tools.gateway_fuzz.engines import ENGINES, RecordingEngine
from tools.gateway_fuzz.messages import conversation

from gateway.client import until
from vramledger.gateway.assembly import assembled
from vramledger.gateway.config import read_config
from vramledger.gateway.service import GatewayService
from vramledger.gateway.tenants.keys import new_key

KEYS = [new_key(), new_key()]
CONVERSATIONS = 300


def config(port: int, engine: str) -> str:
    return f"""
listen = "127.0.0.1:0"
[[upstream]]
url = "http://127.0.0.1:{port}"
engine = "{engine}"
pool_tokens = 65536
max_model_len = 4096
max_running = 64
[admin]
listen = ""
[timeouts]
head_ms = 300
body_ms = 300
idle_ms = 300
[tenants.a]
keys = ["{KEYS[0][1].line}"]
[tenants.b]
keys = ["{KEYS[1][1].line}"]
"""


async def attacked(engine: RecordingEngine, reader: str, seed: int) -> tuple[Attack, GatewayService]:
    read = read_config(config(engine.port, reader).encode(), "g.toml")
    service = await assembled(read, reread=lambda: read, told=lambda *_: None)
    await service.start()
    try:
        await until(lambda: all(one.is_up for one in service.engines.instances()))
        attack = Attack(service.gateway.port, engine.seen, seed=seed, keys=[key for key, _ in KEYS])
        await attack.run(clients=12, go_on=lambda case: case < CONVERSATIONS)
        await until(lambda: not service.gateway.connections)
        held = service.gateway.held.bytes, service.gateway.desk.admitted, service.gateway.desk.waiting
        assert (*held, service.gateway.in_flight) == (0, 0, 0, 0)
        for instance in service.engines.instances():
            assert (instance.admitted_requests, instance.booked_blocks, instance.reserved_blocks) == (0, 0, 0)
        return attack, service
    finally:
        await service.close()


@pytest.mark.parametrize(("parser", "reader", "seed"), [("h11", "vllm", 1), ("http.server", "llamacpp", 2)])
def test_nothing_hostile_breaks_the_door(
    parser: str, reader: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="vramledger")
    with ENGINES[parser]() as engine:
        attack, service = asyncio.run(attacked(engine, reader, seed))
    assert attack.problems == []
    assert engine_problems(engine.seen, f"127.0.0.1:{engine.port}") == []
    assert engine.problems == []
    assert max(attack.delivered.values()) == 1
    assert attack.told.keys() <= OWN_STATUS | {200}
    assert attack.told[200] > CONVERSATIONS // 4
    assert attack.told[400] > CONVERSATIONS // 4
    counters = service.gateway.counters
    assert (counters.policy_failures, counters.upstream_failures) == (0, 0)
    assert [record.getMessage() for record in caplog.records] == []


def test_a_case_is_made_anew_by_its_seed() -> None:
    keys = [key for key, _ in KEYS]
    assert conversation(Random("7/3"), keys) == conversation(Random("7/3"), keys)
    assert any(CANARY.encode() in b"".join(conversation(Random(f"7/{case}"), keys)) for case in range(9))


@pytest.mark.parametrize(
    "target",
    [
        "/metrics",
        "/v1//metrics",
        "/%6Detrics",
        "/a/../slots",
        "/models/..%252fslots",
        "/models\\..\\slots",
        "/SLOTS;a=b",
        "/state?x",
    ],
)
def test_the_oracle_knows_a_guarded_path_by_any_spelling(target: str) -> None:
    assert guarded_word(target) is not None
