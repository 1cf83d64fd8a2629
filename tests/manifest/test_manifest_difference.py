"""What changed between two releases, and expressions of what is too much."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given as property_of
from hypothesis import settings
from hypothesis import strategies as st

from five_kinds import planned
from manifests import bare, whole
from vramledger.documents.plan import plan_document
from vramledger.errors import FlagError
from vramledger.manifest.difference import Subject, difference
from vramledger.manifest.expression import parse_threshold
from vramledger.manifest.quantities import quantities
from vramledger.manifest.quantity import Group, Quantity, Unit
from vramledger.manifest.thresholds import Outcome, judge

SUBJECTS: tuple[Subject, ...] = (
    whole(),
    bare(),
    whole("mixture"),
    plan_document(planned("dense", kv_cache_dtype="fp8")),
    plan_document(planned("dense", engine="sglang")),
    plan_document(planned("recurrent", tp=1)),
)
KNOWN = quantities(whole())


@pytest.mark.parametrize("number", range(len(SUBJECTS)))
def test_nothing_differs_from_itself(number: int) -> None:
    found = difference(SUBJECTS[number], SUBJECTS[number])
    assert found.is_empty
    assert found.same


@property_of(st.sampled_from(SUBJECTS), st.sampled_from(SUBJECTS))
@settings(max_examples=36)
def test_the_other_way_round_has_the_other_sign(one: Subject, other: Subject) -> None:
    there, back = difference(one, other), difference(other, one)
    assert [item.name for item in there.changes] == [item.name for item in back.changes]
    for change, turned in zip(there.changes, back.changes, strict=True):
        assert (change.before, change.after) == (turned.after, turned.before)
        assert (change.delta is None) is (turned.delta is None)
        if change.delta is not None and turned.delta is not None:
            assert change.delta == -turned.delta
    assert (there.conditions_gone, there.conditions_new) == (back.conditions_new, back.conditions_gone)
    assert (there.same, there.untold) == (back.same, back.untold)


def test_changes_come_by_what_decides_and_then_by_size() -> None:
    found = difference(plan_document(planned("dense")), plan_document(planned("dense", kv_cache_dtype="fp8")))
    order = list(Group)
    groups = [order.index(change.group) for change in found.changes]
    assert groups == sorted(groups)
    by_name = {change.name: change for change in found.changes}
    assert (by_name["kv_format"].before, by_name["kv_format"].after) == ("bfloat16", "fp8")
    assert by_name["kv_bytes_per_token"].percent == -50
    assert by_name["kv_tokens"].delta is not None
    assert by_name["kv_tokens"].delta > 0
    assert "weights" in found.same
    assert any("KV cache fp8" in text for text in found.conditions_new)


def test_a_plan_knows_neither_revisions_nor_measurements() -> None:
    found = quantities(plan_document(planned("dense")))
    for name in ("model_revision", "engine_revision", "measured_weights", "measured_kv_tokens"):
        assert found[name].value is None
    assert KNOWN["measured_weights"].value == 8_064_081_920
    change = next(item for item in difference(bare(), whole()).changes if item.name == "measured_weights")
    assert (change.before, change.delta, change.percent) == (None, None, None)


def test_every_owner_and_phase_has_a_quantity() -> None:
    from vramledger.ledger import Owner, Phase

    assert {f"owner.{owner.value}" for owner in Owner} | {f"peak.{phase.value}" for phase in Phase} <= set(
        KNOWN
    )
    assert all(item.about for item in KNOWN.values())


def outcome(text: str, before: Any, after: Any) -> Outcome:
    return judge(parse_threshold(text, KNOWN), before, after).outcome


@pytest.mark.parametrize(
    ("text", "before", "after", "tripped"),
    [
        ("kv_tokens < -2%", 1000, 979, True),
        ("kv_tokens < -2%", 1000, 980, False),
        ("kv_tokens <= -2%", 1000, 980, True),
        ("kv_tokens<-2%", 1000, 1100, False),
        ("kv_tokens < -5", 1000, 994, True),
        ("kv_tokens < -5 tokens", 1000, 995, False),
        ("weights > +1GiB", 5 * 2**30, 6 * 2**30, False),
        ("weights > +1GiB", 5 * 2**30, 6 * 2**30 + 1, True),
        ("weights >= 1 gib", 5 * 2**30, 6 * 2**30, True),
        ("weights > 1GB", 0, 10**9 + 1, True),
        ("weights > .5KiB", 0, 513, True),
        ("weights > 0", 7, 7, False),
        ("weights > 10%", 0, 1, True),
        ("weights < -10%", 0, 1, False),
        ("weights > 10%", 0, 0, False),
        ("headroom < -50%", -100, -151, True),
        ("headroom < -50%", -100, -149, False),
        ("max_concurrency < -0.5", 3.5, 2.9, True),
        ("kv_format != same", "bfloat16", "fp8", True),
        ("kv_format != same", "fp8", "fp8", False),
        ("kv_format == same", "fp8", "fp8", True),
        ("tp != same", 2, 4, True),
        ("peak.prefill > 0B", 10, 11, True),
    ],
)  # fmt: skip
def test_thresholds(text: str, before: Any, after: Any, tripped: bool) -> None:
    assert outcome(text, before, after) is (Outcome.TRIPPED if tripped else Outcome.HELD)


@pytest.mark.parametrize(
    ("text", "before", "after", "why"),
    [
        ("kv_tokens < -5", 1000, 994, "changed by -6 tokens"),
        ("weights > 1GiB", 0, 16_060_522_497, "changed by +16,060,522,497 bytes"),
        ("max_concurrency < -0.5", 3.5, 2.75, "changed by -0.75 requests"),
        ("weights > 10%", 0, 7, "0 before, 7 bytes after"),
        ("weights > 10%", 10, 15, "changed by +50%"),
        ("tp > 1", 2, 4, "changed by +2"),
    ],
)
def test_what_a_threshold_saw_is_told_in_the_unit_it_was_asked_in(
    text: str, before: Any, after: Any, why: str
) -> None:
    assert judge(parse_threshold(text, KNOWN), before, after).why == why


@pytest.mark.parametrize(("before", "after"), [(None, 5), (5, None), (None, None)])
def test_what_one_side_does_not_know_is_no_pass(before: Any, after: Any) -> None:
    found = judge(parse_threshold("measured_weights > 5GiB", KNOWN), before, after)
    assert found.outcome is Outcome.UNTOLD
    assert "is not known on" in found.why
    assert outcome("model_revision != same", before, after) is Outcome.UNTOLD


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("", 1, "expected the name of a quantity"),
        ("   < 5%", 4, "expected the name of a quantity"),
        ("kv_tokns < -2%", 1, "did you mean kv_tokens"),
        ("kv_tokens", 10, "expected <, <=, >, >=, == or !="),
        ("kv_tokens ~ -2%", 11, "expected <, <=, >, >=, == or !="),
        ("kv_tokens < ", 13, "expected an amount"),
        ("kv_tokens < two", 13, "expected an amount"),
        ("kv_tokens < --2%", 13, "expected an amount"),
        ("kv_tokens < 1.2.3", 13, "expected an amount"),
        ("kv_tokens < .", 13, "expected an amount"),
        ("kv_tokens < -2GiB", 15, "kv_tokens is in tokens"),
        ("kv_tokens < -2% ; rm", 15, "kv_tokens is in tokens"),
        ("weights > 2", 12, "weights is in bytes"),
        ("weights > 2 parsecs", 13, "weights is in bytes"),
        ("weights == 2GiB", 12, "only 'same' is understood"),
        ("kv_format > 2", 13, "kv_format is a text"),
    ],
)
def test_a_wrong_expression_says_where(text: str, column: int, said: str) -> None:
    with pytest.raises(FlagError, match=f"column {column}: .*{said}") as caught:
        parse_threshold(text, KNOWN)
    assert caught.value.facts["column"] == column


@property_of(
    st.text(max_size=30) | st.from_regex(r"\A(kv_tokens|weights) ?[<>]=? ?[-+]?[0-9.]{1,9} ?(%|GiB)?\Z")
)
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        found = parse_threshold(text, KNOWN)
    except FlagError:
        return
    assert found.name in KNOWN


def test_a_long_expression_is_refused() -> None:
    with pytest.raises(FlagError, match="more than 200"):
        parse_threshold("kv_tokens < " + "1" * 1000, KNOWN)


@property_of(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_per_cent_is_exact(hundredths: int, before: int, after: int) -> None:
    text = f"kv_tokens > {Fraction(hundredths, 100).numerator / Fraction(hundredths, 100).denominator:.2f}%"
    tripped = (after - before) * 10_000 > hundredths * before
    assert (outcome(text, before, after) is Outcome.TRIPPED) is tripped


def test_units_of_quantities() -> None:
    assert isinstance(KNOWN["weights"], Quantity)
    assert KNOWN["weights"].unit is Unit.BYTES
    assert KNOWN["settings.max_model_len"].unit is Unit.COUNT
    assert KNOWN["settings.enable_prefix_caching"].value == "true"
