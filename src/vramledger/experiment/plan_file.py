"""An experiment's plan as TOML: the fields of `ExperimentPlan`, its aims in a table `[slo]`. Pure."""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec
from msgspec.structs import replace

from vramledger.errors import InputError, shorter
from vramledger.experiment.plan import ExperimentPlan, Step
from vramledger.gateway.config_reading import read_struct, read_toml

DAY_S = 86_400.0
_RANGES: dict[str, tuple[float, float]] = {
    "goodput": (0.01, 1.0),
    "confidence": (0.5, 0.9999),
    "burstiness": (0.01, 100.0),
    "seed": (0, 2**31 - 1),
    "start_per_s": (1e-4, 1e5),
    "growth": (1.05, 10.0),
    "resolution": (0.005, 1.0),
    "stage_s": (1.0, DAY_S),
    "stage_requests": (1, 1_000_000),
    "most_stages": (1, 100),
    "steady_s": (1.0, 30 * DAY_S),
    "steady_load": (0.01, 2.0),
    "drain_s": (1.0, DAY_S),
    "interval_s": (0.05, 600.0),
    "retries": (0, 100),
    "slo.ttft_ms": (0.001, 1e9),
    "slo.tpot_ms": (0.001, 1e9),
    "slo.latency_ms": (0.001, 1e9),
}
_QUICK = {
    "stage_s": 10.0,
    "stage_requests": 10,
    "most_stages": 5,
    "steady_s": 60.0,
    "drain_s": 20.0,
}


def read_plan_file(data: bytes, where: str) -> ExperimentPlan:
    """The plan in a file; what it does not say is as in `ExperimentPlan`. Raises InputError naming `where`, the key and its value."""
    values = read_toml(data, where)
    for name in ("slo", "skip"):
        if name in values and not isinstance(values[name], dict if name == "slo" else list):
            kind = "a table [slo]" if name == "slo" else 'a list such as ["prefix"]'
            raise InputError(f"{where}: {name} is {kind}", source=where, key=name)
    for name in values.get("skip", ()):
        if name not in tuple(Step):
            raise InputError(
                f"{where}: skip: there is no step {shorter(name)}; there are {', '.join(Step)}",
                source=where,
                key="skip",
                value=shorter(name),
            )
    # An aim that is named replaces all of the usual ones' table, but not those that it does not name.
    usual = msgspec.to_builtins(ExperimentPlan().slo)
    if "slo" in values:
        values["slo"] = {**usual, **values["slo"]}
    return checked_plan(read_struct(ExperimentPlan, values, where), where)


def checked_plan(plan: ExperimentPlan, where: str) -> ExperimentPlan:
    """The same plan. Raises InputError for a value out of its range, and where two do not go together."""
    values: dict[str, Any] = msgspec.to_builtins(plan)
    values |= {f"slo.{name}": value for name, value in values.pop("slo").items()}
    for name, (low, high) in _RANGES.items():
        value = values[name]
        if value is not None and not (isfinite(value) and low <= value <= high):
            raise InputError(
                f"{where}: {name} is {shorter(value)}, not from {low:g} to {high:g}",
                source=where,
                key=name,
                value=shorter(value),
            )
    if plan.arrivals == "trace" and plan.workload is None:
        raise InputError(
            f"{where}: arrivals as in a trace need one: workload = FILE", source=where, key="arrivals"
        )
    if Step.POINT in plan.skip:
        raise InputError(
            f"{where}: the operating point is what an experiment is for and cannot be skipped",
            source=where,
            key="skip",
            value=Step.POINT.value,
        )
    return plan


def quick(plan: ExperimentPlan) -> ExperimentPlan:
    """The same plan in minutes: shorter where it is longer, and with a coarser ladder."""
    shorter_ones: dict[str, Any] = {name: min(getattr(plan, name), most) for name, most in _QUICK.items()}
    return replace(plan, growth=max(plan.growth, 2.0), resolution=max(plan.resolution, 0.25), **shorter_ones)


def differences(before: ExperimentPlan, now: ExperimentPlan) -> list[str]:
    """What differs, as "stage_s 60.0 is now 10.0"."""
    return _differences(msgspec.to_builtins(before), msgspec.to_builtins(now), "")


def _differences(before: dict[str, Any], now: dict[str, Any], path: str) -> list[str]:
    found = []
    for name, value in now.items():
        was = before.get(name)
        if isinstance(value, dict) and isinstance(was, dict):
            found += _differences(was, value, f"{path}{name}.")
        elif value != was:
            found.append(f"{path}{name} {shorter(was)} is now {shorter(value)}")
    return found
