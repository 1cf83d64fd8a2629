"""Lists of module names as quantisation configs write them, matched against a model's name templates.

A list may name ten thousand modules one by one, so names are kept by shape ("layers.#.mlp.gate") with the
numbers they were written with, and a template is looked up once for all its layers.

Text models sit under `model.`, `model.language_model.`, `language_model.model.` or `backbone.` in different
releases of the same code; such heads are dropped on both sides. A name without a number matches wherever its
parts stand in a row, one with a number only from the start, and both match everything below the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct, field

from vramledger.errors import UnknownFormat
from vramledger.models.quantization.patterns import compile_pattern, glob_pattern, is_number_sensitive
from vramledger.models.tensors import Tensor

_HEADS = frozenset({"model", "language_model", "text_model", "backbone"})
_SPELLINGS = ("", "model.", "language_model.", "model.language_model.", "language_model.model.")
FUSED: dict[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
    "w13": ("w1", "w3"),
}
"""Names under which engines and model code fuse projections (vLLM, `packed_modules_mapping`)."""
_FUSED_INTO = {part: fused for fused, parts in FUSED.items() for part in parts}

Repetitions = frozenset[int]
"""Layer numbers (or indices of a tower's blocks; 0 for a tensor that stands alone)."""


def repetitions(tensor: Tensor) -> Repetitions:
    """Over which indices a tensor's name repeats."""
    if tensor.layers:
        return frozenset(tensor.layers)
    return frozenset(range(tensor.copies)) if "{block}" in tensor.name else frozenset((0,))


def canonical(name: str) -> str:
    """A module's name without the heads that only say which part of a model is text."""
    parts = name.strip(".").split(".")
    while len(parts) > 1 and parts[0] in _HEADS:
        del parts[0]
    return ".".join(parts)


def _shape(parts: list[str]) -> tuple[str, tuple[int, ...]]:
    """ "layers.3.mlp" as ("layers.#.mlp", (3,))."""
    numbers = tuple(int(part) for part in parts if part.isdecimal() and len(part) < 8)
    return ".".join("#" if part.isdecimal() and len(part) < 8 else part for part in parts), numbers


class _Path(Struct, frozen=True):
    """One spelling of a tensor's module: its parts with "#" for numbers, and what each number is."""

    parts: tuple[str, ...]
    slots: tuple[int | str, ...]

    @classmethod
    def of(cls, module: str) -> _Path:
        parts: list[str] = []
        slots: list[int | str] = []
        for part in module.split("."):
            if part.startswith("{") or part.isdecimal():
                slots.append(int(part) if part.isdecimal() else part)
                parts.append("#")
            else:
                parts.append(part)
        return cls(tuple(parts), tuple(slots))


class Names(Struct):
    """A list of names, `re:` patterns and `*` patterns. `is_substring` is AutoAWQ's reading: any part of a name."""

    where: str
    is_substring: bool = False
    _numbered: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    _anywhere: set[str] = field(default_factory=set)
    _tails: set[str] = field(default_factory=set)
    _open: dict[str, list[tuple[tuple[int, ...], str]]] = field(default_factory=dict)
    _patterns: list[tuple[Callable[[str], object], bool]] = field(default_factory=list)
    _substrings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, entries: Iterable[str], where: str, *, is_substring: bool = False) -> Names:
        """Raises ConfigError for a pattern that does not compile or is too involved."""
        names = cls(where, is_substring)
        for entry in entries:
            names._add(entry)
        return names

    def __bool__(self) -> bool:
        return bool(self._numbered or self._anywhere or self._open or self._patterns or self._substrings)

    def _add(self, entry: str) -> None:
        if entry.startswith("re:"):
            pattern = compile_pattern(entry[3:], self.where)
            self._patterns.append((pattern.match, is_number_sensitive(pattern)))
        elif self.is_substring:
            self._substrings.append(entry.strip("*"))
        elif "*" in entry:
            self._add_glob(entry)
        elif entry.strip("."):
            parts = canonical(entry).split(".")
            shape, numbers = _shape(parts)
            if numbers:
                self._numbered.setdefault(shape, set()).add(numbers)
            else:
                self._anywhere.add(shape)
            self._tails.add(parts[-1])

    def _add_glob(self, entry: str) -> None:
        head = entry.rstrip("*")
        if "*" in head or not head:
            pattern = glob_pattern(entry, self.where)
            self._patterns.append((pattern.match, is_number_sensitive(pattern)))
            return
        *parents, last = canonical(head + "x").split(".")
        shape, numbers = _shape(parents)
        self._open.setdefault(shape, []).append((numbers, last[:-1]))

    def select(self, tensor: Tensor, module: str) -> Repetitions:
        """The repetitions of `tensor` (of `module`) that the list names.

        A fused module is named when all its parts are, a part when its fused module is. Raises
        UnknownFormat where only some experts of a layer are named.
        """
        every = repetitions(tensor)
        found = self._direct(tensor, module, every)
        for spelling in self._respellings(module):
            if found == every:
                break
            found |= self._direct(tensor, spelling, every)
        base, _, tail = module.rpartition(".")
        if found != every and tail in FUSED:
            bases = [base, f"{base}.{{expert}}"] if base.endswith("experts") else [base]
            for inner in bases:
                named = every
                for part in FUSED[tail]:
                    named &= self._direct(tensor, f"{inner}.{part}", every)
                found |= named
        return found

    def _respellings(self, module: str) -> list[str]:
        """Other names under which a list may have this module."""
        out: list[str] = []
        base, _, tail = module.rpartition(".")
        if ".weight" in module:
            out.append(
                (module + ".weight").replace(".weight", "")
            )  # lists made by deleting ".weight" from names
        fused = _FUSED_INTO.get(tail)
        if fused in self._tails:
            out.append(f"{base}.{fused}")
        if base.endswith(".{expert}"):
            stacked = base.removesuffix(".{expert}")
            out.extend(f"{stacked}.{name}" for name in (tail, fused) if name in self._tails)
        elif base.endswith("experts") and tail in self._tails:
            out.append(f"{base}.{{expert}}.{tail}")
        return out

    def _direct(self, tensor: Tensor, module: str, every: Repetitions) -> Repetitions:
        short = canonical(module)
        if self._substrings and any(text in module or text in short for text in self._substrings):
            return every
        path = _Path.of(short)
        if self._anywhere and self._named_anywhere(path):
            return every
        found: Repetitions = frozenset()
        for end in range(len(path.parts) + 1):
            key = ".".join(path.parts[:end])
            if key in self._numbered:
                found |= _with_numbers(self._numbered[key], path.slots, tensor, every)
            if key in self._open and end < len(path.parts):
                found |= self._below(key, path, end, every)
        for match, is_sensitive in self._patterns:
            if found == every:
                break
            found |= _by_pattern(match, is_sensitive, module, short, every)
        return found

    def _named_anywhere(self, path: _Path) -> bool:
        parts = path.parts
        return any(
            ".".join(parts[start:end]) in self._anywhere
            for start in range(len(parts))
            for end in range(start + 1, len(parts) + 1)
        )

    def _below(self, key: str, path: _Path, end: int, every: Repetitions) -> Repetitions:
        """Repetitions whose part number `end` starts as an open name ("layers.3.self_attn*") does."""
        found: set[int] = set()
        used = path.parts[:end].count("#")
        part = path.parts[end]
        slot = path.slots[used] if part == "#" else None
        for numbers, start in self._open[key]:
            if slot is None:
                named = every if part.startswith(start) else frozenset()
            elif slot == "{expert}":
                named = every if not start else self._some_experts(start)
            elif isinstance(slot, int):
                named = every if str(slot).startswith(start) else frozenset()
            else:
                named = frozenset(index for index in every if str(index).startswith(start))
            for fixed, number in zip(path.slots, numbers, strict=False):
                if fixed == "{expert}" and named:
                    named = self._some_experts(str(number))
                elif isinstance(fixed, int):
                    named = named if fixed == number else frozenset()
                else:
                    named &= {number}
            found |= named
        return frozenset(found)

    def _some_experts(self, start: str) -> Repetitions:
        raise UnknownFormat(
            f"{self.where}: experts whose number starts with {start} are listed apart from the rest",
            start=start,
        )


