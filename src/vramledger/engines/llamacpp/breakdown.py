"""The engine's own table of memory: a row a device, and the host's.

Source: llama.cpp common_memory_breakdown_print (before, llama_memory_breakdown_print of src/llama-context.cpp) and
logs of 2026.
"""

from __future__ import annotations

from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.units import MIB

_HEADER = ("memory breakdown [MiB]", "total", "free", "self", "model", "context", "compute", "unaccounted")
_HEADER_ROW = "{} | {}   {}    {}   {}   {}   {}    {} |"
_DEVICE_ROW = "{} | {} = {} + ({} = {} + {} + {}) + {} |"
_HOST_ROW = "{} | {}   {}    {} = {} + {} + {}    {} |"


def breakdown_lines(measured: Measured, names: list[str], total_bytes: int, other_bytes: int) -> list[str]:
    """The table with expected values; `other_bytes` of each device are the driver's and nobody's there."""
    build = measured.settings.build
    if not build.has_breakdown:
        return []
    rows = [(_HEADER_ROW, list(_HEADER))]
    for index, device in enumerate(names):
        used = measured.used_bytes(index)
        figures = [total_bytes, total_bytes - used - other_bytes, *_parts(measured, index), other_bytes]
        rows.append((_DEVICE_ROW, [f"  - {device}", *(_whole(figure) for figure in figures)]))
    host = [_whole(figure) for figure in _parts(measured, HOST)]
    rows.append((_HOST_ROW, ["  - Host", "", "", *host, ""]))
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(len(_HEADER))]
    head = "common_memory_breakdown_print" if build.fits_in_common else "llama_memory_breakdown_print"
    out = []
    for template, cells in rows:
        name, *numbers = cells
        padded = [name.ljust(widths[0])]
        padded += [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        out.append(f"{head}: | {template.format(*padded)}")
    return out


def _parts(measured: Measured, device: int) -> list[int]:
    return [
        measured.used_bytes(device),
        measured.model_bytes(device),
        measured.context_bytes(device),
        measured.compute[device].expected,
    ]


def _whole(size: int) -> str:
    return str(int(size / MIB))
