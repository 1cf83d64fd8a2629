"""The same case through vramledger's scheduler and pool."""

from __future__ import annotations

from collections import deque
from typing import Any

from tools.fidelity.vllm_scheduler.cases import Case

from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.schedulers.protocol import StepPlan
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.schedulers.vllm import VllmScheduler
from vramledger.simulation.settings import SchedulerSettings
from vramledger.units import ceil_div

Step = dict[str, Any]


def steps_of(case: Case, version: str = "0.32.0") -> list[Step]:
    """What our scheduler does by the rules of a release, in the terms of probe.py."""
    return _Replay(case, release_of(version)).run()


def release_of(version: str) -> tuple[int, ...]:
    """(0, 32) of "0.32.0"."""
    return tuple(int(part) for part in version.split(".")[:2])


def scheduler_settings(settings: dict[str, Any], release: tuple[int, ...]) -> SchedulerSettings:
    """A case's scheduler."""
    names = set(SchedulerSettings.__struct_fields__) & settings.keys()
    return SchedulerSettings(
        **{name: settings[name] for name in names},
        long_prefill_alone_unbounded=release >= (0, 31),
        priority_goes_on=release >= (0, 33),
        states_for_resend=release >= (0, 32),
    )


def layout_of(settings: dict[str, Any], release: tuple[int, ...]) -> PoolLayout:
    """A case's pool; block 0 is vLLM's null block."""
    batches = 2 if settings["async_scheduling"] and release >= (0, 26) else 1
    in_flight = settings["max_num_batched_tokens"] * batches
    groups = []
    for group in settings["groups"]:
        size, window = group["block_tokens"], group.get("window_tokens")
        cap = None
        if window is not None:
            cap = ceil_div(min(window - 1 + in_flight, settings["max_model_len"]), size) + 1
        if group["kind"] == "chunk":
            cap = ceil_div(min(window + in_flight, settings["max_model_len"]), size)
        groups.append(
            BlockGroup(
                kind=GroupKind(group["kind"].removeprefix("kept-")),
                block_tokens=size,
                window_tokens=window,
                state_blocks=int(group["kind"] == "state"),
                keeps_states=group["kind"] == "kept-state",
                admission_blocks=cap,
            )
        )
    return PoolLayout(
        num_blocks=settings["num_blocks"],
        groups=tuple(groups),
        reserved_blocks=1,
        # 0.27 and 0.28 reuse blocks in the order they came back where nothing is cached: other numbers, as many of them.
        uncached_first=release >= (0, 24)
        and (settings["prefix_caching"] or not (0, 27) <= release < (0, 29)),
        retention_tokens=settings["retention_interval"],
        renews_states=release == (0, 32),
    )


class _Replay:
    def __init__(self, case: Case, release: tuple[int, ...]) -> None:
        self._case = case
        layout = layout_of(case["settings"], release)
        self._key_tokens = layout.key_tokens
        self._pool = BlockPool(layout)
        self._scheduler = VllmScheduler(scheduler_settings(case["settings"], release), self._pool)
        self._live: dict[int, Sequence] = {}
        self._plans: deque[StepPlan] = deque()
        self._chains: dict[tuple[int, int], int] = {}

    def run(self) -> list[Step]:
        requests = self._case["requests"]
        last_event = max(max(request["at_step"], request.get("cancel_step") or 0) for request in requests)
        steps: list[Step] = []
        for number in range(self._case["max_steps"]):
            self._events(number)
            step = self._step(number)
            steps.append(step)
            if number > last_event and not self._live and not step["tokens"]:
                break
        return steps

    def _events(self, step: int) -> None:
        requests = self._case["requests"]
        for number, request in enumerate(requests):
            if request.get("cancel_step") == step and number in self._live:
                self._scheduler.abort(self._live.pop(number))
        for number, request in enumerate(requests):
            if request["at_step"] == step:
                self._live[number] = Sequence(
                    identity=number,
                    number=number,
                    prompt_tokens=len(request["prompt"]),
                    output_tokens=len(request["outputs"]),
                    max_output_tokens=request["max_output_tokens"],
                    keys=self._keys(request["prompt"] + request["outputs"]),
                    priority=request["priority"],
                    sent_ps=request["at_step"],
                )
                self._scheduler.submit(self._live[number])

    def _keys(self, tokens: list[int]) -> list[int]:
        """A number for each full block's content together with all before it."""
        keys = []
        chain = 0
        for place, token in enumerate(tokens):
            chain = self._chains.setdefault((chain, token), len(self._chains) + 1)
            if (place + 1) % self._key_tokens == 0:
                keys.append(chain)
        return keys

    def _step(self, number: int) -> Step:
        plan = self._scheduler.step(number)
        step: Step = {
            "tokens": [[share.sequence.number, share.tokens] for share in plan.scheduled],
            "admitted": [
                [share.sequence.number, share.computed_before]
                for share in plan.scheduled
                if share.sequence in plan.admitted
            ],
            "preempted": sorted(sequence.number for sequence in plan.preempted),
            "running": [sequence.number for sequence in self._scheduler.running],
            "waiting": [sequence.number for sequence in self._scheduler.waiting],
            "blocks": {
                str(sequence.number): [
                    [max(block, 0) for block in table] for table in self._pool.block_tables(sequence.identity)
                ]
                for sequence in self._scheduler.running
            },
            "free": self._pool.free_blocks,
        }
        self._plans.append(plan)
        ended = []
        if len(self._plans) > self._scheduler.lag_steps:
            ended = self._scheduler.after_step(self._plans.popleft())
        for sequence in ended:
            del self._live[sequence.number]
        step["ended"] = sorted(sequence.number for sequence in ended)
        step["free_after"] = self._pool.free_blocks
        return step
