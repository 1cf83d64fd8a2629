"""Fair queues of two gateways count what both let in, by tenants' names, whatever numbers these have here and there."""

from __future__ import annotations

from msgspec.structs import replace

from gateway.live.test_admitter import capacity, facts, instances
from vramledger.gateway.admitter import Ended, Ending, Verdict
from vramledger.gateway.live.admitter import PolicyAdmitter
from vramledger.gateway.shared.fairness import taken, told
from vramledger.gateway.tenants.tenant import Tenant, Tenants


def test_who_had_much_elsewhere_goes_second_here() -> None:
    here, there = (
        Tenants({name: Tenant() for name in names}) for names in (("alice", "bob"), ("zoe", "bob", "alice"))
    )
    first, second = (instances([capacity(64)]) for _ in range(2))
    one, other = PolicyAdmitter(first), PolicyAdmitter(second)
    for number in (1, 2, 3):
        assert (
            other.decide(facts(number, 100, 200, tenant=there.number("alice")), number).verdict
            is Verdict.ADMIT
        )
    assert other.decide(facts(4, 10, 10, tenant=0), 4).verdict is Verdict.ADMIT
    charges = taken(second[0], lambda: there)
    assert charges == {(0, "alice"): 900, (0, ""): 20}
    assert taken(second[0], lambda: there) == {}
    told(first[0], lambda: here, {**charges, (0, "zoe"): 5, (7, "bob"): 5})
    assert one.decide(facts(1, 900, 100, tenant=here.number("bob")), 1).verdict is Verdict.ADMIT
    for number, name in ((2, "alice"), (3, "bob")):
        asked = replace(facts(number, 400, 100), tenant=here.number(name))
        assert one.decide(asked, number).verdict is Verdict.QUEUE
    told(first[0], lambda: here, {(0, "alice"): 200})
    one.release(1, Ending(how=Ended.COMPLETED, output_tokens=100), 4)
    assert [number for number, _ in one.reconsider(5)] == [3, 2], "alice had 1100 of it, bob 1000"
    assert taken(first[0], lambda: here) == {(0, "bob"): 1500, (0, "alice"): 500}
