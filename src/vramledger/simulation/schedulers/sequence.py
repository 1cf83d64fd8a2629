"""One sequence while an engine serves it."""

from __future__ import annotations

from collections.abc import Sequence as Items

from vramledger.workload.request import Request, engine_block_ids


class Sequence:
    """What a scheduler knows of a sequence, and what has become of it.

    `identity` names it in the pool. `output_tokens` is what it will generate, `max_output_tokens` what the engine was told to expect.
    `known_tokens` are prompt and outputs so far; `computed_tokens` those whose KV is in the pool or on its way there
    (a step's tokens count from the moment it is scheduled). The last output token's KV is never computed.
    `arrived_tokens` came ready over a link from a prefill replica. `junction_tokens` is where its prefix parts from one that
    others share beyond its hit (0: nowhere), a place at which states and windows are worth keeping.

    `keys` are the identities of all full blocks of its life, `key_tokens` tokens a block: the trace's own where it names them,
    and beyond that numbers below zero that no other sequence has, so that a preempted sequence finds its own blocks again.
    """

    __slots__ = (
        "admitted_ps", "arrived_tokens", "boundary", "branch", "computed_tokens", "first_token_ps", "generated_tokens",
        "high_water_tokens", "hit_tokens", "identity", "in_flight_tokens", "is_done", "is_running", "junction_tokens", "keys",
        "max_output_tokens", "number", "output_tokens", "placeholders", "preemptions", "priority", "prompt_tokens",
        "recomputed_tokens", "sent_ps", "stale_tokens",
    )  # fmt: skip

    def __init__(
        self,
        *,
        identity: int,
        number: int,
        branch: int = 0,
        prompt_tokens: int,
        output_tokens: int,
        max_output_tokens: int | None = None,
        keys: Items[int] = (),
        boundary: int = 0,
        priority: int = 0,
        sent_ps: int = 0,
        arrived_tokens: int = 0,
    ) -> None:
        self.identity = identity
        self.number = number
        self.branch = branch
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.max_output_tokens = output_tokens if max_output_tokens is None else max_output_tokens
        self.keys = keys
        self.boundary = boundary
        self.priority = priority
        self.sent_ps = sent_ps
        self.arrived_tokens = arrived_tokens
        self.generated_tokens = 0
        self.computed_tokens = 0
        self.high_water_tokens = 0
        # Asynchronous scheduling: tokens of steps not yet evaluated, output tokens they will bring, and tokens of steps from before
        # a preemption that still come in.
        self.in_flight_tokens = 0
        self.placeholders = 0
        self.stale_tokens = 0
        self.junction_tokens = 0
        self.is_running = False
        self.is_done = False
        self.admitted_ps = -1
        self.first_token_ps = -1
        self.hit_tokens = 0
        self.recomputed_tokens = 0
        self.preemptions = 0

    @property
    def known_tokens(self) -> int:
        """Prompt and output tokens so far."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def all_tokens(self) -> int:
        """Tokens whose KV is computed in the end."""
        return self.prompt_tokens + self.output_tokens - 1

    def continue_with(self, output_tokens: int, max_output_tokens: int) -> None:
        """Goes on elsewhere after its first token: its prompt's KV comes along."""
        self.output_tokens = output_tokens
        self.max_output_tokens = max_output_tokens
        self.arrived_tokens = self.prompt_tokens
        self.computed_tokens = 0
        self.in_flight_tokens = 0
        self.placeholders = 0
        self.is_done = False

    def __repr__(self) -> str:
        return f"<{self.number}.{self.branch} {self.computed_tokens}/{self.known_tokens}>"


def lengths_of(request: Request, max_model_len: int) -> tuple[int, int]:
    """Output tokens that a request generates, and those the engine expects at most, where the model holds `max_model_len` tokens.

    At least one each: an engine that computes a prompt samples a token of it.
    """
    room = max(1, max_model_len - request.prompt_tokens)
    output = min(max(1, request.output_tokens), room)
    expected = request.max_output_tokens if request.max_output_tokens is not None else output
    return output, max(output, min(expected, room))


def block_keys(
    request: Request, *, block_tokens: int | None, key_tokens: int, tokens: int, branch: int, private: int
) -> list[int]:
    """Identities of the full blocks among `tokens` tokens of a request; `private` is how many numbers below zero are taken.

    `block_tokens` are the workload's. Only the first branch is what a later turn continues: what the trace names
    beyond the prompt is no other branch's.
    """
    named: list[int] = []
    if block_tokens is not None and request.blocks:
        limit = tokens if branch == 0 else min(tokens, request.prompt_tokens)
        named = engine_block_ids(request.blocks, block_tokens, engine_block_tokens=key_tokens, tokens=limit)
    own = tokens // key_tokens - len(named)
    return named + list(range(-private - 1, -private - 1 - own, -1))
