"""How long the prompts of a session are, turn by turn, such that all prompts together have the quantiles of their cohort.

A session's size grows by a step in each turn, and shrinks where it is compacted. Which of two prompts is longer follows from their
sizes; how long they are follows from the quantiles: the share of all turns whose session is not larger is the place of the prompt in
the distribution. The shares are those of many sessions drawn beforehand, the same for every seed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramledger.workload.agents import Agent
from vramledger.workload.cohort import Cohort
from vramledger.workload.columnar.length_table import LengthTable, random_words

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
_SURVEYED_TURNS = 2**17


class Paths(NamedTuple):
    """Several sessions, their turns one session after the other."""

    turns: Ints
    prompts: Ints
    compacted: Bools


class SessionPaths:
    """Draws prompts of whole sessions."""

    def __init__(self, cohort: Cohort, agent: Agent) -> None:
        self._agent = agent
        self._prompts = LengthTable(cohort.prompts)
        self._turns = LengthTable(agent.turns)
        self._growth = LengthTable(agent.growth_tokens) if agent.growth_tokens else None
        self._first = LengthTable(agent.first_tokens) if agent.first_tokens else self._growth
        surveyed = max(int(_SURVEYED_TURNS / self._turns.mean), 32)
        rng = np.random.Generator(np.random.PCG64(0))
        self._sizes = np.sort(self._sized(surveyed, rng, stratified=True)[1])
        self._places = (np.arange(len(self._sizes)) + 0.5) / len(self._sizes)

    @property
    def mean_turns(self) -> float:
        """Turns of a session on average."""
        return self._turns.mean

    def draw(self, sessions: int, rng: np.random.Generator) -> Paths:
        """So many sessions."""
        turns, sizes, compacted = self._sized(sessions, rng, stratified=False)
        places = np.interp(sizes, self._sizes, self._places)
        return Paths(turns, self._prompts.at((places * 2**32).astype(np.uint32)), compacted)

    def _sized(
        self, sessions: int, rng: np.random.Generator, *, stratified: bool
    ) -> tuple[Ints, Floats, Bools]:
        turns = self._turns.at(random_words(rng, sessions, stratified=stratified))
        total = int(turns.sum())
        begins = np.cumsum(turns) - turns
        steps = np.ones(total)
        if self._growth is not None:
            steps = self._growth.at(random_words(rng, total, stratified=False)).astype(np.float64)
        if self._first is not None:
            steps[begins] = self._first.at(random_words(rng, sessions, stratified=False))
        compacted = rng.random(total) < self._agent.compact_probability
        compacted[begins] = False
        sizes = _grown(steps, turns, compacted, self._agent.compact_to)
        return turns, sizes + np.repeat(rng.random(sessions), turns), compacted


def _grown(steps: Floats, turns: Ints, compacted: Bools, compact_to: float) -> Floats:
    """The size after each step; where a session is compacted a share of it is left before the step."""
    sizes = np.empty(len(steps))
    begins = np.cumsum(turns) - turns
    # One column is the same turn of all sessions that are as long, the longest first.
    order = np.argsort(-turns, kind="stable")
    begins, lengths = begins[order], turns[order]
    held = np.zeros(len(turns))
    for turn in range(int(lengths[0])):
        alive = int(np.searchsorted(-lengths, -turn, side="left"))
        here = begins[:alive] + turn
        held = np.where(compacted[here], held[:alive] * compact_to, held[:alive]) + steps[here]
        sizes[here] = held
    return sizes
