from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.models.sources.header_table import RowBuilder
from vramledger.models.sources.names import compress, template_of, templates_of


@pytest.mark.parametrize(("name", "template", "first"), [
    ("model.layers.17.mlp.experts.3.w1.weight", "model.layers.{}.mlp.experts.{}.w1.weight", 17),
    ("h.0.attn.bias", "h.{}.attn.bias", 0),
    ("0.weight", "{}.weight", 0),
    ("conv.5", "conv.{}", 5),
    ("a.1.2.b", "a.{}.{}.b", 1),
    ("lm_head.weight", "lm_head.weight", None),
    ("fc1.w2_3", "fc1.w2_3", None),
    ("a.1234567.b", "a.1234567.b", None),
    ("", "", None),
    ("a.{}.5.b", "a.{}.{}.b", None),
])  # fmt: skip
def test_indices_are_whole_parts_of_up_to_six_digits(name: str, template: str, first: int | None) -> None:
    assert template_of(name) == template
    row = RowBuilder(name, template)
    row.add(name)
    assert compress(row.indices) == (() if first is None else (range(first, first + 1),))
    assert templates_of([name, "x", name]) == [template, "x", template]


@given(st.lists(st.text(alphabet="ab.09\n{}²", max_size=12)))
@settings(deadline=2000)
def test_many_at_once_is_one_after_the_other(names: list[str]) -> None:
    assert templates_of(names) == [template_of(name) for name in names]


@given(st.lists(st.integers(0, 50)))
@settings(deadline=2000)
def test_runs_hold_every_index_once(indices: list[int]) -> None:
    runs = compress(indices)
    assert [index for run in runs for index in run] == sorted(set(indices))
    assert all(left.stop < right.start for left, right in itertools.pairwise(runs))


def test_text_that_is_no_number_is_left_out() -> None:
    assert compress(["3", "{}", "x", "4"]) == (range(3, 5),)
