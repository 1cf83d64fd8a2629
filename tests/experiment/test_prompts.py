"""What engines find in prompts is what the simulator finds in identities, to the block."""

from __future__ import annotations

from itertools import takewhile
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.experiment.answer import Answer, Output
from vramledger.experiment.plan import ExperimentPlan, Kind
from vramledger.experiment.prompts import IdPrompts
from vramledger.experiment.shapes import Source, stage_requests
from vramledger.experiment.text_prompts import TextPrompts
from vramledger.workload.agents import Agent, Branches
from vramledger.workload.cohort import Cohort
from vramledger.workload.quantiles import Quantiles
from vramledger.workload.request import Request, WorkloadHeader

SIZE = 16


def agents(*, keeps_output: bool, edits: float, compacts: float, forks: float) -> Cohort:
    return Cohort(
        name="agents",
        prompt_tokens=Quantiles(min=40, p50=120, p95=300, p99=400, max=500),
        output_tokens=Quantiles(p50=20, p95=60, p99=90),
        agent=Agent(
            turns=Quantiles(p50=4, p95=6, p99=7),
            tool_tokens=16,
            system_tokens=10,
            keeps_output=keeps_output,
            edit_probability=edits,
            edit_tokens=Quantiles(p50=20, p95=40, p99=60) if edits else None,
            compact_probability=compacts,
            branches=Branches(count=2, probability=forks, kind="forks", prompt_tokens=9) if forks else None,
        ),
    )


def said(
    header: WorkloadHeader, requests: tuple[Request, ...], outputs: dict[int, list[int]]
) -> tuple[list[list[int]], dict[int, list[int]]]:
    """All prompts, and what each request left in the engine: its prompt and its answer."""
    prompts = IdPrompts(header, requests, seed=5, vocab_size=30_000)
    made, left = [], {}
    for number, request in enumerate(requests):
        prompt = prompts.prompt(number)
        assert len(prompt) == request.prompt_tokens
        made.append(prompt)
        left[number] = prompt + outputs[number]
        prompts.heard(Answer(number=number, at_ns=0, output=Output(ids=tuple(outputs[number]))))
    return made, left


def same(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def named(one: Request, other: Request) -> int:
    """Tokens of equal leading identities."""
    if one.boundary != other.boundary:
        return 0
    return SIZE * sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.blocks, other.blocks, strict=False))
    )


@settings(deadline=None, max_examples=30)
@given(
    keeps_output=st.booleans(),
    edits=st.sampled_from([0.0, 0.5]),
    compacts=st.sampled_from([0.0, 0.3]),
    forks=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 1000),
)
def test_a_prompt_shares_with_what_came_before_as_many_blocks_as_their_identities(
    keeps_output: bool, edits: float, compacts: float, forks: float, seed: int
) -> None:
    cohort = agents(keeps_output=keeps_output, edits=edits, compacts=compacts, forks=forks)
    header, requests = stage_requests(
        ExperimentPlan(), Kind.TOOLS, per_s=1.0, seconds=8.0, seed=seed, context_len=4096, pool_tokens=None,
        source=Source(name="a", cohorts=(cohort,)),
    )  # fmt: skip
    random = Random(seed)
    outputs = {
        number: [random.randrange(30_000) for _ in range(one.output_tokens)]
        for number, one in enumerate(requests)
    }
    prompts, left = said(header, requests, outputs)
    for later, request in enumerate(requests):
        for earlier in range(later):
            wanted = min(named(request, requests[earlier]), request.prompt_tokens) // SIZE
            found = same(prompts[later], left[earlier]) // SIZE
            if requests[earlier].parent == request.parent is not None and forks:
                # Forks of one turn: the part of their parent's last block that has no name is the same text for both.
                assert found >= wanted
            else:
                assert found == wanted, (later, earlier, request, requests[earlier])


def test_an_answer_that_ended_early_is_carried_as_far_as_it_goes() -> None:
    header = WorkloadHeader(name="t", source="t", block_tokens=SIZE)
    requests = (
        Request(arrival_ns=0, prompt_tokens=40, output_tokens=30, blocks=(1, 2, 3, 4), conversation=0),
        Request(
            arrival_ns=1, prompt_tokens=90, output_tokens=3, blocks=(1, 2, 3, 4, 5), conversation=0, parent=0
        ),
    )
    prompts, left = said(header, requests, {0: [7, 8, 9], 1: []})
    assert prompts[1][:43] == left[0]
    assert len(prompts[1]) == 90
    prompts, left = said(header, requests, {0: [], 1: []})
    assert prompts[1][:40] == left[0]


def test_conversations_without_identities_carry_nothing_as_the_simulator_finds_nothing() -> None:
    header = WorkloadHeader(name="t", source="t")
    requests = (
        Request(arrival_ns=0, prompt_tokens=40, output_tokens=3, conversation=0),
        Request(arrival_ns=1, prompt_tokens=90, output_tokens=3, conversation=0, parent=0),
    )
    prompts, left = said(header, requests, {0: [7, 8, 9], 1: []})
    assert same(prompts[1], left[0]) < 3


def test_a_turn_as_text_carries_the_answers_text() -> None:
    header = WorkloadHeader(name="t", source="t", block_tokens=SIZE)
    requests = (
        Request(arrival_ns=0, prompt_tokens=40, output_tokens=30, blocks=(1, 2, 3, 4), conversation=0),
        Request(
            arrival_ns=1, prompt_tokens=90, output_tokens=3, blocks=(1, 2, 3, 4, 5), conversation=0, parent=0
        ),
        Request(arrival_ns=2, prompt_tokens=50, output_tokens=3, blocks=(1, 2, 9), conversation=0, parent=0),
    )
    prompts = TextPrompts(header, requests, seed=1)
    first = prompts.prompt(0)
    assert len(first.split()) == 40
    prompts.heard(Answer(number=0, at_ns=0, output_tokens=30, output=Output(text=" said, and more")))
    second = prompts.prompt(1)
    assert second.startswith(first + " said, and more ")
    assert len(second.split()) == 40 + 3 + 20
    third = prompts.prompt(2)
    assert third.split()[:32] == first.split()[:32]
    assert third.split()[32:40] != first.split()[32:40]
    assert len(third.split()) == 50
