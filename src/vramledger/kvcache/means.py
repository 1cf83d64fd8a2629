"""Means over the lengths of a workload, each worked out once however many layers ask for it."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from vramledger.kvcache.lengths import Lengths
from vramledger.kvcache.units import ALL, Kept
from vramledger.units import ceil_div

_MOST = 4096


@lru_cache(_MOST)
def running_tokens(lengths: Lengths, kept: Kept) -> Fraction:
    """Tokens that a running request keeps."""
    return lengths.mean_running(kept.tokens_upto)


@lru_cache(_MOST)
def running_units(lengths: Lengths, kept: Kept, unit: int) -> Fraction:
    """Units of so many tokens that hold them."""
    return lengths.mean_running(lambda length: kept.units_upto(length, unit))


@lru_cache(_MOST)
def final_units(lengths: Lengths, kept: Kept, unit: int) -> Fraction:
    """The same with each request at its last length."""
    return lengths.mean_final(lambda length: kept.units(length, unit))


@lru_cache(_MOST)
def running_pages(lengths: Lengths, tokens: int, ahead: int, most: int) -> Fraction:
    """Pages of so many tokens for a running request's whole context and `ahead` more, none more than `most`."""
    last = max(most * tokens - ahead, 0)

    def upto(length: int) -> int:
        short = min(length, last)
        pages = ALL.units_upto(short + ahead, tokens) - ALL.units_upto(ahead, tokens)
        return pages + (length - short) * most

    return lengths.mean_running(upto)


@lru_cache(_MOST)
def final_pages(lengths: Lengths, tokens: int, ahead: int, most: int) -> Fraction:
    """The same with each request at its last length."""
    return lengths.mean_final(lambda length: min(ceil_div(length + ahead, tokens), most))
