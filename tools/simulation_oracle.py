"""Random workloads over random settings: the compiled simulator against the readable one, bit for bit.

    python -m tools.simulation_oracle [--cases 2000] [--first SEED]

Pools are small, so that requests are preempted, share, evict and starve all the time. Prints the first case that differs, and exits with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

from msgspec import Struct

from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.compiled.loading import RULES
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import Fleet, SchedulerSettings, Scheduling, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.columns import Workload, columns_of
from vramledger.workload.request import Request, WorkloadHeader


class Case(Struct, frozen=True, kw_only=True):
    """One run to be done twice. `batch` is how many requests a batch of the workload has."""

    requests: tuple[Request, ...]
    id_tokens: int | None
    settings: SimulationSettings
    samples: int
    batch: int


def random_case(random: Random) -> Case:
    """Any case; small numbers shrink to simple ones."""
    settings = random_settings(random)
    id_tokens = random.choice([None, settings.layout.groups[0].block_tokens, 4, 6, 32])
    requests = tuple(random_requests(random, settings, id_tokens))
    return Case(
        requests=requests,
        id_tokens=id_tokens,
        settings=settings,
        samples=random.choice([1, 4, 32]),
        batch=random.choice([len(requests), 1, 3]),
    )


def random_settings(random: Random) -> SimulationSettings:
    block = random.choice([1, 2, 4, 16])
    budget = random.choice([1, 3, 8, 16, 33, 100])
    max_model_len = random.choice([20, 60, 400])
    scheduling = random.choice(list(RULES))
    is_vllm = scheduling is Scheduling.VLLM
    chunked, is_ahead = random.random() < 0.8, is_vllm and random.random() < 0.4
    scheduler = SchedulerSettings(
        scheduling=scheduling,
        max_num_seqs=min(random.choice([1, 2, 5, 20]), budget if is_ahead or not is_vllm else 20),
        max_num_batched_tokens=budget if chunked else max(budget, max_model_len),
        max_model_len=max_model_len,
        chunked_prefill=chunked,
        prefix_caching=random.random() < 0.8,
        async_scheduling=is_ahead,
        priority=is_vllm and not is_ahead and random.random() < 0.3,
        priority_goes_on=random.random() < 0.5,
        long_prefill_token_threshold=0 if is_ahead else random.choice([0, 0, 1, 5, 20]),
        long_prefill_alone_unbounded=random.random() < 0.5,
        watermark=random.choice([0.0, 0.0, 0.1]),
        reserve_full_prompt=random.random() < 0.6,
        initial_new_token_ratio=random.choice([0.7, 0.3, 1.0]),
        new_token_ratio_decay_steps=random.choice([600, 7]),
        clip_max_new_tokens=random.choice([4096, 10]),
        max_prefill_tokens=random.choice([16_384, 20]),
    )
    step = StepModel(
        overhead_ps=random.choice([1, 700, 1_000_000, 1_000_000_000]),
        floor_ps=random.choice([0, 5_000, 3_000_000]),
        token_ps=random.choice([0, 1, 1_000, 400_000]),
        decode_seq_ps=random.choice([0, 3, 100_000]),
        kv_token_ps=random.choice([0, 7, 20_000]),
        pair_ps_per_1024=random.choice([0, 100, 50_000]),
        evidence=assumed("random"),
    )
    return SimulationSettings(
        layout=PoolLayout(
            num_blocks=random.randint(3, 40) * max(1, 4 // block) + 1,
            groups=(BlockGroup(block_tokens=block),),
            reserved_blocks=1,
            uncached_first=random.random() < 0.7,
        ),
        scheduler=scheduler,
        step=step,
        fleet=Fleet(replicas=random.choice([1, 1, 1, 2, 3])),
        follow_parents=random.random() < 0.8,
        time_limit_ps=random.choice([None, None, None, random.randint(0, 10**10)]),
    )


def random_requests(random: Random, settings: SimulationSettings, id_tokens: int | None) -> list[Request]:
    spacing_ns = random.choice([0, 1, 1_000, 1_000_000])
    has_parents, has_timers = random.random() < 0.25, random.random() < 0.3
    has_parents = has_parents and (settings.fleet.replicas == 1 or not settings.follow_parents)
    has_timers = has_timers and not settings.scheduler.async_scheduling
    variety, longest = random.choice([1, 2, 5]), random.choice([5, 30, 120])
    requests: list[Request] = []
    arrival_ns = 0
    for number in range(random.randint(1, 25)):
        arrival_ns += random.randint(0, spacing_ns)
        prompt, output = random.randint(1, longest), random.randint(1, longest)
        blocks: tuple[int, ...] = ()
        if id_tokens is not None and random.random() < 0.8:
            # Numbers are chained: what follows another beginning is another number.
            chain, numbers = 0, []
            for _ in range(random.randint(0, (prompt + output) // id_tokens + 1)):
                chain = (chain * variety + random.randrange(variety) + 1) % 1_000_003
                numbers.append(chain)
            blocks = tuple(numbers)

        requests.append(
            Request(
                arrival_ns=arrival_ns,
                prompt_tokens=prompt,
                output_tokens=output,
                max_output_tokens=random.choice([None, output, output + 7]),
                blocks=blocks,
                boundary=random.choice([0, 0, 0, 1]),
                parent=random.randrange(number) if has_parents and number and random.random() < 0.5 else None,
                pause_ns=random.choice([0, 0, random.randint(0, spacing_ns)]),
                cancel_ns=_timer(random, spacing_ns, has_timers),
                first_token_deadline_ns=_timer(random, spacing_ns, has_timers),
                deadline_ns=_timer(random, spacing_ns, has_timers),
                priority=random.randint(-1, 2),
            )
        )
    return requests


def _timer(random: Random, spacing_ns: int, has_timers: bool) -> int | None:
    return random.randint(0, 20 * spacing_ns + 5) if has_timers and random.random() < 0.2 else None


def workload_of(case: Case) -> Workload:
    """The case's requests in its batches."""
    parts = [
        columns_of(case.requests[start : start + case.batch])
        for start in range(0, len(case.requests), case.batch)
    ]

    header = WorkloadHeader(name="case", source="random", block_tokens=case.id_tokens)
    return Workload(header, lambda: iter(parts))


def difference(case: Case) -> str | None:
    """What the two simulators disagree on, or None."""
    workload = workload_of(case)
    has_parents = any(request.parent is not None for request in case.requests)
    if has_parents and case.settings.follow_parents:
        workload = Workload.of(workload.header, workload.table())
    compiled, mine = simulate(workload, case.settings, how="compiled", samples=case.samples)
    readable, theirs = simulate(workload, case.settings, how="reference", samples=case.samples)
    assert mine is not None
    assert theirs is not None
    for one, other in zip(mine.outcomes(), theirs.outcomes(), strict=True):
        if one != other:
            return f"request {one.number}: {one} is not {other}"
    for name in ("counters", "samples", "end_ps"):
        if getattr(compiled, name) != getattr(readable, name):
            return f"{name}: {getattr(compiled, name)} is not {getattr(readable, name)}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    for seed in range(options.first, options.first + options.cases):
        case = random_case(Random(seed))
        told = difference(case)
        if told is not None:
            print(f"case {seed}: {told}\n{case}")
            return 1
    print(f"{options.cases} cases agree, {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
