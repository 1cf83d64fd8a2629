"""How long requests are, and the exact mean of what depends on a length.

A request has so many tokens of prompt and of output. While it decodes it is at each length from its prompt to one
token less than both together (the last token's keys are never computed) for one step; a step is as likely as any
other. So a mean over running requests is a sum over steps, and a long output weighs more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from msgspec import Struct

from vramledger.errors import FlagError
from vramledger.workload.quantiles import Quantiles

POINTS = 100
"""Points of a distribution that is given by quantiles, each as likely as the others."""


class Request(Struct, frozen=True):
    """Tokens of prompt and output; `weight` requests are like it. Both are at least 1."""

    prompt_tokens: int
    output_tokens: int
    weight: int = 1

    @property
    def first_len(self) -> int:
        """Tokens cached when the first token of output is made."""
        return self.prompt_tokens

    @property
    def last_len(self) -> int:
        """Tokens cached at the end."""
        return self.prompt_tokens + self.output_tokens - 1


class Lengths(Struct, frozen=True, cache_hash=True):
    """Kinds of request."""

    requests: tuple[Request, ...]

    @property
    def count(self) -> int:
        return sum(request.weight for request in self.requests)

    @property
    def longest(self) -> int:
        return max(request.last_len for request in self.requests)

    @property
    def steps(self) -> int:
        return sum(item.weight * item.output_tokens for item in self.requests)

    def mean_final(self, value: Callable[[int], int]) -> Fraction:
        """The mean over running requests of `value(length)` at the last length of each."""
        return Fraction(
            sum(item.weight * item.output_tokens * value(item.last_len) for item in self.requests), self.steps
        )

    def mean_running(self, total: Callable[[int], int]) -> Fraction:
        """The mean over running requests of a value whose sum over the lengths 1 to n is `total(n)`."""
        known: dict[int, int] = {0: 0}

        def upto(length: int) -> int:
            if length not in known:
                known[length] = total(length)
            return known[length]

        summed = sum(item.weight * (upto(item.last_len) - upto(item.first_len - 1)) for item in self.requests)
        return Fraction(summed, self.steps)

    def cut(self, max_len: int) -> tuple[Lengths, int]:
        """Requests of at most `max_len` tokens, prompt and output together, and how many had to be cut; the output
        is cut first."""
        kept: Counter[tuple[int, int]] = Counter()
        longer = 0
        for item in self.requests:
            prompt = min(item.prompt_tokens, max(max_len - 1, 1))
            output = max(1, min(item.output_tokens, max_len - prompt))
            kept[prompt, output] += item.weight
            if (prompt, output) != (item.prompt_tokens, item.output_tokens):
                longer += item.weight
        return from_pairs(kept), longer


def from_pairs(pairs: Mapping[tuple[int, int], int] | Iterable[tuple[int, int]]) -> Lengths:
    """Requests from pairs of prompt and output tokens, or from how many there are of each.

    A request without output still makes one token. Raises FlagError where there are none.
    """
    counted = Counter(pairs)
    if not counted:
        raise FlagError("there is no request to lay out", flag="lengths")
    requests = (
        Request(max(prompt, 1), max(output, 1), weight) for (prompt, output), weight in counted.items()
    )
    return Lengths(tuple(requests))


def from_quantiles(prompt: tuple[int, ...], output: tuple[int, ...]) -> Lengths:
    """Prompts and outputs that do not depend on each other, each given by p50, p95 and p99 or one length.

    Between and beyond the quantiles lengths are those of cohorts (`workload.quantiles`). Raises FlagError for another
    number of quantiles, and where they fall.
    """
    outputs = _points(output, "output")
    return from_pairs((first, last) for first in _points(prompt, "prompt") for last in outputs)


def _points(quantiles: tuple[int, ...], name: str) -> list[int]:
    if len(quantiles) == 1:
        return [quantiles[0]]
    if len(quantiles) != 3 or list(quantiles) != sorted(quantiles) or quantiles[0] < 1:
        raise FlagError(
            f"--{name} takes one length or p50,p95,p99 that do not fall, not {','.join(map(str, quantiles))}",
            flag=name,
            value=",".join(map(str, quantiles)),
        )
    p50, p95, p99 = quantiles
    distribution = Quantiles(p50=p50, p95=p95, p99=p99)
    return [distribution.at((2 * index + 1) / (2 * POINTS)) for index in range(POINTS)]
