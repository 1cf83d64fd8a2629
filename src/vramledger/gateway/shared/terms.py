"""What a gateway says to the store and hears from it, as values and as the script's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from vramledger.errors import SourceError, shorter

SCRIPT = Path(__file__).with_name("grants.lua")
MOST = 2**40
"""No count is larger: the script counts in doubles."""


class Ask(NamedTuple):
    """A gateway's side of one call. `keep` is what it goes on relying on, its running requests included; none of it can be taken from it.
    `want` is shared out fairly; `spare` comes on top of it where nobody wants it.
    """

    number: int
    keep_blocks: int
    keep_places: int
    want_blocks: int
    want_places: int
    next_blocks: int
    next_places: int
    total_blocks: int
    total_places: int
    spare_blocks: int = 0
    spare_places: int = 0
    epoch: str = ""
    is_leaving: bool = False

    def arguments(self, gateway: str, lease_ms: int) -> list[str]:
        """The script's ARGV."""
        op = "leave" if self.is_leaving else "sync"
        return [
            op,
            gateway,
            str(self.number),
            str(lease_ms),
            *(str(count) for count in self[1:11]),
            self.epoch,
        ]


class Answer(NamedTuple):
    """The store's side. `share` is what the gateway would have if all took their part: what it has above that goes back as its requests end.

    `opens_in_ms` is above 0 while the store gives nothing out, because it does not know yet what is held.
    """

    blocks: int
    places: int
    share_blocks: int
    share_places: int
    other_blocks: int
    other_places: int
    total_blocks: int
    total_places: int
    gateways: int
    opens_in_ms: int
    other_epoch: str


def answer_from(reply: object) -> Answer:
    """A SourceError says what the store answered instead of what the script answers."""
    if isinstance(reply, list) and len(reply) == len(Answer._fields):
        *counts, epoch = reply
        if all(type(count) is int and 0 <= count <= MOST * 1000 for count in counts) and isinstance(
            epoch, bytes
        ):
            return Answer._make((*counts, epoch.decode("ascii", "replace")))
    raise SourceError(f"the shared store answered {shorter(reply)}: not an answer of this script")
