"""Which engine's endpoint Envoy is told, by the policy's instance: the endpoint picker protocol of the Gateway API Inference Extension. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.gateway.admitter import Decision, Verdict
from vramledger.gateway.envoy.messages import HeaderChange
from vramledger.gateway.messages import RequestHead

PICKED = "x-gateway-destination-endpoint"
"""Header, and key in the dynamic metadata `envoy.lb`, that name the chosen endpoint (proposal 004 of the extension)."""
SUBSET_SPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
_HEADER = PICKED.encode()


def pick(
    endpoints: Sequence[str], decision: Decision, subset: tuple[str, ...] | None
) -> str | Decision | None:
    """The endpoint of the instance that the policy chose; None without `endpoints`. A gateway that names the eligible ones (`subset`)
    gets one of them or, as the protocol has it, 503."""
    if not endpoints:
        return None
    if 0 <= decision.instance < len(endpoints):
        endpoint = endpoints[decision.instance]
        if subset is None or endpoint in subset:
            return endpoint
    return Decision(
        verdict=Verdict.UNAVAILABLE,
        rule="endpoint-not-eligible",
        message="the engine that the policy chose is not among those that may serve the request",
        retry_after_ms=1000,
    )


def with_pick(change: HeaderChange, picked: str | None, head: RequestHead) -> HeaderChange:
    """The change that also names the endpoint, in the place of whatever a client said; its client does not choose its engine."""
    put = [pair for pair in change.put if pair[0] != _HEADER]
    if picked is not None:
        return HeaderChange(put=[*put, (_HEADER, picked.encode())], remove=change.remove)
    if any(name == _HEADER for name, _ in head.headers):
        return HeaderChange(put=put, remove=tuple(dict.fromkeys((*change.remove, _HEADER))))
    return HeaderChange(put=put, remove=change.remove)
