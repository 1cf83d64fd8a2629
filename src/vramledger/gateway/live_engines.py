"""Engines that are asked how they are, each behind a policy that the configuration chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from vramledger.admission.defaults import Goal
from vramledger.admission.settings import ADOPTED
from vramledger.errors import InputError
from vramledger.gateway.admitter import Admitter
from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.config_sections import SharedSection
from vramledger.gateway.live.capacity import Given
from vramledger.gateway.live.opening import LiveAdmitter, open_instances
from vramledger.gateway.policy_section import PolicySection
from vramledger.gateway.secret_sources import secret_from
from vramledger.gateway.settings import Upstream
from vramledger.gateway.shared.address import StoreAddress, store_address
from vramledger.gateway.shared.fairness import share_tenants
from vramledger.gateway.shared.keeper import SharedBudgets, SharingCounters
from vramledger.gateway.shared.store import Store
from vramledger.gateway.snapshot import InstanceState, Sampled
from vramledger.gateway.tenants.tenant import Tenants


class LiveEngines:
    """`service.Engines` over a `LiveAdmitter`."""

    def __init__(
        self,
        live: LiveAdmitter,
        section: PolicySection,
        changes: dict[str, Any],
        shared: SharedBudgets | None = None,
        tenants: Tenants | None = None,
    ) -> None:
        """`changes` is what the admitter's instances take their settings from, and is changed with them."""
        self._live = live
        self._shared = shared
        self._tenants = tenants or Tenants({})
        self._section = section
        self._changes = changes

    @property
    def admitter(self) -> Admitter:
        return self._live

    @property
    def sharing(self) -> SharingCounters | None:
        return self._shared.counters if self._shared is not None else None

    async def start(self, sampled: Sampled, ask_again: Callable[[], None]) -> None:
        for watch in self._live.watches:
            watch.sampled = sampled
        self._live.start()
        if self._shared is not None:
            for grant in self._shared.grants.values():
                grant.on_change = ask_again
            share_tenants(self._shared, self._live.instances, lambda: self._tenants)
            self._shared.start()

    async def close(self) -> None:
        await self._live.close()
        if self._shared is not None:
            await self._shared.leave()

    def instances(self) -> Sequence[InstanceState]:
        return self._live.instance_states(self._live.clock_ns())

    def version(self, place: int) -> str | None:
        capacity = self._live.instances[place].capacity
        return capacity.version if capacity is not None else None

    def context_tokens(self, place: int) -> int | None:
        capacity = self._live.instances[place].capacity
        return capacity.max_model_len if capacity is not None else None

    def terms(self, place: int) -> dict[str, Any]:
        instance = self._live.instances[place]
        capacity, settings = instance.capacity, instance.settings
        problem = self._live.watches[place].problem
        if capacity is None or settings is None or problem:
            return {"problem": problem} if problem else {}
        return {
            "max_running": settings.max_running,
            "max_model_len": settings.max_model_len,
            "when_full": capacity.when_full.value,
            "reservation": settings.reservation.value,
            "goal": _goal(self._section).value,
            "notes": list(capacity.notes),
        }

    def adopt(self, config: GatewayConfig, weights: dict[int, int]) -> tuple[str, ...]:
        given = config.policy.changes()
        before = dict(self._changes)
        fixed = {name: value for name, value in before.items() if name not in ADOPTED}
        self._become(
            {**fixed, **{name: given[name] for name in given if name in ADOPTED}, "weights": weights}
        )
        try:
            for instance in self._live.instances:
                instance.adopt()
        except InputError:
            self._become(before)
            for instance in self._live.instances:
                instance.adopt()
            raise
        self._tenants = Tenants(config.tenants, self._tenants)
        return _kept(self._section, config.policy)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "decided_by": "policy",
            "goal": _goal(self._section).value,
            "engines": {one.name: self.terms(one.place) for one in self._live.instances},
            "problems": self._live.problems,
        }
        if self._shared is not None:
            found["shared"] = {
                **msgspec.to_builtins(self._shared.counters),
                "grants": {
                    name: {
                        "standing": grant.standing.value,
                        "blocks": grant.blocks,
                        "places": grant.places,
                        "other_blocks": grant.other_blocks,
                        "lapses": grant.lapses,
                    }
                    for name, grant in self._shared.grants.items()
                },
            }
        return found

    def _become(self, changes: Mapping[str, Any]) -> None:
        self._changes.clear()
        self._changes.update(changes)


async def opened(
    config: GatewayConfig, upstreams: Sequence[Upstream], given: Sequence[Given], weights: dict[int, int]
) -> LiveEngines:
    """Asks each engine once; those that do not answer are asked on. Raises InputError for a policy that contradicts itself."""
    changes = {**config.policy.changes(), "weights": weights}
    shared = _shared(config.shared)
    names = [one.label for one in config.upstream]
    live = await open_instances(
        upstreams,
        _goal(config.policy),
        given,
        names=names,
        changes=changes,
        budgets=[shared.budget(name) for name in names] if shared is not None else None,
    )
    return LiveEngines(live, config.policy, changes, shared, Tenants(config.tenants))


def address_of(section: SharedSection) -> StoreAddress | None:
    """None where nothing is shared. Raises InputError or SourceError, without a word of the URL."""
    url = secret_from(env=section.url_env, file=section.url_file, what="the shared store's URL")
    return None if url is None else store_address(url.decode("ascii"))


def _shared(section: SharedSection) -> SharedBudgets | None:
    """Raises InputError or SourceError for a store that is not named properly, or whose library is not installed."""
    address = address_of(section)
    if address is None:
        return None
    settings = section.settings
    return SharedBudgets(Store(address, timeout_ms=settings.timeout_ms), settings)


def given_of(config: GatewayConfig, planned: Given | None) -> tuple[Given, ...]:
    """What is known of each engine beforehand: by the configuration, and before it by a plan."""
    known = planned or Given()
    return tuple(
        Given(
            engine=one.engine or known.engine,
            layout=known.layout,
            pool_tokens=one.pool_tokens,
            max_model_len=one.max_model_len or known.max_model_len,
            max_running=one.max_running or known.max_running,
            step_tokens=known.step_tokens,
            lag_steps=known.lag_steps,
            kv_unified=one.kv_unified,
        )
        for one in config.upstream
    )


def _goal(section: PolicySection) -> Goal:
    return section.goal or Goal.THROUGHPUT


def _kept(before: PolicySection, after: PolicySection) -> tuple[str, ...]:
    """What differs and was not taken over."""
    ours, theirs = before.changes(), after.changes()
    names = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)} - ADOPTED
    if before.decided_by is not after.decided_by:
        names.add("decided_by")
    if _goal(before) is not _goal(after):
        names.add("goal")
    return tuple(sorted(f"policy.{name}" for name in names))
