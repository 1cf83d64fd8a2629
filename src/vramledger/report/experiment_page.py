"""An experiment as one HTML file: the verdict, what it holds under, the pictures, every figure as text. It asks nothing of any network, runs no
script, and shows what a name from outside says as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vramledger.experiment.folder import REPORT
from vramledger.experiment.result import Experiment
from vramledger.report.experiment_evidence import Evidence, evidence_of
from vramledger.report.experiment_forecast_picture import forecast_pictures
from vramledger.report.experiment_ledger_picture import ledger_pictures
from vramledger.report.experiment_load_picture import load_pictures
from vramledger.report.experiment_memory_picture import memory_pictures
from vramledger.report.experiment_picture import Key, Picture
from vramledger.report.experiment_pool_picture import pool_picture
from vramledger.report.experiment_request_picture import request_pictures
from vramledger.report.experiment_style import STYLE
from vramledger.report.experiment_tables import (
    Table,
    accuracy_table,
    checks_table,
    forecast_table,
    snapshots_table,
    stages_table,
    steps_table,
    trends_table,
    without_empty,
)
from vramledger.report.experiment_trend_picture import trend_pictures
from vramledger.report.experiment_words import (
    conditions_of,
    doubts,
    head_facts,
    model_name,
    notes_of,
    standing,
    verdict_text,
)
from vramledger.report.html import Markup, tag
from vramledger.report.quantity_words import share_text, time_text, trimmed
from vramledger.report.text import utc_text
from vramledger.whole_file import write_whole

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LONG = 36


def write_experiment_page(folder: Path, found: Experiment) -> Path:
    """The page of what the experiment's folder holds, into that folder; where it is. Raises OutputError where it cannot be written."""
    path = folder / REPORT
    page = experiment_page(evidence_of(folder, found)).encode("utf-8", "replace")
    write_whole(path, page)
    return path


def experiment_page(evidence: Evidence) -> str:
    """The whole file."""
    found = evidence.found
    title = f"Capacity of {model_name(found) or 'an engine'}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    body = tag(
        "body",
        tag(
            "main",
            *_head(found),
            *_failure(found),
            *_conditions(found),
            *_section("What load it holds", _together(load_pictures(found)),
                      _table(stages_table(found), "every stretch of load, as measured")),
            *_section("Foretold and measured", _together(forecast_pictures(found)),
                      _table(accuracy_table(found), "how far off the forecasts were, over all stages"),
                      _fold(forecast_table(found), "every figure of every stage"),
                      *_model(found)),
            *_section("Where memory went", *map(_figure, memory_pictures(evidence)), *map(_figure, ledger_pictures(evidence)),
                      _fold(snapshots_table(found), "memory at each moment that was held fast")),
            *_section("The KV pool", *_pool(evidence)),
            *_section("What grew", _together([*trend_pictures(evidence), *request_pictures(evidence)]),
                      _table(trends_table(found), "over the steady stretch")),
            *_section("Steps and checks", _table(steps_table(found), "steps"), _table(checks_table(found), "checks")),
            *_notes(evidence),
            *_foot(found),
        ),
    )  # fmt: skip
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _head(found: Experiment) -> list[Markup]:
    word, style = standing(found)
    target = found.target
    engine = " ".join(part for part in (target.engine, target.engine_version) if part)
    named = " · ".join(part for part in (model_name(found), engine, utc_text(found.began_s)) if part)
    reasons = doubts(found) if word != "failed" else ()
    return [
        tag("h1", f"Capacity experiment: {named}"),
        tag(
            "section",
            tag("div", word, class_="word"),
            tag("p", _sentence(verdict_text(found)), class_="said"),
            *([tag("ul", *(tag("li", reason) for reason in reasons))] if reasons else []),
            class_=f"verdict {style or 'plain'}",
            aria_label="verdict",
        ),
        tag(
            "dl",
            *(
                tag(
                    "div",
                    tag("dt", fact.name),
                    tag("dd", fact.value, class_="value"),
                    tag("dd", fact.note, class_="small"),
                    class_=fact.style or "plain",
                )
                for fact in head_facts(found)
            ),
            class_="facts",
        ),
    ]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _failure(found: Experiment) -> list[Markup]:
    failed = found.failure
    if failed is None:
        return []
    where = f" in {failed.stage}" if failed.stage else ""
    parts = [
        tag("h2", "What ended it"),
        tag(
            "p",
            tag("strong", failed.classification or "not classified"),
            f", {failed.step.value}{where}, {utc_text(failed.at_s)}",
        ),
    ]
    if failed.words and failed.words != verdict_text(found):
        parts.append(tag("p", failed.words))  # fmt: skip
    for name, lines in (("evidence", failed.evidence), ("remedies", failed.remedies)):
        if lines:
            parts += [tag("h3", name), tag("ul", *(tag("li", text) for text in lines))]
    return parts


