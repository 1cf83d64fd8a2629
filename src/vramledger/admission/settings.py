"""What an admission policy goes by."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from vramledger.admission.books import Pace
from vramledger.errors import InputError
from vramledger.kvcache.blocks.layout import PoolLayout


class Reservation(StrEnum):
    """How much output a request is reserved room for."""

    NO_EVICT = "no-evict"
    """The client's bound: nothing admitted is ever evicted for want of room."""
    QUANTILE = "quantile"
    """What a share of requests like it does not exceed, as learned; the bound until enough is known."""
    RISK = "risk"
    """As much as keeps the probability that the pool is exceeded below a bound."""
    OPTIMISTIC = "optimistic"
    """None: its prompt must fit now and leave a watermark free."""


ADOPTED = frozenset(
    (
        "queue",
        "weights",
        "ageing_ps",
        "quantile",
        "confidence",
        "epsilon",
        "watermark_blocks",
        "deadline_quantile",
    )
)
"""Settings that a policy may be given anew while it serves; all others are what its books were kept by."""


class QueueBounds(Struct, frozen=True, kw_only=True):
    """When a queue is full, and when waiting in it is over. None bounds nothing. Tokens are prompts and reserved outputs."""

    max_requests: int | None = None
    max_tokens: int | None = None
    max_age_ps: int | None = None


class PolicySettings(Struct, frozen=True, kw_only=True):
    """An instance and how it is shared out.

    `layout`, `max_model_len` and `max_running` are the engine's pool, length and most sequences; more are never admitted. `pace` says what
    keeps a sequence from growing; with the engine's `step_tokens` the ends of requests are relied on, without them never.
    `safety_tokens` are added to each sequence and `safety_blocks` kept out of the pool (at least what the engine keeps free itself
    before it lets a request in, e.g. vLLM's watermark).
    `quantile` and `confidence` are those of a learned length, `epsilon` is the probability for `RISK`, which looks at spans of
    `risk_span_steps` (shorter ones are nearer to the truth and take longer); both learn over the last `window` ends.
    `first_guess_tokens` are reserved where too little is known of a length, and twice what was generated where that is more; None: the client's
    bound, which is safe and, where clients name none, as much as the model allows.
    A completion deadline is judged by the learned output at `deadline_quantile`, not by what is reserved.
    `watermark_blocks` stay free under `OPTIMISTIC`, and of the future peak under `QUANTILE`, except by a request that is alone.
    `risky_over_tokens`: a request whose bound is further than this above what is reserved for it is risky, and all of these together are
    given `risky_share` of the pool. `weights` are tenants' (1 where not named), `ageing_ps` the wait that makes up for one
    priority, and `token_wait_ps` how long before it a request may have come, for each token that it is larger, and still go after (0:
    in order of arrival). With `puts_behind`, where not all that wait can be in time for their first-token deadlines, those with the most
    work go behind all others (see `triage`; it needs a service time). Raises InputError for what contradicts itself.
    """

    layout: PoolLayout
    max_model_len: int
    max_running: int
    pace: Pace = Pace()
    reservation: Reservation = Reservation.NO_EVICT
    safety_tokens: int = 0
    safety_blocks: int = 0
    quantile: float = 0.95
    confidence: float = 0.95
    epsilon: float = 0.01
    risk_span_steps: int = 16
    deadline_quantile: float = 0.5
    window: int = 4096
    watermark_blocks: int = 0
    first_guess_tokens: int | None = None
    risky_over_tokens: int | None = None
    risky_share: float = 0.25
    queue: QueueBounds = QueueBounds()
    weights: dict[int, int] = {}
    ageing_ps: int | None = None
    token_wait_ps: int = 0
    puts_behind: bool = False

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_running", "window", "risk_span_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: at least 1 is needed")
        for name in ("quantile", "confidence", "epsilon", "deadline_quantile", "risky_share"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: a share above 0 and below 1 is needed")
        if self.first_guess_tokens is not None and self.first_guess_tokens < 1:
            raise InputError(f"first_guess_tokens is {self.first_guess_tokens}: at least 1 is needed")
        for name in ("safety_tokens", "safety_blocks", "watermark_blocks", "token_wait_ps"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}: it cannot be below 0")
        if self.limit_blocks < 1:
            raise InputError(
                f"safety_blocks is {self.safety_blocks}: of {self.layout.usable_blocks} blocks none would be left"
            )
        for tenant, weight in self.weights.items():
            if weight < 1:
                raise InputError(f"tenant {tenant} has weight {weight}: at least 1 is needed")
        if self.reservation is Reservation.RISK and self.pace.wait_steps(0) is None:
            raise InputError(
                f"reservation is risk and pace.step_tokens {self.pace.step_tokens}: how likely a request has ended by a step is only known where "
                "the engine's tokens a step bound how long it waits"
            )
        if self.ageing_ps is not None and self.ageing_ps < 1:
            raise InputError(f"ageing_ps is {self.ageing_ps}: at least 1 is needed")

    @property
    def limit_blocks(self) -> int:
        """Blocks that admitted requests may hold."""
        return self.layout.usable_blocks - self.safety_blocks
