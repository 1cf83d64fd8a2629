"""Blocks that a request holds, by the shape of the pool."""

from __future__ import annotations

from typing import NamedTuple

from vramledger.kvcache.blocks.layout import GroupKind, PoolLayout
from vramledger.units import ceil_div


class Part(NamedTuple):
    """Blocks of `block_tokens` tokens that a sequence holds, at most `most_blocks` of them."""

    block_tokens: int
    most_blocks: int | None


class Need:
    """How many blocks sequences of one pool hold at their most.

    `step_tokens` are those computed in one step: a window's or chunk's blocks go back when the next step begins, so they come on top
    of it. `steps` of them are under way at once where steps are planned ahead. A sequence of so many tokens holds the blocks of all `parts`
    and `fixed_blocks` more, whatever its length.
    """

    def __init__(self, layout: PoolLayout, *, step_tokens: int, steps: int = 1) -> None:
        self.layout = layout
        self.block_tokens = layout.key_tokens
        self.is_plain = layout.is_plain
        self.parts, self.fixed_blocks = _parts(layout, step_tokens * steps, steps)

    def blocks(self, tokens: int, branches: int = 1, common_blocks: int = 0) -> int:
        """Blocks of `branches` sequences of `tokens` tokens each that hold `common_blocks` full blocks together."""
        if self.is_plain:
            one = -(-tokens // self.block_tokens)
        else:
            one = _blocks(self.parts, self.fixed_blocks, tokens)
        return branches * one - (branches - 1) * common_blocks

    def common_blocks(self, prompt_tokens: int) -> int:
        """Full blocks of a prompt that its branches can hold together; none where groups give blocks back."""
        return prompt_tokens // self.block_tokens if self.is_plain else 0


def most_blocks(layout: PoolLayout, tokens: int, step_tokens: int, steps: int = 1) -> int:
    """Blocks that one sequence of `tokens` holds at its most, where a step computes at most `step_tokens` of it."""
    return _blocks(*_parts(layout, step_tokens * steps, steps), tokens)


def _blocks(parts: tuple[Part, ...], fixed_blocks: int, tokens: int) -> int:
    total = fixed_blocks
    for size, most in parts:
        blocks = -(-tokens // size)
        total += blocks if most is None or blocks < most else most
    return total


def _parts(layout: PoolLayout, step_tokens: int, steps: int) -> tuple[tuple[Part, ...], int]:
    """A window's or chunk's blocks go back when the next step begins, and with `steps` of them under way when the oldest is
    done, so their `step_tokens` come on top of it. A kept state is held until the one after it is written.
    """
    parts: list[Part] = []
    fixed_blocks = 0
    for group in layout.groups:
        size = group.block_tokens
        window = group.window_tokens or 0
        if group.keeps_states:
            parts.append(Part(size, 1 + steps))
        elif group.kind is GroupKind.STATE:
            fixed_blocks += group.state_blocks
        elif group.kind is GroupKind.WINDOW:
            parts.append(Part(size, ceil_div(window - 1 + step_tokens, size) + 1))
        elif group.kind is GroupKind.CHUNK:
            parts.append(Part(size, ceil_div(window + step_tokens, size)))
        elif group.kind is GroupKind.FULL:
            parts.append(Part(size, None))
    return tuple(parts), fixed_blocks
