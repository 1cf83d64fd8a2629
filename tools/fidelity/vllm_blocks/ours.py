"""The cases over our block pool."""

from __future__ import annotations

from tools.fidelity.vllm_blocks.cases import Case, admission_blocks
from tools.fidelity.vllm_blocks.script import Asked, Line, Run

from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.kvcache.blocks.pool import BlockPool

CAPPED_SINCE, ALIGNED_SINCE, UNCACHED_FIRST_SINCE, JUNCTIONS_SINCE, RENEWED_IN = 20, 23, 24, 26, 32


class OurCache:
    """A BlockPool by the rules of one release; a block's key is a number for all the text up to its end."""

    def __init__(self, case: Case, minor: int) -> None:
        self._is_capped = minor >= CAPPED_SINCE
        self._has_junctions = minor >= JUNCTIONS_SINCE
        self.layout = PoolLayout(
            num_blocks=case["blocks"],
            reserved_blocks=1,
            groups=tuple(_group(*group) for group in case["groups"]),
            uncached_first=minor >= UNCACHED_FIRST_SINCE,
            retention_tokens=case["retention"],
            renews_states=minor == RENEWED_IN,
            aligned_commits=minor >= ALIGNED_SINCE,
        )
        self.pool = BlockPool(self.layout)
        self._names: dict[tuple[int, ...], int] = {}
        self._keys: dict[int, list[int]] = {}

    def start_step(self) -> None:
        self.pool.start_step()

    def look_up(self, request: Asked) -> tuple[int, int]:
        text, size = request.prompt + request.outputs, self.layout.key_tokens
        ends = range(size, len(text) + 1, size)
        keys = [self._names.setdefault(tuple(text[:end]), len(self._names)) for end in ends]
        self._keys[request.number] = keys
        hit, longest = self.pool.shared_prefix(keys, boundary=0, limit_tokens=len(request.prompt) - 1)
        return hit, longest if longest > hit and self._has_junctions else 0

    def open(self, request: Asked, hit: int, junction: int, tokens: int) -> bool:
        keys, prompt = self._keys[request.number], len(request.prompt)
        whole = self.pool.needed_blocks(
            request.number, prompt, keys=keys, boundary=0, hit_tokens=hit, is_capped=self._is_capped
        )
        is_open = whole <= self.pool.free_blocks and self.pool.open(
            request.number,
            keys=keys,
            boundary=0,
            hit_tokens=hit,
            tokens=hit + tokens,
            reachable=(prompt - 1, junction) if junction else (prompt - 1,),
        )
        if is_open:
            self.pool.commit(request.number, hit + tokens)
        return is_open

    def grow(self, request: Asked, tokens: int) -> bool:
        end = request.computed + tokens
        grows = self.pool.grow(request.number, end, computed_tokens=request.computed)
        if grows:
            self.pool.commit(request.number, end)
        return grows

    def append(self, request: Asked, token: int) -> None:
        pass

    def free(self, request: Asked) -> None:
        self.pool.free(request.number)

    def state(self, running: list[Asked]) -> tuple[list[tuple[tuple[int, ...], ...]], list[int]]:
        tables = [
            tuple(tuple(max(block, 0) for block in table) for table in self.pool.block_tables(request.number))
            for request in running
        ]
        return tables, self.pool.reuse_order()


def lines_of(case: Case, minor: int) -> list[Line]:
    """The run as vLLM 0.`minor` would have it."""
    return Run(case, OurCache(case, minor)).play()


def _group(kind: str, block_tokens: int, window: int) -> BlockGroup:
    return BlockGroup(
        kind=GroupKind(kind),
        block_tokens=block_tokens,
        window_tokens=window or None,
        keeps_states=kind == GroupKind.STATE,
        admission_blocks=admission_blocks(kind, block_tokens, window),
    )
