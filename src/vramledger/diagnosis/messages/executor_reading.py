"""The table of components in TensorRT-LLM's message that its executor could not be created."""

from __future__ import annotations

import re

from msgspec import Struct

from vramledger.diagnosis.messages import servers
from vramledger.diagnosis.messages.readings import size_of
from vramledger.engines.log_pattern import printed_bytes
from vramledger.ledger import ByteRange
from vramledger.observation import Observation
from vramledger.units import GIB

_ROW = re.compile(r"([A-Z][^:/]{1,90}): ([0-9]{1,6}\.[0-9]{1,4}) / ([0-9]{1,6}\.[0-9]{1,4})")


class Component(Struct, frozen=True, kw_only=True):
    """A component that was made: free device memory before and after."""

    name: str
    free_before: ByteRange
    free_after: ByteRange

    @property
    def taken(self) -> ByteRange:
        """What it took, as wide as both prints' rounding; negative where memory came back meanwhile."""
        return self.free_before - self.free_after


class ExecutorFailure(Struct, frozen=True, kw_only=True):
    """Which component found no memory, and what those before it took; None for what was not printed."""

    component: str | None
    total: ByteRange | None
    free: ByteRange | None
    components: tuple[Component, ...]


def executor_failure(observation: Observation) -> ExecutorFailure | None:
    """The message's table; None for an observation of another kind."""
    values = observation.values
    if values.get("message") != servers.EXECUTOR.name:
        return None
    component, rows = values.get("component"), values.get("components")
    return ExecutorFailure(
        component=component if isinstance(component, str) else None,
        total=size_of(values, "total_bytes"),
        free=size_of(values, "free_bytes"),
        components=tuple(_components(rows)) if isinstance(rows, str) else (),
    )


def _components(text: str) -> list[Component]:
    found = []
    for match in _ROW.finditer(text):
        before, after = printed_bytes(match[2], GIB), printed_bytes(match[3], GIB)
        if before is not None and after is not None:
            found.append(Component(name=match[1].strip(), free_before=before, free_after=after))
    return found