def _conditions(found: Experiment) -> list[Markup]:
    named = conditions_of(found)
    rows = [part for name, value in named for part in (tag("dt", name), tag("dd", value))]
    parts = [tag("dl", *rows, class_="conditions")]
    if found.conditions:
        parts.append(tag("ul", *(tag("li", text) for text in found.conditions)))
    return [tag("h2", "Conditions"), tag("div", *parts, class_="under")]


def _model(found: Experiment) -> list[Markup]:
    model = found.latency_model
    if model is None:
        return []
    step = model.step
    text = (
        f"A step takes {_ps(step.overhead_ps)} and {_ps(step.token_ps)} a token computed (at least {_ps(step.floor_ps)}), "
        f"{_ps(step.decode_seq_ps)} a decoding request and {_ps(1000 * step.kv_token_ps)} a thousand cached tokens read."
    )
    fitted = f" Fitted to {model.fitted_requests:,} requests of {', '.join(model.stages) or 'no stage'}."
    error = (
        ""
        if model.relative_error is None
        else f" Off by {share_text(model.relative_error)} over {model.held_out_requests:,} requests that it was not fitted to."
    )
    return [tag("p", text + fitted + error, class_="note")]


def _ps(time_ps: int) -> str:
    return trimmed(time_text(time_ps / 1000))


def _pool(evidence: Evidence) -> list[Markup]:
    drawn = pool_picture(evidence)
    pool = evidence.found.pool
    words = [tag("p", pool.words)] if pool is not None and pool.words else []
    return [*words, *([_figure(drawn)] if drawn is not None else [])]


def _notes(evidence: Evidence) -> list[Markup]:
    found = evidence.found
    notes = [
        *notes_of(found),
        *(f"{stage.name}: {note}" for stage in found.stages for note in stage.notes),
        *evidence.missing,
    ]
    if not notes:
        return []
    return [tag("h2", "Notes"), tag("ul", *(tag("li", note) for note in notes))]


def _foot(found: Experiment) -> list[Markup]:
    parts = [
        "The experiment's folder has each request (records), the readings (series.jsonl) and this value (experiment.json)."
    ]
    if found.made_by:
        parts.append(f" Made by {found.made_by}.")
    return [tag("footer", tag("p", *parts))]


def _section(title: str, *parts: Markup) -> list[Markup]:
    """Nothing at all where there is nothing to show."""
    shown = [part for part in parts if part]
    return [tag("h2", title), *shown] if shown else []


def _together(pictures: Sequence[Picture]) -> Markup:
    """Side by side as far as the page is wide."""
    if not pictures:
        return Markup()
    return tag("div", *map(_figure, pictures), class_="pictures")


def _figure(picture: Picture) -> Markup:
    about = [tag("h3", picture.title)]
    if picture.words:
        about.append(tag("p", picture.words))
    keys = [tag("ul", *map(_key, picture.keys), class_="key")] if picture.keys else []
    return tag("figure", tag("figcaption", *about), *keys, *map(Markup, picture.drawings))


def _key(key: Key) -> Markup:
    drawn = {
        "line": f'<path d="M0 6H22" stroke="{key.colour}" stroke-width="2"/>',
        "dash": f'<path d="M0 6H22" stroke="{key.colour}" stroke-width="2" stroke-dasharray="5 3"/>',
        "area": f'<rect x="3" width="16" height="12" rx="2" fill="{key.colour}" fill-opacity=".7"/>',
        "dot": f'<path d="M0 6H22" stroke="{key.colour}" stroke-width="2"/><circle cx="11" cy="6" r="3.5" fill="{key.colour}"/>',
        "ring": f'<circle cx="11" cy="6" r="4" fill="none" stroke="{key.colour}" stroke-width="1.5"/>',
    }[key.mark]
    return tag("li", Markup(f'<svg viewBox="0 0 22 12" aria-hidden="true">{drawn}</svg>'), key.label)


def _table(table: Table, caption: str) -> Markup:
    if not table.rows:
        return Markup()
    kept = without_empty(table)
    head = tag(
        "tr",
        *(
            tag("th", name, scope="col", class_="w" if place in kept.texts else "n")
            for place, name in enumerate(kept.heads)
        ),
    )
    rows = [
        tag("tr", *_cells(kept, row), class_=(kept.styles[number] or "plain") if kept.styles else "")
        for number, row in enumerate(kept.rows)
    ]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *rows))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cells(table: Table, row: Sequence[str]) -> list[Markup]:
    out = []
    for place, cell in enumerate(row):
        kind = "w" if place in table.texts else "n"
        out.append(tag("td", cell, class_=f"{kind} long" if len(cell) > _LONG else kind))
    return out


def _fold(table: Table, caption: str) -> Markup:
    """A table that is opened by who wants it."""
    shown = _table(table, caption)
    return tag("details", tag("summary", caption), shown) if shown else Markup()
