"""A published plan comes back as the plan it was."""

from __future__ import annotations

import msgspec
import pytest

from five_kinds import FIVE, planned
from vramledger.documents.plan import plan_document
from vramledger.documents.plan_reader import plan_of, read_plan
from vramledger.errors import InputError


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
