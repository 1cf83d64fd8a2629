"""An agent fitted to conversations: how many turns, how they grow, what breaks their prefix, how long they wait."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vramledger.workload.agents import MOST_TURNS, Agent
from vramledger.workload.columns import RequestColumns
from vramledger.workload.quantiles import PLACES, Quantiles

Ints = npt.NDArray[np.int64]
MS = 10**6


def quantiles_of(values: Ints) -> Quantiles:
    """All quantiles that we know names for, of values that are at least 1."""
    whole = np.maximum(values, 1)
    at = np.quantile(whole, list(PLACES.values()), method="inverted_cdf").tolist()
    return Quantiles(
        **dict(zip(PLACES, map(int, at), strict=True)), min=int(whole.min()), max=int(whole.max())
    )


class AgentFit:
    """Goes through the turns of conversations in order of time and says what agent has such turns."""

    def __init__(self, block_tokens: int | None) -> None:
        self._block_tokens = block_tokens
        self._last: dict[int, tuple[int, int, Ints]] = {}
        self._turns: dict[int, int] = {}
        self._first: list[int] = []
        self._growth: list[int] = []
        self._shrunk: list[float] = []
        self._edits: list[int] = []
        self._waits: list[int] = []
        self._followed = self._continued = 0

    def add(self, batch: RequestColumns, rows: Ints, conversations: Ints) -> None:
        """Turns at the places `rows` of a batch, and the conversation of each."""
        for place, conversation in zip(rows.tolist(), conversations.tolist(), strict=True):
            prompt = int(batch.prompt_tokens[place])
            blocks = batch.block_ids[batch.block_offsets[place] : batch.block_offsets[place + 1]]
            arrival = int(batch.arrival_ns[place])
            self._turns[conversation] = self._turns.get(conversation, 0) + 1
            before = self._last.get(conversation)
            if before is None:
                self._first.append(prompt)
            else:
                has_parent = batch.parent[place] >= 0
                pause = int(batch.pause_ns[place]) if has_parent else arrival - before[0]
                self._waits.append(max(pause // MS, 1))
                self._follow(before[1], before[2], prompt, blocks)
            self._last[conversation] = arrival, prompt, blocks.copy()

    def _follow(self, prompt_before: int, blocks_before: Ints, prompt: int, blocks: Ints) -> None:
        self._followed += 1
        if prompt < prompt_before:
            self._shrunk.append(prompt / prompt_before)
            return
        self._growth.append(prompt - prompt_before)
        if self._block_tokens is None:
            return
        full = min(prompt_before // self._block_tokens, len(blocks_before), len(blocks))
        differ = np.flatnonzero(blocks_before[:full] != blocks[:full])
        if len(differ):
            self._edits.append(prompt_before - int(differ[0]) * self._block_tokens)
        elif len(blocks_before) > full:
            reach = min(len(blocks_before), len(blocks))
            self._continued += bool((blocks_before[full:reach] == blocks[full:reach]).all() and reach > full)

    @property
    def sessions(self) -> int:
        """Conversations so far."""
        return len(self._turns)

    def agent(self, head_tokens: int) -> Agent:
        """The agent, whose sessions share `head_tokens`."""
        followed = max(self._followed, 1)
        growth = np.array(self._growth or [1], dtype=np.int64)
        return Agent(
            turns=quantiles_of(np.minimum(list(self._turns.values()), MOST_TURNS)),
            system_tokens=head_tokens,
            growth_tokens=quantiles_of(growth),
            first_tokens=quantiles_of(np.array(self._first, dtype=np.int64)),
            keeps_output=self._continued > 0.25 * followed,
            edit_probability=round(len(self._edits) / followed, 4),
            edit_tokens=quantiles_of(np.array(self._edits, dtype=np.int64)) if self._edits else None,
            compact_probability=round(len(self._shrunk) / followed, 4),
            compact_to=round(float(np.median(self._shrunk)), 3) if self._shrunk else 0.25,
            tool_wait_ms=quantiles_of(np.array(self._waits, dtype=np.int64)) if self._waits else None,
        )
