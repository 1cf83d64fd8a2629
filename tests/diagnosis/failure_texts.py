"""Observations of failure texts for tests."""

from __future__ import annotations

from vramledger.diagnosis.messages import FAILURES
from vramledger.engines.log_pattern import first_match
from vramledger.ledger import ByteRange
from vramledger.observation import Observation, Place, Value


def observed(text: str) -> Observation:
    """The message in `text`, its lines taken as one printer's. Fails where the catalogue reads nothing."""
    found = first_match(FAILURES, text)
    assert found is not None, text
    pattern, values = found
    return Observation(event=pattern.event, values=values, place=Place(source="test"), text=text)


def kind_in(text: str) -> str:
    return str(observed(text).values["message"])


def figures(text: str) -> dict[str, Value]:
    """The values, a range by its middle."""
    return {
        name: value.expected if isinstance(value, ByteRange) else value
        for name, value in observed(text).values.items()
    }
