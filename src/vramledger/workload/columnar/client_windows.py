"""Clients whose rates and lengths change with the time of day, as ServeGen publishes them: sampled back into requests.

Two tables stand side by side, NAME.rates.parquet and NAME.pdfs.parquet. `rates` has a row a client and window (client, t_s,
rate_per_s, cv, pattern, p1, p2): gaps are Gamma or Weibull of shape p1, exponential where no pattern was fitted. `pdfs` has a row a
client, longer window and field (client, t_s, field, pdf). A prompt has the tokens of every input field together (text, images, audio,
video), an answer those of output_tokens. Every client is a tenant; nothing is known of prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gamma
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vramledger.errors import InputError
from vramledger.workload.client_files import is_client_rates, pdfs_beside
from vramledger.workload.columnar.client_tables import (
    PATTERNS,
    ClientLengths,
    Windows,
    read_lengths,
    read_windows,
)
from vramledger.workload.columnar.merging import NS, batches_of, generator, merged_rows
from vramledger.workload.columnar.rows import PLACE, Rows, joined_rows, plain_rows
from vramledger.workload.columnar.source import Source
from vramledger.workload.columns import SCALARS, RequestColumns, Workload
from vramledger.workload.request import Boundary, WorkloadHeader

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_MOST_DRAWN = 65_536


class ClientStream:
    """Requests of one client, window by window.

    Gaps are drawn in units of the expected gap and stretched by the rate of the time they fall into, so that a gap may reach over
    several windows and each window has its rate.
    """

    def __init__(
        self, client: int, tenant: int, windows: Windows, lengths: ClientLengths, seed: int, scale: float
    ) -> None:
        self.first_needed = 0
        self._client, self._tenant = client, tenant
        self._windows = windows
        self._lengths = lengths
        self._scale = scale
        self._rng = generator(seed, 3, client)
        self._window = 0
        self._left = float(self._rng.exponential(1.0))
        self._held = joined_rows(())

    @property
    def done(self) -> bool:
        """Whether the last window was told."""
        return self._window >= len(self._windows.rates) and not self._held.size

    def until(self, end_ns: int) -> Rows:
        """Requests that arrive before `end_ns` and were not told yet, in order."""
        parts = [self._held]
        while self._window < len(self._windows.rates) and self._windows.begins_ns[self._window] < end_ns:
            parts.append(self._next())
            self._window += 1
        rows = joined_rows(parts)
        here = int(np.searchsorted(rows.column("arrival_ns"), end_ns, side="left"))
        self._held = rows.part(here, rows.size)
        told = rows.part(0, here)
        self.first_needed += told.size
        return told

    def _next(self) -> Rows:
        number = self._window
        begin, end = self._windows.begins_ns[number : number + 2].tolist()
        rate = float(self._windows.rates[number]) * self._scale
        expected = rate * (end - begin) / NS
        gone = self._left
        places = []
        if gone < expected:
            places.append(np.array([gone]))
        while gone < expected:
            reached = gone + np.cumsum(self._gaps(number, min(int(expected - gone) + 16, _MOST_DRAWN)))
            places.append(reached)
            gone = float(reached[-1])
        drawn = np.concatenate(places) if places else np.empty(0)
        count = int(np.searchsorted(drawn, expected, side="left"))
        self._left = (float(drawn[count]) if places else gone) - expected
        values = np.full((count, len(SCALARS)), -1, dtype=np.int64)
        times = begin + np.floor(drawn[:count] / rate * NS).astype(np.int64) if count else values[:, 0]
        prompts, outputs = self._lengths.draw(self._client, begin, count, self._rng)
        known = {
            "arrival_ns": np.minimum(times, end - 1), "prompt_tokens": prompts, "output_tokens": outputs,
            "tenant": self._tenant, "boundary": self._tenant, "pause_ns": 0, "branches": 1, "priority": 0,
        }  # fmt: skip
        for name, value in known.items():
            values[:, PLACE[name]] = value
        return plain_rows(values)

    def _gaps(self, number: int, count: int) -> Floats:
        """Gaps of mean 1. Heavy tails make sums of few draws vary; that is the client's burstiness."""
        shape, pattern = float(self._windows.shapes[number]), int(self._windows.patterns[number])
        if PATTERNS[pattern] == "Gamma":
            gaps = self._rng.gamma(shape, 1 / shape, count)
        elif PATTERNS[pattern] == "Weibull":
            gaps = self._rng.weibull(shape, count) / gamma(1 + 1 / shape)
        else:
            gaps = self._rng.exponential(1.0, count)
        return gaps


def sample_clients(
    rates: str | Path,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
    start_s: float = 0.0,
    rate_per_s: float | None = None,
    seed: int = 0,
) -> Workload:
    """The workload of all clients from `start_s` on, so many requests or so much time, to the end of the tables at most.

    With `rate_per_s` all clients' rates are scaled alike, such that they are this together on average over the whole table.

    Raises SourceError for a table that cannot be read, InputError for one that says what cannot be, naming the row.
    """
    path = Path(rates)
    if not is_client_rates(path):
        raise InputError(f"{path.name} is not named NAME.rates.parquet", file=str(path))
    found = read_windows(Source(path))
    lengths = read_lengths(Source(pdfs_beside(path)))
    known = [client for client in sorted(found) if lengths.knows(client)]
    silent = [client for client in sorted(found) if not lengths.knows(client) and found[client].rates.any()]
    if not known:
        raise InputError(f"{path.name}: no client has lengths", file=str(path))
    scale = 1.0
    if rate_per_s is not None:
        mean = sum(_mean_rate(found[client]) for client in known)
        if not mean:
            raise InputError(f"{path.name}: no client sends anything", file=str(path))
        scale = rate_per_s / mean
    start_ns = round(start_s * NS)
    end_ns = None if duration_s is None else start_ns + round(duration_s * NS)
    window_ns = int(max(np.diff(found[known[0]].begins_ns).max(initial=NS), NS))

    def batches() -> Iterator[RequestColumns]:
        streams = [
            ClientStream(client, tenant, _from(found[client], start_ns), lengths, seed, scale)
            for tenant, client in enumerate(known)
        ]
        for batch in batches_of(merged_rows(streams, window_ns, end_ns, start_ns), requests):
            yield batch._replace(arrival_ns=batch.arrival_ns - start_ns)

    notes = [f"rates scaled by {scale:.6g}"] if scale != 1 else []
    if silent:
        notes.append(f"{len(silent)} clients have rates and no lengths and send nothing: {silent[:10]}")
    names = tuple(f"client {client}" for client in known)
    header = WorkloadHeader(
        name=path.name,
        source=f"{path.name}, seed {seed}",
        tenants=names,
        boundaries=tuple(Boundary(tenant=name) for name in names),
        notes=tuple(notes),
    )
    return Workload(header, batches)


def _mean_rate(windows: Windows) -> float:
    lengths = np.diff(windows.begins_ns)
    return float((windows.rates * lengths).sum() / lengths.sum())


def _from(windows: Windows, start_ns: int) -> Windows:
    """What is left of the windows from a time on."""
    first = max(int(np.searchsorted(windows.begins_ns, start_ns, side="right")) - 1, 0)
    begins = windows.begins_ns[first:].copy()
    begins[0] = max(int(begins[0]), start_ns)
    return Windows(begins, windows.rates[first:], windows.shapes[first:], windows.patterns[first:])
