from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError, SourceError
from vramledger.workload.columnar.client_lengths import read_pdf
from vramledger.workload.columnar.client_windows import sample_clients

RATES = (
    Path(__file__).parents[2]
    / "data"
    / "traces"
    / "servegen-bailian"
    / "reason-deepseek-r1.3-clients.rates.parquet"
)
NS = 10**9
HOUR = 3600.0


def written(folder: Path, rates: list[dict[str, Any]], pdfs: list[dict[str, Any]]) -> Path:
    plain = {"cv": 1.0, "pattern": "", "p1": 0.0, "p2": 0.0}
    pq.write_table(pa.Table.from_pylist([plain | row for row in rates]), folder / "t.rates.parquet")
    pq.write_table(pa.Table.from_pylist(pdfs), folder / "t.pdfs.parquet")
    return folder / "t.rates.parquet"


def lengths(
    client: int, t_s: int = 0, prompt: str = "{100: 1.0}", output: str = "{10: 1.0}"
) -> list[dict[str, Any]]:
    return [
        {"client": client, "t_s": t_s, "field": "input_tokens", "pdf": prompt},
        {"client": client, "t_s": t_s, "field": "output_tokens", "pdf": output},
    ]


@given(
    st.dictionaries(st.integers(0, 100_000), st.floats(1e-12, 1.0, allow_nan=False), min_size=1, max_size=30),
    st.floats(1e-6, 1 - 1e-6),
)
def test_a_pdf_is_read_as_python_writes_it(pdf: dict[int, float], place: float) -> None:
    read = read_pdf(str(pdf))
    assert read.values.tolist() == sorted(pdf)
    assert read.places[-1] == pytest.approx(1.0)
    total = sum(pdf.values())
    below = sum(weight for value, weight in pdf.items() if value <= 50) / total
    held = read.places[read.values <= 50]
    assert (held[-1] if len(held) else 0.0) == pytest.approx(below, abs=1e-9)
    assert ast.literal_eval(str(pdf)) == pdf


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__import__('os').system('id')", "is not {value"),
        ("{1: 0.5, 2}", "is not {value"),
        ("{1: 0.5: 3}", "is not {value"),
        ("{1: len}", "no number"),
        ("{1.5: 0.5}", "whole numbers"),
        ("{-1: 0.5}", "whole numbers"),
        ("{1: -0.5}", "probabilities"),
        ("{1: 0.0}", "probabilities"),
        ("{1: nan}", "probabilities"),
        ("{nan: 1.0}", "whole numbers"),
        ("{" + " " * 2**24 + "}", "characters"),
    ],
)
def test_any_other_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_pdf(text)


