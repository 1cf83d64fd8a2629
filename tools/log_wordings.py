"""Log wordings of unpacked vLLM source trees that speak of memory and that no pattern reads.

    python -m tools.log_wordings DIR [DIR ...] [--record FILE]

DIR is named after its release and holds a package `vllm` (an unpacked wheel; nothing of it is imported). Every call of
a logger whose text mentions memory, KV, blocks or graphs and has a value in it is rendered with sample values and shown
to the patterns. What none reads is listed with where it is and in how many trees, and the command ends with 1,
so that a new release's wording is found before its users' logs are misread. Wordings that carry no fact of ours
are in PASSED_OVER, with the reason.

--record writes the lines that are read, what is read from them, and the releases that print them: the file that
tests/engines/test_vllm_log_wordings.py holds the patterns to.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, NamedTuple

from vramledger.engines.log_pattern import LinePattern, first_match
from vramledger.engines.vllm.log import PATTERNS
from vramledger.ledger import ByteRange

LEVELS = frozenset(
    f"{level}{once}"
    for level in ("debug", "info", "warning", "error", "critical", "exception")
    for once in ("", "_once")
) | {"log"}
FUNCTIONS = frozenset(("log_fn", "print_warning_once"))
SUBJECT = re.compile(
    r"memory|\bGi?B\b|\bMi?B\b|\bKV\b|kv[ _-]cache|\bblocks?\b|cuda ?graph|graph captur|captur|offload|swap|preempt|"
    r"\bsleep|wake|max_model_len|batched_tokens|page size|padding|num_gpu|encoder cache|workspace|scheduled_tokens|"
    r"tokens/s|context requests|in world size|number of experts|engine \(v|died|aborted|ed request|rejecting request",
    re.IGNORECASE,
)
ELSEWHERE = re.compile(
    r"/(tests|benchmarks|third_party|tool_parsers|reasoning|transformers_utils|kv_transfer|ec_transfer|"
    r"weight_transfer|quantization|kv_offload|profiler)/|/model_executor/models/"
)
# Classes that a logger prints by their repr, and the text before it.
PRINTED_CLASSES = {"MemorySnapshot": "worker init memory snapshot: ", "MemoryProfilingResult": ""}
SPEC = re.compile(r"%(?:\([a-z_]+\))?[-+ 0#]*[0-9*]*(?:\.([0-9]+))?([sdrfgxi%])")
MOST_RENDERINGS = 90
WORDS = ("WORD", "word")

PASSED_OVER: tuple[tuple[str, str], ...] = (
    (r"[Ss]hared memory|shm|(?:broadcast|available) block|cudaHostRegister", "queues between processes, of no size"),
    (r"not supported|does not support|not support |unsupported|not fully optimized", "says what cannot be"),
    (r"^Failed|failed:|failed \(|release failed|Cannot query|unavailable|not a valid|not in available", "a failure, told by others"),
    (r"deprecated|will be removed|Consider|To avoid this|If this is not desired", "advice"),
    (r"Registering .* cuda graph addresses|move_to_workspace|Swapping out|Pruning|Canonicalized|Padding num_heads|padding num_heads", "internals"),
    (r"KV transfer|KV load failure \(failure_policy|remote KV|KV connector|WAITING_FOR_REMOTE", "transfers between instances"),
    (r"Encoder CUDA graph(?! capture complete)|EncoderCudaGraphManager dual-path|encoder CUDA graphs; capture axes", "the encoder's graphs at work"),
    (r"FlyDSL launcher|growing bucket|buffer pool growing|_memcpy|ROCm segmented|DSpark|indexer CP|MiniMax|Kimi|WO_A|MegaMoE|bounded replay|cp_kv_cache_interleave|XQA decode|V4.1 indexer|KV-cache layout alignment|block scales|block shape mismatch|Block (?:FP8|INT8)|complete checkpoint blocks", "kernels' choices"),
    (r"IPC queue|Engram|Custom quick allreduce|Direct CP|FlashInfer All|Flashinfer Allreduce norm", "no size is told"),
    (r"SimpleCPU(?:Offload)?(?:Scheduler|:| external)|DiskBackend|\[DISK\]|(?:Scheduling store|Store event)", "blocks on their way to the host"),
    (r"ProcessingCache|Calculated size of|Media cache|multi-modal processor cache|User-cancelled", "the front end's own"),
    (r"DiffusionDecoding|MFU:|TF/s|Running batch with|Profiler config|Torch profiler", "speed"),
    (r"worker init memory snapshot: <r>", "rendered from the snapshot's own text"),
    (r"rejecting new request|Received (?:messages|Cohere|input)|rejected request|Rejecting request", "a front end's request"),
    (r"^The model has a long context|model-len is not specified|max_model_len \(.*too large|LongRoPE|sequence length used for profiling|context length \(", "limits told elsewhere"),
    (r"candidate_compile_sizes|cudagraph.sizes.*overridden|cudagraph_capture_sizes specified|No valid cudagraph|No buckets|Cudagraph mode .* requires", "what the settings say in the end"),
    (r"scaling factors|kv_cache_quant_algo|kv-cache-dtype '|kv_cache_dtype=|NONE_HASH|fine-grained prefix|block-aligned|could be identified as the draft", "layout without sizes"),
    (r"Failed to reset prefix cache|Reloaded LoRA|already sleeping|not in sleeping tags|pins the CUDA graph pool|Group index", "no figure of memory"),
    (r"reuses KV cache of|WorkspaceManager already|routed experts capturer|RoutedExpertsCapturer|iGPU|Start profiling run", "no figure of memory"),
    (r"Skipping CUDA graph capture|CUDA graph is not|fallback to|falling back|Falling back|reverting|Overriding cudagraph_mode .* to NONE", "what the settings say in the end"),
    (r"NCCL_CUMEM_ENABLE|num_gpus % num_nodes|Possibly too large swap space|page size from|bucket config|bucketing configuration|buckets due to|--block-size|Error with get_att|VLLM_FLASHINFER_WORKSPACE|HiSparse device_buffer|HiSparse host-resident", "advice"),
    (r"^Allocated: |^Reserved: ", "a debug line without a subject, 0.11.0 only"),
    (r"daemon rank .* released|aligned num_offload_blocks|mismatched num_cpu_blocks|HPUGraphs|Encoder cache entry", "no term of the ledger"),
)  # fmt: skip


class Wording(NamedTuple):
    """One call: where it is, its level, and the text, with a pair of kind and decimals for what is filled in."""

    file: str
    line: int
    level: str
    pieces: tuple[str | tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "".join(piece if isinstance(piece, str) else f"<{piece[0]}>" for piece in self.pieces)

    @property
    def has_values(self) -> bool:
        return any(not isinstance(piece, str) for piece in self.pieces)

    def renderings(self) -> Iterator[str]:
        """The line with sample values: numbers, one word among numbers, then words and numbers in turn."""
        marks = sum(1 for piece in self.pieces if not isinstance(piece, str) and piece[0] in "sr")
        single = (
            ("3",) * place + (word,) + ("3",) * (marks - place - 1)
            for place in range(marks)
            for word in WORDS
        )
        every = islice(product(("3", *WORDS), repeat=marks), MOST_RENDERINGS if _is_subject(self) else 0)
        for chosen in chain([("3",) * marks], single, every):
            texts = iter(chosen)
            yield "".join(
                piece if isinstance(piece, str) else next(texts) if piece[0] in "sr" else _number(piece)
                for piece in self.pieces
            )


class Found(NamedTuple):
    """A line that is read: the pattern, what it reads."""

    line: str
    pattern: LinePattern
    values: Mapping[str, Any]


def read_wording(wording: Wording) -> list[Found]:
    """How the patterns read it, line by line; empty if they do not."""
    for text in wording.renderings():
        found = [
            Found(line, *read)
            for line in text.split("\n")
            if (read := first_match(PATTERNS, line)) is not None
        ]
        if found:
            return found
    return []


def passed_over(text: str, reasons: Sequence[tuple[str, str]] = PASSED_OVER) -> str | None:
    """Why nothing is read from it."""
    return next((reason for pattern, reason in reasons if re.search(pattern, text)), None)


def wordings(root: Path) -> Iterator[Wording]:
    """Every logger call of the tree whose text is written in its call or in a variable of the same function."""
    for path in sorted(root.rglob("*.py")):
        name = str(path.relative_to(root))
        source = path.read_text(encoding="utf-8", errors="replace")
        if ELSEWHERE.search("/" + name) or not ("log" in source or "__repr__" in source):
            continue
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        yield from _calls(tree, name)
        for scope in ast.walk(tree):
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _calls(scope, name)
            elif isinstance(scope, ast.ClassDef) and scope.name in PRINTED_CLASSES:
                yield from _printed(scope, name)


def _printed(scope: ast.ClassDef, name: str) -> Iterator[Wording]:
    for node in ast.walk(scope):
        if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    pieces = (PRINTED_CLASSES[scope.name], *_pieces(inner.value, percent=False))
                    yield Wording(name, inner.lineno, "repr", pieces)


def _calls(scope: ast.AST, name: str) -> Iterator[Wording]:
    nodes = list(_own(scope))
    texts: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            texts.setdefault(node.targets[0].id, []).append(node.value)
    for node in nodes:
        level = _level(node)
        if level is None or not isinstance(node, ast.Call) or not node.args:
            continue
        text = node.args[0]
        told = texts.get(text.id, [text]) if isinstance(text, ast.Name) else [text]
        for each in told:
            pieces = tuple(_pieces(each, percent=len(node.args) > 1))
            if any(isinstance(piece, str) and piece.strip() for piece in pieces):
                yield Wording(name, node.lineno, level, pieces)


def _level(node: ast.AST) -> str | None:
    """The level of a logger's call, None for other nodes."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Name) and function.id in FUNCTIONS:
        return function.id
    if isinstance(function, ast.Attribute) and function.attr in LEVELS:
        owner = function.value
        named = (
            owner.attr
            if isinstance(owner, ast.Attribute)
            else owner.id
            if isinstance(owner, ast.Name)
            else ""
        )
        return function.attr if "log" in named else None
    return None


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
    else:
        yield ("s", "")


