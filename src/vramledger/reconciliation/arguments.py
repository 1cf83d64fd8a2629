"""From what an engine printed of its settings to the arguments of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.engines import (
    PrintedSettings,
    check_engine,
    engine_name,
    engine_names,
    find_engine,
    find_printed,
)
from vramledger.engines.option import Option, OptionKind, known_names, plain_name, read_value
from vramledger.errors import DeviceError, FlagError, InputError
from vramledger.evidence import measured
from vramledger.hardware.catalogue import (
    LARGEST_CUSTOM_BYTES,
    SMALLEST_CUSTOM_BYTES,
    Device,
    devices,
    find_device,
)
from vramledger.ledger import ByteRange
from vramledger.measurement import Measurement
from vramledger.reconciliation.result import Setting
from vramledger.units import format_gib

_NOTHING = frozenset({"", "None", "none", "null", "N/A"})
# A member of an enumeration as Python prints it: vLLM's load_format=LoadFormat.AUTO, up to 0.9.
_MEMBER = re.compile(r"[A-Z][A-Za-z]{1,40}\.([A-Z][A-Z0-9_]{0,40})")
_HOST_UNTOLD = "the memory of the host that the engine ran on is not told"
_DEVICE_UNTOLD = "neither the device's name nor its memory is told"
_PARALLEL = ("tp", "pp", "dp", "ep")


class PlanArguments(Struct, frozen=True, kw_only=True):
    """What `planning.plan` is to be asked.

    `version` is None where the measurement does not tell one that rules here cover; `device` None where nothing tells its
    memory. `unknown` are settings without a flag here, or with a value that ours does not take.
    """

    engine: str
    version: str | None = None
    device: Device | None = None
    flags: Mapping[str, object] = {}
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def engine_text(self) -> str:
        """As `--engine` takes it."""
        return self.engine if self.version is None else f"{self.engine}=={self.version}"


def plan_arguments(measurement: Measurement) -> PlanArguments:
    """The plan that the measured instance would have been given.

    Raises InputError where the measurement does not tell the engine, or names one without rules here.
    """
    engine = engine_name(measurement.engine or "")
    if engine not in engine_names():
        said = f"is {measurement.engine!r}" if measurement.engine else "is not told"
        raise InputError(
            f"the measurement's engine {said}; known: {', '.join(engine_names())}", engine=measurement.engine
        )
    flags, unknown = flags_of(engine, measurement.settings)
    flags |= parallel_flags(engine, {name: getattr(measurement, name) for name in _PARALLEL})
    version, notes = _version(engine, measurement.engine_version)
    device, more = device_of(measurement)
    return PlanArguments(
        engine=engine,
        version=version,
        device=device,
        flags=flags,
        unknown=unknown,
        notes=(*notes, *more),
    )


def own_arguments(plan: Plan) -> PlanArguments:
    """The arguments behind a plan, as far as its settings tell: defaults are filled in, files of drafts and adapters lost."""
    inputs = plan.inputs
    flags, _ = flags_of(inputs.engine, inputs.settings)
    flags |= parallel_flags(inputs.engine, {name: getattr(inputs, name) for name in _PARALLEL})
    try:
        device = find_device(inputs.device)
    except DeviceError:
        device = find_device(f"custom:{inputs.device_total_bytes}B")
    return PlanArguments(
        engine=inputs.engine,
        version=inputs.engine_version,
        device=with_total(device, ByteRange.exact(inputs.device_total_bytes))
        if device.total_bytes != inputs.device_total_bytes
        else device,
        flags=flags,
    )


def flags_of(
    engine: str, settings: Iterable[tuple[str, Setting]]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Flags by our names, and the printed settings that have none or a value that ours does not take."""
    flags: dict[str, object] = {}
    unknown = []
    for name, value in settings:
        if isinstance(value, str) and value.strip() in _NOTHING:
            continue
        found = flag_of(engine, name, value)
        if found is None:
            unknown.append(name)
        else:
            flags[found[0]] = found[1]
    return flags, tuple(unknown)


