"""Configurations: what is wrong is named by its line or key, secrets are found where they are said to be, and nothing crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError, SourceError, VramledgerError
from vramledger.gateway.config import GatewayConfig, address, fixed_changes, read_config
from vramledger.gateway.policy_section import Deciding
from vramledger.gateway.secret_sources import secret_from
from vramledger.gateway.tenants.keys import new_key

EXAMPLE = Path(__file__).parents[2] / "examples" / "gateway.toml"
_, HASH = new_key()


def read(text: str) -> GatewayConfig:
    return read_config(text.encode(), "g.toml")


def test_the_example_is_in_order() -> None:
    config = read_config(EXAMPLE.read_bytes(), "gateway.toml")
    assert config.upstream
    assert set(config.tenants) == {"alice", "batch"}
    assert config.tenants["batch"].weight < config.tenants["alice"].weight


def test_an_empty_one_is_the_defaults() -> None:
    assert read("") == GatewayConfig()
    assert read('[policy]\ndecided_by = "nobody"').policy.decided_by is Deciding.NOBODY


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen = \n", "line 1"),
        ('a = 1\nlisten = "127.0.0.1:1"\nlisten = "127.0.0.1:2"\n', "line 3"),
        ("lissten = 1", "'lissten'; did you mean listen"),
        ("[limits]\nqueues = 1", "'limits.queues'; did you mean queued"),
        ('[[upstream]]\nurl = "http://a"\n[[upstream]]\nurl = "http://b"\nkey = "x"', r"upstream\[1\].key"),
        ("[tenants.alice]\nwieght = 2", "'tenants.alice.wieght'; did you mean weight"),
        ('[salt]\nsecret_file = "a\\u0000b"', "salt.secret_file holds a NUL"),
        ('[tokens]\ntokenizer = "' + "a" * 5000 + '"', "tokens.tokenizer is longer"),
        ('[tenants.a]\nmodels = ["m", "\\u0000"]', r"models\[1\] holds a NUL"),
        ("[limits]\nqueued = '5'", "limits.queued: Expected `int`"),
        ("[limits]\nqueued = 1.5", "limits.queued"),
        ("[limits]\nbody_bytes = 0", "body_bytes is 0"),
        ("[timeouts]\nhead_ms = -1", "head_ms is -1"),
        ("[tenants.alice]\nweight = 0", "weight is 0"),
        ("[tenants.alice]\nwithin_ms = 0", "within_ms is 0"),
        ('[tenants."a b"]', "printable ASCII"),
        ('[tenants.alice]\nkeys = ["hunter2"]', r"tenants\.alice\.keys.*gateway-key"),
        ('listen = "nowhere"', "HOST:PORT is needed"),
        ('[admin]\nlisten = "a:b"', "admin.listen"),
        ('allow_paths = ["sleep"]', "METHOD /PATH"),
        ('unpriced = "maybe"', "unpriced.*refuse, pass"),
        ('[policy]\ngoal = "speed"', "policy.goal.*deadlines, throughput, no-failure"),
        ("[policy]\nquantile = 1.5", "policy.quantile is 1.5"),
        ("[policy]\nqueue_requests = -1", "policy.queue_requests is -1"),
        ('[[upstream]]\nurl = "http://a"\nengine = "ollama"', "'ollama', which is none of vllm"),
        ('tls_key = "k.pem"', "without tls_cert"),
        ("drain_s = nan", "drain_s"),
        ('[[upstream]]\nurl = "ftp://a"', "http://HOST:PORT"),
        ('[[upstream]]\nurl = "http://user:pw@a"', "a user or password"),
        ('[[upstream]]\nurl = "http://a"\n[[upstream]]\nurl = "http://a"', "one name or address"),
        ("upstream = 5", "upstream"),
        ("limits = [1]", "limits"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(text)
    assert "g.toml" in caught.value.message
    assert "pw@" not in caught.value.message


def test_a_key_is_of_one_tenant() -> None:
    text = f'[tenants.a]\nkeys = ["{HASH.line}"]\n[tenants.b]\nkeys = ["{HASH.line}"]'
    with pytest.raises(InputError, match="belongs to"):
        read(text)


def test_what_cannot_change_while_it_runs() -> None:
    before = read('[[upstream]]\nurl = "http://a"')
    after = read('listen = "127.0.0.1:1"\ndrain_s = 5\n[[upstream]]\nurl = "http://b"\n[tenants.a]')
    assert fixed_changes(before, after) == ("listen", "upstream")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("8080", "127.0.0.1", 8080), ("0.0.0.0:1", "0.0.0.0", 1), ("[::1]:2", "::1", 2)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert address(text, "listen") == (host, port)
    for bad in ("::1:2", "a:65536", "a:-1", "a:", "a", "", "1:2:3", "a:٣"):
        with pytest.raises(InputError):
            address(bad, "listen")


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "from-the-environment")
    file = tmp_path / "secret"
    file.write_text("from-the-file\n")
    assert secret_from(env="A_SECRET", file="", what="it") == b"from-the-environment"
    assert secret_from(env="", file=str(file), what="it") == b"from-the-file"
    assert secret_from(env="", file="", what="it") is None
    monkeypatch.setenv("A_BAD_ONE", "two words")
    for env, path, kind in (
        ("A_SECRET", str(file), InputError),
        ("NOT_THERE", "", InputError),
        ("A_BAD_ONE", "", InputError),
        ("", str(tmp_path / "none"), SourceError),
        ("", str(tmp_path), SourceError),
    ):
        with pytest.raises(kind, match=r"it: |it is named twice") as caught:
            secret_from(env=env, file=path, what="it")
        assert "two words" not in caught.value.message
    with pytest.raises(InputError, match="20 bytes; 64"):
        secret_from(env="A_SECRET", file="", what="it", least_bytes=64)


PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(codec="ascii"), max_size=8),
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
KEYS = st.sampled_from(
    ["listen", "upstream", "url", "tenants", "alice", "keys", "weight", "limits", "queued", "timeouts", "policy", "reservation",
     "quantile", "admin", "token_env", "salt", "mode", "drain_s", "allow_paths", "unpriced", "nonsense"]
)  # fmt: skip


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        letters = (
            letter if " " <= letter <= "~" and letter not in '"\\' else f"\\u{ord(letter):04X}"
            for letter in value
        )
        return '"' + "".join(letters) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    return str(value)


def tables(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(KEYS, values, max_size=4)


@given(tables(VALUES | tables(VALUES | tables(VALUES))))
def test_no_configuration_crashes(values: dict[str, Any]) -> None:
    text = "\n".join(f"{toml(key)} = {toml(value)}" for key, value in values.items())
    try:
        read_config(text.encode(), "g.toml")
    except VramledgerError as problem:
        assert "g.toml" in problem.message


@given(st.binary(max_size=200))
def test_no_bytes_crash(text: bytes) -> None:
    try:
        read_config(text, "g.toml")
    except InputError as problem:
        assert "g.toml" in problem.message
