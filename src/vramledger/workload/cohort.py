"""Kinds of request that a service sees, by what a person can say of them: quantiles, rate or users, prefix hit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from vramledger.errors import InputError
from vramledger.workload.agents import Agent, Retrieval
from vramledger.workload.quantiles import Quantiles, constant
from vramledger.workload.request import Boundary

PREFIX_HIT = {"none": 0.0, "low": 0.1, "medium": 0.5, "high": 0.9}
"""What the words mean. For scale, in a cache of any size: a public trace of chats finds 34 % of its blocks (Mooncake), small agents
77 to 93 % (LMCache's runs), coding agents 96 % (kv-cache-tester); documents asked about once share their instructions."""
CONCURRENCY = {"low": 8, "medium": 32, "high": 128}
"""What the words mean: requests in flight on one instance."""

MOST_COHORTS = 10_000
MOST_TOKENS = 2**24
LEAST_RATE = 1e-7
_MOST_RATE = 1e7


class Cohort(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Requests that are alike.

    **How long.** `prompt_tokens` and `output_tokens` are quantiles over all requests, or one number. `max_output_tokens` is
    the bound that clients ask for: a number (longer answers are cut there), `output` (they know), or nothing known.

    **When.** One of `rate_per_s` (of an agent cohort: sessions a second), `concurrency` (so many users, each sending the next request
    when the last has ended) and `weight` (its share of a rate that is said elsewhere). `burstiness` is the coefficient of variation
    of the gaps between arrivals: 1 is Poisson, 0 is even, more is bursts (gamma). Cohorts with a rate and the same tenant
    take turns by chance in one stream of arrivals, of their rates' sum and their burstiness' mean.

    **What is shared.** `prefix_hit` is the share of the prompts' tokens that a cache of any size would find, first uses
    included; each prompt begins with as much of one of `prefixes` texts, used with probabilities that fall as
    1 / rank ** `prefix_skew`. `prefix_tokens` says instead how long such a text is. An agent's hits follow from its turns.
    Nothing is shared across a `boundary`, and each tenant has its own.

    Raises ValueError for what cannot be.
    """

    name: str
    prompt_tokens: Quantiles | int
    output_tokens: Quantiles | int
    tenant: str = ""
    boundary: Boundary | None = None
    rate_per_s: float | None = None
    concurrency: int | Literal["low", "medium", "high"] | None = None
    weight: float | None = None
    burstiness: float = 1.0
    max_output_tokens: int | Literal["output"] | None = None
    prefix_hit: float | Literal["none", "low", "medium", "high"] | None = None
    prefix_tokens: int | None = None
    prefixes: int = 1
    prefix_skew: float = 0.0
    retrieval: Retrieval | None = None
    branches: int = 1
    priority: int = 0
    first_token_deadline_ms: int | None = None
    deadline_ms: int | None = None
    cancel_probability: float = 0.0
    cancel_after_ms: Quantiles | None = None
    agent: Agent | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("rate_per_s", "concurrency", "weight") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)}: one of them says when requests come")
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if isinstance(value, int | float) and not least <= value <= most:
                raise ValueError(f"{name} is {value:g}, not from {least:g} to {most:g}")
        for name, longest in (
            ("prompt_tokens", self.prompts.highest),
            ("output_tokens", self.outputs.highest),
        ):
            if longest > MOST_TOKENS:
                raise ValueError(f"{name} reach {longest}, more than {MOST_TOKENS}; give them a max")
        if self.prefix_hit is not None and self.prefix_tokens is not None:
            raise ValueError("prefix_hit and prefix_tokens both say how much is shared; give one")
        if self.prefix_hit is not None and self.retrieval is not None:
            raise ValueError(
                "with retrieval the prefix hit follows from what is looked up; give prefix_tokens instead"
            )
        if self.cancel_probability and self.cancel_after_ms is None:
            raise ValueError("cancel_probability needs cancel_after_ms: when clients give up")
        if self.agent is not None:
            if self.prefix_hit is not None or self.prefix_tokens is not None:
                raise ValueError(
                    "an agent's prefix hit follows from its turns; leave prefix_hit and prefix_tokens out"
                )
            if self.agent.head_tokens >= self.prompts.lowest:
                raise ValueError(
                    f"tool_tokens and system_tokens are {self.agent.head_tokens}, not less than the shortest prompt, "
                    f"{self.prompts.lowest}; give prompt_tokens a min above them"
                )

    @property
    def prompts(self) -> Quantiles:
        """Prompt tokens as quantiles."""
        return constant(self.prompt_tokens) if isinstance(self.prompt_tokens, int) else self.prompt_tokens

    @property
    def outputs(self) -> Quantiles:
        """Output tokens as quantiles."""
        return constant(self.output_tokens) if isinstance(self.output_tokens, int) else self.output_tokens

    @property
    def hit_share(self) -> float:
        """`prefix_hit` as a number."""
        hit = self.prefix_hit or 0.0
        return PREFIX_HIT[hit] if isinstance(hit, str) else hit

    @property
    def users(self) -> int | None:
        """`concurrency` as a number."""
        return CONCURRENCY[self.concurrency] if isinstance(self.concurrency, str) else self.concurrency

    @property
    def forbids_sharing(self) -> Boundary:
        """The boundary that the cohort's requests lie within; its tenant is the cohort's unless it names one."""
        boundary = self.boundary or Boundary()
        return boundary if boundary.tenant else structs.replace(boundary, tenant=self.tenant)


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("prompt_tokens", 1, MOST_TOKENS),
    ("output_tokens", 1, MOST_TOKENS),
    ("rate_per_s", LEAST_RATE, _MOST_RATE),
    ("concurrency", 1, 1_000_000),
    ("weight", 1e-9, 1e9),
    ("burstiness", 0, 100),
    ("max_output_tokens", 1, 2**30),
    ("prefix_hit", 0, 1),
    ("prefix_tokens", 1, 2**30),
    ("prefixes", 1, 1_000_000),
    ("prefix_skew", 0, 10),
    ("branches", 1, 1024),
    ("priority", -(2**31), 2**31),
    ("first_token_deadline_ms", 1, 10**9),
    ("deadline_ms", 1, 10**9),
    ("cancel_probability", 0, 1),
)


def with_rate(cohorts: Sequence[Cohort], rate_per_s: float) -> tuple[Cohort, ...]:
    """The same cohorts with arrivals of `rate_per_s` together.

    Where all have rates these keep their ratio; else the weights say the shares (1 where none is given), and users
    that wait for answers become a stream that does not.
    """
    rates = [cohort.rate_per_s for cohort in cohorts]
    shares = (
        [rate for rate in rates if rate is not None]
        if None not in rates
        else [cohort.weight or 1.0 for cohort in cohorts]
    )
    total = sum(shares)
    return tuple(
        structs.replace(cohort, rate_per_s=rate_per_s * share / total, weight=None, concurrency=None)
        for cohort, share in zip(cohorts, shares, strict=True)
    )


def check_cohorts(cohorts: Sequence[Cohort]) -> None:
    """Raises InputError unless there are cohorts of different names, each with a time to come."""
    if not cohorts:
        raise InputError("there is no cohort to send requests")
    names = [cohort.name for cohort in cohorts]
    for cohort in cohorts:
        if names.count(cohort.name) > 1:
            raise InputError(
                f"two cohorts are named {cohort.name!r}; give each its own name", name=cohort.name
            )
        if cohort.rate_per_s is None and cohort.users is None:
            raise InputError(
                f"cohort {cohort.name!r} says no rate_per_s and no concurrency; give one, or a rate for all cohorts",
                name=cohort.name,
            )
