"""The three questions as a program asks them: `vramledger.compare`, `vramledger.fit` and `vramledger.sweep`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TypeVar

from vramledger.errors import FlagError, shorter
from vramledger.hardware.catalogue import devices as catalogue
from vramledger.hardware.catalogue import find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.planning import load_model
from vramledger.search.comparison import Comparison
from vramledger.search.comparison import compare as compare_questions
from vramledger.search.cost import Order, named_prices, order_of
from vramledger.search.evaluation import Subject
from vramledger.search.fit import Fit, Limits
from vramledger.search.fit import fit as fit_grid
from vramledger.search.grid import Grid
from vramledger.search.rows import Row
from vramledger.search.sweep import Runner, Work, chunks, in_process
from vramledger.search.terms import asked_engines, check_engine_flags
from vramledger.search.weights import STORED, is_plain

Model = str | PathLike[str] | Checkpoint
Flags = Mapping[str, Mapping[str, object]]
Value = TypeVar("Value")
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of devices tried where none are named."""


def compare(
    model: Model,
    device: str,
    engines: Sequence[str] = (),
    *,
    tp: int = 1,
    pp: int = 1,
    ep: bool = False,
    context_tokens: int | None = None,
    concurrency: int = 1,
    kv: str = "auto",
    flags: Flags | None = None,
) -> Comparison:
    """Engines, or versions of one ("vllm==0.11.0"), on the same question; all engines where none is named.

    `flags` are an engine's own by the engine as it is named. Raises what `plan` raises for the model and the device,
    FlagError for an engine without rules here; what an engine refuses is in its column.
    """
    grid = Grid(
        devices=(find_device(device).name,),
        engines=_listed("engines", engines) or asked_engines(),
        tp=(tp,),
        pp=(pp,),
        ep=(ep,),
        kv=(kv,),
        contexts=(context_tokens,),
        concurrency=(concurrency,),
    )
    check_engine_flags(flags or {}, grid.engines)
    return compare_questions(list(grid.questions()), Subject((_loaded(model),), flags))


def fit(
    model: Model,
    devices: Sequence[str] = (),
    engines: Sequence[str] = ("vllm",),
    *,
    tp: Sequence[int] = (),
    pp: Sequence[int] = (),
    ep: Sequence[bool] = (False,),
    weights: Sequence[str] = (STORED,),
    kv: Sequence[str] = ("auto",),
    context_tokens: int | None = None,
    concurrency: int = 1,
    limits: Limits | None = None,
    order: str = Order.DEVICES,
    prices: Mapping[str, float] | None = None,
    flags: Flags | None = None,
    run: Runner = in_process,
) -> Fit:
    """Plans that hold `concurrency` requests of `context_tokens`, best first by `order`, and how others fail.

    All devices of the catalogue where none is named; tp and pp are powers of two within the limits unless given.
    `prices` are those of one device by any of its names. Raises as `compare`, and FlagError for an order by price where a
    device has none.
    """
    limits, by, costs = limits or Limits(), order_of(order), named_prices(prices or {})
    checkpoint = _loaded(model)
    formats = _listed("weights", weights)
    if STORED in formats and is_plain(checkpoint):
        formats = tuple(name for name in formats if name != "bf16")  # what it is already
    grid = Grid(
        weights=formats,
        devices=_names(devices) or tuple(item.name for item in catalogue()),
        engines=_listed("engines", engines),
        tp=_listed("tp", tp) or _up_to(min(limits.most_devices, limits.devices_per_node)),
        pp=_listed("pp", pp) or _up_to(limits.most_devices),
        ep=_listed("ep", ep),
        kv=_listed("kv", kv),
        contexts=(context_tokens,),
        concurrency=(concurrency,),
    )
    check_engine_flags(flags or {}, grid.engines)
    by.check_prices(grid.devices, costs)
    subject = Subject((checkpoint,), flags)
    work = Work(
        grid=grid,
        checkpoints=(checkpoint,),
        flags=subject.flags,
        prices=costs,
        devices_per_node=limits.devices_per_node,
    )

    def answers(numbers: Sequence[int]) -> list[Row]:
        return [row for rows in run(work, chunks(numbers)) for row in rows]

    return fit_grid(grid, subject, answers, order=by, limits=limits)


def sweep(
    models: Sequence[Model],
    devices: Sequence[str],
    engines: Sequence[str] = ("vllm",),
    *,
    tp: Sequence[int] = (1,),
    pp: Sequence[int] = (1,),
    ep: Sequence[bool] = (False,),
    weights: Sequence[str] = (STORED,),
    kv: Sequence[str] = ("auto",),
    contexts: Sequence[int | None] = (None,),
    concurrency: Sequence[int] = (1,),
    prices: Mapping[str, float] | None = None,
    flags: Flags | None = None,
    run: Runner = in_process,
) -> Iterator[Row]:
    """Every point of a grid as a row, the axes in the order of `Grid`, the last the fastest.

    `run` says where: `search.sweep.over_processes(jobs)` or `search.on_ray.over_ray(address)` give the same rows. Raises
    as `fit`.
    """
    grid = Grid(
        models=len(_listed("models", models)),
        weights=_listed("weights", weights),
        devices=_names(devices),
        engines=_listed("engines", engines),
        tp=_listed("tp", tp),
        pp=_listed("pp", pp),
        ep=_listed("ep", ep),
        kv=_listed("kv", kv),
        contexts=_listed("contexts", contexts),
        concurrency=_listed("concurrency", concurrency),
    )
    check_engine_flags(flags or {}, grid.engines)
    work = Work(
        grid=grid,
        checkpoints=tuple(_loaded(model) for model in models),
        flags=flags or {},
        prices=named_prices(prices or {}),
    )
    return (row for rows in run(work, chunks(range(len(grid)))) for row in rows)


def _loaded(model: Model) -> Checkpoint:
    return model if isinstance(model, Checkpoint) else load_model(model)


def _listed(name: str, values: Sequence[Value]) -> tuple[Value, ...]:
    """A text is a sequence too, but of letters. Raises FlagError for one and for what is no sequence."""
    if isinstance(values, str | PathLike) or not isinstance(values, Iterable):
        raise FlagError(f"{name} is a list, not {shorter(values)}", flag=name, value=shorter(values))
    return tuple(values)


def _names(devices: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(find_device(name).name for name in _listed("devices", devices)))


def _up_to(most: int) -> tuple[int, ...]:
    return tuple(size for size in SIZES if size <= most)
