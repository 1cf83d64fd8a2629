"""Fill the tables of docs/engines: what is counted and from which source, what of a log is read, and how right the figures are.

    python -m tools.engine_pages [--check]

A table stands between `<!-- facts: NAME -->` and `<!-- facts: end -->`; the words around it are written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.filled_page import keep
from tools.reference.markdown import code, plain, table

from vramledger import Entry, Plan, plan
from vramledger.engines import find_log

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "engines"
_BLOCK = re.compile(r"(<!-- facts: (?P<name>[a-z]+) -->\n).*?(<!-- facts: end -->)", re.DOTALL)
# A plan's parallel sizes behind the source of its weights.
_SIZES = re.compile(r", tp \d+(?: attention tp \d+)?(?: pp \d+)?(?: ep \d+)?$")

Case = tuple[str, str, Mapping[str, Any]]
_DENSE, _EXPERTS, _LATENT, _WINDOWS, _STATES = (
    f"builtin:{name}"
    for name in ("Llama-3.1-8B-Instruct", "Qwen3-30B-A3B", "DeepSeek-V3", "gemma-3-27b-it", "Qwen3.5-27B")
)
# Plans whose entries make the table: what one engine counts for kinds of models and options.
CASES: dict[str, tuple[Case, ...]] = {
    "vllm": (
        (_DENSE, "H100-80GB", {}),
        (_DENSE, "H100-80GB", {"enable_lora": True, "max_loras": 4}),
        (_EXPERTS, "H100-80GB", {"tp": 2, "enable_expert_parallel": True}),
        (_LATENT, "B200", {"tp": 8, "speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}),
        (_WINDOWS, "H100-80GB", {}),
        (_STATES, "H100-80GB", {}),
        (_DENSE, "cpu:64GiB", {}),
    ),
    "sglang": (
        (_DENSE, "H100-80GB", {}),
        (_EXPERTS, "H100-80GB", {"tp": 2}),
        (_LATENT, "B200", {"tp": 8}),
        (_WINDOWS, "H100-80GB", {}),
        (_STATES, "H100-80GB", {}),
    ),
    "llamacpp": (
        (_DENSE, "RTX4090-24GB", {}),
        (_EXPERTS, "RTX4090-24GB", {"n_cpu_moe": 40}),
        (_WINDOWS, "H100-80GB", {}),
        (_STATES, "H100-80GB", {}),
    ),
    "tensorrt-llm": (
        (_DENSE, "H100-80GB", {}),
        (_EXPERTS, "H100-80GB", {"tp": 2}),
    ),
    "transformers": (
        (_DENSE, "H100-80GB", {}),
        (_EXPERTS, "H100-80GB", {}),
    ),
}
# What docs/accuracy.md calls an engine.
_IN_ACCURACY = {"llamacpp": "llama.cpp"}


def page_of(engine: str) -> Path:
    return FOLDER / f"{engine}.md"


def filled(engine: str, text: str) -> str:
    """An engine's page with every table made anew. Raises SystemExit for a table that nothing makes."""
    made = {"counted": _counted, "wordings": _wordings, "accuracy": _accuracy}

    def block(match: re.Match[str]) -> str:
        if match["name"] not in made:
            raise SystemExit(f"docs/engines/{engine}.md: nothing makes the table {match['name']!r}")
        lines = "\n".join(made[match["name"]](engine))
        return f"{match[1]}\n{lines}\n\n{match[3]}"

    return _BLOCK.sub(block, text)


def _counted(engine: str) -> Iterator[str]:
    """Entries of all plans by what they have in common; a name that several plans have stands once."""
    rows: dict[tuple[str, str, str, str], dict[str, None]] = {}
    sources: dict[tuple[str, str], dict[str, None]] = {}
    for plan_ in map(_plan_of, [engine] * len(CASES[engine]), CASES[engine]):
        for entry, is_host in _entries(plan_):
            budget = "host" if is_host else "yes" if entry.inside_budget else "no"
            key = (entry.owner.value, entry.lifetime.value, budget, entry.evidence.kind.value)
            sources.setdefault((entry.owner.value, entry.name), {})[_SIZES.sub("", entry.evidence.source)] = (
                None
            )
            rows.setdefault(key, {})[entry.name] = None
    lines: list[tuple[str, ...]] = []
    for key, names in rows.items():
        by_source: dict[str, list[str]] = {}
        for name in names:
            by_source.setdefault("; ".join(sources[key[0], name]), []).append(name)
        lines.extend(
            (key[0], plain(", ".join(same)), key[1], key[2], key[3], plain(source))
            for source, same in by_source.items()
        )
    lines.sort(key=lambda row: (row[3] == "host", _OWNERS.index(row[0])))
    yield from table(("owner", "entry", "lifetime", "in the engine's budget", "evidence", "source"), lines)


def _plan_of(engine: str, case: Case) -> Plan:
    model, device, flags = case
    return plan(model, device, engine=engine, **dict(flags))


def _entries(made: Plan) -> Iterator[tuple[Entry, bool]]:
    for rank in made.ranks:
        yield from ((entry, False) for entry in rank.entries)
    yield from ((entry, True) for entry in made.host)


_OWNERS = (
    "weights", "adapters", "kv_cache", "activation", "workspace", "collectives", "graph_pool", "runtime_context", "allocator",
    "headroom",
)  # fmt: skip


def _wordings(engine: str) -> Iterator[str]:
    """What of a log is read: subject, the words that a line must contain, the engine's file."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    log = find_log(engine)
    for pattern in () if log is None else log.PATTERNS:
        rows.setdefault((pattern.event.value, pattern.source), {})[pattern.anchor.strip()] = None
    yield from table(
        ("subject", "words", "printed by"),
        [
            (subject, " · ".join(code(words.replace("`", "'")) for words in said), plain(source))
            for (subject, source), said in sorted(rows.items(), key=lambda item: item[0][0])
        ],
    )


def _accuracy(engine: str) -> Iterator[str]:
    """The engine's rows of the summary of docs/accuracy.md."""
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    head, rule, *rows = [line for line in text.partition("## Worst")[0].splitlines() if line.startswith("|")]
    yield head
    yield rule
    yield from (row for row in rows if row.split("|")[1].strip() == _IN_ACCURACY.get(engine, engine))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say what is out of date")
    options = parser.parse_args()
    stale = 0
    for engine in CASES:
        page = page_of(engine)
        stale += keep(page, filled(engine, page.read_text(encoding="utf-8")), is_check=options.check)
    return int(options.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
