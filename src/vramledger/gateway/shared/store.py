"""One connection to a Valkey or Redis server that runs this project's scripts. Whatever fails closes it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vramledger.errors import InputError, SourceError
from vramledger.gateway.shared.address import StoreAddress

if TYPE_CHECKING:
    from valkey.asyncio.connection import AbstractConnection


class StoreUnreachable(SourceError):
    """It did not answer in time, or at all; what was sent may have been done all the same."""


class Script:
    """Lua that the server keeps by its digest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Call:
    """A script, its one key and its arguments."""

    __slots__ = ("arguments", "key", "script")

    def __init__(self, script: Script, key: str, arguments: Sequence[str]) -> None:
        self.script = script
        self.key = key
        self.arguments = arguments


class Store:
    """Calls scripts, several at once and one such batch at a time; none is sent twice.

    Raises InputError where the client library is not installed.
    """

    def __init__(self, address: StoreAddress, *, timeout_ms: int) -> None:
        self.connections = 0
        """Made so far."""
        self._address = address
        self._timeout_s = timeout_ms / 1000
        self._connection: AbstractConnection | None = None
        client_library()

    def __repr__(self) -> str:
        return f"Store({self._address!r})"

    async def call(self, calls: Sequence[Call]) -> list[object]:
        """The replies in order; an error that the server answered with is a SourceError in its place.

        Raises StoreUnreachable when there is no answer to all of them within the time.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                replies = await self._replies(calls)
                missing = [index for index, reply in enumerate(replies) if is_unknown_script(reply)]
                if missing:
                    await self._load({calls[index].script for index in missing})
                    again = await self._replies([calls[index] for index in missing])
                    for index, reply in zip(missing, again, strict=True):
                        replies[index] = reply
        except TimeoutError as error:
            await self.close()
            raise StoreUnreachable(
                f"{self._address} did not answer within {self._timeout_s:g} s", address=repr(self._address)
            ) from error
        except asyncio.CancelledError:
            await self.close()
            raise
        except Exception as error:  # whatever the library raises on what it reads from a socket
            await self.close()
            raise StoreUnreachable(
                f"{self._address} cannot be reached: {readable(error)}", address=repr(self._address)
            ) from error
        return [
            SourceError(f"{self._address} answered: {readable(reply)}")
            if isinstance(reply, Exception)
            else reply
            for reply in replies
        ]

    async def close(self) -> None:
        """Drops the connection without waiting for anything."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _replies(self, calls: Sequence[Call]) -> list[object]:
        return await self._exchange(
            [("EVALSHA", call.script.sha, "1", call.key, *call.arguments) for call in calls]
        )

    async def _load(self, scripts: set[Script]) -> None:
        for reply in await self._exchange([("SCRIPT", "LOAD", script.text) for script in scripts]):
            if isinstance(reply, Exception):
                raise reply

    async def _exchange(self, commands: Sequence[Sequence[str]]) -> list[object]:
        from valkey.exceptions import ResponseError

        connection = await self._connected()
        await connection.send_packed_command(connection.pack_commands(commands))
        replies: list[object] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response(disconnect_on_error=False))
            except ResponseError as error:
                replies.append(error)
        return replies

    async def _connected(self) -> AbstractConnection:
        if self._connection is None:
            self._connection = connection_to(self._address)
            self.connections += 1
            await self._connection.connect()  # type: ignore[no-untyped-call]
        return self._connection


def readable(error: Exception) -> str:
    """What a server or a library said, on one line of at most 200 characters."""
    return (
        "".join(letter if letter.isprintable() else " " for letter in str(error)[:200])
        or type(error).__name__
    )


def is_unknown_script(reply: object) -> bool:
    return type(reply).__name__ == "NoScriptError"


def connection_to(address: StoreAddress) -> AbstractConnection:
    """Unconnected. With TLS the server's certificate and name are checked."""
    from valkey.asyncio import Connection, SSLConnection, UnixDomainSocketConnection

    common: dict[str, Any] = {
        "db": address.database,
        "username": address.user,
        "password": address.password,
        "socket_timeout": None,
        "lib_name": None,
        "lib_version": None,
    }
    if address.path:
        return UnixDomainSocketConnection(path=address.path, **common)
    if not address.tls:
        return Connection(host=address.host, port=address.port, **common)
    return SSLConnection(
        host=address.host,
        port=address.port,
        ssl_check_hostname=True,
        ssl_ca_certs=address.ssl_ca_certs,
        ssl_certfile=address.ssl_certfile,
        ssl_keyfile=address.ssl_keyfile,
        **common,
    )


def client_library() -> None:
    """Raises InputError where it is not installed."""
    try:
        import valkey  # noqa: F401
    except ImportError as error:
        raise InputError(
            "to share a budget needs a client of Valkey: pip install 'vramledger[shared]'"
        ) from error
