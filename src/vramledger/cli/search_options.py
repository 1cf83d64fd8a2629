"""Options that comparison, fit and sweep share, and how their lists are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vramledger.cli.exit_codes import verdict_code
from vramledger.cli.options import GENERAL, GroupedOption
from vramledger.engines.option import parse_count
from vramledger.errors import FlagError

AXES = "Axes, each a list with commas"
LIMITS = "Limits and cost"
RUN = "Running"
Value = TypeVar("Value")

if TYPE_CHECKING:
    from vramledger.search.rows import Row
    from vramledger.search.sweep import Numbers, Runner, Work


ALL = "all"


def words(texts: Iterable[str]) -> tuple[str, ...]:
    """Values of an option that may be repeated and takes lists, each once, in order."""
    found = (part.strip() for text in texts for part in text.split(","))
    return tuple(dict.fromkeys(part for part in found if part))


def counts(flag: str, text: str) -> tuple[int, ...]:
    """ "1,2,4" or "8K,32K". Raises FlagError for what is no list of whole numbers of at least 1."""
    return _each(flag, text, _count, "a list of whole numbers from 1 to 2^40 such as 1,2,4 or 8K,32K")


def one_count(flag: str, text: str) -> int:
    """ "32768" or "32K". Raises FlagError for what is no whole number of at least 1."""
    found = _each(flag, text, _count, "a whole number from 1 to 2^40 such as 32768 or 32K")
    if len(found) > 1:
        raise click.UsageError(f"--{flag} takes one number; vramledger sweep takes several.")
    return found[0]


def switches(flag: str, text: str) -> tuple[bool, ...]:
    """ "off,on"."""
    return _each(flag, text, {"off": False, "on": True}.__getitem__, "off, on or off,on")


def _count(text: str) -> int:
    value = parse_count(text)
    if not 1 <= value <= 2**40:
        raise ValueError
    return value


def _each(flag: str, text: str, read: Callable[[str], Value], what: str) -> tuple[Value, ...]:
    try:
        found = tuple(read(part) for part in words([text]))
    except (ValueError, KeyError):
        found = ()
    if not found:
        raise FlagError(f"--{flag} {text!r} is not {what}", flag=flag, value=text)
    return found


def device_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Devices by their catalogue names; "all" are all of the catalogue. Raises DeviceError for an unknown one."""
    from vramledger.hardware.catalogue import devices, find_device

    out: list[str] = []
    for text in _named("device", texts):
        out.extend([item.name for item in devices()] if text.lower() == ALL else [find_device(text).name])
    return tuple(dict.fromkeys(out))


def engine_list(texts: Sequence[str], otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Engines as they are asked for; "all" are all that can be, none is `otherwise`."""
    from vramledger.search.terms import asked_engines

    return _spread(_named("engine", texts) or otherwise, asked_engines)


def weight_list(text: str) -> tuple[str, ...]:
    """Weight formats; "all" are all there are."""
    from vramledger.search.weights import weight_names

    return _spread(_named("weights", [text]), weight_names)


def kv_list(text: str) -> tuple[str, ...]:
    """KV formats; "all" are all there are."""
    from vramledger.search.terms import KV_LOSS

    return _spread(_named("kv", [text]), lambda: tuple(KV_LOSS))


def _named(flag: str, texts: Sequence[str]) -> tuple[str, ...]:
    """The words of an option. Raises FlagError where it is given without one, as by an empty shell variable."""
    found = words(texts)
    if texts and not found:
        raise FlagError(f"--{flag} {','.join(texts)!r} names nothing", flag=flag, value=",".join(texts))
    return found


def _spread(names: tuple[str, ...], everything: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """ "all" among names stands for those that are not named yet."""
    spread = [part for name in names for part in (everything() if name.lower() == ALL else (name,))]
    return tuple(dict.fromkeys(spread))


def exit_code(statuses: Iterable[str], *, exit_zero: bool) -> int:
    """The code of statuses as `evaluation.Status` has them."""
    verdicts = {"holds": True, "untold": None}
    return verdict_code((verdicts.get(status, False) for status in statuses), exit_zero=exit_zero)


def option(name: str, flag: str, text: str, *, group: str = GENERAL, **more: Any) -> GroupedOption:
    """One option under a heading of the help."""
    return GroupedOption([name, *flag.split("/")], help=text, group=group, **more)


def engines_option(text: str) -> GroupedOption:
    """`--engine`, which may be repeated."""
    return option("engine", "--engine", text, multiple=True, metavar="NAME[==VERSION],...|all")


def flags_option() -> GroupedOption:
    """`--flags`."""
    return option(
        "flags",
        "--flags",
        "A flag of one engine, as in vllm:gpu_memory_utilization=0.95; may be repeated.",
        multiple=True,
        metavar="ENGINE:FLAG=VALUE",
    )


def axis_options(*, tp: str | None, pp: str | None, ep: str, kv: str = "auto") -> list[click.Option]:
    """Lists of tp, pp, ep, weights and KV formats with their defaults."""
    rows = (
        ("tp", "Devices a layer is cut over.", tp, "N,..."),
        ("pp", "Stages of layers.", pp, "N,..."),
        ("ep", "Experts spread whole over the devices of a layer.", ep, "off,on"),
        (
            "weights",
            (
                "Weight formats: stored (as the checkpoint has them), bf16, fp8, fp8-block, int8-w8a8, awq-int4, "
                "gptq-int4, nvfp4, mxfp4, files of llama.cpp (q8_0, q6_k, q5_k_m, q4_k_m, q4_0), or all; what the checkpoint does not have is hypothetical."
            ),
            "stored",
            "NAME,...|all",
        ),
        (
            "kv",
            "KV cache formats: auto, bf16, fp16, fp8, fp8_e5m2, int8, nvfp4, int4, or all.",
            kv,
            "NAME,...|all",
        ),
    )
    return [
        option(
            name,
            f"--{name}",
            text,
            group=AXES,
            default=default,
            metavar=metavar,
            show_default=default is not None,
        )
        for name, text, default, metavar in rows
    ]


def run_options() -> list[click.Option]:
    """`--jobs` and `--ray`."""
    return [
        option(
            "jobs",
            "--jobs/-j",
            "Processes (with --ray local its processors); all cores for large grids unless given.",
            group=RUN,
            type=click.IntRange(min=1, max=4096),
            default=None,
            metavar="N",
        ),
        option(
            "ray",
            "--ray",
            "Run on Ray: local, auto, or the address of a cluster (needs vramledger[distributed]).",
            group=RUN,
            default=None,
            metavar="ADDRESS|local",
        ),
    ]


SMALL_GRID = 3000
"""Points below which starting processes takes longer than they save."""


def runner(jobs: int | None, ray: str | None) -> Runner:
    """What answers a grid: this process, several, or Ray, with progress told on a terminal."""
    from vramledger.cli.progress import Progress
    from vramledger.search.sweep import cores, over_processes

    on_ray: Runner | None = None
    if ray is not None:
        from vramledger.search.on_ray import over_ray

        # Made here, so that a missing library is told before anything is written.
        on_ray = over_ray(ray, jobs=jobs)

    def run(work: Work, parts: Sequence[Numbers]) -> Iterator[list[Row]]:
        points = sum(map(len, parts))
        count = jobs if jobs is not None else cores() if points >= SMALL_GRID else 1
        where = on_ray if on_ray is not None else over_processes(count)
        with Progress(points) as progress:
            yield from progress.through(where(work, parts))

    return run
