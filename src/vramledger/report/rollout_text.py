"""Ways to update as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramledger.answer import Plan
from vramledger.ledger import ByteRange
from vramledger.lifecycle.rollout import Rollout, Step
from vramledger.report.text import Line, columns, gib, gib_range, line, wrapped

_STYLES = {True: "good", False: "bad", None: "unsure"}
_BAR_CELLS = 24
ROOM_FOR_RANGES = 72


def rollout_lines(
    old: Plan, new: Plan, found: Iterable[Rollout], *, replicas: int, width: int = 80
) -> Iterator[Line]:
    """Old and new in a line each, then every way: its verdict, its steps with a bar of the fullest device, its conditions."""
    yield from wrapped(f"old: {_named(old)}", width, rest="  ", style="head")
    yield from wrapped(f"new: {_named(new)}", width, rest="  ", style="head")
    for item in found:
        yield line()
        title = item.way.value + (f", level {item.level}" if item.level else "")
        yield from wrapped(
            f"{title}: {_verdict(item, replicas)}", width, rest="  ", style=_STYLES[item.holds]
        )
        yield from _steps(item.steps, width)
        for text in item.conditions:
            yield from wrapped(text, width, first="  if       ")


def _named(plan: Plan) -> str:
    inputs = plan.inputs
    return (
        f"{inputs.model} · {inputs.quantization} · {inputs.engine} {inputs.engine_version} · {inputs.device}"
    )


def _verdict(item: Rollout, replicas: int) -> str:
    lost = f"{item.tokens_lost:,} tokens of pool out of service at worst"
    service = lost if item.tokens_lost else "the pool stays in service"
    more = f"; {item.devices} devices" if item.devices > 1 or replicas > 1 else ""
    if item.holds:
        return f"holds; {service}{more}"
    parts = []
    if item.shortfall_bytes:
        parts.append(f"{gib(item.shortfall_bytes)} GiB missing on the fullest device at least")
    if item.host_shortfall_bytes:
        parts.append(f"{gib(item.host_shortfall_bytes)} GiB missing on the host at least")
    if item.holds is None:
        parts.append("it may or may not fit: the range of what is held crosses the end")
    return f"{'cannot be told' if item.holds is None else 'does not hold'}; {', '.join(parts)}"


def _steps(steps: Iterable[Step], width: int) -> Iterator[Line]:
    told, held = (gib_range, "fullest device GiB") if width >= ROOM_FOR_RANGES else (_expected, "device GiB")
    rows: list[tuple[str, ...]] = [("  step", held, "host GiB", "tokens", "devices", "")]
    for step in steps:
        rows.append(
            (
                f"  {step.name}",
                told(step.device_bytes),
                gib(step.host_bytes.expected),
                f"{step.tokens:,}",
                str(step.devices),
                _bar(step),
            )
        )
    if max(map(len, (f"{row[0]:24}  {row[1]}" for row in rows))) + 60 > width:
        rows = [row[:-1] for row in rows]
    yield from columns(rows, right=(1, 2, 3, 4), styles=("dim",), width=width)


def _expected(size: ByteRange) -> str:
    return gib(size.expected)


def _bar(step: Step) -> str:
    """What is held of the device, `!` where it is more than there is."""
    cells = min(_BAR_CELLS * step.device_bytes.expected // step.device_total_bytes, _BAR_CELLS)
    over = step.device_bytes.expected > step.device_total_bytes
    return "[" + "#" * cells + "." * (_BAR_CELLS - cells) + ("!" if over else "]")
