"""List the documentation's blocks of commands: what is run, made or tested elsewhere, and what is not run and why.

python -m tools.documented
"""

from __future__ import annotations

import sys
from collections import Counter

from tools.documented.blocks import Kind, UnclearBlock, blocks, pages
from tools.documented.spelling import wrong


def main() -> int:
    counts: Counter[str] = Counter()
    for page in pages():
        try:
            for block in blocks(page):
                if block.kind is Kind.DATA:
                    continue
                said = f"{block.kind}: {block.why}" if block.why else str(block.kind)
                counts[said] += 1
                print(f"{block.place}: {said}")
                for problem in (
                    wrong(block.text) if block.kind is Kind.NOT_RUN and block.language != "python" else ()
                ):
                    print(f"    {problem}")
        except UnclearBlock as problem:
            print(problem)
            counts["unclear"] += 1
    print()
    for said, count in counts.most_common():
        print(f"{count:4}  {said}")
    return int("unclear" in counts)


if __name__ == "__main__":
    sys.exit(main())
