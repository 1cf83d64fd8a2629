from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.errors import ConfigError, SourceError
from vramledger.models.sources.bounded_file import quote, shown
from vramledger.models.sources.json_file import MAX_DEPTH, parse_json_object, read_json_object


def refusal(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_json_object(text if isinstance(text, bytes) else text.encode(), "config.json")
    assert caught.value.facts["file"] == "config.json"
    return caught.value


def test_an_object_is_read_as_it_is() -> None:
    text = '{"a": 1, "b": [1.5, null, true], "c": {"d": "x"}}'
    assert parse_json_object(text.encode(), "config.json") == json.loads(text)


def test_a_byte_order_mark_is_harmless() -> None:
    assert parse_json_object(b'\xef\xbb\xbf{"a": 1}', "config.json") == {"a": 1}


@pytest.mark.parametrize(("text", "said"), [
    ("[]", "must hold a JSON object"), ("3", "must hold a JSON object"), ("", "not valid JSON"),
    ('{"a": 1', "line 1"), ("{'a': 1}", "line 1"), ('{"a": 1} x', "Extra data"),
])  # fmt: skip
def test_what_is_no_object_is_refused(text: str, said: str) -> None:
    assert said in refusal(text).message


def test_a_key_that_is_there_twice_is_named() -> None:
    error = refusal('{"x": {"head_dim": 64, "head_dim": 128}}')
    assert error.facts["key"] == "head_dim"


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "Infinity", "1e999", "9" * 5000])
def test_numbers_that_are_none_are_named_with_their_place(number: str) -> None:
    error = refusal(f'{{"text_config": {{"sizes": [1, {{"width": {number}}}]}}}}')
    assert error.facts["key"] == "text_config.sizes[1].width"
    assert str(error.facts["value"]).startswith(number[:5])
    assert len(error.message) < 300


def test_the_open_range_of_published_mamba_configs_is_read() -> None:
    parsed = parse_json_object(b'{"time_step_limit": [0.0, Infinity]}', "config.json")
    assert parsed == {"time_step_limit": [0.0, float("inf")]}
    refusal('{"time_step_limit": [0.0, NaN]}')


def test_a_large_whole_number_is_kept_exactly() -> None:
    assert parse_json_object(b'{"a": %d}' % 10**60, "config.json") == {"a": 10**60}


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 2000, 200_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    assert "deep" in refusal('{"a":' + "[" * depth + "]" * depth + "}").message


def test_nesting_within_the_limit_is_read() -> None:
    depth = MAX_DEPTH - 1
    parse_json_object(b'{"a":' + b"[" * depth + b"]" * depth + b"}", "config.json")


def test_text_that_is_not_unicode_is_refused() -> None:
    assert "UTF-8" in refusal(b'{"a": "\xff"}').message
    assert "not Unicode" in refusal('{"a": ["\\ud800"]}').message
    assert "not Unicode" in refusal('{"a\\udc00": 1}').message


def test_more_values_than_any_config_are_refused_before_they_are_built() -> None:
    assert "more values" in refusal('{"a": [' + "[]," * 4_000_001 + "0]}").message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read_json_object(tmp_path / "absent.json")
    with pytest.raises(SourceError, match="not a regular file"):
        read_json_object(tmp_path)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(SourceError, match="not a regular file"):
        read_json_object(pipe)
    large = tmp_path / "large.json"
    large.write_bytes(b"{}" + b" " * 99)
    with pytest.raises(ConfigError, match="101 bytes, more than the 100"):
        read_json_object(large, limit_bytes=100)


def test_names_are_printed_without_control_characters() -> None:
    assert "\x1b" not in shown(Path("a\x1b[31mb"))
    assert "\x1b" not in quote("a\x1b[31m")
    shown(Path(os.fsdecode(b"\xff\xfe"))).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
@settings(deadline=2000)
def test_whatever_json_writes_is_read_back_or_refused(value: dict[str, object]) -> None:
    text = json.dumps(value)
    try:
        assert parse_json_object(text.encode(), "config.json") == value
    except ConfigError as error:
        assert any(word in text for word in ("NaN", "Infinity")), error


@given(st.binary(max_size=200))
@settings(deadline=2000)
def test_random_bytes_are_refused_or_an_object(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_json_object(b"{" + data, "config.json"), dict)
