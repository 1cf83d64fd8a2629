"""Log wordings of an unpacked vLLM source tree that speak of memory and that no pattern reads.

    python tools/log_wordings.py DIR [DIR ...] [--all]

DIR holds a package `vllm` (an unpacked wheel). Every call of a logger whose text mentions memory, KV, blocks or graphs and has
a value in it is rendered with sample values and shown to the patterns. Ends with 1 when one is left that is
neither read nor in PASSED_OVER, so that a new release's wording is found before its users' logs are misread.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vramledger.engines.log_pattern import first_match
from vramledger.engines.vllm.log import PATTERNS

LEVELS = frozenset(
    (
        "debug",
        "info",
        "warning",
        "error",
        "critical",
        "exception",
        "log_fn",
        "log",
        "info_once",
        "warning_once",
        "debug_once",
    )
)
SUBJECT = re.compile(
    r"memory|\bGi?B\b|\bMi?B\b|\bKV\b|kv[ _-]cache|\bblocks?\b|cuda ?graph|graph captur|captur|offload|swap|preempt|"
    r"\bsleep|wake|max_model_len|batched_tokens|page size|padding|num_gpu|encoder cache|workspace",
    re.IGNORECASE,
)
ELSEWHERE = re.compile(
    r"/(tests|benchmarks|third_party|tool_parsers|reasoning|transformers_utils|kv_transfer|ec_transfer|weight_transfer|"
    r"quantization|kv_offload|profiler|multimodal)/|/model_executor/models/"
)
SPEC = re.compile(r"%(?:\([a-z_]+\))?[-+ 0#]*[0-9*]*(?:\.([0-9]+))?([sdrfgxi%])")
VALUES = ({"text": "3", "number": "12"}, {"text": "word", "number": "1234"}, {"text": "1.5", "number": "0"})


class Wording(NamedTuple):
    """One call: where it is, its level, and the text with `{}`-like marks of what is filled in."""

    file: str
    line: int
    level: str
    pieces: tuple[str | tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "".join(piece if isinstance(piece, str) else f"<{piece[0]}>" for piece in self.pieces)

    def rendered(self, values: dict[str, str]) -> str:
        return "".join(piece if isinstance(piece, str) else _sample(piece, values) for piece in self.pieces)


def _sample(mark: tuple[str, str], values: dict[str, str]) -> str:
    kind, decimals = mark
    if kind in "fg" or decimals:
        places = int(decimals or 2)
        return f"12.{'5' * places}" if places else "12"
    return values["number"] if kind in "di" else values["text"]


def wordings(root: Path) -> Iterator[Wording]:
    """Every logger call of the tree whose text is written in its call or in a variable of the same function."""
    for path in sorted(root.rglob("*.py")):
        name = str(path.relative_to(root))
        if ELSEWHERE.search("/" + name):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for scope in [
            tree,
            *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)),
        ]:
            yield from _calls(scope, name)


def _calls(scope: ast.AST, name: str) -> Iterator[Wording]:
    texts: dict[str, ast.expr] = {}
    nodes = list(_own(scope))
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            texts.setdefault(node.targets[0].id, node.value)
    for node in nodes:
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in LEVELS and _is_logger(function.value):
            level = function.attr
        elif isinstance(function, ast.Name) and function.id in ("log_fn", "print_warning_once"):
            level = function.id
        else:
            continue
        text = node.args[0]
        if isinstance(text, ast.Name):
            text = texts.get(text.id, text)
        pieces = tuple(_pieces(text, percent=len(node.args) > 1))
        if any(isinstance(piece, str) and piece.strip() for piece in pieces):
            yield Wording(name, node.lineno, level, pieces)


def _is_logger(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return "log" in name


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions inside it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own(child)


def _pieces(node: ast.expr, *, percent: bool) -> Iterator[str | tuple[str, str]]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _percent(node.value) if percent else (node.value,)
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                spec = ast.unparse(value.format_spec) if value.format_spec else ""
                found = re.search(r"\.([0-9])f", spec)
                yield ("f", found.group(1)) if found else ("s", "")
            elif isinstance(value, ast.Constant):
                yield str(value.value)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _pieces(node.left, percent=percent)
        yield from _pieces(node.right, percent=percent)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        yield from _pieces(node.left, percent=True)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        for arg in node.args:
            if isinstance(arg, ast.List | ast.Tuple):
                for item in arg.elts:
                    yield from _pieces(item, percent=percent)
            else:
                yield ("s", "")
    else:
        yield ("s", "")


def _percent(text: str) -> Iterator[str | tuple[str, str]]:
    place = 0
    for match in SPEC.finditer(text):
        yield text[place : match.start()]
        yield "%" if match.group(2) == "%" else (match.group(2), match.group(1) or "")
        place = match.end()
    yield text[place:]


def main(arguments: list[str]) -> int:
    every = "--all" in arguments
    left: dict[str, list[str]] = {}
    read = 0
    for root in (Path(argument) for argument in arguments if argument != "--all"):
        for wording in wordings(root / "vllm"):
            text = wording.text
            if not SUBJECT.search(text) or not (every or any(not isinstance(p, str) for p in wording.pieces)):
                continue
            if any(first_match(PATTERNS, wording.rendered(values)) for values in VALUES):
                read += 1
            else:
                left.setdefault(f"{wording.level:12} {text}", []).append(
                    f"{root.name}:{wording.file}:{wording.line}"
                )
    for text, places in left.items():
        print(text.replace("\n", "\\n"))
        print("    " + places[0] + (f" … {places[-1]} ({len(places)})" if len(places) > 1 else ""))
    print(f"{read} read, {len(left)} wordings left")
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
