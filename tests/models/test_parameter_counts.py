"""Every published config's parameter count, equal to its reference but for differences that are explained."""

from __future__ import annotations

from functools import cache

import pytest
from tools.accuracy.data import ModelSet
from tools.accuracy.parameters import DATA, KNOWN, ParameterRow, parameter_rows, report


@cache
def rows() -> tuple[ParameterRow, ...]:
    return parameter_rows(ModelSet(DATA))


def test_the_whole_set_was_read() -> None:
    compared = [row for row in rows() if row.reference is not None]
    assert len(rows()) > 490
    assert len(compared) > 480
    assert not any(row.refused for row in rows())
    assert sum(row.compared_with == "params" for row in compared) > 480


def test_counts_equal_their_reference_or_differ_as_explained() -> None:
    differences = {row.name: row.difference for row in rows() if row.difference}
    assert differences == {name: difference for name, (difference, _) in KNOWN.items()}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_known_difference_has_a_reason(name: str) -> None:
    difference, reason = KNOWN[name]
    assert difference != 0
    assert len(reason.split()) > 5


def test_the_report_names_what_nobody_has_explained() -> None:
    known = ParameterRow(name="google__flan-t5-base", total=24_674_305, reference=1, compared_with="params")
    changed = ParameterRow(name="google__flan-t5-xl", total=65_798_146, reference=1, compared_with="params")
    alone = ParameterRow(name="some__model", total=7, reference=None, compared_with="")
    refused = ParameterRow(
        name="a__b", total=0, reference=None, compared_with="", refused="config.json: hidden_size is missing"
    )
    text = report([known, changed, alone, refused])
    assert text.splitlines()[0] == (
        "parameters: 0 of 2 models equal their reference to the unit (1 more have none, 1 could not be described)"
    )
    assert "google/flan-t5-xl: +65,798,145; UNEXPLAINED" in text
    assert "a/b: config.json: hidden_size is missing" in text
    assert "google/flan-t5-base: +24,674,304; the reference ties the head" in text
