"""The store of a test, as the model or as the script on a real server whose time the test sets."""

from __future__ import annotations

import copy
from typing import Protocol, cast

import valkey
from valkey.exceptions import ResponseError

from gateway.client import WAIT_S
from gateway.shared.ledger_model import Ledger, Refused
from gateway.shared.valkey_server import ValkeyServer
from vramledger.gateway.shared.terms import SCRIPT, Answer, Ask, answer_from

KEY = "test:grants:{one}"


class AnyLedger(Protocol):
    """Saved states are what a server that takes over may have of the past."""

    def set_time(self, wall_ms: int) -> None: ...
    def call(self, me: str, ask: Ask, lease_ms: int) -> Answer | None:
        """None where it refuses."""

    def forget(self) -> None: ...
    def restart(self) -> None: ...
    def save(self) -> None: ...
    def take_over(self) -> None: ...
    def names(self) -> set[str]: ...


class ModelLedger:
    def __init__(self) -> None:
        self._ledger = Ledger()
        self._saved = copy.deepcopy(self._ledger)
        self._runs = 0

    def set_time(self, wall_ms: int) -> None:
        self._ledger.wall_ms = wall_ms

    def call(self, me: str, ask: Ask, lease_ms: int) -> Answer | None:
        try:
            return self._ledger.call(me, ask, lease_ms)
        except Refused:
            return None

    def forget(self) -> None:
        self._ledger.forget()

    def restart(self) -> None:
        self._runs += 1
        self._ledger.run = str(self._runs)

    def save(self) -> None:
        self._saved = copy.deepcopy(self._ledger)

    def take_over(self) -> None:
        wall_ms = self._ledger.wall_ms
        self._ledger = copy.deepcopy(self._saved)
        self._ledger.wall_ms = wall_ms
        self.restart()

    def names(self) -> set[str]:
        return set(self._ledger.rows)


class ServerLedger:
    """The script as it is, but for the two things that a server has of its own: its time and the name of its run."""

    def __init__(self, server: ValkeyServer) -> None:
        self._client = valkey.Valkey(unix_socket_path=str(server.socket), socket_timeout=WAIT_S)
        text = SCRIPT.read_text(encoding="utf-8")
        for own, given in (
            ("redis.call('TIME')", "{redis.call('GET', 'test:s'), redis.call('GET', 'test:us')}"),
            ("redis.pcall('INFO', 'server')", "'run_id:' .. redis.call('GET', 'test:run')"),
        ):
            assert text.count(own) == 1
            text = text.replace(own, given)
        self._script = self._client.register_script(text)
        self._runs = 0
        self._saved: dict[bytes, bytes] = {}
        self._client.flushall()
        self._client.set("test:run", "0")
        self.set_time(0)

    def set_time(self, wall_ms: int) -> None:
        self._client.mset({"test:s": wall_ms // 1000, "test:us": wall_ms % 1000 * 1000})

    def call(self, me: str, ask: Ask, lease_ms: int) -> Answer | None:
        try:
            return answer_from(self._script(keys=[KEY], args=ask.arguments(me, lease_ms)))
        except ResponseError as error:
            assert str(error).startswith("VRAMLEDGER"), str(error)
            return None

    def forget(self) -> None:
        self._client.delete(KEY)

    def restart(self) -> None:
        self._runs += 1
        self._client.set("test:run", str(self._runs))

    def save(self) -> None:
        self._saved = dict(cast(dict[bytes, bytes], self._client.hgetall(KEY)))

    def take_over(self) -> None:
        self.forget()
        if self._saved:
            self._client.hset(KEY, mapping=self._saved)
        self.restart()

    def names(self) -> set[str]:
        found = (name.decode().partition("gateway:") for name in cast(list[bytes], self._client.hkeys(KEY)))
        return {name for _, mark, name in found if mark}

    def close(self) -> None:
        self._client.close()  # type: ignore[no-untyped-call]
