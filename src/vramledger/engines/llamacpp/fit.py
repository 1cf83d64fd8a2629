"""Context and placement from free memory, as `--fit` chooses them.

Source: llama.cpp common/fit.cpp (common_params_fit_impl): nothing where every device keeps its margin; else a
shorter context by linear interpolation; else fewer layers, dense parts of mixtures of experts first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.llamacpp.settings import DEFAULT_FIT_CONTEXT, Settings
from vramledger.units import MIB

Measure = Callable[[int, int | None, int | None], Measured]
"""A configuration of (context, layers offloaded, blocks whose experts stay on the host); 0 for the settings' context."""


class Fitted(Struct, frozen=True, kw_only=True):
    """What came of fitting. `steps` say what was changed, "" for nothing."""

    measured: Measured
    steps: tuple[str, ...]


def fit(
    settings: Settings, trained: int, blocks: int, is_moe: bool, free_bytes: Sequence[int], measure: Measure
) -> Fitted:
    """The configuration that leaves every device its margin, or the closest the rules come to it.

    `free_bytes` is what is free on each device before anything is loaded.
    """
    margins = _margins(settings)
    first = measure(0, None, None)
    if _spare(first, free_bytes, margins) >= 0:
        return Fitted(measured=first, steps=())
    flags = settings.flags
    devices = range(settings.devices)
    target = sum(free_bytes) - sum(margins)
    steps: list[str] = []
    context = 0
    streams = settings.streams
    most, least = trained * streams, (flags.fit_ctx or DEFAULT_FIT_CONTEXT) * streams
    used = sum(first.used_bytes(device) for device in devices)
    if not settings.context_is_set and most > least and target < used:
        smallest = measure(least, None, None)
        floor = sum(smallest.used_bytes(device) for device in devices)
        if settings.devices > 1:
            each = sum(first.model_bytes(device) for device in devices) // (blocks + 1)
            target -= (settings.devices + 1) * each // (6 if is_moe else 2)
        context, current = least, smallest
        if target > floor and used > floor:
            context = least + (most - least) * (target - floor) // (used - floor)
            context = max(context - context % (256 * streams), least)
            current = measure(context, None, None)
        steps.append(f"context {most:,} lowered to {context:,}")
        if (target > floor and settings.devices == 1) or _spare(current, free_bytes, margins) >= 0:
            return Fitted(measured=current, steps=tuple(steps))
        first = current
    if (
        flags.layers_offloaded() is not None
        or flags.tensor_split
        or flags.overrides()
        or flags.split_mode == "row"
    ):
        steps.append("placement is set by flags and stays")
        return Fitted(measured=first, steps=tuple(steps))
    return _place(settings, context, blocks, is_moe, free_bytes, margins, measure, steps, first)


def _place(
    settings: Settings,
    context: int,
    blocks: int,
    is_moe: bool,
    free_bytes: Sequence[int],
    margins: Sequence[int],
    measure: Measure,
    steps: list[str],
    last: Measured,
) -> Fitted:
    """Fewer layers on the devices: for experts, first all layers with experts on the host."""

    def fits(layers: int, experts: int) -> Measured | None:
        tried = measure(context, layers, experts)
        return tried if _spare(tried, free_bytes, margins) >= 0 else None

    if is_moe and (found := fits(blocks + 1, blocks)) is not None:
        low, high, best = 0, blocks, found
        while low < high:
            middle = (low + high) // 2
            tried = fits(blocks + 1, middle)
            if tried is not None:
                high, best = middle, tried
            else:
                low = middle + 1
        steps.append(f"experts of {high} of {blocks} layers stay on the host")
        return Fitted(measured=best, steps=tuple(steps))
    low, high = 0, blocks + 1
    chosen = last
    while low < high:
        middle = (low + high + 1) // 2
        tried = fits(middle, blocks if is_moe else 0)
        if tried is not None:
            low, chosen = middle, tried
        else:
            high = middle - 1
    if not low:
        chosen = measure(context, 0, None)
    steps.append(f"{low} of {blocks + 1} layers on devices")
    return Fitted(measured=chosen, steps=tuple(steps))


def _margins(settings: Settings) -> tuple[int, ...]:
    stated = settings.flags.margins_mib()
    return tuple(
        (stated[device] if device < len(stated) else stated[-1]) * MIB for device in range(settings.devices)
    )


def _spare(measured: Measured, free_bytes: Sequence[int], margins: Sequence[int]) -> int:
    """What the tightest device has beyond its margin."""
    return min(
        free - measured.used_bytes(device) - margin
        for device, (free, margin) in enumerate(zip(free_bytes, margins, strict=True))
    )
