"""The way to the store: addresses, passwords, TLS, servers that are something else, and none of it in a log."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.client import until
from gateway.shared.gateways import part
from gateway.shared.hammer import QUICK
from gateway.shared.valkey_server import ValkeyServer, needs_valkey, valkey_server
from vramledger.errors import InputError, SourceError
from vramledger.gateway.config_sections import SharedSection
from vramledger.gateway.live_engines import address_of
from vramledger.gateway.shared.address import StoreAddress, store_address
from vramledger.gateway.shared.keeper import SharedBudgets
from vramledger.gateway.shared.store import Call, Script, Store, StoreUnreachable

CERTIFICATE = Path(__file__).parents[1] / "localhost.pem"
PASSWORD = "hunter2#/@"


@pytest.mark.parametrize(
    ("url", "shown", "user", "password", "database"),
    [
        ("valkey://h", "valkey://h:6379/0", None, None, 0),
        ("redis://:p%40ss@h:77/3", "valkey://h:77/3", None, "p@ss", 3),
        ("rediss://me:pw@[::1]:6380", "valkeys://[::1]:6380/0", "me", "pw", 0),
        ("VALKEYS://h/?db=12", "valkeys://h:6379/12", None, None, 12),
        ("unix:///run/valkey.sock?db=2", "unix:///run/valkey.sock", None, None, 2),
        ("unix://me:pw@/run/valkey.sock", "unix:///run/valkey.sock", "me", "pw", 0),
    ],
)
def test_addresses(url: str, shown: str, user: str | None, password: str | None, database: int) -> None:
    address = store_address(url)
    assert (repr(address), address.user, address.password, address.database) == (
        shown,
        user,
        password,
        database,
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:6379",
        "http://h",
        "valkey://",
        "valkey://h:port",
        "valkey://h:99999",
        "valkey://h/first",
        "valkey://h/-1",
        "valkey://h?socket_timeout=3",
        "valkey://h?valkey_connect_func=x",
        "valkey://h?ssl_ca_certs=/etc/hosts",
        "valkeys://h?ssl_ca_certs=/nowhere",
        "valkey://me:secret#h@there",
        "valkey://[::1",
        "unix://",
        "unix://h/",
    ],
)
def test_what_is_no_address_is_refused_without_a_word_of_it(url: str) -> None:
    with pytest.raises(InputError, match="shared store's URL") as caught:
        store_address(url)
    assert "secret" not in caught.value.message
    assert not any("secret" in str(fact) for fact in caught.value.facts.values())


def test_the_address_comes_from_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def host(**where: str) -> str | None:
        address = address_of(SharedSection(**where))  # type: ignore[arg-type]
        return address.host if address is not None else None

    monkeypatch.setenv("STORE", " valkey://a ")
    assert host(url_env="STORE") == "a"
    file = tmp_path / "url"
    file.write_text("valkey://b\n")
    assert host(url_file=str(file)) == "b"
    assert host() is None
    for write in ("", "valkey://a\nvalkey://b", "x" * 9000, "valkey://h/\0", "valkey://é"):
        file.write_text(write)
        with pytest.raises(InputError, match="the shared store's URL"):
            host(url_file=str(file))
    with pytest.raises(InputError, match="NONE"):
        host(url_env="NONE")
    with pytest.raises(SourceError, match="cannot be read"):
        host(url_file=str(tmp_path / "none"))


ECHO = Script("return {KEYS[1], ARGV[1]}")


@needs_valkey
def test_a_server_that_forgot_its_scripts_is_told_them_again() -> None:
    async def story(server: ValkeyServer) -> None:
        store = Store(server.address, timeout_ms=20_000)
        for _ in range(2):
            calls = [
                Call(ECHO, "one", ["1"]),
                Call(Script("return redis.call('GET')"), "k", []),
                Call(ECHO, "two", ["2"]),
            ]
            first, wrong, last = await store.call(calls)
            assert (first, last) == ([b"one", b"1"], [b"two", b"2"])
            assert "wrong number of arg" in str(wrong).lower()
            server.command("SCRIPT", "FLUSH")
        assert store.connections == 1
        await store.close()

    with valkey_server() as server:
        asyncio.run(story(server))


@needs_valkey
def test_a_password_opens_the_store_and_is_told_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def story(server: ValkeyServer) -> None:
        for password, opens in ((PASSWORD, True), ("wrong-" + PASSWORD, False), (None, False)):
            address = StoreAddress(path=str(server.socket), password=password)
            budgets = SharedBudgets(Store(address, timeout_ms=QUICK.timeout_ms), QUICK)
            grant = part(budgets)
            budgets.start()
            grant.want(10, 1, held_blocks=0, held_places=0)
            if opens:
                await until(lambda grant=grant: grant.blocks >= 10)  # type: ignore[misc]
            else:
                await until(lambda counters=budgets.counters: counters.unreachable + counters.errors > 0)  # type: ignore[misc]
                assert grant.blocks == 0
                said = budgets.counters.last_error.lower()
                assert "auth" in said or "password" in said
            assert PASSWORD not in repr(budgets.counters) + repr(address) + caplog.text
            await budgets.leave()

    with valkey_server("--requirepass", PASSWORD) as server:
        asyncio.run(story(server))


COMMANDS = "evalsha script|load type hgetall hset hdel pexpire time info hincrby hlen del"


@needs_valkey
@pytest.mark.parametrize("without", ["", "info"])
def test_a_user_with_only_what_the_page_lists_is_enough(without: str) -> None:
    """Without INFO too, but for that a server's restart is not seen where it kept the record."""
    page = (Path(__file__).parents[3] / "docs" / "shared-state.md").read_text(encoding="utf-8")
    assert all(command.replace("|", " ").upper() in page for command in COMMANDS.split())

    async def story(server: ValkeyServer) -> None:
        allowed = [f"+{command}" for command in COMMANDS.split() if command != without]
        assert (
            server.command("ACL", "SETUSER", "gateway", "on", ">pw", "~vramledger:*", "-@all", *allowed)
            == "+OK"
        )
        address = StoreAddress(path=str(server.socket), user="gateway", password="pw")
        budgets = SharedBudgets(Store(address, timeout_ms=QUICK.timeout_ms), QUICK)
        grant = part(budgets)
        budgets.share_served("engine:8000", lambda: {(0, "a"): 1}, lambda _: None)
        budgets.start()
        grant.want(10, 1, held_blocks=0, held_places=0)
        await until(lambda: grant.blocks >= 10)
        await until(lambda: server.command("HLEN", "vramledger:served:{engine:8000}") == ":1")
        await budgets.leave()
        assert budgets.counters.errors == 0, budgets.counters.last_error

    with valkey_server() as server:
        asyncio.run(story(server))


