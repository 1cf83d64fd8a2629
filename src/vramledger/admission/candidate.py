"""A request as admission sees it."""

from __future__ import annotations

from msgspec import Struct


class Candidate(Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a request before it is served; nothing of what it will really generate.

    `identity` names it to the policy, once. `max_output_tokens` is the client's bound, or the room that the model leaves it where
    the client named none. `keys` are the identities of the prompt's leading full blocks as far as they are known, chained (equal
    keys are equal content from the beginning), and `boundary` numbers what may be shared at all. `branches` sequences (samples or beams)
    continue the prompt; where `branches_share_prompt` the prompt's full blocks are held once for all of them. `cohort` names requests
    whose outputs are alike in length. A smaller `priority` goes first. Times are picoseconds of the caller's clock; a deadline is an
    instant of it.
    """

    identity: int
    prompt_tokens: int
    max_output_tokens: int
    keys: tuple[int, ...] = ()
    boundary: int = 0
    branches: int = 1
    branches_share_prompt: bool = False
    tenant: int = 0
    cohort: str = ""
    priority: int = 0
    sent_ps: int = 0
    first_token_deadline_ps: int | None = None
    deadline_ps: int | None = None
