"""A log that a command measures on the spot, with how far it is read on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramledger.measurement import Measurement


def measured_log(
    files: Sequence[str], *, engine: str | None = None, now_s: float | None = None
) -> Measurement:
    """One instance's log: a file, "-" for standard input, or the files of a rotated one from the oldest.

    Raises what `vramledger.telemetry.log_measurement.log_measurement` does.
    """
    from vramledger.cli.progress import Reading
    from vramledger.telemetry.log_files import total_bytes
    from vramledger.telemetry.log_measurement import log_measurement

    with Reading(total_bytes(files)) as reading:
        return log_measurement(files, engine=engine, now_s=now_s, read=reading.add)