def flag_of(engine: str, name: str, value: Setting) -> tuple[str, object] | None:
    """Our flag of a printed setting, with the value as the flag has it; None where there is none or it does not take it."""
    printed = find_printed(engine)
    option = None if printed is None else _option(engine, printed, name)
    if printed is None or option is None:
        return None
    text = str(value).removeprefix("torch.")
    member = _MEMBER.fullmatch(text)
    if member is not None:
        text = member[1].lower()
    known = printed.WORDS.get(option.name, {}).get(text)
    wanted: object = known if known is not None else text if isinstance(value, str) else value
    if option.kind in (OptionKind.TEXT, OptionKind.TEXTS) and not isinstance(wanted, str):
        wanted = text
    try:
        return option.name, read_value(option, wanted)
    except FlagError:
        return None


def _option(engine: str, printed: PrintedSettings, name: str) -> Option | None:
    options = known_names(find_engine(engine)[0].OPTIONS)
    return options.get(plain_name(printed.FLAG_OF.get(name, name)))


def parallel_flags(engine: str, sizes: Mapping[str, int | None]) -> dict[str, object]:
    """Flags of parallel groups larger than one, for an engine that has them."""
    printed = find_printed(engine)
    options = known_names(find_engine(engine)[0].OPTIONS)
    out: dict[str, object] = {}
    for name, size in sizes.items():
        option = options.get(name)
        if printed is None or option is None or size is None or size == 1:
            continue
        out[option.name] = True if name == "ep" and printed.EP_IS_SWITCH else size
    return out


def without_flags(arguments: PlanArguments, names: Iterable[str]) -> dict[str, object]:
    """The arguments' flags without those of `names`, however these are spelled."""
    options = known_names(find_engine(arguments.engine)[0].OPTIONS)
    found = (options.get(plain_name(name)) for name in names)
    left = {option.name for option in found if option is not None}
    return {name: value for name, value in arguments.flags.items() if name not in left}


def _version(engine: str, version: str | None) -> tuple[str | None, tuple[str, ...]]:
    if version is None:
        return None, ()
    try:
        check_engine(f"{engine}=={version}")
    except FlagError as problem:
        return None, (f"planned as the newest version: {problem}",)
    return version, ()


def device_of(measurement: Measurement) -> tuple[Device | None, tuple[str, ...]]:
    """The device by its printed name, else by its total, with the total that was measured.

    A total that several devices share gives one of that size whose kind is unknown; a host gives `cpu:`.
    """
    total, name = measurement.device_total_bytes, measurement.device or ""
    found = _named(name)
    if found is not None and not name.lower().startswith("cpu"):
        return (found if total is None else with_total(found, total)), ()
    if total is None:
        return None, (_HOST_UNTOLD if name.lower().startswith("cpu") else _DEVICE_UNTOLD,)
    if not SMALLEST_CUSTOM_BYTES <= total.expected <= LARGEST_CUSTOM_BYTES:
        return None, (f"no device has {format_gib(total.expected)}",)
    if name.lower().startswith("cpu"):
        return _sized(find_device(f"cpu:{total.expected}B"), total), ()
    alike = [
        item
        for item in devices()
        if item.total_low_bytes <= total.high and total.low <= item.total_high_bytes
    ]
    if len(alike) == 1:
        return with_total(alike[0], total), (f"{alike[0].name} by its memory alone",)
    can_be = f", which {', '.join(item.name for item in alike)} have" if alike else ""
    device = _sized(find_device(f"custom:{total.expected}B"), total)
    return device, (f"a device of {format_gib(total.expected)}{can_be}: its kind is not known",)


def _named(name: str) -> Device | None:
    try:
        return find_device(name) if name else None
    except DeviceError:
        return None


def with_total(device: Device, total: ByteRange) -> Device:
    """The device with a measured total; its own where the two agree within the print's rounding."""
    if total.low <= device.total_bytes <= total.high and not total.is_exact:
        return replace(device, total_low_bytes=total.low, total_high_bytes=total.high)
    return _sized(device, total)


def _sized(device: Device, total: ByteRange) -> Device:
    return replace(
        device,
        total_bytes=total.expected,
        total_low_bytes=total.low,
        total_high_bytes=total.high,
        evidence=measured("the device's own total", f"{total.expected} B"),
    )
