"""Measurements of one instance by several sources as one.

Nothing is averaged and nothing chosen silently: what two sources state of the same thing stands twice, each with its
source, and what cannot both be true is told. The four values of an allocator are joined only within one point of one source's
own making, never across sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.ledger import ByteRange
from vramledger.measurement import HostMemory, Measurement, MeasurementSource

_T = TypeVar("_T", bound=Struct)
_Facts = tuple[tuple[str, str | int | float | bool], ...]
_REFUSED = ("engine",)
_TOLD = ("engine_version", "model", "model_revision", "architecture", "device")
_COUNTS = ("tp", "pp", "dp", "ep")


def merged(parts: Sequence[Measurement]) -> Measurement:
    """One measurement of all that `parts` tell, in their order: of two that differ the earlier one is kept and a note
    names both.

    Raises InputError where there is none, and where two are of different engines.
    """
    if not parts:
        raise InputError("there is nothing to merge: no source was given")
    notes: list[str] = []
    facts: dict[str, object] = {}
    for name in _REFUSED:
        facts[name] = _one(parts, name, _refuse)
    for name in _TOLD:
        facts[name] = _one(parts, name, _teller(notes), alike=_ALIKE.get(name))
    for name in _COUNTS:
        facts[name] = _one(parts, name, _teller(notes))
    return replace(
        parts[0],
        **facts,
        sources=_sources(item for part in parts for item in part.sources),
        device_total_bytes=_device_total(parts, notes),
        settings=_settings(parts, notes),
        figures=_distinct(item for part in parts for item in part.figures),
        pools=_distinct(item for part in parts for item in part.pools),
        allocator=_distinct(item for part in parts for item in part.allocator),
        graphs=_distinct(item for part in parts for item in part.graphs),
        host=_host(parts, notes),
        notes=tuple(dict.fromkeys([*(note for part in parts for note in part.notes), *notes])),
    )


def _one(
    parts: Sequence[Measurement],
    name: str,
    contradicted: Callable[[str, object, str, object, str], None],
    alike: Callable[[str, str], str | None] | None = None,
) -> object:
    """The first value that a part states; `alike` gives the better of two texts that mean the same, None where they do not."""
    kept: object = None
    of = ""
    told: set[object] = set()
    for part in parts:
        value = getattr(part, name)
        if value is None or value == kept:
            continue
        if kept is None:
            kept, of = value, _source(part)
            continue
        better = alike(str(kept), str(value)) if alike is not None else None
        if better is not None:
            kept, of = better, of if better == kept else _source(part)
        elif value not in told:
            told.add(value)
            contradicted(name, kept, of, value, _source(part))
    return kept


def _source(part: Measurement) -> str:
    return part.sources[0].name if part.sources else "a source without a name"


def _refuse(name: str, kept: object, of: str, other: object, by: str) -> None:
    raise InputError(
        f"{of} is of the {name} {kept}, {by} of {other}: two instances, to be measured apart",
        key=name,
        value=str(other),
    )


def _teller(notes: list[str]) -> Callable[[str, object, str, object, str], None]:
    def tell(name: str, kept: object, of: str, other: object, by: str) -> None:
        title = name.replace("_", " ")
        notes.append(f"contradiction: {title} is {kept} by {of} (kept), {other} by {by}")

    return tell


def _same_version(one: str, other: str) -> str | None:
    """ "0.32.0" and "0.32.0+cpu" are one release; the longer says more."""
    short, long = sorted((one.removeprefix("v"), other.removeprefix("v")), key=len)
    if long == short or long.startswith((f"{short}+", f"{short}.dev", f"{short}-")):
        return one if one.removeprefix("v") == long else other
    return None


def _same_model(one: str, other: str) -> str | None:
    """A folder or a file and the name under which it is served."""
    plain = [text.rstrip("/").rpartition("/")[2] for text in (one, other)]
    return max(one, other, key=len) if plain[0] == plain[1] and plain[0] else None


_ALIKE: dict[str, Callable[[str, str], str | None]] = {
    "engine_version": _same_version,
    "model": _same_model,
}


def _device_total(parts: Sequence[Measurement], notes: list[str]) -> ByteRange | None:
    """The narrowest of totals that may be one; NVML and CUDA print different ones of one device, so 2 % apart is one."""
    known = [
        (part.device_total_bytes, _source(part)) for part in parts if part.device_total_bytes is not None
    ]
    if not known:
        return None
    kept, of = min(known, key=lambda item: item[0].high - item[0].low)
    for size, by in known:
        apart = max(size.low - kept.high, kept.low - size.high)
        if apart * 50 > kept.expected:
            notes.append(
                f"contradiction: the device has {kept.expected:,} bytes by {of} (kept), "
                f"{size.expected:,} by {by}"
            )
    return kept


def _settings(parts: Sequence[Measurement], notes: list[str]) -> _Facts:
    kept: dict[str, tuple[str | int | float | bool, str]] = {}
    for part in parts:
        for name, value in part.settings:
            before = kept.setdefault(name, (value, _source(part)))
            if _plain(before[0]) != _plain(value):
                note = (
                    f"contradiction: setting {name} is {before[0]} by {before[1]} (kept), "
                    f"{value} by {_source(part)}"
                )
                if note not in notes:
                    notes.append(note)
    return tuple((name, value) for name, (value, _) in kept.items())


def _plain(value: str | int | float | bool) -> str:
    """A value without the way in which a list of one is printed."""
    return str(value).strip("[]'\" ")


def _host(parts: Sequence[Measurement], notes: list[str]) -> tuple[HostMemory, ...]:
    """Processes by their ids; one that an engine tells of without an id is among them where any is listed."""
    host = _distinct(item for part in parts for item in part.host)
    if not any(item.pid is not None for item in host):
        return host
    for item in host:
        if item.pid is None and item.rss_bytes is not None:
            notes.append(
                f"{item.evidence.source}: {item.process} has an RSS of {item.rss_bytes:,} bytes; it is one of the "
                "processes that are listed"
            )
    return tuple(item for item in host if item.pid is not None)


def _sources(items: Iterable[MeasurementSource]) -> tuple[MeasurementSource, ...]:
    """Each source once, with what any mention of it tells."""
    kept: dict[tuple[str, str], MeasurementSource] = {}
    for item in items:
        before = kept.setdefault((item.name, item.kind), item)
        fields = {
            name: getattr(item, name)
            for name in ("sha256", "size_bytes", "from_s", "until_s")
            if getattr(before, name) is None
        }
        kept[(item.name, item.kind)] = replace(before, **fields)
    return tuple(kept.values())


def _distinct(items: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(items))
