"""What a page may look at: what the command was given, else this machine's own servers, and no key leaves for another address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import VramledgerError
from vramledger.web.sights import LiveAsk, Sights, measure_line, sights, watch_line

GIVEN = Sights(
    engines=("http://10.1.2.3:8000",),
    gateways=("https://gate.lan:8099",),
    own_machine=True,
    logs=("vllm.log",),
    pids=(4711,),
    token_env="KEY",
    gateway_token_env="ADMIN",
)


def test_what_was_given_is_looked_at_with_its_key_and_its_processes() -> None:
    line = watch_line(
        LiveAsk(engine="http://10.1.2.3:8000/", gateway="https://gate.lan:8099", interval_s=0.5), GIVEN
    )
    assert line.arguments == (
        "watch", "--url=http://10.1.2.3:8000", "--pid=4711", "--token-env=KEY", "--gateway=https://gate.lan:8099",
        "--gateway-token-env=ADMIN", "--interval=0.5", "--json",
    )  # fmt: skip
    assert line.shown == (
        "vramledger watch --url http://10.1.2.3:8000 --pid 4711 --token-env KEY --gateway https://gate.lan:8099 "
        "--gateway-token-env ADMIN --interval 0.5"
    )
    assert measure_line(LiveAsk(engine="http://10.1.2.3:8000"), GIVEN).arguments == (
        "measure", "--url=http://10.1.2.3:8000", "--log=vllm.log", "--pid=4711", "--token-env=KEY", "--json",
    )  # fmt: skip


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9000", "localhost:9000", "http://[::1]:9000", "http://127.8.8.8"]
)
def test_a_server_of_this_machine_is_looked_at_without_any_key(address: str) -> None:
    for line in (
        watch_line(LiveAsk(engine=address, gateway=address), GIVEN),
        measure_line(LiveAsk(engine=address), GIVEN),
    ):
        assert not [word for word in line.arguments if "token" in word or "--pid" in word or "--log" in word]
        with pytest.raises(VramledgerError, match="not one that was given"):
            watch_line(LiveAsk(engine=address), Sights(engines=GIVEN.engines))


@pytest.mark.parametrize(
    "address",
    [
        "http://10.1.2.3:8001", "https://10.1.2.3:8000", "http://10.1.2.3:8000/metrics", "http://10.1.2.3:8000?x", "http://169.254.169.254",
        "http://127.0.0.1.example:80", "http://localhost.example", "http://0.0.0.0:80", "http://2130706433", "http://0x7f.1", "http://127.1",
        "http://[::ffff:7f00:1]", "https://127.0.0.1:1", "http://127.0.0.1:1/api", "http://127.0.0.1:1/?a=b", "http://user@127.0.0.1:1",
        "http://127.0.0.1:1#x", "file:///etc/passwd", "--nvml", "http://127.0.0.1:1 --log=/etc/passwd", "unix:/run/x", "http://", "\0", "a" * 10_000,
    ],
)  # fmt: skip
def test_others_are_not(address: str) -> None:
    for ask in (
        LiveAsk(engine=address),
        LiveAsk(gateway=address),
        LiveAsk(engine="http://127.0.0.1:1", gateway=address),
    ):
        with pytest.raises(VramledgerError) as refused:
            watch_line(ask, GIVEN)
        assert len(refused.value.message) < 600
    with pytest.raises(VramledgerError):
        measure_line(LiveAsk(engine=address), GIVEN)


@given(st.text(max_size=60), st.text(max_size=60), st.floats(allow_nan=False))
def test_whatever_a_page_asks_only_allowed_addresses_are_on_the_command_line(
    engine: str, gateway: str, interval_s: float
) -> None:
    try:
        line = watch_line(LiveAsk(engine=engine, gateway=gateway, interval_s=interval_s), GIVEN)
    except VramledgerError:
        return
    flags = {word.partition("=")[0] for word in line.arguments}
    assert flags <= {
        "watch",
        "--url",
        "--gateway",
        "--interval",
        "--json",
        "--pid",
        "--token-env",
        "--gateway-token-env",
    }
    pace = next(word.partition("=")[2] for word in line.arguments if word.startswith("--interval="))
    assert 0.25 <= float(pace) <= 60


@pytest.mark.parametrize(
    ("engines", "gateways", "more"),
    [
        ((), (), {"logs": ["a"]}),
        (("a", "b"), (), {"pids": [1]}),
        (("a", "b"), (), {"token_env": "K"}),
        (("a",), (), {"gateway_token_env": "K"}),
    ],
)
def test_what_belongs_to_one_engine_needs_one(
    engines: tuple[str, ...], gateways: tuple[str, ...], more: dict[str, object]
) -> None:
    with pytest.raises(VramledgerError, match="once"):
        sights(engines=engines, gateways=gateways, own_machine=True, **more)  # type: ignore[arg-type]
