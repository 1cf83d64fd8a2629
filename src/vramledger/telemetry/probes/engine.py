"""A running engine asked over HTTP: its metrics, and the endpoints at which it tells of itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import urlsplit

from vramledger.engines import engine_names, find_endpoints, find_sample_endpoints
from vramledger.engines.metrics_table import InfoEndpoint, SampleEndpoint
from vramledger.errors import InputError, SourceError
from vramledger.measurement import Measurement
from vramledger.observation import Sample
from vramledger.telemetry.exposition import parse_exposition
from vramledger.telemetry.merging import merged
from vramledger.telemetry.metrics_reading import MOST_VALUE, engine_of, metrics_measurement, metrics_samples
from vramledger.telemetry.web import LIMIT_S, Answer, checked_url, fetch, fetch_body, successful

METRICS_PATHS = ("/metrics", "/prometheus/metrics")


class MetricsProbe:
    """The metrics of one engine, and what it tells of the moment at other paths, as a source of samples."""

    def __init__(
        self, url: str, *, engine: str | None = None, token: str | None = None, limit_s: float = LIMIT_S
    ) -> None:
        self._url = metrics_url(url)
        parts = urlsplit(self._url)
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._engine = engine
        self._token = token
        self._limit_s = limit_s
        self.name = f"metrics:{self._url}"

    def read(self, at_s: float) -> list[Sample]:
        """Raises SourceError where the server does not answer, or with nothing that an engine known here would."""
        problems: list[str] = []
        body = self._answer(self._url, problems)
        if body is None and self._engine is None:
            raise SourceError(problems[0], source=self._url)
        exposition = parse_exposition(body or b"")
        engine = self._engine or engine_of(exposition) or json_engine_of(body or b"")
        if engine is None:
            raise SourceError(f"{self._url} answers with no metric of an engine known here", source=self._url)
        self._engine = engine
        samples = list(metrics_samples(exposition, engine, at_s=at_s, source=self.name))
        for endpoint in find_sample_endpoints(engine):
            url = self._base + endpoint.path
            answer = body if url == self._url else self._answer(url, problems)
            if answer is not None:
                samples += endpoint_samples(endpoint, answer, at_s, f"endpoint:{url}", problems)
        if not samples and problems:
            raise SourceError(problems[0], source=self._url)
        return samples

    def _answer(self, url: str, problems: list[str]) -> bytes | None:
        try:
            return fetch_body(url, token=self._token, limit_s=self._limit_s)
        except SourceError as problem:
            problems.append(problem.message)
            return None


def endpoint_samples(
    endpoint: SampleEndpoint, answer: bytes, at_s: float, source: str, problems: list[str]
) -> tuple[Sample, ...]:
    """What an endpoint's answer tells of the moment; a body that is no such answer becomes a problem."""
    try:
        return tuple(
            sample for sample in endpoint.read(answer, at_s, source) if abs(sample.value) < MOST_VALUE
        )
    except InputError as problem:
        problems.append(problem.message)
        return ()


def json_engine_of(body: bytes) -> str | None:
    """The engine of which a JSON answer shows the signs."""
    for name in engine_names():
        offered = find_endpoints(name)
        if any(_has(body, endpoint) for endpoint in (() if offered is None else offered.ENDPOINTS)):
            return name
    return None


def _has(body: bytes, endpoint: InfoEndpoint) -> bool:
    return bool(endpoint.signs) and all(sign.encode() in body for sign in endpoint.signs)


def metrics_url(url: str) -> str:
    """The address of the metrics of a server: `/metrics` where the address has no path."""
    checked = checked_url(url)
    return checked if urlsplit(checked).path.strip("/") else f"{checked}/metrics"


def engine_measurement(
    url: str,
    *,
    engine: str | None = None,
    token: str | None = None,
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.time,
) -> Measurement:
    """All that a running engine tells of itself over HTTP: metrics and information endpoints.

    What it does not offer becomes a note. Raises SourceError where nothing that it offers is known here.
    """
    base = checked_url(url)
    if urlsplit(base).path.strip("/"):
        return metrics_measurement(
            fetch_body(base, token=token, limit_s=limit_s), base, engine=engine, at_s=clock()
        )
    return told_measurement(base, partial(fetch, token=token, limit_s=limit_s), engine=engine, clock=clock)


