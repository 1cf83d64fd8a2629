"""A gateway's books as samples: what its admin port says at /state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramledger.errors import SourceError
from vramledger.evidence import measured
from vramledger.measurement import MeasuredPool
from vramledger.observation import Sample
from vramledger.pool import IntRange
from vramledger.telemetry.web import LIMIT_S, checked_url, fetch_body

LIMIT_BYTES = 8 << 20
MOST_INSTANCES = 256
MOST_VALUE = 2**60
_NEVER_GIVEN = {"vllm": 1}
"""Blocks of a pool that no request gets, which a gateway leaves out: vLLM's null block (v1/core/block_pool.py)."""
_OF_ALL = {
    "admitted": "gateway_admitted_requests",
    "in_flight": "gateway_in_flight_requests",
    "held_body_bytes": "gateway_held_body_bytes",
}
_OF_AN_INSTANCE = {
    "reserved_blocks": "gateway_reserved_blocks",
    "booked_blocks": "gateway_booked_blocks",
    "limit_blocks": "gateway_limit_blocks",
    "foreign_blocks": "gateway_foreign_blocks",
    "used_blocks": "kv_used_blocks",
    "total_blocks": "kv_pool_blocks",
}
_OF_THE_COUNTERS = {
    "rejected": "total_gateway_rejected_requests",
    "never_fit": "total_gateway_never_fit_requests",
    "upstream_failures": "total_gateway_upstream_failed_requests",
    "engine_ran_out": "total_gateway_ran_out_requests",
    "clients_left": "total_gateway_left_requests",
}


class GatewayProbe:
    """The admin port of a `vramledger gateway` as a source of samples; those of one engine bear its name as their label."""

    def __init__(self, url: str, *, token: str | None = None, limit_s: float = LIMIT_S) -> None:
        self._url = checked_url(url)
        self._token = token
        self._limit_s = limit_s
        self.name = f"gateway:{self._url}"

    def read(self, at_s: float) -> list[Sample]:
        """Raises SourceError where it does not answer, or not as a gateway does."""
        state = gateway_answer(self._url, token=self._token, limit_s=self._limit_s)
        return list(gateway_samples(state, at_s=at_s, source=self.name))


def gateway_answer(url: str, *, token: str | None = None, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """What a gateway says at its admin address's /state. Raises SourceError where it does not answer, or not as one."""
    body = fetch_body(f"{checked_url(url)}/state", token=token, limit_s=limit_s, limit_bytes=LIMIT_BYTES)
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("gateway"), dict):
        raise SourceError(
            f"{url} does not answer as the admin port of a vramledger gateway does; --gateway takes that address",
            source=url,
        )
    return found


def gateway_requests(url: str, *, token: str | None = None, limit_s: float = LIMIT_S) -> list[Any]:
    """The newest requests at a gateway and what was decided of each, as its admin address's /requests says. Raises SourceError where it does
    not answer, or not so."""
    body = fetch_body(f"{checked_url(url)}/requests", token=token, limit_s=limit_s, limit_bytes=LIMIT_BYTES)
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        found = None
    listed = found.get("requests") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise SourceError(f"{url}/requests does not tell of requests", source=url)
    return listed


def engine_addresses(state: Mapping[str, Any]) -> tuple[str, ...]:
    """The engines behind a gateway, by the names it gives them: addresses where nobody gave them others."""
    return tuple(str(one.get("name", ""))[:500] for one in _instances(state))


def pool_of(state: Mapping[str, Any], source: str, *, name: str | None = None) -> MeasuredPool | None:
    """The pool of the engine that the gateway calls `name`, of its only one without; None where it does not know that, or only supposes it
    (llama.cpp, whose server does not say whether its slots share it)."""
    instances = [one for one in _instances(state) if name is None or one.get("name") == name]
    if len(instances) != 1 or instances[0].get("engine") == "llamacpp":
        return None
    blocks, size = (_count(instances[0].get(key)) for key in ("total_blocks", "block_size"))
    if blocks is None or size is None:
        return None
    tokens = (blocks + _NEVER_GIVEN.get(str(instances[0].get("engine")), 0)) * size
    return MeasuredPool(
        evidence=measured(f"{source}/state, by the engine's word to the gateway"),
        block_size=size,
        tokens=IntRange(tokens, tokens, tokens),
    )


def _count(value: object) -> int | None:
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST_VALUE else None
    )


def gateway_samples(state: Mapping[str, Any], *, at_s: float, source: str) -> Iterator[Sample]:
    """What an answer tells; what is no number is left out."""

    def told(values: Any, names: Mapping[str, str], label: str = "") -> Iterator[Sample]:
        for key, name in names.items():
            value = values.get(key) if isinstance(values, dict) else None
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_VALUE:
                yield Sample(at_s=at_s, source=source, name=name, value=value, label=label)

    gateway = state.get("gateway")
    yield from told(gateway, _OF_ALL)
    yield from told(
        gateway.get("queue") if isinstance(gateway, dict) else None, {"requests": "gateway_waiting_requests"}
    )
    yield from told(state.get("counters"), _OF_THE_COUNTERS)
    for one in _instances(state):
        yield from told(one, _OF_AN_INSTANCE, str(one.get("name", ""))[:500])


def _instances(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    gateway = state.get("gateway")
    found = gateway.get("instances") if isinstance(gateway, dict) else None
    listed = found if isinstance(found, list) else []
    return [one for one in listed[:MOST_INSTANCES] if isinstance(one, dict)]
