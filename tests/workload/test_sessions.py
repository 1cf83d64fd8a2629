from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from vramledger.workload.agents import Agent, Branches, Retrieval
from vramledger.workload.cohort import Cohort
from vramledger.workload.cohort_file import read_cohorts
from vramledger.workload.columnar.sampling import sample_workload
from vramledger.workload.columnar.session_paths import SessionPaths
from vramledger.workload.quantiles import Quantiles
from vramledger.workload.request import Request
from workload.prefix_oracle import hit_share

BLOCK = 16
HEAD = 1600
AGENT = Agent(
    turns=Quantiles(p50=10, p95=20, p99=30),
    tool_tokens=1200,
    system_tokens=400,
    tool_wait_ms=Quantiles(p50=2000, p95=20_000, p99=60_000),
)
COHORT = Cohort(
    name="agents",
    prompt_tokens=Quantiles(p50=4096, p95=12_288, p99=24_576, min=1700),
    output_tokens=Quantiles(p50=100, p95=400, p99=1000),
    rate_per_s=0.05,
    agent=AGENT,
)


def cohort(**agent: Any) -> Cohort:
    return structs.replace(COHORT, agent=structs.replace(AGENT, **agent))


def turns(*cohorts: Cohort, requests: int = 1500, seed: int = 1) -> list[Request]:
    return list(sample_workload(cohorts, requests=requests, seed=seed).requests())


def pairs(requests: list[Request]) -> list[tuple[Request, Request]]:
    """A turn and the turn it follows."""
    return [(requests[one.parent], one) for one in requests if one.parent is not None]


def shared_blocks(one: Request, other: Request) -> int:
    both = zip(one.blocks, other.blocks, strict=False)
    return next(
        (place for place, (left, right) in enumerate(both) if left != right),
        min(len(one.blocks), len(other.blocks)),
    )


def test_a_turn_begins_with_all_of_the_turn_before_and_its_answer() -> None:
    requests = turns(cohort())
    followed = pairs(requests)
    assert len(followed) > 1000
    for before, after in followed:
        kept = min(before.prompt_tokens + before.output_tokens, after.prompt_tokens)
        assert len(before.blocks) == kept // BLOCK
        assert after.blocks[: len(before.blocks)] == before.blocks
        assert after.conversation == before.conversation
        assert after.prompt_tokens >= before.prompt_tokens


def test_answers_that_are_not_kept_are_not_named() -> None:
    for before, after in pairs(turns(cohort(keeps_output=False))):
        assert len(before.blocks) == before.prompt_tokens // BLOCK
        assert after.blocks[: len(before.blocks)] == before.blocks