def told_measurement(
    base: str,
    ask: Callable[[str], Answer],
    *,
    engine: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Measurement:
    """The same by whatever way of asking there is: `ask` gives the answer to a GET, or raises SourceError."""
    parts: list[Measurement] = []
    notes: list[str] = []
    for path in METRICS_PATHS:
        try:
            body = successful(ask(base + path)).body
            parts.append(metrics_measurement(body, base + path, engine=engine, at_s=clock()))
            break
        except (SourceError, InputError) as problem:
            notes.append(f"no metrics: {problem.message}")
    if parts:
        notes.clear()
    known = engine or (parts[0].engine if parts else None)
    parts += _endpoints(base, (known,) if known else engine_names(), notes, ask)
    if not parts:
        raise SourceError(
            f"{base} is no engine known here: {'; '.join(notes[:3]) or 'it answers nothing'}", source=base
        )
    whole = merged(parts)
    return merged((whole, Measurement(sources=(), notes=tuple(notes))))


def told_paths(engine: str | None = None) -> tuple[str, ...]:
    """All that `told_measurement` may ask for."""
    offered = [find_endpoints(name) for name in ((engine,) if engine else engine_names())]
    endpoints = [endpoint.path for one in offered if one is not None for endpoint in one.ENDPOINTS]
    return tuple(dict.fromkeys((*METRICS_PATHS, *endpoints)))


def _endpoints(
    base: str, engines: Iterable[str], notes: list[str], ask: Callable[[str], Answer]
) -> list[Measurement]:
    """What the information endpoints of the first engine that the server turns out to be tell."""
    answers: dict[str, bytes | None] = {}
    for engine in engines:
        offered = find_endpoints(engine)
        found = []
        for endpoint in () if offered is None else offered.ENDPOINTS:
            if endpoint.path not in answers:
                answers[endpoint.path] = _answer(base + endpoint.path, ask, notes)
            told = _told(endpoint, answers[endpoint.path], base, notes)
            if told is not None and told.engine in (engine, None):
                found.append(told)
        if found:
            return found
    return []


def _answer(url: str, ask: Callable[[str], Answer], notes: list[str]) -> bytes | None:
    try:
        answer = ask(url)
    except SourceError as problem:
        notes.append(problem.message)
        return None
    if answer.status != 200:
        notes.append(f"{url} answers {answer.status}")
        return None
    return answer.body


def _told(endpoint: InfoEndpoint, body: bytes | None, base: str, notes: list[str]) -> Measurement | None:
    if body is None or (endpoint.signs and not _has(body, endpoint)):
        return None
    try:
        return endpoint.read(body, base + endpoint.path)
    except InputError as problem:
        notes.append(problem.message)
        return None


def server_info_measurement(body: bytes, source: str, *, engine: str | None = None) -> Measurement:
    """An answer of an information endpoint that was saved, told by its signs. Raises InputError where no engine known here
    answers so."""
    reasons = []
    for endpoint in _candidates(body, engine):
        try:
            return endpoint.read(body, source)
        except InputError as problem:
            reasons.append(problem.message)
    why = reasons[0] if reasons else f"it has the signs of none ({', '.join(engine_names())})"
    raise InputError(f"{source} is no answer of an engine's information endpoint: {why}", file=source)


def _candidates(body: bytes, engine: str | None) -> list[InfoEndpoint]:
    """Endpoints whose signs the answer shows; of a named engine the others after them."""
    shown: list[InfoEndpoint] = []
    others: list[InfoEndpoint] = []
    for name in (engine,) if engine else engine_names():
        offered = find_endpoints(name)
        for endpoint in () if offered is None else offered.ENDPOINTS:
            (shown if _has(body, endpoint) else others).append(endpoint)
    return [*shown, *others] if engine else shown
