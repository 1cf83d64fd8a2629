"""What one sequence holds."""

from __future__ import annotations

from collections.abc import Sequence


class HeldSequence:
    """A block table a group, and how far each of them has been given back and completed.

    `skipped` and `committed` count leading places of the tables. `logical_tokens` are the tokens in the tables, once a group, `counted_tokens`
    those that the sums over all sequences have of it, once.
    `is_forked` is whether it may share a block that it writes into: without a fork only whole blocks are ever shared.
    """

    __slots__ = (
        "boundary",
        "committed",
        "counted_tokens",
        "encoder_tokens",
        "is_forked",
        "is_pinned",
        "keys",
        "logical_tokens",
        "reachable",
        "skipped",
        "tables",
        "tokens",
    )

    def __init__(
        self,
        keys: Sequence[int],
        boundary: int,
        num_groups: int,
        *,
        encoder_tokens: int = 0,
        reachable: tuple[int, ...] = (),
    ) -> None:
        self.keys = keys
        self.boundary = boundary
        self.encoder_tokens = encoder_tokens
        self.reachable = reachable
        self.tokens = 0
        self.tables: list[list[int]] = [[] for _ in range(num_groups)]
        self.skipped = [0] * num_groups
        self.committed = [0] * num_groups
        self.logical_tokens = 0
        self.counted_tokens = 0
        self.is_pinned = False
        self.is_forked = False

    @property
    def table_entries(self) -> int:
        return sum(map(len, self.tables))
