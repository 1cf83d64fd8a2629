"""Lines of an engine's log as observations, for tests of an engine's wordings: prefixes of its own taken off simply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vramledger.engines import find_log
from vramledger.engines.log_pattern import first_match
from vramledger.ledger import ByteRange
from vramledger.measurement import Measurement
from vramledger.observation import Observation, Place, Value

_PREFIX = re.compile(
    r"\[[0-9-]{10} [0-9:,]{8,12}(?P<process>[^\]]*)\] |[0-9]+\.[0-9]{2}\.[0-9]{3}\.[0-9]{3} [A-Z] "
    r"|\[TensorRT-LLM\]\[[A-Z]+\] |\[[0-9/]{10}-[0-9:]{8}\] \[TRT-LLM\] \[[A-Z]\] |\[TensorRT-LLM\] "
)


def observed(engine: str, lines: Iterable[str], source: str = "server.log") -> Iterator[Observation]:
    """What each line says; lines that say nothing are left out."""
    log = find_log(engine)
    assert log is not None
    for number, line in enumerate(lines, 1):
        prefix = _PREFIX.match(line)
        text = line[prefix.end() :] if prefix else line
        process = (prefix["process"] or "").strip() if prefix else ""
        rank = re.search(r"TP([0-9]+)", process)
        found = first_match(log.PATTERNS, text)
        if found is not None:
            yield Observation(
                event=found[0].event,
                values=found[1],
                place=Place(source=source, line=number),
                text=text[:4000],
                engine=engine,
                process=process or None,
                rank=int(rank[1]) if rank and "PP" not in process else None,
            )


def measure(engine: str, lines: Iterable[str], source: str = "server.log") -> Measurement:
    log = find_log(engine)
    assert log is not None
    return log.measured(observed(engine, lines, source))


def values(engine: str, line: str) -> dict[str, Value]:
    """The values of one line; a line that no pattern reads is an error."""
    (found,) = observed(engine, [line])
    return dict(found.values)


def printed_numbers(text: str) -> list[str]:
    """Decimal and whole numbers of a line as text."""
    return re.findall(r"(?<![\w.])[0-9]+(?:\.[0-9]+)?", text)


def holds(value: Value, size: float) -> bool:
    """Whether a value that was read may stand for `size`."""
    if isinstance(value, ByteRange):
        return value.low <= size <= value.high
    return value == size
