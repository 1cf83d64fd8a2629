"""What a workload is, in numbers. Light; `columnar.statistics` finds them."""

from __future__ import annotations

from msgspec import Struct

QUANTILES = (50, 90, 95, 99)


class Spread(Struct, frozen=True, kw_only=True):
    """Whole numbers in short; a quantile is the smallest value that so large a share does not exceed."""

    total: int
    mean: float
    p50: int
    p90: int
    p95: int
    p99: int
    max: int


class Reuse(Struct, frozen=True, kw_only=True):
    """What prompts share with requests that came before, were nothing ever evicted.

    Blocks are the trace's own of `block_tokens`. Only a prompt's leading blocks can be hit. `tokens` is at most the
    prompt's for a last block that is not full.
    """

    block_tokens: int
    prompt_blocks: int
    reusable_blocks: int
    reusable_tokens: int
    requests_with_a_hit: int

    @property
    def share(self) -> float:
        return self.reusable_blocks / self.prompt_blocks if self.prompt_blocks else 0.0


class TenantShare(Struct, frozen=True, kw_only=True):
    tenant: str
    requests: int


class WorkloadFacts(Struct, frozen=True, kw_only=True):
    """A workload in numbers.

    `arrival_cv` is the coefficient of variation of the gaps between arrivals (1 for a Poisson process), None with fewer
    than three requests or no time between them; `busiest_minute` is the most requests of a minute over the mean of
    minutes. `pause_ns` is over requests that follow another. `tenants` are the ten largest.
    """

    requests: int
    span_ns: int
    rate_per_s: float | None
    arrival_cv: float | None
    busiest_minute: float | None
    prompt_tokens: Spread
    output_tokens: Spread
    reuse: Reuse | None
    conversations: int
    requests_of_conversations: int
    longest_conversation: int
    following: int
    pause_ns: Spread | None
    branched: int
    cancelled: int
    with_deadline: int
    num_tenants: int
    tenants: tuple[TenantShare, ...]
