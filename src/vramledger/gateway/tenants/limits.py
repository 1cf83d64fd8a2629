"""Tenants' own limits in front of a policy: most requests open and queued, and tokens a minute. No clock and no socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vramledger.gateway.admitter import (
    Admitter,
    Decision,
    Ended,
    Ending,
    KnowsInstances,
    RequestFacts,
    Verdict,
)
from vramledger.gateway.tenants.tenant import Tenant
from vramledger.units import ceil_div

NS_PER_MINUTE = 60_000_000_000
NS_PER_MS = 1_000_000
BYTES_PER_TOKEN = 4
"""Of a prompt that nobody counted, until its engine has."""


class Account:
    """What a tenant has under way, and the tokens that it may still use. Below 0 it waits until what it used is refilled."""

    __slots__ = ("at_ns", "open", "queued", "token_ns", "tokens_used")

    def __init__(self, now_ns: int) -> None:
        self.open = 0
        self.queued = 0
        self.tokens_used = 0
        """Since the gateway began."""
        self.token_ns = 0
        """Debt: tokens of late, times a minute in ns, so that it is refilled in whole numbers."""
        self.at_ns = now_ns

    def refill(self, now_ns: int, per_minute: int) -> None:
        self.token_ns = max(0, self.token_ns - (now_ns - self.at_ns) * per_minute)
        self.at_ns = now_ns

    def use(self, tokens: int) -> None:
        self.token_ns += tokens * NS_PER_MINUTE

    def wait_ns(self, per_minute: int) -> int:
        """Until less than a minute's worth is used."""
        over = self.token_ns - per_minute * NS_PER_MINUTE
        return 0 if over < 0 else over // per_minute + 1


class TenantLimits:
    """An `Admitter` that asks another one, unless the tenant has as much under way as it may.

    Tokens are counted as prompt when a request is admitted or queued and as prompt and output when it ends, so that what is open can
    exceed a minute's worth by its outputs. What a lower limit forbids is not ended by it.
    """

    def __init__(self, inner: Admitter, tenant: Callable[[int], Tenant | None]) -> None:
        self._inner = inner
        self._tenant = tenant
        self._accounts: dict[int, Account] = {}
        self._held: dict[int, tuple[int, int, bool]] = {}  # (tenant, tokens counted, open) by number

    def account(self, tenant: int) -> Account | None:
        """None for one that never asked."""
        return self._accounts.get(tenant)

    def healthy_instance(self) -> int:
        """As the one that is asked says; the first engine where it knows of none."""
        return self._inner.healthy_instance() if isinstance(self._inner, KnowsInstances) else 0

    def decide(self, facts: RequestFacts, now_ns: int) -> Decision:
        tenant = self._tenant(facts.tenant)
        account = self._accounts.setdefault(facts.tenant, Account(now_ns))
        if tenant is not None:
            refused = _over(tenant, account, now_ns)
            if refused is not None:
                return refused
        decision = self._inner.decide(facts, now_ns)
        if decision.verdict not in (Verdict.ADMIT, Verdict.QUEUE):
            return decision
        is_open = decision.verdict is Verdict.ADMIT
        if tenant is not None and not is_open and account.queued >= _bound(tenant.max_queued):
            self._inner.release(facts.number, Ending(how=Ended.QUEUE_FULL), now_ns)
            return _refusal("tenant-queued", "queued", account.queued, tenant.max_queued, decision)
        tokens = _prompt_tokens(facts)
        account.use(tokens)
        account.open += is_open
        account.queued += not is_open
        self._held[facts.number] = facts.tenant, tokens, is_open
        return decision

    def reconsider(self, now_ns: int) -> Iterable[tuple[int, Decision]]:
        for number, decision in self._inner.reconsider(now_ns):
            held = self._held.get(number)
            if held is not None and decision.verdict is not Verdict.QUEUE:
                tenant, tokens, is_open = held
                account = self._accounts[tenant]
                if decision.verdict is Verdict.ADMIT:
                    account.queued -= not is_open
                    account.open += not is_open
                    self._held[number] = tenant, tokens, True
                else:
                    del self._held[number]
                    account.queued -= 1
                    account.use(-tokens)
            yield number, decision

    def progress(self, number: int, output_tokens: int, now_ns: int) -> None:
        self._inner.progress(number, output_tokens, now_ns)

    def release(self, number: int, ending: Ending, now_ns: int) -> None:
        held = self._held.pop(number, None)
        if held is not None:
            tenant, tokens, was_open = held
            account = self._accounts[tenant]
            account.open -= was_open
            account.queued -= not was_open
            used = (tokens if ending.prompt_tokens is None else ending.prompt_tokens) + (
                ending.output_tokens or 0
            )
            account.use(used - tokens if was_open else -tokens)
            account.tokens_used += used if was_open else 0
        self._inner.release(number, ending, now_ns)


def _over(tenant: Tenant, account: Account, now_ns: int) -> Decision | None:
    under_way = account.open + account.queued
    if under_way >= _bound(tenant.max_open):
        return _refusal("tenant-open", "open", under_way, tenant.max_open, None)
    per_minute = tenant.tokens_per_minute
    account.refill(now_ns, per_minute or 0)
    if per_minute is None:
        account.token_ns = 0
        return None
    wait_ns = account.wait_ns(per_minute)
    if not wait_ns:
        return None
    return Decision(
        verdict=Verdict.REJECT,
        rule="tenant-tokens",
        message=f"this key may use {per_minute:,} tokens a minute, and has",
        retry_after_ms=ceil_div(wait_ns, NS_PER_MS),
        numbers={"tokens_per_minute": per_minute},
    )


def _refusal(rule: str, what: str, count: int, most: int | None, decision: Decision | None) -> Decision:
    told = (decision.retry_after_ms or decision.wait_ms) if decision is not None else None
    return Decision(
        verdict=Verdict.REJECT,
        rule=rule,
        message=f"this key has {count:,} requests {what}, and may have {most:,}",
        retry_after_ms=max(1000, told or 0),
        numbers={what: count, f"max_{what}": most or 0},
    )


def _bound(most: int | None) -> float:
    return float("inf") if most is None else most


def _prompt_tokens(facts: RequestFacts) -> int:
    if facts.prompt is not None:
        return facts.prompt.tokens
    return ceil_div(facts.prompt_bytes, BYTES_PER_TOKEN)
