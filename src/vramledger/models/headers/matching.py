"""Which of a checkpoint's modules hold a described module's tensors, when names differ.

Names may have other heads (`model.language_model.` for `language_model.model.`, `transformer.` or none), experts
may lie in one tensor or one by one, and projections may be fused or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from vramledger.models.quantization.names import FUSED, canonical

Stems = tuple[str, ...]

_FUSED_INTO = {part: fused for fused, parts in FUSED.items() for part in parts}
# Mixtral's names for what others call gate, up and down.
_SYNONYMS = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_SYNONYMS |= {other: name for name, other in _SYNONYMS.items()}
_LONGEST_TAIL = 24


def match_stems(ours: Collection[str], theirs: Collection[str]) -> dict[str, Stems]:
    """The checkpoint's modules for each of ours that has any.

    Several for a module that the checkpoint splits; one module for several of ours that it fuses. A name decides only
    where it is the only one that can be meant.
    """
    known = set(theirs)
    found: dict[str, Stems] = {stem: (stem,) for stem in ours if stem in known}
    if len(found) == len(ours):
        return found
    found |= _same_but_for_heads(ours, theirs, found)
    open_ours = [stem for stem in ours if stem not in found]
    taken = {stem for stems in found.values() for stem in stems}
    finder = _Finder([stem for stem in theirs if stem not in taken])
    heads = Counter(_head_change(stem, stems[0]) for stem, stems in found.items())
    for stem in open_ours:
        match = finder.by_tail(stem)
        if match is not None:
            heads[_head_change(stem, match)] += 1
    finder.heads = [change for change, _ in heads.most_common()]
    for stem in open_ours:
        stems = finder.find(stem)
        if stems:
            found[stem] = stems
            finder.take(stem, stems)
    return found


def _same_but_for_heads(
    ours: Iterable[str], theirs: Iterable[str], found: Collection[str]
) -> dict[str, Stems]:
    """Open modules of both sides that are alone in having a name apart from the heads of text models."""
    mine: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for stems, by_name in ((ours, mine), (theirs, others)):
        for stem in stems:
            if stem not in found:
                by_name.setdefault(canonical(stem), []).append(stem)
    return {
        stems[0]: (others[name][0],)
        for name, stems in mine.items()
        if len(stems) == 1 and len(others.get(name, ())) == 1
    }


def _head_change(our: str, their: str) -> tuple[str, str]:
    """What stands before the longest tail two names share: ("model", "transformer")."""
    mine, others = our.split("."), their.split(".")
    shared = 0
    while shared < min(len(mine), len(others)) and mine[-1 - shared] == others[-1 - shared]:
        shared += 1
    return ".".join(mine[: len(mine) - shared]), ".".join(others[: len(others) - shared])


class _Finder:
    """Modules of the checkpoint that nothing has claimed yet, by several spellings."""

    def __init__(self, theirs: Iterable[str]) -> None:
        self.heads: list[tuple[str, str]] = []
        self._open: set[str] = set(theirs)
        self._fused: set[str] = set()
        self._canonical: dict[str, list[str]] = {}
        self._tails: dict[str, list[str]] = {}
        for stem in self._open:
            short = canonical(stem)
            self._canonical.setdefault(short, []).append(stem)
            for tail in _tails(short):
                self._tails.setdefault(tail, []).append(stem)

    def take(self, our: str, stems: Stems) -> None:
        """Mark modules as claimed; a fused one stays open for the other parts that went into it."""
        tail = our.rpartition(".")[2]
        for stem in stems:
            if _FUSED_INTO.get(tail) == stem.rpartition(".")[2]:
                self._fused.add(stem)
            self._open.discard(stem)

    def find(self, our: str) -> Stems:
        direct = self._one(our)
        if direct is not None:
            return (direct,)
        base, _, tail = our.rpartition(".")
        for spelling in self._bases(base):
            for name in (tail, _SYNONYMS.get(tail)):
                match = self._one(f"{spelling}.{name}") if name and (spelling, name) != (base, tail) else None
                if match is not None:
                    return (match,)
            parts = FUSED.get(tail, ())
            for names in (parts, tuple(_SYNONYMS.get(part, "") for part in parts)):
                matches = [self._one(f"{spelling}.{part}") for part in names]
                if names and all(match is not None for match in matches):
                    return tuple(match for match in matches if match is not None)
            fused = _FUSED_INTO.get(tail)
            match = self._one(f"{spelling}.{fused}", shared=True) if fused else None
            if match is not None:
                return (match,)
        return ()

    def by_tail(self, our: str) -> str | None:
        """The only open module of which `our` is the tail, or that is a tail of `our`, and more than a last name."""
        short = canonical(our)
        if "." not in short:
            return None
        longer = self._tails.get(short, ())
        if len(longer) == 1 and longer[0] in self._open:
            return longer[0]
        for tail in _tails(short):
            shorter = self._canonical.get(tail, ()) if "." in tail else ()
            if len(shorter) == 1 and shorter[0] in self._open:
                return shorter[0]
        return None

    def _one(self, our: str, *, shared: bool = False) -> str | None:
        known = self._open | self._fused if shared else self._open
        if our in known:
            return our
        for before, after in self.heads:
            rest = our[len(before) :].lstrip(".") if our.startswith(before) else None
            if rest and (spelled := f"{after}.{rest}" if after else rest) in known:
                return spelled
        same = [stem for stem in self._canonical.get(canonical(our), ()) if stem in known]
        if len(same) == 1:
            return same[0]
        return self.by_tail(our) if not shared else None

    def _bases(self, base: str) -> tuple[str, ...]:
        """Where the parts may stand: experts one by one or as a stack."""
        if base.endswith(".{}"):
            return (base, base.removesuffix(".{}"))
        return (base, f"{base}.{{}}") if base.endswith("experts") else (base,)


def _tails(stem: str) -> Iterable[str]:
    """Every way to leave out leading parts of a name, the longest first; names of very many parts have none."""
    parts = stem.split(".")
    if len(parts) > _LONGEST_TAIL:
        return ()
    return (".".join(parts[start:]) for start in range(1, len(parts)))
