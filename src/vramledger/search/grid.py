"""A grid of questions: its axes, and each point by its number."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from msgspec import Struct

from vramledger.errors import FlagError, shorter
from vramledger.search.terms import KV_LOSS, Question, terms_of
from vramledger.search.weights import STORED, choice_of

LARGEST_GRID = 50_000_000
LARGEST_COUNT = 2**40


class Grid(Struct, frozen=True, kw_only=True):
    """Values of each axis in the order they are tried; the last axis runs fastest.

    `models` is how many models are asked about. Raises FlagError for an empty axis, an unknown name, a size below 1
    and more than 50 million points.
    """

    models: int = 1
    weights: tuple[str, ...] = (STORED,)
    devices: tuple[str, ...]
    engines: tuple[str, ...] = ("vllm",)
    tp: tuple[int, ...] = (1,)
    pp: tuple[int, ...] = (1,)
    ep: tuple[bool, ...] = (False,)
    kv: tuple[str, ...] = ("auto",)
    contexts: tuple[int | None, ...] = (None,)
    concurrency: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name):
                raise FlagError(f"nothing to try: {name} has no value", flag=name)
        self._check_kinds()
        for name in self.weights:
            choice_of(name)
        for engine in self.engines:
            terms_of(engine)
        unknown = [name for name in self.kv if name not in KV_LOSS]
        if unknown:
            raise FlagError(
                f"--kv {unknown[0]!r} is not one of {', '.join(KV_LOSS)}", flag="kv", value=unknown[0]
            )
        if len(self) > LARGEST_GRID:
            raise FlagError(
                f"a grid of {len(self):,} points is more than {LARGEST_GRID:,}; split it by device or model",
                flag="grid",
                value=len(self),
            )

    def _check_kinds(self) -> None:
        for name in ("tp", "pp", "concurrency", "contexts"):
            for value in getattr(self, name):
                if value is None and name == "contexts":
                    continue
                if type(value) is not int or not 1 <= value <= LARGEST_COUNT:
                    shown = shorter(value)
                    raise FlagError(
                        f"{name} {shown} is not a whole number from 1 to {LARGEST_COUNT}",
                        flag=name,
                        value=shown,
                    )
        for name, kind, what in (
            ("ep", bool, "True or False"), ("weights", str, "a name"), ("devices", str, "a name"),
            ("engines", str, "a name"), ("kv", str, "a name"),
        ):  # fmt: skip
            for value in getattr(self, name):
                if type(value) is not kind:
                    shown = shorter(value)
                    raise FlagError(f"{name} {shown} is not {what}", flag=name, value=shown)

    @property
    def _axes(self) -> tuple[tuple[object, ...], ...]:
        return (
            self.weights, self.devices, self.engines, self.tp, self.pp, self.ep, self.kv, self.contexts,
            self.concurrency,
        )  # fmt: skip

    def __len__(self) -> int:
        return self.models * prod(len(axis) for axis in self._axes)

    def question(self, number: int) -> Question:
        """The point of this number, 0 to len - 1. Raises IndexError outside."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        picked = []
        for axis in reversed(self._axes):
            number, place = divmod(number, len(axis))
            picked.append(axis[place])
        concurrency, context, kv, ep, pp, tp, engine, device, weights = picked
        return Question(
            model=number,
            weights=weights,  # type: ignore[arg-type]
            device=device,  # type: ignore[arg-type]
            engine=engine,  # type: ignore[arg-type]
            tp=tp,  # type: ignore[arg-type]
            pp=pp,  # type: ignore[arg-type]
            ep=ep,  # type: ignore[arg-type]
            kv=kv,  # type: ignore[arg-type]
            context_tokens=context,  # type: ignore[arg-type]
            concurrency=concurrency,  # type: ignore[arg-type]
        )

    def questions(self) -> Iterator[Question]:
        """Every point in order."""
        return (self.question(number) for number in range(len(self)))
