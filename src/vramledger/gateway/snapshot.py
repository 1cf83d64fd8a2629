"""What is known of engines, queue and connections at one instant: plain values, made by those who know and read by those who tell.

None is what nobody knows; it is never told as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from vramledger.gateway.gateway import Gateway


Sampled = Callable[[int, int, int | None, int | None], None]
"""Told when an engine answered how it is: its place, when it was asked (ns), and the blocks that it held then by its word and by the books."""


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on all devices of one engine together, as it says, as they were measured, or as a manifest or a plan has them; None where nobody knows."""

    device_total_bytes: int | None = None
    device_allocated_bytes: int | None = None
    """By the allocator given out."""
    device_reserved_bytes: int | None = None
    """By the allocator taken from the device."""
    device_free_bytes: int | None = None
    weights_bytes: int | None = None
    runtime_bytes: int | None = None
    """Contexts, libraries, workspaces: what is neither weights, pool, graphs nor adapters."""
    pool_bytes: int | None = None
    graph_pool_bytes: int | None = None
    adapter_bytes: int | None = None


class InstanceState(MemoryFacts, frozen=True, kw_only=True):
    """One engine as the gateway sees it.

    `name` is how the configuration calls it and `engine` which it is (vllm, sglang, ...). `age_ns` is how old the engine's own
    word is (None: it never gave one), `is_up` whether it gave the last one that it was asked for. Of the gateway's books are `booked_blocks`, what admitted requests hold by
    them now, and `reserved_blocks`, the most that they will hold. Counts that begin with `total_` only grow, and begin anew with the
    engine.
    """

    name: str
    engine: str = ""
    is_up: bool | None = None
    age_ns: int | None = None
    # The pool, by the engine's own word.
    block_size: int | None = None
    total_blocks: int | None = None
    free_blocks: int | None = None
    used_blocks: int | None = None
    cached_blocks: int | None = None
    """Free ones whose content can still be found."""
    running_requests: int | None = None
    waiting_requests: int | None = None
    # The gateway's books.
    booked_blocks: int | None = None
    reserved_blocks: int | None = None
    limit_blocks: int | None = None
    """Blocks that admitted requests may hold."""
    admitted_requests: int | None = None
    queued_requests: int | None = None
    # The books beside the engine's word.
    disagreement_blocks: int | None = None
    """Held by the engine's word beyond the books, when it was last asked; below 0: less."""
    foreign_blocks: int | None = None
    """Of these, what nothing admitted explains: other clients' or lost."""
    doubt_blocks: int | None = None
    """Kept free because the engine's word is old."""
    is_careful: bool | None = None
    """Every bound is reserved in full, for what the engine holds is not known."""
    # Where several gateways share it through a store.
    granted_blocks: int | None = None
    """Of the pool, what this gateway may use."""
    other_gateways_blocks: int | None = None
    """What the others may use, as last heard."""
    is_granted: bool | None = None
    """The store's word is relied on: it came in time, and gives something out."""
    total_lapses: int | None = None
    """Times that the grant ran out before the store answered again."""
    total_restarts: int | None = None
    total_readings: int | None = None
    total_failed_readings: int | None = None
    physical_tokens: int | None = None
    """What the blocks in use have room for, each block once."""
    logical_tokens: int | None = None
    """Tokens of all admitted sequences, shared ones for each."""
    adapters: int | None = None
    """Adapters (LoRA) that are loaded."""
    # What the engine counted since it began.
    total_prompt_tokens: int | None = None
    total_output_tokens: int | None = None
    total_reused_tokens: int | None = None
    """Prompt tokens found in its prefix cache."""
    total_evicted_tokens: int | None = None
    """Cached tokens whose blocks were taken for others."""
    total_preempted_requests: int | None = None
    total_preempted_tokens: int | None = None
    total_swapped_tokens: int | None = None
    total_recomputed_tokens: int | None = None


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that wait for the policy's word. `tokens` are prompts as counted and outputs as they would be reserved."""

    requests: int = 0
    tokens: int = 0
    oldest_age_ns: int = 0


class GatewayState(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway at one instant."""

    instances: tuple[InstanceState, ...] = ()
    queue: QueueState = QueueState()
    admitted: int = 0
    """Requests that hold a reservation."""
    in_flight: int = 0
    """Requests that an engine works on, priced or not."""
    client_connections: int = 0
    upstream_connections: int = 0
    held_body_bytes: int = 0
    draining: bool = False


def gateway_state(gateway: Gateway, instances: Sequence[InstanceState] = ()) -> GatewayState:
    """What the gateway itself knows, beside what is known of its engines."""
    desk, now_ns = gateway.desk, gateway.clock_ns()
    tokens = 0
    for facts, decision in desk.waiting_facts():
        output = decision.numbers.get("reserved_output_tokens", facts.max_output_tokens or 0)
        tokens += (facts.prompt.tokens if facts.prompt is not None else 0) + output * facts.branches
    since_ns = desk.oldest_since_ns
    return GatewayState(
        instances=tuple(instances),
        queue=QueueState(
            requests=desk.waiting,
            tokens=tokens,
            oldest_age_ns=0 if since_ns is None else max(0, now_ns - since_ns),
        ),
        admitted=desk.admitted,
        in_flight=gateway.in_flight,
        client_connections=len(gateway.connections),
        upstream_connections=sum(pool.open_connections for pool in gateway.pools),
        held_body_bytes=gateway.held.bytes,
        draining=gateway.draining,
    )
