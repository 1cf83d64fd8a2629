"""What tenants were let in with, told between gateways."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gateway.client import until
from gateway.shared.gateways import gateway, part
from gateway.shared.valkey_server import needs_valkey, valkey_server
from vramledger.admission.candidate import Candidate
from vramledger.admission.fair_queue import FairQueue
from vramledger.errors import SourceError
from vramledger.gateway.shared.served import Charges, Served, totals_from


def waiting(identity: int, tenant: int) -> Candidate:
    return Candidate(
        identity=identity, prompt_tokens=10, max_output_tokens=10, tenant=tenant, sent_ps=identity
    )


def test_who_was_served_elsewhere_goes_after_who_was_not() -> None:
    queue = FairQueue({2: 3})
    for identity, tenant in ((1, 1), (2, 2), (3, 1), (4, 2)):
        queue.add(waiting(identity, tenant), 20)
    queue.served_elsewhere(1, 100)
    turns = []
    for _ in range(4):
        head = queue.head(10)
        assert head is not None
        turns.append(head.identity)
        queue.take(head)
    assert turns == [2, 4, 1, 3]
    assert queue.take_charged() == {1: 40, 2: 40}
    assert queue.take_charged() == {}


def test_only_what_others_added_is_told() -> None:
    mine = [{(0, "a"): 5}, {(0, "a"): 7, (1, ""): 2}, {}, {}]
    heard: list[Charges] = []
    served = Served(lambda: mine.pop(0), heard.append)
    assert served.arguments() == ["0:a", "5"]
    served.answered([b"0:a", b"105", b"0:b", b"50"])
    assert heard == [], "what was before it came is not counted"
    assert served.arguments() == ["0:a", "7", "1:", "2"]
    served.answered([b"0:a", b"112", b"0:b", b"80", b"1:", b"2", b"0:c", b"1"])
    assert heard == [{(0, "b"): 30, (0, "c"): 1}]
    served.arguments()
    served.answered([])
    assert len(heard) == 1, "the store forgot: nothing is taken back"
    served.arguments()
    served.answered([b"0:a", b"9"])
    assert heard[1] == {(0, "a"): 9}


@pytest.mark.parametrize(
    "reply",
    [None, 7, [b"0:a"], [b"a", b"1"], [b"0:a", b"-1"], [b"0:a", b"x"], [b"0:a", b"9" * 19], [b":a", b"1"], [1, 2], [b"999:a", b"1"]],
)  # fmt: skip
def test_what_is_no_count_of_tenants_is_named(reply: object) -> None:
    with pytest.raises(SourceError, match="shared store"):
        totals_from(reply)


@needs_valkey
def test_gateways_tell_each_other_and_a_spoilt_count_stops_no_grant() -> None:
    async def story() -> None:
        first, second = gateway(server), gateway(server)
        one, two = part(first), part(second)
        heard: list[Counter[tuple[int, str]]] = [Counter(), Counter()]
        to_tell: list[dict[tuple[int, str], int]] = [{}, {}]

        def take(index: int) -> Charges:
            told, to_tell[index] = to_tell[index], {}
            return told

        for index, each in enumerate((first, second)):
            each.share_served("engine:8000", lambda index=index: take(index), heard[index].update)  # type: ignore[misc]
            each.start()
        for grant in (one, two):
            grant.want(100, 1, held_blocks=0, held_places=0)
        await until(lambda: one.blocks >= 100 and two.blocks >= 100)
        key = "vramledger:served:{engine:8000}"
        await until(lambda: all(each._served["engine:8000"]._seen is not None for each in (first, second)))
        to_tell[0] = {(0, "alice"): 300, (0, "bob"): 20}
        to_tell[1] = {(0, "alice"): 11, (1, ""): 5}
        await until(
            lambda: (
                heard[1] == {(0, "alice"): 300, (0, "bob"): 20} and heard[0] == {(0, "alice"): 11, (1, ""): 5}
            )
        )
        server.command("DEL", key)
        server.command("SET", key, "a string")
        await until(lambda: first.counters.errors > 0)
        assert "holds a string and not a hash" in first.counters.last_error
        answers = first.counters.answers
        await until(lambda: first.counters.answers > answers + 5)
        assert one.blocks >= 100
        await asyncio.gather(first.leave(), second.leave())

    with valkey_server() as server:
        asyncio.run(story())
