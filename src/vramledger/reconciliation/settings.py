"""Settings that plan and measurement state differently. They come first: they explain the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.engines import engine_name, find_printed, same_version
from vramledger.errors import DeviceError, FlagError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import ByteRange
from vramledger.measurement import Measurement
from vramledger.reconciliation.arguments import flag_of, flags_of
from vramledger.reconciliation.result import Setting, SettingDifference

NOT_SET = "not set"
DEVICE_TOTAL = "device_total_bytes"
VERSION = "engine_version"
_OPEN = "auto"
_EMPTY = ("", "()", "{}", "[]")
_GROUPS = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "enable_expert_parallel": "ep",
    "tp_size": "tp",
    "pp_size": "pp",
    "dp_size": "dp",
    "ep_size": "ep",
}


class Compared(Struct, frozen=True, kw_only=True):
    """What differs, what agrees, and what was measured without a flag here."""

    differences: tuple[SettingDifference, ...]
    agreeing: tuple[str, ...]
    unknown: tuple[str, ...]


class _Pair(Struct, frozen=True):
    name: str
    planned: Setting
    measured: Setting
    flag: str | None
    is_same: bool


def compare_settings(plan: Plan, measurement: Measurement) -> Compared:
    """Every setting that both state."""
    pairs: dict[str, _Pair] = {}
    for pair in (*_identity(plan, measurement), *_parallel(plan, measurement), *_flags(plan, measurement),
                 *_pool(plan, measurement)):  # fmt: skip
        pairs.setdefault(pair.name, pair)
    _, unknown = flags_of(plan.inputs.engine, measurement.settings)
    return Compared(
        differences=tuple(
            SettingDifference(name=pair.name, planned=pair.planned, measured=pair.measured, flag=pair.flag)
            for pair in pairs.values()
            if not pair.is_same
        ),
        agreeing=tuple(pair.name for pair in pairs.values() if pair.is_same),
        unknown=tuple(name for name in unknown if name not in pairs),
    )


def _identity(plan: Plan, measurement: Measurement) -> Iterator[_Pair]:
    inputs = plan.inputs
    if measurement.engine is not None:
        other = engine_name(measurement.engine)
        yield _Pair("engine", inputs.engine, other, "engine", inputs.engine == other)
        if measurement.engine_version is not None and other == inputs.engine:
            version = measurement.engine_version
            same = _is_same_version(inputs.engine, inputs.engine_version, version)
            yield _Pair(VERSION, inputs.engine_version, version, "engine", same)
    if measurement.model is not None:
        same = _last(inputs.model) == _last(measurement.model)
        yield _Pair("model", inputs.model, measurement.model, None, same)
    if measurement.architecture is not None and _is_class(measurement.architecture):
        same = inputs.architecture == measurement.architecture
        yield _Pair("architecture", inputs.architecture, measurement.architecture, None, same)
    total = measurement.device_total_bytes
    if total is not None:
        planned = planned_total(plan)
        meets = planned.low <= total.high and total.low <= planned.high
        yield _Pair(DEVICE_TOTAL, planned.expected, total.expected, "device", meets)


def planned_total(plan: Plan) -> ByteRange:
    """The device's memory that was planned with, over drivers and hosts where it is one of the catalogue."""
    size = plan.inputs.device_total_bytes
    try:
        device = find_device(plan.inputs.device)
    except DeviceError:
        return ByteRange.exact(size)
    return device.total if device.total_bytes == size else ByteRange.exact(size)


def _last(model: str) -> str:
    """A model's name without its folder, organisation, revision and the suffix of a file."""
    return PurePosixPath(model.partition("@")[0].rstrip("/").replace("\\", "/")).name.removesuffix(".gguf")


def _is_class(architecture: str) -> bool:
    """Whether an architecture is named as in a config ("LlamaForCausalLM") and not as in a GGUF file ("llama")."""
    return architecture.lower() != architecture


def _is_same_version(engine: str, one: str, other: str) -> bool:
    try:
        return same_version(engine, one, other)
    except FlagError:
        return one == other


def _parallel(plan: Plan, measurement: Measurement) -> Iterator[_Pair]:
    for name in ("tp", "pp", "dp", "ep"):
        found: int | None = getattr(measurement, name)
        if found is not None:
            planned: int = getattr(plan.inputs, name)
            yield _Pair(name, planned, found, name, planned == found)


def _flags(plan: Plan, measurement: Measurement) -> Iterator[_Pair]:
    engine = plan.inputs.engine
    printed = find_printed(engine)
    if printed is None or (measurement.engine and engine_name(measurement.engine) != engine):
        return
    shown = dict(plan.inputs.settings)
    for name, value in measurement.settings:
        found = flag_of(engine, name, value)
        if found is None:
            if name in shown:
                yield _Pair(name, shown[name], value, None, shown[name] == value)
            continue
        flag, measured = found
        if flag in _GROUPS:
            group = _GROUPS[flag]
            size: int = getattr(plan.inputs, group)
            ours = size > 1 if isinstance(measured, bool) else size
            yield _Pair(group, ours, _plain(measured), flag, ours == measured)
            continue
        planned = shown.get(flag, printed.UNSHOWN.get(flag))
        if planned is None and flag not in printed.LIMITS:
            continue
        if planned == _OPEN and flag == "kv_cache_dtype" and plan.kv_pool is not None:
            planned = measured if measured == plan.kv_pool.dtype else planned
        if measured == _OPEN and flag in shown:
            continue
        theirs = _plain(measured)
        stated = NOT_SET if planned is None else _plain(planned)
        yield _Pair(flag, stated, theirs, flag, _is_same(stated, theirs))


def _pool(plan: Plan, measurement: Measurement) -> Iterator[_Pair]:
    pool = plan.kv_pool
    if pool is None:
        return
    for found in measurement.pools:
        if found.kind:
            continue
        if found.block_size is not None:
            yield _Pair(
                "block_size",
                pool.block_size,
                found.block_size,
                "block_size",
                pool.block_size == found.block_size,
            )
        if found.context_len is not None:
            same = pool.context_len == found.context_len
            yield _Pair("context_len", pool.context_len, found.context_len, None, same)


def _plain(value: object) -> Setting:
    return value if isinstance(value, str | int | float | bool) else str(value)


def _is_same(one: Setting, other: Setting) -> bool:
    if one in _EMPTY and other in _EMPTY:
        return True
    if isinstance(one, float) or isinstance(other, float):
        try:
            return abs(float(one) - float(other)) <= 1e-6
        except ValueError:
            return False
    return one == other
