"""Tensor names with their indices taken out, so that a million tensors become a few hundred rows.

An index is a part between dots made of one to six decimal digits: `model.layers.17.mlp.experts.3.w1.weight`
has the template `model.layers.{}.mlp.experts.{}.w1.weight` and the first index 17.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_INDEX = re.compile(r"\.[0-9]{1,6}(?=\.)")


def template_of(name: str) -> str:
    """`name` with every index replaced by `{}`."""
    return _INDEX.sub(".{}", f".{name}.")[1:-1]


def templates_of(names: Sequence[str]) -> list[str]:
    """`template_of` each name, in one pass over the joined text."""
    if not names:
        return []
    joined = ".\n.".join(names)
    if joined.count("\n") != len(names) - 1:
        return [template_of(name) for name in names]
    return _INDEX.sub(".{}", f".{joined}.")[1:-1].split(".\n.")


def index_position(name: str, template: str) -> int:
    """Where the first index starts in every name of `template`, -1 where there is none.

    `name` is one of them; a name with a `{}` of its own has no position to rely on and gives -1.
    """
    if "{" in name:
        return -1
    return template.find("{}")


def compress(indices: Iterable[int | str]) -> tuple[range, ...]:
    """Indices in ascending runs: 3, 0, 1, 2, 7 becomes range(0, 4) and range(7, 8). Text that is no number is left out."""
    numbers = {int(index) for index in indices if isinstance(index, int) or index.isdecimal()}
    runs: list[range] = []
    for index in sorted(numbers):
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return tuple(runs)
