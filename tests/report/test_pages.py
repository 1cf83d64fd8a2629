"""Pages for a terminal: what is on them, and that they keep to their width."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from five_kinds import FIVE, checkpoint, planned
from vramledger import ByteRange, Owner, Phase, RankLedger, devices
from vramledger.models.headers import summarise
from vramledger.models.sources.header_table import HeaderRow, HeaderTable
from vramledger.report.bar import FILLS, memory_bar, shares
from vramledger.report.devices_text import devices_lines
from vramledger.report.headers_report import header_facts, header_lines
from vramledger.report.model_text import model_lines
from vramledger.report.plan_text import plan_lines
from vramledger.report.pool_text import pool_lines
from vramledger.report.text import columns, gib, ranks_text, render, safe


def plan_page(kind: str, *, width: int = 80, explain: bool = False, **flags: Any) -> str:
    counts = checkpoint(kind).model.parameter_counts()
    lines = plan_lines(planned(kind, **flags), width=width, explain=explain, parameters=counts)
    return render(lines, colour=False)


WIDTHS = (60, 61, 75, 76, 80, 100, 140)


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("explain", [False, True])
def test_plan_pages_keep_to_their_width_and_break_no_word(kind: str, width: int, explain: bool) -> None:
    page = plan_page(kind, width=width, explain=explain)
    assert longest_of_words(page, width) <= width
    assert page == "\n".join(line.rstrip() for line in page.splitlines()) + "\n"
    assert words_of_labels(page) >= words_of_labels(plan_page(kind, width=300, explain=explain))


def longest_of_words(page: str, width: int) -> int:
    """The longest line; one that a single long word fills counts as wide as the page."""
    return max(len(line) if len(line.split()) > 2 else min(len(line), width) for line in page.splitlines())


def words_of_labels(page: str) -> set[str]:
    """Words of letters, without the column that only wide pages have."""
    return {word for word in page.split() if word.strip(".,:()*").isalpha()} - COLUMN_WORDS


COLUMN_WORDS = {"lifetime", "worker", "iteration", "request"}


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("width", WIDTHS)
def test_figures_stand_under_their_headings(kind: str, width: int) -> None:
    """Every size of the ledger ends where one of the headings low, expected and high does."""
    lines = plan_page(kind, width=width).splitlines()
    for start in (number for number, text in enumerate(lines) if "owner / entry" in text):
        ends = {lines[start].index(head) + len(head) for head in ("low", "expected", "high")}
        stop = next(
            n for n in range(start, len(lines)) if not lines[n] or lines[n].startswith("  weights: on disk")
        )
        for text in lines[start + 1 : stop]:
            sizes = list(re.finditer(r"(?<!\S)(<?\d+\.\d\d)(?!\S)", text))
            assert {match.end() for match in sizes} <= ends
            assert len(sizes) in (0, 1, 3)


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("width", WIDTHS)
def test_other_pages_keep_to_their_width(kind: str, width: int) -> None:
    for lines in (model_lines(checkpoint(kind), width=width), devices_lines(devices(), width=width)):
        assert max(len(line) for line in render(lines, colour=False).splitlines()) <= width


def test_a_kind_with_a_long_name_stands_above_its_figures() -> None:
    pool = planned("windowed", tp=1).kv_pool
    assert pool is not None
    parts = tuple(
        replace(part, kind="a_kind_of_attention_with_quite_a_long_name") for part in pool.groups[0].parts
    )
    long = replace(pool, groups=(replace(pool.groups[0], parts=parts),))
    page = render(pool_lines(long, width=60), colour=False).splitlines()
    assert max(map(len, page)) <= 60
    at = page.index("  a_kind_of_attention_with_quite_a_long_name")
    assert page[at + 1].split()[0].split("+")[0] == str(parts[0].num_layers)


@pytest.mark.parametrize("kind", FIVE)
def test_a_plan_page_has_every_entry_peak_and_printed_line(kind: str) -> None:
    plan = planned(kind)
    page = plan_page(kind)
    flat = " ".join(page.split())
    for rank in plan.ranks:
        assert ranks_text(rank.ranks) in page
        for entry in rank.entries:
            assert entry.name.split()[0] in page
            assert FILLS[entry.owner] + " " + entry.owner.value in page
        assert f"{gib(rank.weights.disk_bytes)}" in page
    assert sum("binds" in line for line in page.splitlines()) == len(plan.ranks)
    for text in plan.printed:
        assert text in flat
    for text in (plan.verdict.summary, *plan.verdict.conditions, *plan.verdict.assumed):
        assert text in flat
    assert "source:" not in page


def test_an_explained_page_has_sources_and_settings() -> None:
    flat = " ".join(plan_page("dense", explain=True).split())
    for entry in planned("dense").ranks[0].entries:
        assert f"source: {entry.evidence.source}" in flat
    assert "max_num_batched_tokens" in flat


def test_both_conversions_are_shown_where_they_differ() -> None:
    assert "steady state" in plan_page("windowed", tp=1)
    assert "steady state" not in plan_page("dense")


def test_colour_changes_no_text() -> None:
    lines = list(plan_lines(planned("dense")))
    coloured = render(lines, colour=True)
    assert "\x1b[" in coloured
    plain = "\n".join(line.rstrip() for line in _without_codes(coloured).splitlines()) + "\n"
    assert plain == render(lines, colour=False)


def _without_codes(text: str) -> str:
    out, rest = "", text
    while rest:
        before, escape, rest = rest.partition("\x1b[")
        out += before
        rest = rest.partition("m")[2] if escape else ""
    return out


def test_names_cannot_command_the_terminal() -> None:
    assert safe("a\x1b[2Jb\rc\u202ed") == "a?[2Jb?c?d"
    assert safe("한국어 · ok") == "한국어 · ok"
    assert "\x1b" not in render([(("x\x1b[31m", ""),)], colour=False)


def test_the_bar_gives_each_owner_its_share() -> None:
    ledger = planned("dense").ranks[0]
    bar = "".join(text for text, _ in memory_bar(ledger, Phase.DECODE, 80))
    assert len(bar) == 80
    weights = ledger.owned(Owner.WEIGHTS).expected * 78 / ledger.device_total_bytes
    assert abs(bar.count("W") - weights) < 1
    assert len(set(FILLS.values())) == len(FILLS) == len(Owner)


def test_a_bar_of_too_much_shows_where_the_device_ends() -> None:
    small = planned("mixture", tp=1).ranks[0]
    ledger = RankLedger(
        ranks=small.ranks,
        entries=small.entries,
        weights=small.weights,
        device_total_bytes=small.peak(Phase.DECODE).expected // 2,
    )
    bar = "".join(text for text, _ in memory_bar(ledger, Phase.DECODE, 80))
    assert len(bar) == 80
    assert abs(bar.index("|") - 40) <= 1


def test_shares_use_every_cell() -> None:
    assert shares([2, 3, 5], 10) == [2, 3, 5]
    assert sum(shares([7, 11, 13, 0], 17)) == 17
    assert shares([0, 0], 5) == [0, 0]


def test_ranks_are_written_as_runs() -> None:
    assert ranks_text((0,)) == "rank 0"
    assert ranks_text((0, 1, 2, 3)) == "ranks 0-3"
    assert ranks_text((0, 1, 8, 9, 11)) == "ranks 0-1, 8-9, 11"


def test_what_is_there_never_reads_as_nothing() -> None:
    assert gib(1) == "<0.01"
    assert gib(0) == "0.00"
    assert gib(16_000_000_000) == "14.90"


def test_headers_alone_still_say_bytes_types_and_patterns() -> None:
    rows = (
        HeaderRow(
            template="a.{}.weight", dtype="BF16", shape=(5, 7), count=3, layers=(range(3),), tensor_bytes=70
        ),
        HeaderRow(template="scale", dtype="F32", shape=(), count=1, layers=(), tensor_bytes=4),
    )
    summary = summarise(HeaderTable(rows=rows, files=()))
    assert (summary.tensor_count, summary.total_bytes, summary.num_layers) == (4, 214, 3)
    assert header_facts(summary)["bytes_by_dtype"] == {"BF16": 210, "F32": 4}
    for width in WIDTHS:
        page = render(header_lines(summary, width=width), colour=False)
        assert "4 tensors" in page
        assert "a.{}.weight" in page
        assert max(map(len, page.splitlines())) <= width


def test_a_long_name_of_a_header_keeps_its_end() -> None:
    name = "model.language_model.layers.{}.feed_forward.shared_expert.gate_and_up_projection.weight_scale_inv"
    row = HeaderRow(
        template=name, dtype="F8_E4M3", shape=(18432, 7168), count=61, layers=(), tensor_bytes=18432 * 7168
    )
    for width in WIDTHS:
        page = render(header_lines(summarise(HeaderTable(rows=(row,), files=())), width=width), colour=False)
        assert max(map(len, page.splitlines())) <= width
        assert "_scale_inv" in page


def test_byte_ranges_show_their_ends_only_where_they_differ() -> None:
    page = plan_page("dense")
    exact = next(line for line in page.splitlines() if "embedding" in line)
    ranged = next(line for line in page.splitlines() if "KV pool" in line and "worker" in line)
    assert len([part for part in exact.split() if part.replace(".", "").isdigit()]) == 1
    assert len([part for part in ranged.split() if part.replace(".", "").isdigit()]) == 3
    assert ByteRange.exact(5).is_exact


def test_a_cell_over_several_lines_keeps_its_indent_and_its_column() -> None:
    rows = [("  step", "bytes"), ("  new serves, old sleeps", "1"), ("  old ends", "22")]
    shown = render(columns(rows, right=(1,), width=20), colour=False).splitlines()
    assert shown == [
        "  step         bytes",
        "  new serves,      1",
        "    old",
        "    sleeps",
        "  old ends        22",
    ]