@needs_valkey
def test_with_tls_the_server_s_name_and_certificate_are_looked_at() -> None:
    async def story(server: ValkeyServer) -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(CERTIFICATE)

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner, outer = await asyncio.open_unix_connection(str(server.socket))

            async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                try:
                    while data := await source.read(65536):
                        target.write(data)
                finally:
                    target.close()

            await asyncio.gather(pass_on(reader, outer), pass_on(inner, writer), return_exceptions=True)

        listener = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=tls)
        port = listener.sockets[0].getsockname()[1]
        for url, opens in (
            (f"valkeys://localhost:{port}?ssl_ca_certs={CERTIFICATE}", True),
            (f"rediss://localhost:{port}", False),
        ):
            store = Store(store_address(url), timeout_ms=20_000)
            if opens:
                assert await store.call([Call(ECHO, "k", ["v"])]) == [[b"k", b"v"]]
            else:
                with pytest.raises(StoreUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
                    await store.call([Call(ECHO, "k", ["v"])])
            await store.close()
        listener.close()

    with valkey_server() as server:
        asyncio.run(story(server))


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


def says(data: bytes) -> Talk:
    def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.write(data)

    return talk


@pytest.mark.parametrize(
    "talk",
    [
        says(b""),
        says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        says(b"\x00\xff" * 4000),
        says(b"$99999999999\r\n"),
        says(b"*-7\r\n"),
        says(b"*99999999\r\n" * 50),
        says(b":1e9\r\n"),
        says(b"-NOAUTH who are you\r\n"),
        says(b"+OK\r\n"),
        says(b"*11\r\n" + b":1\r\n" * 11),
        lambda _, writer: writer.close(),
    ],
)
def test_a_server_that_is_no_store_leaves_it_careful(talk: Talk) -> None:
    pytest.importorskip("valkey")

    async def story() -> None:
        writers: list[asyncio.StreamWriter] = []

        def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            talk(reader, writer)

        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = StoreAddress(host="127.0.0.1", port=listener.sockets[0].getsockname()[1])
        budgets = SharedBudgets(Store(address, timeout_ms=QUICK.timeout_ms), QUICK)
        grant = part(budgets)
        budgets.start()
        grant.want(10, 1, held_blocks=0, held_places=0)
        await until(lambda: budgets.counters.unreachable + budgets.counters.errors >= 2)
        assert (grant.blocks, grant.is_careful, budgets.counters.answers) == (0, True, 0)
        assert budgets.counters.last_error
        await budgets.leave()
        listener.close()
        for writer in writers:
            writer.close()

    asyncio.run(story())
