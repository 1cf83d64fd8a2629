"""Blocks of an instance that something else than the admitted requests holds."""

from __future__ import annotations


class ForeignBlocks:
    """What is held beyond the books, between what must be and what may be.

    An instance tells how many blocks are held in all. A request that was admitted and has shown no token yet may have been given all of its prompt's or
    none, so between the two counts lies what is foreign. What was foreign before is taken to be so still as long as it lies there: who was let
    in just now and has been given nothing yet hides nobody else's blocks, and who was given them is not taken for somebody else.
    """

    def __init__(self) -> None:
        self.blocks = 0

    def told(self, used_blocks: int, known_blocks: int, unsure_blocks: int) -> int:
        """So many are held in all; by the books `known_blocks`, of which `unsure_blocks` may not have been given out yet."""
        least = used_blocks - known_blocks
        least = max(least, 0)
        most = used_blocks - known_blocks + unsure_blocks
        before = self.blocks
        self.blocks = blocks = least if before < least or most < least else min(before, most)
        return blocks
