"""A llama.cpp server of four slots as the simulator has it, and Poisson arrivals for it."""

from __future__ import annotations

from random import Random

from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.settings import SchedulerSettings, Scheduling, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.request import Request


def llamacpp_settings(step: StepModel, *, context_len: int) -> SimulationSettings:
    return SimulationSettings(
        layout=PoolLayout(num_blocks=4 * context_len, groups=(BlockGroup(block_tokens=1),)),
        scheduler=SchedulerSettings(
            scheduling=Scheduling.LLAMACPP,
            max_num_seqs=4,
            max_num_batched_tokens=2048,
            max_model_len=context_len,
            reserve_full_prompt=False,
        ),
        step=step,
    )


def poisson_requests(
    per_s: float, count: int, seed: int, *, longest_prompt_tokens: int, longest_output_tokens: int
) -> tuple[Request, ...]:
    random, now_ns, made = Random(seed), 0, []
    for _ in range(count):
        now_ns += int(random.expovariate(per_s) * 1e9)
        made.append(
            Request(
                arrival_ns=now_ns,
                prompt_tokens=random.randint(20, longest_prompt_tokens),
                output_tokens=random.randint(5, longest_output_tokens),
            )
        )
    return tuple(made)
