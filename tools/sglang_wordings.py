"""Log wordings of unpacked SGLang source trees that speak of memory, KV or tokens and that no pattern reads.

    python -m tools.sglang_wordings DIR [DIR ...]

DIR holds a package `sglang` (an unpacked wheel; nothing of it is imported). Every call of a logger whose text mentions device
memory, pools, graphs or requests and has a value in it is rendered with sample values and shown to the patterns. What none
reads is listed with where it is, and the command ends with 1, so that a new release's wording is found before its users' logs
are misread. Wordings that carry no fact of ours are in PASSED_OVER, with the reason.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

from tools.log_wordings import Wording, passed_over, tell, wordings

from vramledger.engines.log_pattern import first_match
from vramledger.engines.sglang.log import PATTERNS

SUBJECT = re.compile(
    r"\b[GM]i?B\b|avail mem|mem usage|memory (?:pool|usage)|KV (?:cache|pool)|KVPool|pool sizes|num_tokens=|max_total|"
    r"[Rr]etract|#token|batch, #|batch\. #|token usage|graph (?:begin|end)|server_args=|ready to roll|mem_fraction",
)
ELSEWHERE = re.compile(
    r"multimodal_gen/|/test/|hardware_backend/|/bench|disaggregation/|/eplb/|storage/|weight_cache/|transport|encoder"
)
TEXTS = (
    "12",
    "WORD",
    "is allocated",
    "mem usage",
    "KV Cache",
    "VA upper bound",
    "",
    " [12]",
    "token usage: 0.50, ",
    "{'a': 1}",
)
MOST_RENDERINGS = 10_000

PASSED_OVER: tuple[tuple[str, str], ...] = (
    (r"DeepSeek V4 MHC|monokernel|megakernel|MegaMoE|engram|PLE table|Muse|DWDP|allgathered|NVLink vocab|K3 symm", "buffers of single models and kernels"),
    (r"KV cache dtype|k_scale|scale\b|scaling factors|tensor\(s\) are NOT", "layout without sizes"),
    (r"for warmup|FlashInfer workspace preflight|masked layout budget", "what a warm-up may take, not what it takes"),
    (r"draft cuda graph because only|folded sampling disabled|Defaulting to|Could not resolve|prefetch disabled|anchor_lock_cap", "what is switched off"),
    (r"HostCache|Routing experts host|KVPoolHost initialized|write_back: |host mem pool alloc|is smaller than the device pool|memory headroom|dummy mode|memfabric|embedding pool|stale_shm", "host memory beside the pools"),
    (r"KvVmmArena|ready: |Initialize DeepSeekV4|wrapped unified buffer|no-op pool|Page-interleave|borrow capacity", "how a pool is laid out; its sizes are told elsewhere"),
    (r"mem_fraction_static by|Request length is longer|is allocated from --mem-fraction-static", "advice"),
    (r"Capture cuda graph begin\. This can take up to several minutes\.$", "no figure to 0.3"),
    (r"^Peak GPU memory before|^Memory increase during", "debug lines of one loader"),
)  # fmt: skip


def renderings(wording: Wording) -> Iterator[str]:
    """The line with sample values: where a text is filled in, a number and words in turn."""
    marks = sum(1 for piece in wording.pieces if not isinstance(piece, str) and piece[0] in "sr")
    for chosen in islice(product(TEXTS, repeat=min(marks, 4)), MOST_RENDERINGS):
        texts = iter(chosen)
        yield "".join(piece if isinstance(piece, str) else _sample(piece, texts) for piece in wording.pieces)


def _sample(mark: tuple[str, str], texts: Iterator[str]) -> str:
    kind, decimals = mark
    if kind in "sr":
        return next(texts, "12")
    places = int(decimals or 2)
    return f"12.{'5' * places}" if kind in "fg" and places else "12"


def is_read(wording: Wording) -> bool:
    return any(
        first_match(PATTERNS, line) is not None for text in renderings(wording) for line in text.split("\n")
    )


def main(arguments: list[str] | None = None) -> int:
    """Lists what no pattern reads; 1 if there is any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trees", nargs="+", type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    known: dict[str, bool] = {}
    left: dict[str, list[str]] = {}
    for tree in options.trees:
        for wording in wordings(tree / "sglang"):
            text = wording.text
            if not wording.has_values or not SUBJECT.search(text) or ELSEWHERE.search(wording.file):
                continue
            if text not in known:
                known[text] = is_read(wording)
            if not known[text] and passed_over(text, PASSED_OVER) is None:
                left.setdefault(f"{wording.level}: {text}", []).append(
                    f"{tree.name}:{wording.file}:{wording.line}"
                )
    tell(left)
    print(f"{sum(known.values())} wordings read in {len(options.trees)} tree(s), {len(left)} left")
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main())
