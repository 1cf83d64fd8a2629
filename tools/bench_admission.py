"""What a decision costs, by policy and by how much runs.

    python -m tools.bench_admission [--running 64,256,1024] [--rounds 5]

A policy stands before an instance that is full: requests arrive and are decided about, each is let in and told of as it goes on, and one ends
for each that came. Decisions count with all that they change in the books; the time is that of the processor as the thread had it, less
what reading the clock takes. Of several rounds the best is told, because whatever else runs on the machine only adds. `queued` is what it costs
to ask again about one that waits (`at_scheduling`).
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from random import Random

from tools.ranks import nearest_rank

from vramledger.admission.books import Pace
from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission
from vramledger.admission.policy import Policy
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout

BLOCKS_EACH = 140
DECISIONS = 1000
WHAT = ("decided", "queued", "progress", "end")
Times = dict[str, list[int]]


class Pool:
    """An instance that says no more than how many blocks there are."""

    running_count = 0
    waiting_count = 0
    used_blocks = 0
    is_reconciled = False

    def __init__(self, blocks: int) -> None:
        self.free_blocks = blocks

    def cached_tokens(self, candidate: Candidate) -> int:
        del candidate
        return 0


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--running", default="64,256,1024")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=DECISIONS)
    options = parser.parse_args()
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(f"microseconds, best of {options.rounds} rounds of {options.decisions:,} decisions")
    if busy > cores / 2:
        print(f"the machine is busy ({busy:.1f} running on {cores} cores): a quiet one would tell less")
    print("\n| policy | running | " + " | ".join(f"{name} p50, p99" for name in WHAT) + " |")
    print("| --- " * (2 + len(WHAT)) + "|")
    for reservation in Reservation:
        for running in map(int, options.running.split(",")):
            rounds = [measured(reservation, running, options.decisions) for _ in range(options.rounds)]
            cells = [
                ", ".join(
                    f"{min(nearest_rank(times[name], percent) for times in rounds) / 1000:.1f}"
                    for percent in (50, 99)
                )
                for name in WHAT
            ]
            print(f"| {reservation.value} | {running:,} | " + " | ".join(cells) + " |", flush=True)
    return 0


def measured(reservation: Reservation, running: int, decisions: int) -> Times:
    """Nanoseconds of each call, once so many run."""
    random, identities = Random(running), iter(range(10**9))
    policy = Policy(settings(reservation, running))
    pool = Pool(running * BLOCKS_EACH)
    alive: dict[int, tuple[int, int]] = {}
    times: Times = {name: [] for name in WHAT}
    clock = clock_ns()
    gc.collect()
    gc.disable()
    try:
        while len(alive) < running:
            for _ in range(16):
                let_in(policy, pool, candidates(random, identities), alive)
            go_on(policy, alive, times, clock)
        for rows in times.values():
            rows.clear()
        for number in range(decisions):
            one = next(candidates(random, identities))
            before = time.thread_time_ns()
            decision = policy.at_arrival(one, pool, 0)
            times["decided"].append(time.thread_time_ns() - before - clock)
            if decision.answer is Admission.ACCEPT:
                alive[one.identity] = 0, output_tokens(random, one)
            else:
                policy.at_end(one.identity, 0, is_finished=False, now_ps=0)
            if number % max(1, running // 64) == 0:
                go_on(policy, alive, times, clock)
            while len(alive) >= running:
                leave(policy, random.choice(list(alive)), alive, times, clock)
        policy.at_arrival(next(candidates(random, identities)), Pool(0), 0)
        for _ in range(decisions if policy.queued_count else 0):
            go_on(policy, alive, times, clock, most=4)
            before = time.thread_time_ns()
            policy.at_scheduling(Pool(0), 0)
            times["queued"].append(time.thread_time_ns() - before - clock)
    finally:
        gc.enable()
    return times


def settings(reservation: Reservation, running: int) -> PolicySettings:
    return PolicySettings(
        layout=PoolLayout(num_blocks=running * BLOCKS_EACH, groups=(BlockGroup(block_tokens=16),)),
        max_model_len=16_384,
        max_running=2 * running,
        pace=Pace(step_tokens=8192, max_running=2 * running, drift_steps=4),
        reservation=reservation,
    )


def candidates(random: Random, identities: Iterator[int]) -> Iterator[Candidate]:
    for identity in identities:
        yield Candidate(
            identity=identity,
            prompt_tokens=random.randint(50, 1500),
            max_output_tokens=min(8000, 20 + int(random.lognormvariate(5.5, 1.0))),
        )


def output_tokens(random: Random, one: Candidate) -> int:
    return random.randint(1, one.max_output_tokens)


def let_in(
    policy: Policy, pool: Pool, source: Iterator[Candidate], alive: dict[int, tuple[int, int]]
) -> None:
    one = next(source)
    if policy.at_arrival(one, pool, 0).answer is Admission.ACCEPT:
        alive[one.identity] = 0, one.max_output_tokens
    else:
        policy.at_end(one.identity, 0, is_finished=False, now_ps=0)


def go_on(
    policy: Policy, alive: dict[int, tuple[int, int]], times: Times, clock: int, *, most: int | None = None
) -> None:
    """Each that runs (or the `most` oldest) has a token more; who has all ends."""
    for identity in list(alive)[:most]:
        had, wanted = alive[identity]
        had += 1
        alive[identity] = had, wanted
        before = time.thread_time_ns()
        policy.at_progress(identity, had, 0)
        times["progress"].append(time.thread_time_ns() - before - clock)
        if had >= wanted:
            leave(policy, identity, alive, times, clock)


def leave(policy: Policy, identity: int, alive: dict[int, tuple[int, int]], times: Times, clock: int) -> None:
    had, _ = alive.pop(identity)
    before = time.thread_time_ns()
    policy.at_end(identity, had, is_finished=True, now_ps=0)
    times["end"].append(time.thread_time_ns() - before - clock)


def clock_ns() -> int:
    """What reading the clock takes."""
    rows = [time.thread_time_ns() for _ in range(2001)]
    return nearest_rank((after - before for before, after in pairwise(rows)), 50)


if __name__ == "__main__":
    sys.exit(main())
