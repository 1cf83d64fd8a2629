"""A manifest is read whole and unchanged, or refused with what is wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests import whole
from vramledger.errors import InputError
from vramledger.manifest.canonical import canonical, content_digest
from vramledger.manifest.reader import read_manifest
from vramledger.manifest.writing import manifest_bytes

RECORDED = Path(__file__).parent / "recorded" / "manifest-1.0.json"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for name in value for leaf in leaves(value[name], (*path, name))]
    if isinstance(value, list):
        return [leaf for number, item in enumerate(value) for leaf in leaves(item, (*path, number))]
    return [path]


RAW: dict[str, Any] = json.loads(manifest_bytes(whole()))
LEAVES = leaves(RAW)


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found = copy.deepcopy(RAW)
    holder: Any = found
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return found


def resealed(raw: dict[str, Any]) -> bytes:
    return json.dumps(raw | {"digest": content_digest(raw)}).encode()


@settings(max_examples=60)
@given(st.sampled_from(LEAVES), st.none() | st.booleans() | st.integers(0, 2**40) | st.text(max_size=4))
def test_any_edit_is_refused(path: tuple[Any, ...], value: Any) -> None:
    edited = changed(path, value)
    if canonical(edited) == canonical(RAW):
        return
    with pytest.raises(InputError):
        read_manifest(json.dumps(edited).encode(), "r.json")


@settings(max_examples=20)
@given(st.randoms(use_true_random=False), st.sampled_from([None, 1, "\t"]))
def test_the_order_of_keys_and_the_form_of_numbers_are_no_edit(random: Any, indent: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            names = list(value)
            random.shuffle(names)
            return {name: shuffled(value[name]) for name in names}
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        return value

    text = json.dumps(shuffled(RAW), indent=indent)
    assert read_manifest(text.encode(), "r.json").document == whole()


def test_an_edit_by_hand_says_both_digests_and_the_figures_that_disagree() -> None:
    edited = changed(("kv_pool_gib_per_rank",), 120.5)
    with pytest.raises(InputError) as caught:
        read_manifest(json.dumps(edited).encode(), "r.json")
    message = caught.value.message
    assert f"digest says '{RAW['digest']}'" in message
    assert f"content is {content_digest(edited)}" in message
    assert "kv_pool_gib_per_rank is 120.5, kv_pool_bytes_per_rank makes it" in message
    assert "Write it anew" in message


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("raw_weight_gib",), 1.0, "raw_weight_gib is 1.0"),
        (("tp",), 8, "tp is 8"),
        (("kv_format",), "fp8", "kv_format is 'fp8'"),
        (("budget", "budget_gib"), 7.0, r"budget\.budget_gib"),
        (("headroom_bytes_per_rank",), 5, "headroom_gib_per_rank"),
        (("kv_tokens", "physical"), 5, r"kv_tokens\.physical is 5"),
        (("not_evidenced",), [], "not_evidenced does not list what is null: experiment, reconciliation"),
        (("measured_weight_steady_bytes_per_rank",), 5, "measured_weight_steady"),
        (("conditions",), ["holds everywhere"], "conditions is"),
        (("engine_revision",), "vllm 9", "engine_revision is 'vllm 9'"),
        (("measurement",), None, "the manifest holds no measurement"),
        (("per_rank", 0, "measured_headroom_gib"), 1.5, r"per_rank\[0\]\.measured_headroom_gib"),
        (("plan", "ranks", 0, "entries", 0, "bytes", "low"), 2**50, "its plan cannot be: not a range"),
        (("measurement", "figures", 0, "bytes", "low"), 2**50, "its measurement cannot be: not a range"),
        (("evidence",), [], "raw_weight_bytes has no evidence; measured_weight_steady"),
    ],
)
def test_a_new_digest_does_not_make_figures_agree(path: tuple[Any, ...], value: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"disagrees with itself .*{said}"):
        read_manifest(resealed(changed(path, value)), "r.json")


def test_a_newer_major_version_is_refused_and_an_older_one_too() -> None:
    for version, word in (("2.0", "newer"), ("0.9", "older")):
        with pytest.raises(InputError, match=f"schema version {version}, {word} than 1"):
            read_manifest(resealed(changed(("schema_version",), version)), "r.json")


def test_a_newer_minor_version_is_read_with_a_note_and_its_fields_are_kept_and_told() -> None:
    later = changed(("schema_version",), "1.7") | {"carbon": {"grams": 5}}
    later["budget"]["share"] = 0.9
    reading = read_manifest(resealed(later), "r.json")
    assert reading.document.raw_weight_bytes == whole().raw_weight_bytes
    assert "schema version 1.7" in reading.notes[0]
    assert "carbon" in reading.notes[1]
    assert "budget.share" in reading.notes[1]


def test_a_newer_version_may_list_more_that_is_not_evidenced() -> None:
    listed = sorted([*RAW["not_evidenced"], "carbon", "humidity.per_rank"])
    later = changed(("schema_version",), "1.7") | {"not_evidenced": listed}
    assert read_manifest(resealed(later), "r.json").document.not_evidenced == tuple(listed)
    for wrong in ([], [*listed, "tests.rolling_update"], ["adapters", *listed]):
        with pytest.raises(InputError, match="not_evidenced does not list"):
            read_manifest(resealed(later | {"not_evidenced": wrong}), "r.json")
    with pytest.raises(InputError, match="not_evidenced does not list what is null: carbon"):
        read_manifest(resealed(RAW | {"not_evidenced": listed}), "r.json")


def test_an_unknown_field_is_covered_by_the_digest() -> None:
    with pytest.raises(InputError, match="was changed after it was written"):
        read_manifest(json.dumps(RAW | {"approved": True}).encode(), "r.json")
    (note,) = read_manifest(resealed(RAW | {"approved": True}), "r.json").notes
    assert "not used: approved" in note


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95junk",
        b"[]",
        b"null",
        b"{",
        b'{"kind": "plan"}',
        b'{"kind": "manifest"}',
        b'{"kind": "manifest", "schema_version": 1}',
        b'{"kind": "manifest", "schema_version": "1.x"}',
        b'{"kind": "manifest", "schema_version": "1.0", "schema_version": "1.0"}',
        b'{"kind": "manifest", "schema_version": "1.0", "digest": NaN}',
        b'{"kind": "manifest", "schema_version": "1.0", "x": 1e999}',
        b'{"kind": "manifest", "schema_version": "1.0", "x": ' + b"9" * 90 + b"}",
        b'{"kind": "manifest", "schema_version": "1.0", "x": ' + b"9" * 5000 + b"}",
        b'{"kind": "manifest", "schema_version": "1.0", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"kind": "manifest", "schema_version": "1.0", "x": "\\ud800"}',
        b'{"kind": ["manifest"], "schema_version": "1.0"}',
        manifest_bytes(whole())[:-40],
    ],
)
def test_hostile_files_are_input_errors(data: bytes) -> None:
    with pytest.raises(InputError, match=r"r\.json"):
        read_manifest(data, "r.json")


@given(st.binary(max_size=200))
def test_no_bytes_are_a_traceback(data: bytes) -> None:
    with pytest.raises(InputError):
        read_manifest(data, "r.json")


def test_a_wrong_type_behind_a_right_digest_is_named() -> None:
    with pytest.raises(InputError, match=r"not a manifest of version 1.*\$\.tp"):
        read_manifest(resealed(changed(("tp",), "two")), "r.json")
    with pytest.raises(InputError, match="was changed after it was written"):
        read_manifest(json.dumps(changed(("tp",), "two")).encode(), "r.json")


def test_terminal_escapes_do_not_come_out_raw() -> None:
    with pytest.raises(InputError) as caught:
        read_manifest(json.dumps(RAW | {"kind": "\x1b[2Jmanifest"}).encode(), "r.json")
    assert "\x1b" not in caught.value.message


def test_a_manifest_of_the_first_version_is_still_read() -> None:
    """Whoever changes the types of plan, measurement, reconciliation or manifest keeps this file readable: a field is added
    with a default. Once a version is released, the file stays as it is."""
    reading = read_manifest(RECORDED.read_bytes(), RECORDED.name)
    document = reading.document
    assert reading.notes == ()
    assert document.measured_weight_steady_bytes_per_rank == 8_064_081_920
    assert document.reconciliation is not None
    assert document.not_evidenced == ()