def _percent(text: str) -> Iterator[str | tuple[str, str]]:
    place = 0
    for match in SPEC.finditer(text):
        yield text[place : match.start()]
        yield "%" if match.group(2) == "%" else (match.group(2), match.group(1) or "")
        place = match.end()
    yield text[place:]


def _number(mark: tuple[str, str]) -> str:
    kind, decimals = mark
    if kind in "fg":
        places = int(decimals or 6)
        return f"12.{'25'[: min(places, 2)]}{'0' * (places - 2)}" if places else "12"
    return "12"


def record(path: Path, found: Mapping[str, tuple[Found, list[str]]]) -> None:
    """The lines that are read, as JSON lines: line, event, values (sizes as low, expected, high), releases."""
    rows = [
        {
            "line": item.line,
            "event": item.pattern.event.value,
            "values": {name: _plain(value) for name, value in item.values.items()},
            "releases": releases if len(releases) < 3 else [releases[0], releases[-1], len(releases)],
        }
        for item, releases in found.values()
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _plain(value: object) -> object:
    return [value.low, value.expected, value.high] if isinstance(value, ByteRange) else value


def main(arguments: list[str] | None = None) -> int:
    """Lists what no pattern reads; 1 if there is any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trees", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--record", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    readings: dict[tuple[str | tuple[str, str], ...], list[Found]] = {}
    recorded: dict[str, tuple[Found, list[str]]] = {}
    left: dict[str, list[str]] = {}
    for tree in options.trees:
        for wording in wordings(tree / "vllm"):
            found = readings.get(wording.pieces)
            if found is None:
                found = readings[wording.pieces] = read_wording(wording)
            for item in found:
                releases = recorded.setdefault(item.line, (item, []))[1]
                if tree.name not in releases:
                    releases.append(tree.name)
            if not found and _is_subject(wording) and passed_over(wording.text) is None:
                place = f"{tree.name}:{wording.file}:{wording.line}"
                left.setdefault(f"{wording.level}: {wording.text}", []).append(place)
    tell(left)
    print(f"{len(recorded)} lines read in {len(options.trees)} tree(s), {len(left)} wordings left")
    if options.record:
        record(options.record, recorded)
    return 1 if left else 0


def tell(left: Mapping[str, Sequence[str]]) -> None:
    """Wordings that no pattern reads, each with its first and last place."""
    for text, places in left.items():
        print(text.replace("\n", "\\n"))
        print(f"    {places[0]}" + (f" … {places[-1]} ({len(places)})" if len(places) > 1 else ""))


def _is_subject(wording: Wording) -> bool:
    return wording.has_values and SUBJECT.search(wording.text) is not None


if __name__ == "__main__":
    raise SystemExit(main())
