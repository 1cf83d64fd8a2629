"""What a request passes between its client and the policy, and who is told when it is over. A gateway runs without any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from vramledger.gateway.admitter import Ending, Kind, PromptTokens, RequestFacts
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.replies import Reply

Asked = Mapping[str, object]
"""The JSON object that a priced request brings."""


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is, by the key that it brought, and what goes for all of theirs."""

    tenant: int = 0
    name: str = ""
    priority: int = 0
    first_token_within_ms: int | None = None
    within_ms: int | None = None


class Doorkeeper(Protocol):
    """Knows tenants by their keys, and which paths may pass. Never waits."""

    def visitor(self, head: RequestHead, kind: Kind | None) -> Visitor | Reply:
        """Who is there, or the answer to one that may not come in. `kind` is None for what passes unpriced."""

    def outgoing(
        self, visitor: Visitor, head: RequestHead, kind: Kind | None, body: bytes, asked: Asked | None
    ) -> tuple[RequestHead, bytes] | Reply:
        """What the engine is sent: without the tenant's key, and with what keeps tenants apart; or the answer to what may not be asked.
        `asked` is None for what is not priced."""


class PromptCounter(Protocol):
    """Counts prompts, and learns from what the engine reports."""

    async def count(self, asked: Asked, facts: RequestFacts) -> PromptTokens | None:
        """None where it cannot tell; what the client counted itself comes back with its keys. Raises nothing; a slow engine is not waited
        for longer than it is worth."""

    def learn(self, facts: RequestFacts, ending: Ending) -> None:
        """A request ended, and its engine said how many tokens its prompt had, or did not."""
