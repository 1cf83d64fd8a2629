"""What an agent's session is made of: turns that grow, tools, what it looks up, waits, branches.

Light values; `columnar/sessions.py` makes requests of them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from vramledger.workload.quantiles import Quantiles

MOST_TURNS = 100_000


class Retrieval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`top_k` chunks of a corpus in a prompt.

    Chunks are asked for with probabilities that fall as 1 / rank ** `skew` (0: all alike). In `relevance` order they stand as
    the search ranks them, so two prompts share only what both have in the same order from the first chunk on;
    `sorted` puts them in the order of the corpus. At the `front` they follow the shared prefix and are exchanged in
    every turn that retrieves, at the `end` they are appended to what the session holds. A share `probability` of the prompts
    (of an agent: of its turns) retrieves.
    """

    top_k: int
    chunk_tokens: int
    corpus_chunks: int
    skew: float = 1.0
    order: Literal["relevance", "sorted"] = "relevance"
    place: Literal["front", "end"] = "front"
    probability: float = 1.0

    def __post_init__(self) -> None:
        for name, most in (("top_k", 1000), ("chunk_tokens", 2**20), ("corpus_chunks", 2**24)):
            _within(name, getattr(self, name), 1, most)
        _within("skew", self.skew, 0, 10)
        _within("probability", self.probability, 0, 1)
        if self.top_k > self.corpus_chunks:
            raise ValueError(f"top_k {self.top_k} is more than the corpus has, {self.corpus_chunks} chunks")

    @property
    def tokens(self) -> int:
        """Tokens of one retrieval."""
        return self.top_k * self.chunk_tokens


class Branches(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Parallel branches of a turn, in a share `probability` of the turns.

    `samples`: the turn is answered `count` times from one prompt (one request of `count` sequences, whose common blocks are
    copied on the first write). `forks`: after the turn `count` requests go on from it at once, each with `prompt_tokens`
    of its own, and the session goes on after the one with the longest answer.
    """

    count: int
    probability: float = 1.0
    kind: Literal["samples", "forks"] = "samples"
    prompt_tokens: int = 64

    def __post_init__(self) -> None:
        _within("count", self.count, 2, 64)
        _within("probability", self.probability, 0, 1)
        _within("prompt_tokens", self.prompt_tokens, 1, 2**20)


class Agent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A session of so many `turns`, each a request whose prompt begins with what was said before.

    Prompts begin with `tool_tokens` of tool schemas and then `system_tokens` of instructions, which sessions share. A
    revision of the schemas (every `revision_every_s` seconds, or every `revision_every_turns` turns of a session) changes
    both, and nothing of an older prompt is found any more. A turn adds by `growth_tokens` (how the sizes of steps relate
    to each other: the quantiles of all prompts are the cohort's own `prompt_tokens`). With `keeps_output` the answer stands
    in the next prompt as it was made. In a share `edit_probability` of the turns the last `edit_tokens` of the history are
    written anew, in `compact_probability` the whole history is, and shrinks to a share `compact_to` of its steps.

    A turn is sent after a tool's wait or, in a share `human_probability`, a person's pause.
    """

    turns: Quantiles
    tool_tokens: int = 0
    system_tokens: int = 0
    growth_tokens: Quantiles | None = None
    first_tokens: Quantiles | None = None
    keeps_output: bool = True
    edit_probability: float = 0.0
    edit_tokens: Quantiles | None = None
    compact_probability: float = 0.0
    compact_to: float = 0.25
    revision_every_s: float | None = None
    revision_every_turns: int | None = None
    tool_wait_ms: Quantiles | None = None
    human_pause_ms: Quantiles | None = None
    human_probability: float = 0.0
    branches: Branches | None = None

    def __post_init__(self) -> None:
        _within("turns", self.turns.highest, 1, MOST_TURNS)
        for name in ("tool_tokens", "system_tokens"):
            _within(name, getattr(self, name), 0, 2**30)
        for name in ("edit_probability", "compact_probability", "human_probability", "compact_to"):
            _within(name, getattr(self, name), 0, 1)
        if self.edit_probability and self.edit_tokens is None:
            raise ValueError("edit_probability needs edit_tokens: how much of the history is written anew")
        if self.human_probability and self.human_pause_ms is None:
            raise ValueError("human_probability needs human_pause_ms")
        if self.revision_every_s is not None:
            _within("revision_every_s", self.revision_every_s, 0.001, 1e9)
        if self.revision_every_turns is not None:
            _within("revision_every_turns", self.revision_every_turns, 1, 100_000)

    @property
    def head_tokens(self) -> int:
        """The beginning that all sessions of one revision share."""
        return self.tool_tokens + self.system_tokens


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value:g}, not from {least:g} to {most:g}")
