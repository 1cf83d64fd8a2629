"""A published plan comes back as the plan it was, and a measurement as the measurement."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from five_kinds import FIVE, planned
from measurements import MEASUREMENTS
from vramledger.documents.measurement import measurement_document
from vramledger.documents.measurement_reader import measurement_of, read_measurement
from vramledger.documents.plan import plan_document
from vramledger.documents.plan_reader import plan_of, read_plan
from vramledger.errors import InputError
from vramledger.measurement import Measurement


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("flags", [{}, {"engine": "vllm==0.8.5", "pp": 2}, {"engine": "sglang"}])
def test_there_and_back(kind: str, flags: dict[str, object]) -> None:
    plan = planned(kind, **flags)
    assert plan_of(plan_document(plan)) == plan


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"kind":"plan"}', b"\xff\xfe", b'{"kind":"manifest"}', b"[" * 5000]
)
def test_what_is_no_plan_is_an_input_error(text: bytes) -> None:
    with pytest.raises(InputError, match=r"p\.json is not a plan"):
        read_plan(text, where="p.json")


def test_a_range_upside_down_is_an_input_error() -> None:
    document = plan_document(planned("dense"))
    text = msgspec.json.encode(document).replace(b'"low":0', b'"low":99999999999999')
    with pytest.raises(InputError, match="not a range"):
        read_plan(text, where="p.json")


@given(measurement=MEASUREMENTS)
@settings(max_examples=100)
def test_a_measurement_comes_back(measurement: Measurement) -> None:
    document = measurement_document(measurement)
    assert measurement_of(document) == measurement
    assert read_measurement(msgspec.json.encode(document), where="m.json") == measurement


NO_FIGURE = {
    "owners": ["weights"],
    "name": "weights",
    "bytes": {"low": 2, "expected": 1, "high": 3},
    "evidence": {"kind": "measured", "source": "log", "formula": ""},
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "plan"}, "Invalid enum value 'plan'"),
        ({"schema_version": "2.0"}, "matching regex"),
        ({"tp": "two"}, r"Expected `int \| null`"),
        ({"figures": [NO_FIGURE]}, "not a range: 2 <= 1 <= 3"),
        ({"figures": [NO_FIGURE | {"owners": ["nobody"]}]}, "Invalid enum value 'nobody'"),
        (
            {"pools": [{"evidence": NO_FIGURE["evidence"], "tokens": {"low": 9, "expected": 8, "high": 10}}]},
            "not a range: 9 <= 8 <= 10",
        ),
    ],
)
def test_what_is_no_measurement_is_an_input_error(changes: dict[str, object], reason: str) -> None:
    document = msgspec.to_builtins(measurement_document(Measurement(sources=())))
    assert read_measurement(msgspec.json.encode(document), where="m.json") == Measurement(sources=())
    with pytest.raises(InputError, match=reason):
        read_measurement(msgspec.json.encode(document | changes), where="m.json")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b"\x00" * 64, b"[" * 100_000])
def test_junk_is_no_measurement(text: bytes) -> None:
    with pytest.raises(InputError, match=r"m\.json is not a measurement"):
        read_measurement(text, where="m.json")
