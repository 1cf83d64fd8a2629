"""A gateway with all that belongs to it, from its configuration: started, told what to do, changed while it runs, and stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from vramledger.errors import InputError, SourceError
from vramledger.gateway.admin import AdminServer
from vramledger.gateway.admitter import Admitter
from vramledger.gateway.config import GatewayConfig, address, fixed_changes
from vramledger.gateway.config_secrets import admin_token, no_password, salt_secret, tls_context, upstreams_of
from vramledger.gateway.envoy.from_config import processor_beside
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.late_counter import LateCounter
from vramledger.gateway.open_files import within_open_files
from vramledger.gateway.recent_requests import RecentRequests
from vramledger.gateway.shared.keeper import SharingCounters
from vramledger.gateway.snapshot import GatewayState, InstanceState, MemoryFacts, Sampled, gateway_state
from vramledger.gateway.telemetry import Telemetry
from vramledger.gateway.tenants.cache_salt import salting_for, together
from vramledger.gateway.tenants.doorkeeper import Door, DoorSettings
from vramledger.gateway.tenants.limits import TenantLimits

if TYPE_CHECKING:
    from vramledger.gateway.envoy.server import ExtProcServer

LOG = logging.getLogger(__name__)
WATCH_S = 0.5


class Engines(Protocol):
    """Who decides about requests, and knows the engines that they go to."""

    @property
    def admitter(self) -> Admitter: ...

    @property
    def sharing(self) -> SharingCounters | None:
        """What happened between this gateway and the store that engines are shared through; None where they are not."""

    async def start(self, sampled: Sampled, ask_again: Callable[[], None]) -> None:
        """Begins to ask engines. One that is not there yet is no failure. `ask_again` is called when more may be let in than before."""

    async def close(self) -> None: ...

    def instances(self) -> Sequence[InstanceState]:
        """In the order of the upstreams."""

    def version(self, place: int) -> str | None:
        """What an engine said of its version."""

    def context_tokens(self, place: int) -> int | None:
        """The longest prompt and output of an engine, where that is known."""

    def terms(self, place: int) -> dict[str, Any]:
        """What an engine is taken to allow and by which policy requests go in, and `notes` on what of that is doubted; empty while it is not known."""

    def adopt(self, config: GatewayConfig, weights: dict[int, int]) -> tuple[str, ...]:
        """Other settings of the policy, and tenants' weights by number; gives the names of settings that it cannot change. Raises
        InputError, and then nothing has changed."""

    def state(self) -> dict[str, Any]:
        """What else is to be told of the policy: plain values."""


class GatewayService:
    """Everything that one `vramledger gateway` runs. `told` is given (event, sentence, facts) of what a person should know."""

    def __init__(
        self,
        config: GatewayConfig,
        engines: Engines,
        *,
        reread: Callable[[], GatewayConfig],
        told: Callable[[str, str, dict[str, Any]], None],
        memory: Sequence[MemoryFacts] = (),
    ) -> None:
        """`reread` reads the configuration anew; `memory` is what is known of the engines' devices beforehand. Raises InputError or SourceError for secrets and certificates that are not there."""
        self.config = config
        self.engines = engines
        self._reread = reread
        self._told = told
        self._salt_secret = salt_secret(config)
        self.door = Door(self._door_settings(config))
        self.limits = TenantLimits(engines.admitter, self.door.tenants_by_number)
        self._tls = tls_context(config)
        upstreams = upstreams_of(config)
        self.counter = LateCounter(config.tokens, upstreams)
        token = admin_token(config)
        self.telemetry = Telemetry(
            tenants=tuple(config.tenants),
            models=config.telemetry.models,
            instances=[one.label for one in config.upstream],
            log=Path(config.telemetry.request_log) if config.telemetry.request_log else None,
            traces=config.telemetry.traces,
            memory=memory,
            sharing=engines.sharing,
            engine_of=lambda place: engines.instances()[place].engine,
        )
        self.recent = RecentRequests()
        self.gateway = Gateway(
            upstreams,
            self.limits,
            limits=within_open_files(config.limits),
            timeouts=config.timeouts,
            doorkeeper=self.door,
            counter=self.counter,
            observers=[*self.telemetry.observers, self.recent],
        )
        self.processor: ExtProcServer | None = None
        """Where an Envoy asks, once started, if the configuration has one."""
        self.admin: AdminServer | None = None
        if config.admin.listen:
            self.admin = AdminServer(self, token=token)
        self.reloads = self.failed_reloads = 0
        self.stopping = asyncio.Event()
        """Set when somebody wants it to end."""
        self._known: list[tuple[bool, dict[str, Any]] | None] = [None] * len(config.upstream)
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens on both ports, whether engines are there or not."""
        try:
            await self.gateway.start(*address(self.config.listen, "listen"), tls=self._tls)
            self.processor = await processor_beside(
                self.gateway,
                self.config,
                doorkeeper=self.door,
                counter=self.counter,
            )
            if self.admin is not None:
                await self.admin.start(*address(self.config.admin.listen, "admin.listen"))
            self.engines.adopt(self.config, self.door.tenants.weights)
            await self.engines.start(self.telemetry.sampled, self.gateway.desk.ask_again)
        except BaseException:
            await self.close()
            raise
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
        self._tell_of_open_files()

    async def drain(self) -> bool:
        """Lets what runs end, for as long as the configuration gives it. True if all did."""
        drains = [self.gateway.drain(self.config.drain_s)]
        if self.processor is not None:
            drains.append(self.processor.drain(self.config.drain_s))
        return all(await asyncio.gather(*drains))

    @property
    def in_flight(self) -> int:
        """Requests that engines are working on, or that Envoy holds."""
        return self.gateway.in_flight + (self.processor.open_streams if self.processor is not None else 0)

    async def close(self) -> None:
        """Ends everything now. What fails in that keeps nothing else open, and is raised at the end."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        async with AsyncExitStack() as last_first:
            if self.admin is not None:
                last_first.push_async_callback(self.admin.close)
            last_first.push_async_callback(asyncio.to_thread, self.telemetry.close)
            last_first.push_async_callback(self.engines.close)
            last_first.push_async_callback(self.counter.close)
            last_first.push_async_callback(self.gateway.close)
            if self.processor is not None:
                last_first.push_async_callback(self.processor.close)

    # Administered

    def metrics(self, accept: str) -> tuple[bytes, str]:
        gateway = self.gateway
        return self.telemetry.exposition(
            self.gateway_state(), gateway.counters, gateway.observers, accept=accept
        )

    def gateway_state(self) -> GatewayState:
        return gateway_state(self.gateway, self.engines.instances())

    def state(self) -> dict[str, Any]:
        tenants = self.door.tenants
        return {
            "gateway": msgspec.to_builtins(self.gateway_state()),
            "counters": msgspec.to_builtins(self.gateway.counters),
            "policy": self.engines.state(),
            "prompts_counted_by": self.counter.state(),
            "cache_salt": self.door.salting.note if self._salt_secret else "off",
            "tenants": [self._tenant_state(name, tenants.number(name)) for name in tenants.by_name],
            "reloads": self.reloads,
            "failed_reloads": self.failed_reloads,
        }

    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.to_builtins(self.recent.newest())
        return found

    def unready(self) -> str:
        if self.stopping.is_set() or self.gateway.draining:
            return "draining"
        instances = self.engines.instances()
        if instances and all(instance.is_up is False for instance in instances):
            return "no engine answers"
        return ""

    def begin_drain(self) -> None:
        self.stopping.set()

    async def reload(self) -> dict[str, Any]:
        """All of the new configuration or nothing of it."""
        try:
            wanted = self._reread()
            fixed = fixed_changes(self.config, wanted)
            config = msgspec.structs.replace(wanted, **{name: getattr(self.config, name) for name in fixed})
            tls_context(config)  # the files that it names may hold others than before
            weights = self.door.adopt(self._door_settings(config))
            try:
                kept_by_policy = self.engines.adopt(config, weights)
            except BaseException:
                self.door.adopt(self._door_settings(self.config))
                raise
        except (InputError, SourceError) as problem:
            self.failed_reloads += 1
            self._told("reload-failed", f"the configuration is not read anew: {problem.message}", {})
            raise
        self.gateway.adopt(within_open_files(config.limits), config.timeouts)
        if self.processor is not None:
            self.processor.adopt(config.limits, config.timeouts)
        if self._tls is not None:
            self._tls.load_cert_chain(config.tls_cert, config.tls_key or None, password=no_password)
        self.config = config
        fixed = (*fixed, *kept_by_policy)
        self.reloads += 1
        self.telemetry.reopen_log()
        self._choose_salts()
        more = f"; a restart is needed for {', '.join(fixed)}" if fixed else ""
        self._tell_of_open_files()
        self._told("reloaded", f"the configuration was read anew{more}", {"needs_restart": list(fixed)})
        return {"status": "reloaded", "needs_restart": list(fixed), "tenants": len(self.door.tenants)}

    # Its own

    def _door_settings(self, config: GatewayConfig) -> DoorSettings:
        return DoorSettings(
            tenants=config.tenants,
            allow_paths=config.allow_paths,
            unpriced=config.unpriced,
            elsewhere=config.allow_elsewhere,
            keeps_keys=any(one.key_env or one.key_file for one in config.upstream),
            salt_secret=self._salt_secret,
        )

    def _tenant_state(self, name: str, number: int) -> dict[str, Any]:
        tenant, account = self.door.tenants.by_name[name], self.limits.account(number)
        shown = msgspec.to_builtins(tenant)
        shown["keys"] = [known.id for known in self.door.tenants.hashes[name]]
        return {
            "name": name,
            "number": number,
            **shown,
            "open": account.open if account is not None else 0,
            "queued": account.queued if account is not None else 0,
            "tokens_used": account.tokens_used if account is not None else 0,
        }

    async def _watch(self) -> None:
        """Tells when engines come and go, and sets salts by what they are."""
        while True:
            try:
                instances = self.engines.instances()
                lengths = [self.engines.context_tokens(place) for place in range(len(instances))]
                self.counter.engines_known(instances, lengths)
                engines = {instance.engine for instance in instances}
                engine = engines.pop() if len(engines) == 1 else ""
                self.gateway.reads_as(engine)
                if self.processor is not None:
                    self.processor.reads_as(engine)
                for place, instance in enumerate(instances):
                    if instance.is_up is None:
                        continue
                    known = instance.is_up, self.engines.terms(place)
                    if known != self._known[place]:
                        self._known[place] = known
                        self._tell_of(place, instance)
                self._choose_salts()
            except Exception:
                LOG.exception("looking after the engines failed")
            await asyncio.sleep(WATCH_S)

    def _tell_of_open_files(self) -> None:
        most = self.gateway.limits.connections
        if most < self.config.limits.connections:
            told = f"{most:,} connections of clients at the most, for the process may not open more files (ulimit -n)"
            self._told("fewer-connections", told, {"connections": most})

    def _tell_of(self, place: int, instance: InstanceState) -> None:
        facts = {"upstream": instance.name, "engine": instance.engine, "total_blocks": instance.total_blocks}
        terms = self.engines.terms(place)
        if not instance.is_up:
            others = [one.name for one in self.engines.instances() if one.is_up]
            then = f"requests go to {', '.join(others)}" if others else "requests get 503"
            why = terms.get("problem") or f"{instance.name} does not answer"
            self._told("engine-away", f"{why}; {then} until that has changed", facts)
            return
        version = self.engines.version(place)
        engine = " ".join(word for word in (instance.engine or "an unknown engine", version) if word)
        self._told(
            "engine-up", f"{instance.name} is {engine}{_pool(instance)}{_terms(terms)}", {**facts, **terms}
        )
        for note in terms.get("notes", ()):
            self._told("engine-note", f"{instance.name}: {note}", {"upstream": instance.name})

    def _choose_salts(self) -> None:
        if self._salt_secret is None or not self.door.tenants:
            return
        instances = self.engines.instances()
        salting = together(
            [
                salting_for(
                    instance.engine or self.config.upstream[place].engine or None, self.engines.version(place)
                )
                for place, instance in enumerate(instances)
            ]
        )
        if salting.note != self.door.salting.note:
            self.door.salting = salting
            self._told("cache-salt", salting.note, {"kinds": [kind.value for kind in salting.members]})


def _pool(instance: InstanceState) -> str:
    if instance.total_blocks is None or instance.block_size is None:
        return ""
    tokens = f": {instance.total_blocks * instance.block_size:,} KV tokens"
    return tokens + (
        f" in {instance.total_blocks:,} blocks of {instance.block_size}" if instance.block_size > 1 else ""
    )


def _terms(terms: dict[str, Any]) -> str:
    if "reservation" not in terms:
        return ""
    return (
        f", {terms['max_running']:,} sequences at once, each of up to {terms['max_model_len']:,} tokens; "
        f"output is reserved by {terms['reservation']}, for {terms['goal']}"
    )