def test_every_window_has_its_clients_rate_and_its_lengths() -> None:
    """Against the tables themselves: requests by client and hour are Poisson or burstier, so counts of the day are compared,
    and means by their standard errors."""
    table = sample_clients(RATES, duration_s=24 * HOUR, seed=1).table()
    rates, pdfs = (
        pq.read_table(RATES.with_name(RATES.name.replace("rates", kind))).to_pylist()
        for kind in ("rates", "pdfs")
    )
    means = {
        (row["client"], row["t_s"]): sum(
            value * share for value, share in ast.literal_eval(row["pdf"]).items()
        )
        for row in pdfs
        if row["field"] == "input_tokens"
    }
    for tenant, client in enumerate((13, 41, 46)):
        own = [row for row in rates if row["client"] == client]
        expected = sum(row["rate_per_s"] * 600 for row in own)
        here = table.tenant == tenant
        assert here.sum() == pytest.approx(expected, rel=0.15 if client == 13 else 0.1)
        sent = np.unique(table.arrival_ns[here] // (600 * NS))
        assert {row["t_s"] // 600 for row in own if row["rate_per_s"] > 0} >= set(sent.tolist())
        weights = [row["rate_per_s"] for row in own]
        mean = np.average([means[client, row["t_s"] // 21600 * 21600] for row in own], weights=weights)
        values = table.prompt_tokens[here]
        assert values.mean() == pytest.approx(mean, abs=5 * values.std() / len(values) ** 0.5)
    assert table.output_tokens.min() >= 1


def test_the_same_seed_and_any_part_of_the_day() -> None:
    whole = sample_clients(RATES, requests=2000, seed=3).table()
    again = sample_clients(RATES, requests=2000, seed=3).table()
    assert all(np.array_equal(one, other) for one, other in zip(whole, again, strict=True))
    assert (np.diff(whole.arrival_ns) >= 0).all()
    late = sample_clients(RATES, start_s=12 * HOUR, duration_s=HOUR, seed=3).table()
    assert late.rows == 0 or (late.arrival_ns.min() >= 0 and late.arrival_ns.max() < HOUR * NS)


def test_a_rate_for_all_clients_together() -> None:
    workload = sample_clients(RATES, rate_per_s=5.0, seed=1)
    assert workload.table().rows == pytest.approx(5 * 24 * HOUR, rel=0.1)
    assert workload.header.notes[0].startswith("rates scaled by")
    assert workload.header.tenants == ("client 13", "client 41", "client 46")


@pytest.mark.parametrize(
    ("pattern", "shape", "cv"), [("", 0.0, 1.0), ("Gamma", 0.25, 2.0), ("Weibull", 0.5, 5**0.5)]
)
def test_gaps_have_their_patterns_burstiness_over_all_windows(
    tmp_path: Path, pattern: str, shape: float, cv: float
) -> None:
    """Weibull of shape k has cv^2 = G(1 + 2/k) / G(1 + 1/k)^2 - 1, which is 5 for 1/2."""
    rates = [
        {"client": 4, "t_s": 600 * window, "rate_per_s": 2.0, "pattern": pattern, "p1": shape, "p2": 1.0}
        for window in range(50)
    ]
    table = sample_clients(written(tmp_path, rates, lengths(4)), seed=2).table()
    gaps = np.diff(table.arrival_ns) / NS
    assert table.rows == pytest.approx(60_000, rel=5 * cv / 60_000**0.5)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.08)


def test_text_and_images_are_one_prompt_and_the_nearest_lengths_stand_in(tmp_path: Path) -> None:
    rates = [{"client": 0, "t_s": 600 * window, "rate_per_s": 1.0} for window in range(4)]
    pdfs = [
        *lengths(0, 0, prompt="{}", output="{}"),
        *lengths(0, 1200, prompt="{7: 1.0}", output="{3: 1.0}"),
        {"client": 0, "t_s": 1200, "field": "image_tokens", "pdf": "{1200: 1.0}"},
        {"client": 0, "t_s": 1200, "field": "image_count", "pdf": "{1: 1.0}"},
    ]
    table = sample_clients(written(tmp_path, rates, pdfs), requests=100, seed=2).table()
    assert set(table.prompt_tokens.tolist()) == {1207}
    assert set(table.output_tokens.tolist()) == {3}


def test_clients_without_lengths_are_told(tmp_path: Path) -> None:
    rates = [
        {"client": client, "t_s": 600 * window, "rate_per_s": 1.0} for client in (1, 2) for window in (0, 1)
    ]
    workload = sample_clients(written(tmp_path, rates, lengths(2)), seed=2)
    assert "1 clients have rates and no lengths" in workload.header.notes[0]
    assert workload.header.tenants == ("client 2",)


@pytest.mark.parametrize(
    ("rates", "pdfs", "words"),
    [
        ([{"client": 1, "t_s": 0, "rate_per_s": -1.0}], lengths(1), r"rates\.parquet: row 1: rate_per_s -1.0"),
        ([{"client": 1, "t_s": 0, "rate_per_s": float("nan")}], lengths(1), "row 1: rate_per_s nan"),
        ([{"client": 1, "t_s": 0, "rate_per_s": 1.0, "pattern": "Zipf"}], lengths(1), "row 1: pattern 'Zipf'"),
        ([{"client": 1, "t_s": 0, "rate_per_s": 1.0, "pattern": "Weibull", "p1": 0.01}], lengths(1), "row 1: p1 0.01"),
        ([{"client": 1, "t_s": 5, "rate_per_s": 1.0}] * 2, lengths(1), "client 1 has two windows at one time"),
        ([{"client": 1, "t_s": 0, "rate_per_s": 1.0}], lengths(2), "no client has lengths"),
        ([{"client": 1, "t_s": 0, "rate_per_s": 1.0}], lengths(1, prompt="{9: x}"), r"pdfs\.parquet: row 1: pdf .* no number"),
        ([{"client": 1, "rate_per_s": 1.0}], lengths(1), "no column 't_s'"),
    ],
)  # fmt: skip
def test_errors_name_the_row(
    tmp_path: Path, rates: list[dict[str, Any]], pdfs: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        list(sample_clients(written(tmp_path, rates, pdfs), requests=10).batches())


def test_a_missing_table_and_another_name_are_errors(tmp_path: Path) -> None:
    path = written(tmp_path, [{"client": 1, "t_s": 0, "rate_per_s": 1.0}], lengths(1))
    path.with_name("t.pdfs.parquet").unlink()
    with pytest.raises(SourceError, match=r"t\.pdfs\.parquet"):
        sample_clients(path)
    with pytest.raises(InputError, match=r"NAME\.rates\.parquet"):
        sample_clients(tmp_path / "rates.csv")
