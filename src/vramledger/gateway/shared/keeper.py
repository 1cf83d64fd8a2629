"""Keeps a gateway's grants alive: renews them, asks for more, gives back, and goes on without the store while it is away."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable
from functools import partial

import msgspec

from vramledger.errors import InputError, SourceError, shorter
from vramledger.gateway.shared.grant import Grant, elapsed_ns
from vramledger.gateway.shared.served import SCRIPT as SERVED_SCRIPT
from vramledger.gateway.shared.served import Charges, Served
from vramledger.gateway.shared.settings import SharingSettings
from vramledger.gateway.shared.store import Call, Script, Store, StoreUnreachable
from vramledger.gateway.shared.terms import SCRIPT, answer_from

LOG = logging.getLogger(__name__)
LEAST_GAP_S = 0.005
"""Between two calls, so that a burst of decisions is one call."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
SERVED_EVERY_NS = 1_000_000_000
NS_PER_S = 1_000_000_000


class SharingCounters(msgspec.Struct, kw_only=True):
    """What happened between this gateway and the store."""

    calls: int = 0
    """Terms of one instance sent."""
    answers: int = 0
    unreachable: int = 0
    """Batches that were not answered in time."""
    errors: int = 0
    """Calls that were answered, but not with terms: a foreign key, a record that cannot be read, another lease."""
    overdue: int = 0
    """Times that requests ran on after their lease was over."""
    last_error: str = ""


class SharedBudgets:
    """A gateway's grants of all its instances. All of it lives in the event loop that starts it.

    Requests that run on after their lease is over are counted and let run, though others may be given their blocks.
    """

    def __init__(
        self,
        store: Store,
        settings: SharingSettings,
        *,
        clock_ns: Callable[[], int] = elapsed_ns,
    ) -> None:
        self.gateway = secrets.token_hex(16)
        """Its name in the store: another one each time that it starts."""
        self.counters = SharingCounters()
        self.grants: dict[str, Grant] = {}
        self._store = store
        self._settings = settings
        self._clock_ns = clock_ns
        self._script = Script(SCRIPT.read_text(encoding="utf-8"))
        self._served_script = Script(SERVED_SCRIPT.read_text(encoding="utf-8"))
        self._served: dict[str, Served] = {}
        self._served_at_ns = clock_ns()
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        self._overdue: set[str] = set()
        self._refusals: dict[str, str] = {}
        """Why an instance has no terms, as it was logged."""

    def budget(self, instance: str) -> Grant:
        """This gateway's part of an instance. All gateways name the instance alike: one with two names is given out twice."""
        if instance not in self.grants:
            if not re.fullmatch(r"[!-z|~]{1,200}", instance):
                raise InputError(
                    f"the instance {shorter(instance)} is named by other than 1 to 200 visible ASCII characters without braces"
                )
            self.grants[instance] = Grant(self._settings, clock_ns=self._clock_ns, wake=self._awake.set)
            self._awake.set()
        return self.grants[instance]

    def share_served(
        self, instance: str, take: Callable[[], Charges], elsewhere: Callable[[Charges], None]
    ) -> None:
        """Tells other gateways once a second what tenants were let in with at an instance, and is told what they let in there."""
        self._served[instance] = Served(take, elsewhere)

    def start(self) -> None:
        """Begins to ask. Until the first answers nothing may be used."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def leave(self) -> None:
        """Gives back what does not run, and asks no more. What runs still is counted until its lease ends."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._exchange(list(self.grants), is_leaving=True)
        await self._store.close()

    async def _keep(self) -> None:
        pause_s = 0.0
        while True:
            self._awake.clear()
            wait_s = self._wait_s()
            if wait_s > 0:
                try:
                    async with asyncio.timeout(wait_s):
                        await self._awake.wait()
                except TimeoutError:
                    pass
            try:
                self._look_for_overdue()
                now = self._clock_ns()
                due = [name for name, grant in self.grants.items() if grant.ask_at_ns <= now]
                is_well = await self._exchange(due)
            except Exception:  # a callback's: grants are to be renewed all the same
                LOG.exception("renewing grants failed")
                is_well = False
            if is_well:
                pause_s = 0.0
                await asyncio.sleep(LEAST_GAP_S if due else 0)
            else:
                pause_s = min(max(FIRST_PAUSE_S, 2 * pause_s), LONGEST_PAUSE_S)
                await asyncio.sleep(pause_s * (0.75 + secrets.randbelow(500) / 1000))

    def _wait_s(self) -> float:
        """Until the next grant is to be asked for; a heartbeat where there is none."""
        longest = self._settings.heartbeat_ms / 1000
        first = min((grant.ask_at_ns for grant in self.grants.values()), default=None)
        return longest if first is None else min(longest, (first - self._clock_ns()) / NS_PER_S)

    async def _exchange(self, names: list[str], *, is_leaving: bool = False) -> bool:
        """Whether the store answered."""
        if not names:
            return True
        calls = []
        for name in names:
            ask = self.grants[name].ask(is_leaving=is_leaving)
            calls.append(
                Call(self._script, self._key(name), ask.arguments(self.gateway, self._settings.lease_ms))
            )
        began_ns = self._clock_ns()
        self.counters.calls += len(calls)
        told = list(self._served.items()) if is_leaving or began_ns >= self._served_at_ns else []
        if told:
            self._served_at_ns = began_ns + SERVED_EVERY_NS
            calls += [
                Call(self._served_script, self._key(name, "served"), served.arguments())
                for name, served in told
            ]
        try:
            replies = await self._store.call(calls)
        except StoreUnreachable as error:
            self.counters.unreachable += 1
            self._away(error)
            return False
        if self._is_away:
            self._is_away = False
            LOG.info("the shared store answers again")
        for name, reply in zip(names, replies, strict=False):
            if await self._read(name, reply, partial(take_terms, self.grants[name], began_ns)):
                self.counters.answers += 1
        for (name, served), reply in zip(told, replies[len(names) :], strict=True):
            await self._read(f"{name} (tenants)", reply, served.answered)
        return True

    async def _read(self, name: str, reply: object, read: Callable[[object], None]) -> bool:
        """Whether it was an answer of the script. What was wrong is logged once for as long as it is the same."""
        try:
            if isinstance(reply, SourceError):
                raise reply
            read(reply)
        except SourceError as error:
            self.counters.errors += 1
            self.counters.last_error = error.message
            if self._refusals.get(name) != error.message:
                self._refusals[name] = error.message
                LOG.warning("no terms for instance %s: %s", name, error.message)
            await self._store.close()  # the next one may lead to a server that took over
            return False
        self._refusals.pop(name, None)
        return True

    def _key(self, instance: str, what: str = "grants") -> str:
        # In braces, so that a cluster keeps all of an instance in one place.
        return f"{self._settings.namespace}:{what}:{{{instance}}}"

    def _away(self, error: StoreUnreachable) -> None:
        self.counters.last_error = error.message
        if not self._is_away:
            self._is_away = True
            LOG.warning("%s; what was granted is relied on for half a lease", error.message)

    def _look_for_overdue(self) -> None:
        for name, grant in self.grants.items():
            if not grant.is_overdue:
                self._overdue.discard(name)
            elif name not in self._overdue:
                self._overdue.add(name)
                self.counters.overdue += 1


def take_terms(grant: Grant, began_ns: int, reply: object) -> None:
    """Raises SourceError for what is no answer of the script."""
    grant.answered(answer_from(reply), began_ns)
