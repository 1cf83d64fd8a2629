"""A run of an engine as it was timed from outside."""

from __future__ import annotations

from msgspec import Struct

from vramledger.simulation.step_fit import Timing
from vramledger.workload.request import Request


class TimedRun(Struct, frozen=True, kw_only=True):
    """Requests as the engine got them, at the instants at which it did, and when some of them had their tokens.

    Those in `known` are fitted to, those in `held_out` are for the error alone. Both are by the place of the request, times in picoseconds on the
    requests' clock. `block_tokens` is that of the requests' blocks.
    """

    requests: tuple[Request, ...]
    known: tuple[Timing, ...]
    held_out: tuple[Timing, ...] = ()
    block_tokens: int | None = None
