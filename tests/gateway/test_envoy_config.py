"""The `[envoy]` section: what is wrong is named, and endpoints are told in the order of the upstreams."""

from __future__ import annotations

import asyncio
import sys

import pytest

from gateway.policies import Places
from vramledger.errors import InputError, SourceError
from vramledger.gateway.config import GatewayConfig, read_config
from vramledger.gateway.envoy.from_config import endpoints_of, processor_beside
from vramledger.gateway.gateway import Gateway

UPSTREAMS = '[[upstream]]\nurl = "http://10.0.0.1:8000"\n[[upstream]]\nurl = "http://[fd00::2]"\n'
NAMED = '[[upstream]]\nurl = "http://a:8000"\n'


def read(text: str) -> GatewayConfig:
    return read_config(text.encode(), "g.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[envoy]\nlisten = "nowhere"', "envoy.listen.*HOST:PORT"),
        ('[envoy]\nendpoints = ["a:80"]', "envoy.endpoints has 'a:80': IP:PORT"),
        ('[envoy]\nendpoints = ["10.0.0.1"]', "IP:PORT"),
        ('[envoy]\nendpoints = ["10.0.0.1:0"]', "IP:PORT"),
        (UPSTREAMS + '[envoy]\nendpoints = ["10.0.0.1:80"]', "each upstream's address"),
        ('[envoy]\nclient_ca = "ca.pem"', "envoy.tls_cert is needed"),
        ("[envoy]\nwatch_stream = false", "did you mean watch_streams"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(text)


def test_endpoints_are_the_upstreams_own_addresses_unless_they_are_given() -> None:
    assert endpoints_of(read(UPSTREAMS)) == ("10.0.0.1:8000", "[fd00::2]:80")
    given = UPSTREAMS + '[envoy]\nendpoints = ["10.1.0.1:1", "[fd00:0::3]:2"]'
    assert endpoints_of(read(given)) == ("10.1.0.1:1", "[fd00::3]:2")
    assert endpoints_of(read(NAMED)) == ()  # there is nothing to choose
    with pytest.raises(InputError, match=r"envoy\.endpoints is needed"):
        endpoints_of(read(NAMED + UPSTREAMS))


@pytest.mark.parametrize(
    ("section", "problem", "said"),
    [
        ('listen = "127.0.0.1:0"\ntls_cert = "/nowhere/c.pem"', SourceError, "c.pem cannot be read"),
        (f'listen = "127.0.0.1:0"\ntls_cert = "{__file__}"', InputError, "is not PEM"),
        ('listen = "10.255.255.1:9"', InputError, "cannot listen on 10.255.255.1:9"),
        ('listen = "unix:/nowhere/socket"', InputError, "cannot listen on unix:/nowhere/socket"),
    ],
)
def test_what_cannot_be_had_is_told_at_the_start(section: str, problem: type[Exception], said: str) -> None:
    async def story() -> None:
        config = read(NAMED + "[envoy]\n" + section)
        gateway = Gateway(config.upstreams, Places(1))
        with pytest.raises(problem, match=said):
            await processor_beside(gateway, config, doorkeeper=None, counter=None)

    asyncio.run(story())


def test_none_is_started_where_none_is_asked_for() -> None:
    async def story() -> None:
        config = read(NAMED)
        gateway = Gateway(config.upstreams, Places(1))
        assert await processor_beside(gateway, config, doorkeeper=None, counter=None) is None

    asyncio.run(story())


def test_without_grpc_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vramledger.gateway.envoy.server", raising=False)
    monkeypatch.delattr("vramledger.gateway.envoy.server", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)

    async def story() -> None:
        config = read(NAMED + '[envoy]\nlisten = "127.0.0.1:0"')
        gateway = Gateway(config.upstreams, Places(1))
        with pytest.raises(InputError, match=r"pip install 'vramledger\[envoy\]'"):
            await processor_beside(gateway, config, doorkeeper=None, counter=None)

    asyncio.run(story())