def _with_numbers(
    entries: set[tuple[int, ...]], slots: tuple[int | str, ...], tensor: Tensor, every: Repetitions
) -> Repetitions:
    """Repetitions whose numbers are among `entries`; every expert of a layer must be."""
    width = len(next(iter(entries)))
    used = slots[:width]
    layer = next((i for i, slot in enumerate(used) if isinstance(slot, str) and slot != "{expert}"), None)
    fixed = [(i, slot) for i, slot in enumerate(used) if isinstance(slot, int)]
    if fixed:
        entries = {entry for entry in entries if all(entry[i] == slot for i, slot in fixed)}
    if "{expert}" not in used:
        return (
            every
            if entries and layer is None
            else frozenset(e[layer] for e in entries if layer is not None) & every
        )
    counts: dict[int, int] = {}
    for entry in entries:
        index = entry[layer] if layer is not None else 0
        counts[index] = counts.get(index, 0) + 1
    for index, count in counts.items():
        if index in every and count != tensor.num_experts:
            raise UnknownFormat(
                f"{tensor.name}: {count} of {tensor.num_experts} experts of layer {index} are listed apart from the rest",
                tensor=tensor.name,
                layer=index,
            )
    return frozenset(counts) & every


def _by_pattern(
    match: Callable[[str], object], is_sensitive: bool, module: str, short: str, every: Repetitions
) -> Repetitions:
    """Evaluated once for all numbers of as many digits where the pattern cannot tell them apart."""
    texts = [module, *(head + short for head in _SPELLINGS if head + short != module)]
    texts = [text.replace("{expert}", "0") for text in texts]
    if "{layer}" not in module and "{block}" not in module:
        return every if any(match(text) for text in texts) else frozenset()
    found: set[int] = set()
    answers: dict[int, bool] = {}
    for index in every:
        key = index if is_sensitive else len(str(index))
        if key not in answers:
            answers[key] = any(
                match(text.replace("{layer}", str(index)).replace("{block}", str(index))) for text in texts
            )
        if answers[key]:
            found.add(index)
    return frozenset(found)
