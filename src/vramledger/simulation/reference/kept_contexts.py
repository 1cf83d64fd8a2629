"""What becomes of a conversation's KV while its next turn is being prepared (settings: `ToolWait`).

A context is kept by whole blocks, and only where prefix caching names them. Kept blocks give way, the oldest first, where nothing else
on their replica could run: an instance that holds everything for later turns would serve nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from vramledger.admission.tool_wait import WaitAction
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.outcome import PoolCounters
from vramledger.simulation.reference.learned_waits import CHECKED_EVERY_PS, LearnedWaits
from vramledger.simulation.reference.link import Link
from vramledger.simulation.reference.replica import Replica
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.settings import SimulationSettings, ToolWait
from vramledger.units import ceil_div


class Context:
    """The KV that a request left for those that follow it."""

    __slots__ = (
        "followers",
        "held_since_ps",
        "identity",
        "is_on_host",
        "judged_at_ps",
        "keys",
        "name",
        "replica",
        "tokens",
        "unsent",
    )

    def __init__(self, replica: Replica, sequence: Sequence, tokens: int, unsent: int) -> None:
        self.replica = replica
        self.identity = sequence.identity
        self.name = ("kept", sequence.identity)
        self.keys = sequence.keys
        self.tokens = tokens
        self.unsent = unsent
        self.followers: list[Sequence] = []
        self.held_since_ps = -1
        self.judged_at_ps = 0
        self.is_on_host = False


class Return(NamedTuple):
    """Where a later turn goes (None: wherever the router says), and when what it needs of the host is there."""

    replica: Replica | None
    ready_ps: int


class KeptContexts:
    """The contexts kept in a run, and what that took, by replica."""

    def __init__(self, settings: SimulationSettings) -> None:
        layout = settings.layout
        token_bytes = settings.fleet.kv_bytes_per_token or ceil_div(layout.block_bytes, layout.key_tokens)
        self._wait = settings.tool_wait
        self._token_bytes = token_bytes
        self._link = Link(token_bytes, settings.host_link_bytes_per_s)
        self._host_tokens_left = settings.host_swap_bytes // token_bytes if token_bytes else 0
        self._by_follower: dict[int, Context] = {}
        self._held: list[Context] = []
        self._leaving: dict[int, Context] = {}
        self._learned = LearnedWaits(settings, token_bytes)
        self._ended_ps: dict[int, int] = {}
        replicas = settings.fleet.replicas
        self._held_token_ps = [0] * replicas
        self._out_tokens = [0] * replicas
        self._in_tokens = [0] * replicas

    def keep(self, replica: Replica, sequence: Sequence, followers: Iterable[int], now_ps: int) -> int | None:
        """A sequence ended that others follow: they are `followers`. When its KV is on the host, if it goes there."""
        numbers = list(followers)
        if self._wait is ToolWait.RELEASE or not numbers:
            return None
        if self._wait is ToolWait.LEARNED:
            self._ended_ps.update(dict.fromkeys(numbers, now_ps))
        pool = replica.scheduler.pool
        name = ("kept", sequence.identity)
        tokens = held(pool, name, sequence, sequence.all_tokens)
        if not tokens:
            return None
        if self._wait is ToolWait.DISCARD:
            pool.free(name, forget=True)
            return None
        if self._wait is ToolWait.SWAP and tokens > self._host_tokens_left:
            pool.free(name)
            return None
        context = Context(replica, sequence, tokens, len(numbers))
        context.held_since_ps = now_ps
        self._by_follower.update((number, context) for number in numbers)
        if self._wait in (ToolWait.PRESERVE, ToolWait.LEARNED):
            pool.pin(name)
            self._held.append(context)
            return None
        return self._offloaded(context, now_ps)

    def _offloaded(self, context: Context, now_ps: int) -> int:
        """A context goes to the host: when it is there."""
        self._host_tokens_left -= context.tokens
        self._leaving[context.identity] = context
        self._out_tokens[context.replica.number] += context.tokens
        return self._link.arrival_ps(context.tokens, now_ps)

    def left(self, identity: int, now_ps: int) -> None:
        """The KV of the sequence is on the host now: its blocks are given up."""
        context = self._leaving.pop(identity)
        self._let_go(context, now_ps, forget=True)
        context.is_on_host = True

    def resume(self, number: int, sequence: Sequence, now_ps: int) -> Return:
        """Request `number` is sent: what was kept for it, if anything was."""
        ended_ps = self._ended_ps.pop(number, None)
        if ended_ps is not None:
            self._learned.ended(now_ps - ended_ps)
        context = self._by_follower.pop(number, None)
        if context is None:
            return Return(None, now_ps)
        context.unsent -= 1
        context.followers.append(sequence)
        if not context.is_on_host:
            return Return(context.replica, now_ps)
        arrived = min(context.tokens, self._common_tokens(context, sequence), sequence.prompt_tokens - 1)
        found = context.replica.hit_tokens(sequence)
        if not context.unsent:
            self._host_tokens_left += context.tokens
        if arrived <= found:
            return Return(context.replica, now_ps)
        sequence.arrived_tokens = arrived
        self._in_tokens[context.replica.number] += arrived - found
        return Return(context.replica, self._link.arrival_ps(arrived - found, now_ps))

    def settle(self, now_ps: int) -> list[tuple[int, int]]:
        """Contexts whose followers have all been admitted, or have gone, are theirs now; of those held on as long as is learned to be worth it
        some are given up. When which ones' KV is on the host, of those that go there."""
        leaving = []
        for context in list(self._held):
            if not context.unsent and all(one.admitted_ps >= 0 or one.is_done for one in context.followers):
                self._held.remove(context)
                self._let_go(context, now_ps)
            elif self._wait is ToolWait.LEARNED and context.unsent and context.replica.waiting_count:
                left_ps = self._judge(context, now_ps)
                if left_ps is not None:
                    leaving.append((left_ps, context.identity))
        return leaving

    def _judge(self, context: Context, now_ps: int) -> int | None:
        """Whether a held context is worth its room; when it is on the host, if it goes there."""
        if now_ps < context.judged_at_ps:
            return None
        context.judged_at_ps = now_ps + CHECKED_EVERY_PS
        replica = context.replica
        size = replica.scheduler.pool.layout.key_tokens
        held_blocks = sum(one.tokens // size for one in self._held if one.replica is replica)
        action = self._learned.judged(
            replica,
            context.tokens,
            held_blocks,
            now_ps - context.held_since_ps,
            has_host_room=context.tokens <= self._host_tokens_left,
        )
        if action is WaitAction.PRESERVE:
            return None
        self._held.remove(context)
        if action is WaitAction.OFFLOAD:
            replica.scheduler.pool.unpin(context.name)
            return self._offloaded(context, now_ps)
        self._let_go(context, now_ps)
        return None

    def give_way(self, replica: Replica, now_ps: int) -> bool:
        """The oldest context held on a replica goes; whether there was one."""
        for context in self._held:
            if context.replica is replica:
                self._held.remove(context)
                self._let_go(context, now_ps)
                return True
        return False

    def counted(self, counters: PoolCounters, replica: int) -> PoolCounters:
        """A replica's counters and what keeping contexts took there."""
        moved = self._out_tokens[replica], self._in_tokens[replica]
        return replace(
            counters,
            swapped_out_tokens=counters.swapped_out_tokens + moved[0],
            swapped_in_tokens=counters.swapped_in_tokens + moved[1],
            host_link_bytes=sum(moved) * self._token_bytes,
            kept_token_ps=self._held_token_ps[replica],
        )

    def _let_go(self, context: Context, now_ps: int, *, forget: bool = False) -> None:
        context.replica.scheduler.pool.free(context.name, forget=forget)
        self._held_token_ps[context.replica.number] += context.tokens * (now_ps - context.held_since_ps)

    def _common_tokens(self, context: Context, sequence: Sequence) -> int:
        same = 0
        for kept, wanted in zip(context.keys, sequence.keys, strict=False):
            if kept != wanted:
                break
            same += 1
        return same * context.replica.scheduler.pool.layout.key_tokens


def held(pool: BlockPool, name: tuple[str, int], sequence: Sequence, limit_tokens: int) -> int:
    """Holds what can be found of the first tokens of a sequence that has just ended, under a name of its own; the tokens held."""
    tokens = pool.hit_tokens(sequence.keys, boundary=sequence.boundary, limit_tokens=limit_tokens)
    if not tokens:
        return 0
    if not pool.open(name, keys=sequence.keys, boundary=sequence.boundary, hit_tokens=tokens, tokens=tokens):
        return 0
    return tokens
