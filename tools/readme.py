"""Fill the README and the pages of docs/ with true output: commands, the accuracy page's summary, and figures that are counted.

    python -m tools.readme [--check] [PAGE ...]

A block is fenced between `<!-- $ COMMAND -->` (or one of the names in `_MADE`) and `<!-- end -->`; the command is one of
ours and runs in the repository's root. What follows a ` | ` in it (an excerpt by sed, head or jq) is left to a shell.
A page with steps that change the source is followed on a copy of it (`tools.extending`). `--check` writes nothing and exits 1 where a block is out of date. All pages that have a block are filled unless some are named.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from tools.filled_page import keep
from tools.shown import shown

from tools import extending

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DATA = ROOT / "data"
WIDTH = 110
_ACCURACY_COLUMNS = ("engine", "field", "count", "median abs error %", "p95 abs error %", "inside %")
_ACCURACY_ROWS = {
    ("vllm", "weights GiB"),
    ("vllm", "KV GiB"),
    ("vllm", "tokens from scratch, 0.6.6 and newer"),
    ("vllm", "tokens from scratch, before 0.6.6"),
    ("sglang", "weights GiB"),
    ("sglang", "tokens from scratch"),
    ("llama.cpp", "model on devices"),
    ("llama.cpp", "kv"),
    ("llama.cpp", "compute on a device"),
    ("llama.cpp", "compute on host"),
    ("tensorrt-llm", "tokens from scratch"),
    ("tensorrt-llm", "tokens from scratch, before 0.8"),
}
_BLOCK = re.compile(r"(<!-- (\$ [^\n]+|[a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """The README in its languages, and every page of docs/ that has a block to fill."""
    found = [
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if _BLOCK.search(path.read_text(encoding="utf-8"))
    ]
    return [README, *ROOT.glob("README.*.md"), *found]


def output_of(command: str) -> str:
    """What one of our commands prints, run in this process from the repository's root, after what a pipe makes of it."""
    ours, pipe, rest = command.partition(" | ")
    out = _printed(ours)
    if pipe:
        shell = ["bash", "-o", "pipefail", "-c", rest]
        done = subprocess.run(
            shell, cwd=ROOT, input=out, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode or done.stderr:
            raise SystemExit(f"{command}: {done.stderr.strip() or f'exit code {done.returncode}'}")
        out = done.stdout
    if not out.strip():
        raise SystemExit(f"it prints nothing: {command}")
    return out.rstrip("\n")


def _printed(command: str) -> str:
    from vramledger.cli import main

    words = shlex.split(command)
    if words[:1] != ["vramledger"]:
        raise SystemExit(f"not a command of ours: {command}")
    out = io.StringIO()
    here = Path.cwd()
    os.chdir(ROOT)
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main(words[1:])
    finally:
        os.chdir(here)
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return out.getvalue()


def accuracy_table() -> str:
    """Of the summary table of docs/accuracy.md: weights and what is foretold from scratch, good and bad."""
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = [line for line in text.partition("## Worst")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    columns = [cells[0].index(name) for name in _ACCURACY_COLUMNS]
    kept = [row for row in cells if (row[0], row[1]) in _ACCURACY_ROWS]
    if len(kept) != len(_ACCURACY_ROWS):
        raise SystemExit("docs/accuracy.md lacks a row that the README shows")
    return "\n".join("| " + " | ".join(row[at] for at in columns) + " |" for row in (*cells[:2], *kept))


def measured(language: str = "en") -> str:
    """How much the accuracy table rests on; devices are those that a log names exactly."""
    logs, devices = _logs()
    total = sum(logs.values())
    if language == "ko":
        counts = ", ".join(f"{engine} {count}개" for engine, count in logs.items())
        return _paragraph(
            f"실제 기계에서 엔진이 시작할 때 출력한 값과 비교합니다. 공개 log {total}개({counts}), 장치 {devices}종입니다."
        )
    counts = ", ".join(f"{count} of {engine}" for engine, count in logs.items())
    return _paragraph(
        f"Against what engines printed at start-up on real machines: {total} public logs ({counts}), "
        f"{devices} kinds of device."
    )


@cache
def _logs() -> tuple[dict[str, int], int]:
    """Logs by engine, and kinds of device."""
    from tools.accuracy.data import read_cases
    from tools.accuracy.engines import ENGINES

    from vramledger.errors import VramledgerError
    from vramledger.hardware.catalogue import find_device

    rows = {item.ENGINE: read_cases(DATA, item.ENGINE) for item in ENGINES}
    devices = set()
    for row in (row for found in rows.values() for row in found):
        with contextlib.suppress(VramledgerError):
            devices.add(find_device(row["gpu"]["name"]).name)
    return {engine: len(found) for engine, found in rows.items()}, len(devices)


def parameters() -> str:
    """How many parameter totals are right."""
    from tools.accuracy.data import ModelSet
    from tools.accuracy.parameters import parameter_rows, sentence

    return _paragraph(sentence(parameter_rows(ModelSet(DATA))))


def model_types() -> str:
    """How many kinds of config have a description."""
    from vramledger.models import architectures

    modules = {path.stem for path in Path(architectures.__file__).parent.glob("*.py")} - {"__init__"}
    return _paragraph(f"{len(modules | set(architectures.ALIASES))} model types have a description.")


def agreement() -> str:
    """What llama.cpp's own measure says of the plans."""
    text = (ROOT / "docs" / "llamacpp-agreement.md").read_text(encoding="utf-8")
    found = re.search(r"(\d+) cases, (\d+) differ; compute buffers are equal to the\s+byte in (\d+)", text)
    if found is None:
        raise SystemExit("docs/llamacpp-agreement.md has no summary")
    cases, differing, exact = found.groups()
    return _paragraph(
        f"llama.cpp measures header-only files of {cases} combinations of model, context, slots, ubatch and cache "
        f"types itself, in every run of the tests: model, KV and state buffers are to equal the plan's to the byte and "
        f"compute buffers to 3 %; {differing} differ, and {exact} compute buffers are equal to the byte "
        "([docs/llamacpp-agreement.md](docs/llamacpp-agreement.md))."
    )


@cache
def _judged() -> tuple[list[tuple[int, int, int]], int, int]:
    """By file of reports: right answers of high confidence, all of those, reports; then numbers read and numbers named."""
    from tools.accuracy.diagnosis import class_files
    from tools.accuracy.messages import message_files

    counts = []
    for judged in class_files(DATA / "groundtruth").values():
        sure = [item for item in judged if item.confidence == "high"]
        counts.append((sum(item.is_accepted for item in sure), len(sure), len(judged)))
    files = message_files(DATA)
    named = sum(item.named for item in files)
    return counts, named - sum(len(item.named_misses) for item in files), named


def diagnosed(language: str = "en") -> str:
    """How often diagnoses of reported failures are right, and how many of the messages' numbers are read."""
    counts, read, named = _judged()
    if language == "ko":
        first, later = (
            f"high confidence 답 {sure}개 가운데 {right}개가 맞습니다(보고 {reports}건)"
            for right, sure, reports in counts
        )
        return _paragraph(
            f"공개된 장애 보고를 `make accuracy`로 채점합니다. {first}. 나중에 모은 것에서는 {later}. 메시지에 나오는 숫자 {named}개 "
            f"가운데 {read}개를 읽습니다. 혼동 행렬은 [docs/accuracy.md](docs/accuracy.md)에 있습니다."
        )
    first, later = (
        f"{right} of {sure} answers of high confidence are right ({reports} reports)"
        for right, sure, reports in counts
    )
    return _paragraph(
        f"Judged on public reports of failures by `make accuracy`: {first}; of those collected later, "
        f"{later}. Of the numbers that the messages name, {read} of {named} are "
        "read. [docs/accuracy.md](docs/accuracy.md) has the confusion tables."
    )


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


_MADE: dict[str, Callable[[], str]] = {
    "accuracy": accuracy_table,
    "agreement": agreement,
    "diagnosed": diagnosed,
    "measured": measured,
    "parameters": parameters,
    "types": model_types,
}
_MADE_KO: dict[str, Callable[[], str]] = {
    "accuracy": accuracy_table,
    "diagnosed": partial(diagnosed, "ko"),
    "measured": partial(measured, "ko"),
}


def filled(text: str, page: Path = README) -> str:
    """`text`, which stands in `page`, with every block made anew."""

    if page in extending.PAGES:
        with tempfile.TemporaryDirectory() as folder:
            return extending.filled(text, extending.copied(Path(folder)))

    made = _MADE_KO if page.name.endswith(".ko.md") else _MADE

    def block(match: re.Match[str]) -> str:
        what = match.group(2)
        if what in made:
            body = f"\n{_seen_from(page, made[what]())}\n\n"
        elif not what.startswith("$ "):
            raise SystemExit(f"{page.name}: nothing makes the block {what!r}")
        else:
            command = what.removeprefix("$ ")
            body = f"```console\n{shown(command)}\n{output_of(command)}\n```\n"
        return match.group(1) + body + match.group(3)

    return _BLOCK.sub(block, text)


def _seen_from(page: Path, text: str) -> str:
    """`text` with the links from the repository's root made links from `page`."""
    docs = os.path.relpath(ROOT / "docs", page.parent)
    return text.replace("](docs/", "](" if docs == "." else f"]({docs}/")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say which pages are out of date")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="pages to fill, all unless given")
    options = parser.parse_args()
    stale = 0
    for page in [path.resolve() for path in options.pages] or pages():
        stale += keep(page, filled(page.read_text(encoding="utf-8"), page), is_check=options.check)
    return int(options.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
