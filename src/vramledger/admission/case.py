"""A candidate measured against the books."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from vramledger.admission.candidate import Candidate
from vramledger.admission.forecast import Forecast
from vramledger.admission.holding import Holding


class Case(NamedTuple):
    """What all rules judge a candidate by, computed once.

    `keys` are those of blocks that running requests hold anyway, `holding` what it would hold from now on, `need_blocks` its most and
    `prompt_blocks` what it takes at once, both without these. `free_blocks` and `limit_blocks` are as in `Decision`.
    """

    candidate: Candidate
    forecast: Forecast
    uncached_tokens: int
    keys: tuple[Hashable, ...]
    holding: Holding
    need_blocks: int
    prompt_blocks: int
    free_blocks: int
    limit_blocks: int
    is_risky: bool
