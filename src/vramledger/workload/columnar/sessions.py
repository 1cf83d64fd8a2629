"""Sessions of agents made into requests: turns that grow, what breaks their prefix, waits and branches.

Turn `j + 1` begins with the prompt of turn `j` and, where answers are kept, with its answer, up to where the text was changed
since: nowhere, at the last so many tokens (an edit), behind what all sessions share (compaction, chunks exchanged at
the front) or from the first token (a revision of the tools). Times are nominal until a simulation knows when turns end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramledger.workload.cohort import Cohort
from vramledger.workload.columnar.cohort_requests import (
    DECODE_TOKENS_PER_S,
    MS,
    PREFILL_TOKENS_PER_S,
    template_of,
)
from vramledger.workload.columnar.history import History, Run
from vramledger.workload.columnar.length_table import LengthTable, random_words
from vramledger.workload.columnar.retrieved import RetrievedText, hashed_id
from vramledger.workload.columnar.rows import PLACE, Rows
from vramledger.workload.columnar.session_paths import SessionPaths
from vramledger.workload.quantiles import Quantiles

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NS = 10**9
_DRAWN_TURNS = 4096


class _Turns(NamedTuple):
    """What was drawn for the turns of one session."""

    prompts: Ints
    outputs: Ints
    compacted: Bools
    edits: Ints
    pauses_ns: Ints
    retrieves: Bools
    branches: Bools

    def part(self, begin: int, end: int) -> _Turns:
        return _Turns(
            self.prompts[begin:end],
            self.outputs[begin:end],
            self.compacted[begin:end],
            self.edits[begin:end],
            self.pauses_ns[begin:end],
            self.retrieves[begin:end],
            self.branches[begin:end],
        )


class Sessions:
    """Draws sessions of one cohort, one after the other as they start."""

    def __init__(
        self,
        cohort: Cohort,
        *,
        tenant: int,
        boundary: int,
        first_id: int,
        block_tokens: int,
        seed: np.random.SeedSequence,
    ) -> None:
        if cohort.agent is None:
            raise ValueError(f"cohort {cohort.name!r} has no agent")
        self._cohort, self._agent = cohort, cohort.agent
        self._block_tokens = block_tokens
        self._first_id = self._next_id = first_id
        self._template = template_of(cohort, tenant, boundary)
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._paths = SessionPaths(cohort, cohort.agent)
        self._outputs = LengthTable(cohort.outputs)
        self._edits = _table(cohort.agent.edit_tokens)
        self._waits, self._pauses = _table(cohort.agent.tool_wait_ms), _table(cohort.agent.human_pause_ms)
        self._cancels = _table(cohort.cancel_after_ms)
        popularity = np.arange(1, cohort.prefixes + 1, dtype=np.float64) ** -cohort.prefix_skew
        self._places = np.cumsum(popularity / popularity.sum())
        looked_up = cohort.retrieval if cohort.retrieval and cohort.retrieval.place == "front" else None
        self._retrieved = RetrievedText(looked_up, block_tokens, first_id) if looked_up else None
        self._at_once = max(int(_DRAWN_TURNS / self._paths.mean_turns), 1)
        self._drawn: list[_Turns] = []
        self._started = 0

    @property
    def turns_of_each(self) -> float:
        """Turns of a session on average."""
        return self._paths.mean_turns

    @property
    def nominal_ns(self) -> int:
        """How long a session takes on average, waits and nominal service together."""
        agent = self._agent
        human = agent.human_probability
        wait_ms = (self._waits.mean if self._waits else 0) * (1 - human)
        wait_ms += (self._pauses.mean if self._pauses else 0) * human
        return round(self.turns_of_each * (wait_ms * MS + self._outputs.mean / DECODE_TOKENS_PER_S * NS))

    def start(self, time_ns: int) -> tuple[Rows, int]:
        """The next session, its first turn at `time_ns`, parents counted within it; and when it ends."""
        turns = self._next()
        grown = np.diff(turns.prompts, prepend=0).clip(min=0)
        service = _nominal_ns(grown, turns.outputs)
        answers = self._fork_answers(len(turns.prompts), turns.branches)
        waited = service + _nominal_ns(0, answers.max(axis=1))
        times = time_ns + np.cumsum(turns.pauses_ns) + np.concatenate([[0], np.cumsum(waited[:-1])])
        known, broken = self._kept(turns, times)
        counts, firsts, lengths = self._identities(turns, times, known, broken)
        rows = Rows(self._values(turns, times), counts, firsts, lengths)
        if answers.any():
            rows = self._with_forks(rows, known, answers, times + service)
        self._started += 1
        return rows, int(times[-1] + waited[-1])

    def _values(self, turns: _Turns, times: Ints) -> Ints:
        count = len(turns.prompts)
        values = np.repeat(self._template[None, :], count, axis=0)
        values[:, PLACE["arrival_ns"]] = times
        values[:, PLACE["prompt_tokens"]] = turns.prompts
        values[:, PLACE["output_tokens"]] = turns.outputs
        values[:, PLACE["max_output_tokens"]] = self._bounds(turns.outputs)
        values[:, PLACE["conversation"]] = self._started
        values[:, PLACE["parent"]] = np.arange(-1, count - 1)
        values[:, PLACE["pause_ns"]] = turns.pauses_ns
        if (branches := self._agent.branches) and branches.kind == "samples":
            values[:, PLACE["branches"]] = np.where(turns.branches, branches.count, self._cohort.branches)
        self._cancel(values)
        return values

    def _with_forks(self, rows: Rows, known: Ints, answers: Ints, ends: Ints) -> Rows:
        """The session with its forks behind the turns they go on from; the next turn follows the longest."""
        branches = self._agent.branches
        assert branches is not None
        forked = np.flatnonzero(answers[:, 0] > 0)
        per_turn = np.ones(len(known), dtype=np.int64)
        per_turn[forked] += branches.count
        places = np.cumsum(per_turn) - per_turn
        full = rows.taken(np.repeat(np.arange(len(known)), per_turn))
        last = places.copy()
        last[forked] += 1 + answers[forked].argmax(axis=1)
        full.values[places[1:], PLACE["parent"]] = last[:-1]
        for fork in range(branches.count):
            here = places[forked] + 1 + fork
            fresh = {
                "arrival_ns": ends[forked], "prompt_tokens": known[forked] + branches.prompt_tokens,
                "output_tokens": answers[forked, fork], "parent": places[forked], "pause_ns": 0,
                "max_output_tokens": self._bounds(answers[forked, fork]), "cancel_ns": -1,
            }  # fmt: skip
            for name, value in fresh.items():
                full.values[here, PLACE[name]] = value
        return full

    def _kept(self, turns: _Turns, times: Ints) -> tuple[Ints, Ints]:
        """Named tokens of each turn's prompt and answer; and where its text differs from the turn before: a token, 0 for
        everything (the first turn too), -1 for nowhere."""
        agent, prompts, outputs = self._agent, turns.prompts, turns.outputs
        broken = np.full(len(prompts), -1, dtype=np.int64)
        edited = turns.edits > 0
        broken[edited] = np.maximum(
            prompts[np.flatnonzero(edited) - 1] - turns.edits[edited], agent.head_tokens
        )
        broken[turns.compacted] = agent.head_tokens
        if self._retrieved is not None:
            broken[turns.retrieves] = agent.head_tokens
        revision = self._revisions(times)
        broken[np.diff(revision, prepend=-1) != 0] = 0
        broken[0] = 0
        known = prompts.copy()
        if agent.keeps_output:
            goes_on = broken[1:] < 0
            known[:-1][goes_on] = np.minimum(prompts + outputs, np.append(prompts[1:], 0))[:-1][goes_on]
        return known, broken

    def _identities(self, turns: _Turns, times: Ints, known: Ints, broken: Ints) -> tuple[Ints, Ints, Ints]:
        blocks = known // self._block_tokens
        text = min(
            int(np.searchsorted(self._places, self._rng.random(), side="right")), len(self._places) - 1
        )
        revision = self._revisions(times)
        history = History((), self._allot)
        begins = np.flatnonzero(broken >= 0)
        parts = []
        looked_up: Sequence[int] = ()
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(blocks)], strict=True):
            fresh = bool(turns.retrieves[begin]) and self._retrieved is not None
            if fresh and self._retrieved is not None:
                looked_up = self._retrieved.chunks(1, self._rng)[0].tolist()
            if broken[begin] == 0 or fresh:
                history.reset(self._head(text, int(revision[begin]), looked_up))
            else:
                history.rewrite(int(broken[begin]) // self._block_tokens)
            parts.append(history.extend(blocks[begin:end]))
        counts, firsts, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return counts, firsts, lengths

    def _head(self, text: int, revision: int, looked_up: Sequence[int]) -> list[Run]:
        blocks = self._agent.head_tokens // self._block_tokens
        first = hashed_id(self._first_id, text, revision)
        head = [Run(first, 0, blocks)]
        if self._retrieved is not None:
            head += self._retrieved.runs(first, blocks, looked_up)
        return head

    def _revisions(self, times: Ints) -> Ints:
        """Which revision of the tools each turn has."""
        agent = self._agent
        revision = np.zeros(len(times), dtype=np.int64)
        if agent.revision_every_s is not None:
            revision = times // round(agent.revision_every_s * NS)
        if agent.revision_every_turns is not None:
            # Both together: a number for each pair, the turns' revision within the time's.
            revision = revision * 2**17 + np.arange(len(times)) // agent.revision_every_turns
        return revision

    def _fork_answers(self, count: int, branching: Bools) -> Ints:
        """Output tokens of each fork of each turn, 0 where there is none. Nothing goes on after the last turn."""
        branches = self._agent.branches
        if branches is None or branches.kind != "forks":
            return np.zeros((count, 1), dtype=np.int64)
        forked = np.flatnonzero(branching[:-1])
        answers = np.zeros((count, branches.count), dtype=np.int64)
        words = random_words(self._rng, len(forked) * branches.count, stratified=False)
        answers[forked] = self._cut(self._outputs.at(words)).reshape(-1, branches.count)
        return answers

    def _cut(self, outputs: Ints) -> Ints:
        """Answers as long as clients let them be."""
        bound = self._cohort.max_output_tokens
        return np.minimum(outputs, bound) if isinstance(bound, int) else outputs

    def _bounds(self, outputs: Ints) -> Ints | int:
        bound = self._cohort.max_output_tokens
        return bound if isinstance(bound, int) else outputs if bound else -1

    def _cancel(self, values: Ints) -> None:
        if self._cancels is not None:
            count = len(values)
            after_ns = self._cancels.at(random_words(self._rng, count, stratified=False)) * MS
            gives_up = self._rng.random(count) < self._cohort.cancel_probability
            values[:, PLACE["cancel_ns"]] = np.where(gives_up, after_ns, -1)

    def _allot(self, blocks: int) -> int:
        first = self._next_id
        self._next_id += blocks
        return first

    def _next(self) -> _Turns:
        if not self._drawn:
            self._drawn = self._draw()[::-1]
        return self._drawn.pop()

    def _draw(self) -> list[_Turns]:
        rng, agent = self._rng, self._agent
        paths = self._paths.draw(self._at_once, rng)
        total = len(paths.prompts)
        begins = np.cumsum(paths.turns) - paths.turns
        outputs = self._cut(self._outputs.at(random_words(rng, total, stratified=False)))
        edits = np.zeros(total, dtype=np.int64)
        if self._edits is not None:
            drawn = self._edits.at(random_words(rng, total, stratified=False))
            edits = np.where(rng.random(total) < agent.edit_probability, drawn, 0)
            edits[begins] = 0
        pauses = self._waiting(total)
        pauses[begins] = 0
        retrieves = np.zeros(total, dtype=bool)
        if self._cohort.retrieval is not None:
            retrieves = rng.random(total) < self._cohort.retrieval.probability
        branches = np.zeros(total, dtype=bool)
        if agent.branches is not None:
            branches = rng.random(total) < agent.branches.probability
        every = _Turns(paths.prompts, outputs, paths.compacted, edits, pauses, retrieves, branches)
        ends = begins + paths.turns
        return [every.part(begin, end) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]

    def _waiting(self, total: int) -> Ints:
        rng = self._rng
        waits = np.zeros(total, dtype=np.int64)
        if self._waits is not None:
            waits = self._waits.at(random_words(rng, total, stratified=False)) * MS
        if self._pauses is not None:
            pauses = self._pauses.at(random_words(rng, total, stratified=False)) * MS
            waits = np.where(rng.random(total) < self._agent.human_probability, pauses, waits)
        return waits


def _table(quantiles: Quantiles | None) -> LengthTable | None:
    return LengthTable(quantiles) if quantiles is not None else None


def _nominal_ns(prompt_tokens: Ints | int, output_tokens: Ints) -> Ints:
    return prompt_tokens * (NS // PREFILL_TOKENS_PER_S) + output_tokens * (NS // DECODE_TOKENS_PER_S)
