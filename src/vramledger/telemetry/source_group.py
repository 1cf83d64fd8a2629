"""Sources that come and go while they are sampled: instances start, end, and stand beside others."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.errors import SourceError
from vramledger.observation import Sample
from vramledger.telemetry.series import Rounds, Source


class SourceGroup:
    """A `Source` of sources. Others may be added and taken away at any time, from any thread; of one name the last counts."""

    def __init__(self, name: str = "instances") -> None:
        self.name = name
        self._sources: dict[str, Source] = {}
        self._rounds = Rounds(())

    def add(self, source: Source) -> None:
        """Asked from the next round on."""
        self._take({**self._sources, source.name: source})

    def remove(self, name: str) -> None:
        """Not asked any more; of one that is not there nothing happens."""
        self._take({known: source for known, source in self._sources.items() if known != name})

    @property
    def notes(self) -> tuple[str, ...]:
        """Of those that are asked now, which never answered, or no longer do."""
        return self._rounds.notes

    def read(self, at_s: float) -> Sequence[Sample]:
        """What those say that can. Raises SourceError where there are some and none can tell."""
        rounds = self._rounds
        samples = rounds(at_s, None)
        if not samples and rounds.notes:
            raise SourceError(rounds.notes[0], source=self.name)
        return samples

    def _take(self, sources: dict[str, Source]) -> None:
        self._sources = sources
        self._rounds = Rounds(tuple(sources.values()))
