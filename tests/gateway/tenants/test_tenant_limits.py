"""Tenants' limits: never more under way than allowed, nothing lost, and what was used is refilled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.policies import Places
from vramledger.gateway.admitter import (
    Decision,
    Ended,
    Ending,
    Kind,
    PromptTokens,
    RequestFacts,
    TokenSource,
    Verdict,
)
from vramledger.gateway.tenants.limits import TenantLimits
from vramledger.gateway.tenants.tenant import Tenant

SECOND = 1_000_000_000


def facts(number: int, tenant: int = 1, tokens: int = 0) -> RequestFacts:
    prompt = PromptTokens(tokens=tokens, most_tokens=tokens, source=TokenSource.ENGINE)
    return RequestFacts(
        number=number, kind=Kind.CHAT, model="m", prompt_bytes=0, prompt=prompt, tenant=tenant
    )


def test_open_and_queued_are_bounded_by_tenant() -> None:
    tenants = {1: Tenant(max_open=3, max_queued=1), 2: Tenant()}
    policy = Places(1)
    limits = TenantLimits(policy, tenants.get)
    assert limits.decide(facts(1), 0).verdict is Verdict.ADMIT
    assert limits.decide(facts(2), 0).verdict is Verdict.QUEUE
    refused = limits.decide(facts(3), 0)
    assert (refused.verdict, refused.rule) == (Verdict.REJECT, "tenant-queued")
    assert policy.endings[3].how is Ended.QUEUE_FULL  # its place in the policy's queue was given back
    assert limits.decide(facts(4, tenant=2), 0).verdict is Verdict.QUEUE
    limits.release(1, Ending(how=Ended.COMPLETED), 0)
    assert [(number, one.verdict) for number, one in limits.reconsider(0)] == [(2, Verdict.ADMIT)]
    account = limits.account(1)
    assert account is not None
    assert (account.open, account.queued) == (1, 0)
    tenants[1] = Tenant(max_open=1)
    assert limits.decide(facts(5), 0).rule == "tenant-open"


def test_tokens_a_minute_are_refilled() -> None:
    limits = TenantLimits(Places(9), {1: Tenant(tokens_per_minute=600)}.get)
    assert limits.decide(facts(1, tokens=500), 0).verdict is Verdict.ADMIT
    limits.release(1, Ending(how=Ended.COMPLETED, prompt_tokens=500, output_tokens=200), 0)
    refused = limits.decide(facts(2), 0)
    assert refused.rule == "tenant-tokens"
    assert refused.retry_after_ms == 10_001  # 100 tokens over, 10 a second
    assert limits.decide(facts(3), 10 * SECOND).rule == "tenant-tokens"
    assert limits.decide(facts(4), 11 * SECOND).verdict is Verdict.ADMIT


@given(
    st.lists(
        st.tuples(st.sampled_from(["come", "end", "ask"]), st.integers(1, 2), st.integers(0, 50)), max_size=60
    ),
    st.integers(1, 4),
)
def test_accounts_are_what_is_under_way(steps: list[tuple[str, int, int]], places: int) -> None:
    tenants = {1: Tenant(max_open=3), 2: Tenant(max_queued=1, tokens_per_minute=100)}
    policy = Places(places)
    limits = TenantLimits(policy, tenants.get)
    owner: dict[int, int] = {}
    for now, (what, tenant, tokens) in enumerate(steps):
        if what == "come":
            decision: Decision = limits.decide(facts(now + 1, tenant, tokens), now * SECOND)
            if decision.verdict in (Verdict.ADMIT, Verdict.QUEUE):
                owner[now + 1] = tenant
        elif what == "end" and owner:
            number = min(owner)
            del owner[number]
            limits.release(number, Ending(how=Ended.COMPLETED, output_tokens=tokens), now * SECOND)
        else:
            list(limits.reconsider(now * SECOND))
        for one in tenants:
            account = limits.account(one)
            if account is not None:
                mine = {number for number, whose in owner.items() if whose == one}
                assert account.open == len(mine & policy.held)
                assert account.queued == len(mine & set(policy.line))
                assert account.open + account.queued <= (3 if one == 1 else 60)