def test_sessions_share_their_agents_head_and_nothing_else() -> None:
    firsts = [one for one in turns(structs.replace(COHORT, prefixes=2)) if one.parent is None]
    heads = {one.blocks[: HEAD // BLOCK] for one in firsts}
    assert len(heads) == 2
    for one in firsts[1:]:
        assert shared_blocks(firsts[0], one) in (0, HEAD // BLOCK)


def test_an_edit_changes_the_last_tokens_of_the_history() -> None:
    edited = cohort(edit_probability=0.5, edit_tokens=Quantiles(p50=160, p95=160, p99=160))
    changed = whole = 0
    for before, after in pairs(turns(edited)):
        shared = shared_blocks(before, after)
        if shared == len(before.blocks):
            whole += 1
        else:
            changed += 1
            assert shared == max(before.prompt_tokens - 160, HEAD) // BLOCK
            assert len(before.blocks) == before.prompt_tokens // BLOCK
    assert changed / (changed + whole) == pytest.approx(0.5, abs=0.05)


def test_a_compaction_leaves_what_sessions_share_and_shrinks() -> None:
    followed = pairs(turns(cohort(compact_probability=0.1, compact_to=0.25), requests=2500))
    compacted = [
        (before, after) for before, after in followed if shared_blocks(before, after) < len(before.blocks)
    ]
    assert len(compacted) / len(followed) == pytest.approx(0.1, abs=0.03)
    assert {shared_blocks(before, after) for before, after in compacted} == {HEAD // BLOCK}
    shrunk = sum(after.prompt_tokens < before.prompt_tokens for before, after in compacted)
    assert shrunk / len(compacted) > 0.7


def test_a_revision_of_the_tools_leaves_nothing() -> None:
    requests = turns(cohort(revision_every_turns=5))
    number: dict[int | None, int] = {}
    heads: dict[int, set[int]] = {}
    for one in requests:
        turn = number[one.conversation] = number.get(one.conversation, -1) + 1
        heads.setdefault(turn // 5, set()).add(one.blocks[0])
    assert all(len(first) == 1 for first in heads.values())
    assert len(set().union(*heads.values())) == len(heads)
    timed = turns(cohort(revision_every_s=600.0))
    first_of = {one.arrival_ns // (600 * 10**9): one.blocks[0] for one in timed}
    assert all(one.blocks[0] == first_of[one.arrival_ns // (600 * 10**9)] for one in timed)
    assert len(set(first_of.values())) == len(first_of) > 1


def test_forks_go_on_from_one_answer_and_the_session_from_the_longest() -> None:
    requests = turns(cohort(branches=Branches(count=3, probability=0.2, kind="forks", prompt_tokens=50)))
    children: dict[int, list[int]] = {}
    for number, one in enumerate(requests):
        if one.parent is not None:
            children.setdefault(one.parent, []).append(number)
    forked = 0
    for parent, numbers in children.items():
        forks = [requests[number] for number in numbers]
        if len(forks) < 2:
            continue
        forked += 1
        before = requests[parent]
        assert len(forks) == 3
        assert {fork.blocks for fork in forks} == {before.blocks}
        assert {fork.pause_ns for fork in forks} == {0}
        next_turns = [number for number in numbers if number in children]
        assert all(
            requests[number].output_tokens == max(fork.output_tokens for fork in forks)
            for number in next_turns
        )
        assert len(next_turns) <= 1
    assert forked > 50


def test_samples_are_branches_of_one_request() -> None:
    requests = turns(cohort(branches=Branches(count=4, probability=0.25)))
    assert {one.branches for one in requests} == {1, 4}
    assert sum(one.branches == 4 for one in requests) / len(requests) == pytest.approx(0.25, abs=0.04)


def test_waits_of_tools_and_pauses_of_people() -> None:
    requests = turns(
        cohort(human_pause_ms=Quantiles(p50=10**6, p95=10**6, p99=10**6), human_probability=0.2),
        requests=3000,
    )
    pauses = [after.pause_ns for _, after in pairs(requests)]
    tools = [pause for pause in pauses if pause != 10**12]
    assert 1 - len(tools) / len(pauses) == pytest.approx(0.2, abs=0.04)
    assert np.median(tools) == pytest.approx(2e9, rel=0.15)


def test_all_prompts_of_whole_sessions_have_the_cohorts_quantiles() -> None:
    """Turns of a session are alike, so 20,000 sessions say what some thousand independent prompts would."""
    agent = structs.replace(
        AGENT, growth_tokens=Quantiles(p50=200, p95=1500, p99=5000), compact_probability=0.02
    )
    drawn = SessionPaths(COHORT, agent).draw(20_000, np.random.Generator(np.random.PCG64(3)))
    for place, value in COHORT.prompts.points:
        assert np.quantile(drawn.prompts, place) == pytest.approx(value, rel=0.05)
    assert np.median(drawn.turns) == 10


def test_the_same_seed_gives_the_same_sessions_however_many_are_made_at_once() -> None:
    agents = cohort(branches=Branches(count=2, probability=0.1, kind="forks"), revision_every_s=900.0)
    users = structs.replace(agents, name="users", rate_per_s=None, concurrency=4)
    plain = Cohort(name="plain", prompt_tokens=500, output_tokens=5, rate_per_s=0.5, prefix_hit="high")
    whole = sample_workload((agents, users, plain), requests=3000, seed=7).table()
    pieces = sample_workload((agents, users, plain), requests=3000, seed=7, window_requests=50).table()
    assert all(np.array_equal(one, other) for one, other in zip(whole, pieces, strict=True))
    assert (np.diff(whole.arrival_ns) >= 0).all()
    followed = np.flatnonzero(whole.parent >= 0)
    assert (whole.parent[followed] < followed).all()
    assert (whole.arrival_ns[whole.parent[followed]] <= whole.arrival_ns[followed]).all()


def test_users_start_the_next_session_when_the_last_has_ended() -> None:
    requests = turns(structs.replace(COHORT, rate_per_s=None, concurrency=3), requests=600)
    assert sum(one.parent is None for one in requests) == 3
    changes = [
        (before, after) for before, after in pairs(requests) if before.conversation != after.conversation
    ]
    assert len(changes) > 20
    assert {after.pause_ns for _, after in changes} == {0}


@pytest.mark.parametrize("order", ["relevance", "sorted"])
def test_what_two_prompts_share_of_a_corpus_is_what_both_have_in_the_same_order(order: str) -> None:
    retrieval = Retrieval(top_k=3, chunk_tokens=160, corpus_chunks=6, skew=1.0, order=order)  # type: ignore[arg-type]
    plain = Cohort(
        name="rag",
        prompt_tokens=2000,
        output_tokens=5,
        rate_per_s=1.0,
        prefix_tokens=320,
        retrieval=retrieval,
    )
    requests = turns(plain, requests=300)
    assert {len(one.blocks) for one in requests} == {(320 + 3 * 160) // BLOCK}
    shared = {shared_blocks(requests[0], one) for one in requests[1:]}
    assert shared == {20, 30, 40, 50}
    orders = len({one.blocks for one in requests})
    assert orders <= (20 if order == "sorted" else 120)
    assert orders > 10


def test_sorted_chunks_are_found_more_often_than_ranked_ones() -> None:
    def share(order: str) -> float:
        retrieval = Retrieval(top_k=4, chunk_tokens=256, corpus_chunks=40, order=order)  # type: ignore[arg-type]
        plain = Cohort(name="rag", prompt_tokens=2000, output_tokens=5, rate_per_s=1.0, retrieval=retrieval)
        return hit_share(sample_workload((plain,), requests=800, seed=1))

    assert share("sorted") > share("relevance") > 0.05


def test_an_agent_that_looks_up_anew_keeps_its_head_alone() -> None:
    looking = structs.replace(
        COHORT, retrieval=Retrieval(top_k=2, chunk_tokens=320, corpus_chunks=10_000, skew=0.0)
    )
    shares = {shared_blocks(before, after) for before, after in pairs(turns(looking, requests=400))}
    assert min(shares) == HEAD // BLOCK
    appended = structs.replace(looking, retrieval=structs.replace(looking.retrieval, place="end"))  # type: ignore[type-var]
    assert all(
        shared_blocks(before, after) == len(before.blocks)
        for before, after in pairs(turns(appended, requests=400))
    )


def test_the_shipped_agents_hit_is_high() -> None:
    cohorts = read_cohorts(Path(__file__).parents[2] / "examples" / "workloads" / "agent-tools.toml")
    assert cohorts[0].users == 32
    assert hit_share(sample_workload(cohorts, requests=6000, seed=1)) == pytest.approx(0.94, abs=0.02)
