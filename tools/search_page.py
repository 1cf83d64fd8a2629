"""Write docs/searches.md: what the searches ask of each engine, and what a table's columns hold.

python -m tools.search_page
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from vramledger.engines.option import spelled
from vramledger.report.table_file import column_facts
from vramledger.search.terms import KV_LOSS, Terms, asked_engines, terms_of
from vramledger.search.weights import FORMATS

PAGE = Path(__file__).parents[1] / "docs" / "searches.md"

_TEXT = """# Comparisons, fits and sweeps

`vramledger compare` puts engines, or versions of one, side by side on the same question. `vramledger fit` plans every
combination of devices, tp, pp, ep, weight format, KV format and engine within limits, orders what holds by a cost and
says by how much the rest misses. `vramledger sweep` writes a whole grid as a table. From Python they are
`vramledger.compare`, `vramledger.fit` and `vramledger.sweep`.

Every row is one `plan` call: a plan that is listed holds when it is planned alone, with the flags that the row names.
What is left out without a plan (`fit`: weights that alone pass the devices' memory) surely does not hold.

This page is written by `python -m tools.search_page`.
"""


def page() -> str:
    """The page's text."""
    return "\n".join(
        [
            _TEXT,
            "## The common questions in each engine's flags",
            "",
            (
                "Whatever else an engine has is given as `--flags ENGINE:FLAG=VALUE`. A limit on requests at once is given "
                "only where more are asked for than the engine allows by itself. A dash is a question that the engine has no "
                "flag for; it refuses plans that need one."
            ),
            "",
            *_table(("question", *asked_engines()), _questions()),
            "",
            "## Weight formats",
            "",
            (
                "`stored` is what the checkpoint has. The others are hypothetical: the decoder's matrices in the layout that the "
                "producer named writes, everything else as the model has it. The class of precision is 0 as published or 16 "
                "bits, 1 for 8 bits, 2 for 4; the Pareto front keeps apart what differs in it."
            ),
            "",
            *_table(
                ("name", "what it is", "class", "engines"),
                [
                    (f"`{item.name}`", item.help, str(item.loss), ", ".join(sorted(item.engines)))
                    for item in FORMATS.values()
                ],
            ),
            "",
            "## Columns of a table",
            "",
            (
                "Bytes are whole, expected unless the name says low or high, and those of the rank that holds most while it "
                "serves. All owners and what is unused are the device. An empty cell (null) is a figure that there is not."
            ),
            "",
            *_table(
                ("column", "type", "what it holds"),
                [(f"`{name}`", kind, text or "As the name says.") for name, kind, text in column_facts()],
            ),
            "",
        ]
    )


def _questions() -> list[tuple[str, ...]]:
    terms = [terms_of(engine) for engine in asked_engines()]
    rows = [
        ("devices a layer is cut over (`--tp`)", *(_flag(item.tp) for item in terms)),
        ("stages of layers (`--pp`)", *(_flag(item.pp) for item in terms)),
        ("experts spread whole (`--ep`)", *(_experts(item) for item in terms)),
        ("tokens of a request (`--context`)", *(_context(item) for item in terms)),
        ("requests at once (`--concurrency`)", *(_sequences(item) for item in terms)),
        ("KV format (`--kv`)", *(" ".join(map(_flag, item.kv)) or "-" for item in terms)),
    ]
    for kind in KV_LOSS:
        if kind != "auto":
            rows.append((f"KV {kind}", *(_code(item.kv_names.get(kind)) for item in terms)))
    return rows


def _flag(name: str | None) -> str:
    return "-" if name is None else _code(spelled(name))


def _code(text: str | None) -> str:
    return "-" if text is None else f"`{text}`"


def _experts(item: Terms) -> str:
    return f"{_flag(item.ep)} (as many as tp)" if item.ep_counts else _flag(item.ep)


def _context(item: Terms) -> str:
    return f"{_flag(item.context)} (times requests)" if item.context_of_all else _flag(item.context)


def _sequences(item: Terms) -> str:
    if item.sequences is None:
        return "-"
    return f"{_flag(item.sequences)}" + (f" (above {item.sequences_free})" if item.sequences_free else "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines]


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
