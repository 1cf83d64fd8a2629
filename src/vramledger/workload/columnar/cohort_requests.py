"""Requests of a cohort without their times: lengths, what is shared, bounds and deadlines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vramledger.workload.cohort import Cohort
from vramledger.workload.columnar.length_table import LengthTable, random_words
from vramledger.workload.columnar.retrieved import RetrievedText
from vramledger.workload.columnar.rows import PLACE, Rows, joined_rows, plain_rows
from vramledger.workload.columnar.shared_text import SharedText
from vramledger.workload.columns import SCALARS

Ints = npt.NDArray[np.int64]
MS = 10**6
DRAWN = 1024
PREFILL_TOKENS_PER_S, DECODE_TOKENS_PER_S = 10_000, 50
"""A nominal service for times that only a simulation can know."""


class CohortRequests:
    """Draws the requests of one cohort, always so many at once, and hands them out as they are wanted.

    Identities of its texts begin at `first_id`.
    """

    def __init__(
        self,
        cohort: Cohort,
        *,
        tenant: int,
        boundary: int,
        first_id: int,
        block_tokens: int,
        stratified: bool,
        seed: np.random.SeedSequence,
    ) -> None:
        self.cohort = cohort
        self.tables = LengthTable(cohort.prompts), LengthTable(cohort.outputs)
        self.template = template_of(cohort, tenant, boundary)
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._stratified = stratified
        self._block_tokens = block_tokens
        self._first_id = first_id
        self._ids_per_text = ids_per_text(cohort, block_tokens)
        self._shares = bool(cohort.hit_share or cohort.prefix_tokens)
        self._text = SharedText(
            block_tokens=block_tokens,
            hit_share=cohort.hit_share,
            text_tokens=cohort.prefix_tokens,
            texts=cohort.prefixes,
            skew=cohort.prefix_skew,
        )
        # What is looked up after the question stands behind text of the request's own: nobody shares it.
        looked_up = cohort.retrieval if cohort.retrieval and cohort.retrieval.place == "front" else None
        self._retrieved = RetrievedText(looked_up, block_tokens, first_id) if looked_up else None
        self._cancels = LengthTable(cohort.cancel_after_ms) if cohort.cancel_after_ms else None
        self._drawn: list[Rows] = []

    @property
    def nominal_ns(self) -> int:
        """How long a request takes at a nominal speed, on average."""
        prompt, output = self.tables
        return round((prompt.mean / PREFILL_TOKENS_PER_S + output.mean / DECODE_TOKENS_PER_S) * 1e9)

    def take(self, count: int) -> Rows:
        """The next `count` requests, all of them at time 0."""
        held = sum(rows.size for rows in self._drawn)
        while held < count:
            self._drawn.append(self._draw())
            held += DRAWN
        rows = joined_rows(self._drawn)
        self._drawn = [rows.part(count, rows.size)]
        return rows.part(0, count)

    def _draw(self) -> Rows:
        rng = self._rng
        prompts = self.tables[0].at(random_words(rng, DRAWN, stratified=self._stratified))
        outputs = self.tables[1].at(random_words(rng, DRAWN, stratified=self._stratified))
        values = np.repeat(self.template[None, :], DRAWN, axis=0)
        bound = self.cohort.max_output_tokens
        if isinstance(bound, int):
            outputs = np.minimum(outputs, bound)
        values[:, PLACE["prompt_tokens"]] = prompts
        values[:, PLACE["output_tokens"]] = outputs
        values[:, PLACE["max_output_tokens"]] = bound if isinstance(bound, int) else outputs if bound else -1
        if self._cancels is not None:
            after_ns = self._cancels.at(random_words(rng, DRAWN, stratified=False)) * MS
            gives_up = rng.random(DRAWN) < self.cohort.cancel_probability
            values[:, PLACE["cancel_ns"]] = np.where(gives_up, after_ns, -1)
        texts, shared = (
            self._text.blocks(prompts, rng)
            if self._shares or self._retrieved
            else (np.zeros(DRAWN, dtype=np.int64), None)
        )
        if self._retrieved:
            head = shared if self._shares and shared is not None else np.zeros(DRAWN, dtype=np.int64)
            return self._retrieved.rows(
                values, prompts, self._first_id + texts * self._ids_per_text, head, rng
            )
        if shared is None:
            return plain_rows(values)
        return plain_rows(values, self._first_id + texts * self._ids_per_text, shared)


def ids_per_text(cohort: Cohort, block_tokens: int) -> int:
    """Identities of one shared text: as many as the longest prompt has blocks."""
    return cohort.prompts.highest // block_tokens + 1


def template_of(cohort: Cohort, tenant: int, boundary: int) -> Ints:
    """The numbers that all requests of a cohort have."""
    values = np.full(len(SCALARS), -1, dtype=np.int64)
    known = {
        "arrival_ns": 0, "tenant": tenant, "boundary": boundary, "pause_ns": 0, "branches": cohort.branches,
        "priority": cohort.priority,
    }  # fmt: skip
    for name in ("first_token_deadline", "deadline"):
        if (after_ms := getattr(cohort, f"{name}_ms")) is not None:
            known[f"{name}_ns"] = after_ms * MS
    for name, value in known.items():
        values[PLACE[name]] = value
    return values
