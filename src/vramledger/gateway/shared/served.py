"""Tokens that tenants were let in with at an instance, told between its gateways, so that each is fair by what all of them gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from vramledger.errors import SourceError, shorter

SCRIPT = Path(__file__).with_name("served.lua")
MOST_TOKENS = 2**53
Charges = Mapping[tuple[int, str], int]
"""Tokens by line of the policy's queue and name of the tenant."""


class Served:
    """One gateway's side. `take` gives what it let in since it was last asked, `elsewhere` is told what others did.

    Approximate: what others let in is known a second later, what was told in a call that was not answered may be missing or taken for others',
    and what was before the first answer is not counted.
    """

    def __init__(self, take: Callable[[], Charges], elsewhere: Callable[[Charges], None]) -> None:
        self._take = take
        self._elsewhere = elsewhere
        self._sent: dict[tuple[int, str], int] = {}
        self._seen: dict[tuple[int, str], int] | None = None

    def arguments(self) -> list[str]:
        """The script's ARGV, of what was let in since the last call."""
        self._sent = {name: tokens for name, tokens in self._take().items() if tokens > 0}
        return [
            word
            for (line, tenant), tokens in self._sent.items()
            for word in (f"{line}:{tenant}", str(tokens))
        ]

    def answered(self, reply: object) -> None:
        """Raises SourceError for what is no answer of the script."""
        totals = totals_from(reply)
        seen, sent = self._seen, self._sent
        self._seen, self._sent = totals, {}
        if seen is None:
            return
        others = {}
        for name, total in totals.items():
            more = total - seen.get(name, 0) - sent.get(name, 0)
            if more > 0:
                others[name] = more
        if others:
            self._elsewhere(others)


def totals_from(reply: object) -> dict[tuple[int, str], int]:
    totals: dict[tuple[int, str], int] = {}
    if isinstance(reply, list) and len(reply) % 2 == 0 and all(isinstance(word, bytes) for word in reply):
        for name, tokens in zip(reply[::2], reply[1::2], strict=True):
            line, mark, tenant = name.decode("utf-8", "replace").partition(":")
            is_count = tokens.isdigit() and len(tokens) < 20 and int(tokens) <= MOST_TOKENS
            if not (mark and len(line) < 3 and line.isascii() and line.isdigit() and is_count):
                raise SourceError(
                    f"the shared store has a tenant's tokens as {shorter(name)}: {shorter(tokens)}"
                )
            totals[int(line), tenant] = int(tokens)
        return totals
    raise SourceError(f"the shared store answered {shorter(reply)}: not an answer of this script")
