"""Who answers at the address that an experiment is told: the engine, its version, model and lengths, a gateway before it or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from vramledger.errors import FlagError, InputError, SourceError, VramledgerError, shorter
from vramledger.experiment.result import Target
from vramledger.gateway.live.capacity import Capacity, Given, capacity_of
from vramledger.measurement import Measurement
from vramledger.models.sources.bounded_file import read_whole
from vramledger.telemetry.probes.engine import engine_measurement
from vramledger.telemetry.probes.gateway import engine_addresses, gateway_answer, pool_of
from vramledger.telemetry.probes.listener import listening_pid
from vramledger.telemetry.web import LIMIT_S, checked_url, fetch

MOST_MODELS = 1000
MOST_VOCAB = 1 << 24
_OPTIONAL_PATHS = ("/server_info?",)
MOST_CONTEXT = 1 << 26
"""Tokens of a request; a server that tells of more is not believed, for prompts of that length are to be made."""
_CONFIG_LIMIT_BYTES = 4 << 20
_ANSWER_LIMIT_BYTES = 8 << 20
_VOCAB_SETTINGS = ("meta_n_vocab", "vocab_size")
_LENGTH_SETTINGS = ("max_model_len", "n_ctx_slot", "context_length", "context_len", "max_seq_len")


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers, and what it said of itself. `vocab_size` is how many token ids its model has, `at_once` how many sequences it runs
    together, each None where nothing tells. `notes` say what cannot be seen, and why."""

    target: Target
    measurement: Measurement
    vocab_size: int | None = None
    at_once: int | None = None
    notes: tuple[str, ...] = ()


def find_instance(
    url: str,
    *,
    engine_url: str | None = None,
    gateway_url: str | None = None,
    model: str | None = None,
    engine: str | None = None,
    token: str | None = None,
    gateway_token: str | None = None,
    launched: tuple[str, ...] = (),
    pid: int | None = None,
    limit_s: float = LIMIT_S,
) -> Instance:
    """Ask at `url`, and at `engine_url` where a gateway stands before the engine; of a vramledger gateway with one engine its admin port
    (`gateway_url`) tells that address. `pid` None is looked for on this machine by who listens.

    Raises SourceError where nothing answers that serves a model, FlagError for an address that is none and for a `model` that is not
    served, InputError for a gateway with several engines of which none is named.
    """
    notes: list[str] = []
    url = base_url(url)
    gateway_url = base_url(gateway_url) if gateway_url is not None else None
    books: dict[str, Any] = {}
    if gateway_url is not None:
        books = gateway_answer(gateway_url, token=gateway_token, limit_s=limit_s)
        engine_url = _behind(engine_addresses(books), engine_url, gateway_url, notes)
    asked_url = base_url(engine_url) if engine_url is not None else url
    served = _served(url, model, token, limit_s)
    told = _told(asked_url, engine, token, limit_s, notes)
    if gateway_url is not None and not told.pools:
        pool = pool_of(books, gateway_url)
        told = told if pool is None else msgspec.structs.replace(told, pools=(pool,))
    is_gateway = asked_url == url and _is_gateway(url, token, limit_s)
    if is_gateway:
        notes.append(
            f"{url} is a vramledger gateway: give its admin address by --gateway, so that its books and the engine behind it are "
            "looked at too"
        )
    capacity = _capacity(told, asked_url)
    settings = dict(told.settings)
    vocab_size = _first_count(settings, _VOCAB_SETTINGS, MOST_VOCAB) or _vocab_of_folder(told.model)
    context_len = _first_count(settings, _LENGTH_SETTINGS, MOST_CONTEXT)
    if context_len is None and capacity is not None and 0 < (capacity.max_model_len or 0) <= MOST_CONTEXT:
        context_len = capacity.max_model_len
    if context_len is None:
        notes.append(f"{asked_url} does not tell how long a request may be")
    if pid is None and not is_gateway:
        pid = listener_of(asked_url)
    if pid is None:
        notes.append(
            f"the engine's process behind {asked_url} is not to be seen from here: its memory is not watched, only the devices' and "
            "what the engine tells"
        )
    return Instance(
        target=Target(
            url=url,
            engine_url=asked_url,
            gateway_url=gateway_url,
            engine=told.engine,
            engine_version=told.engine_version,
            model=served,
            context_len=context_len,
            launched=launched,
            pid=pid,
        ),
        measurement=told,
        vocab_size=vocab_size,
        at_once=capacity.max_running if capacity is not None else None,
        notes=tuple(notes),
    )


def base_url(text: str) -> str:
    """An address as people give it, without the /v1 that client libraries want. Raises FlagError for what is none."""
    return checked_url(text).removesuffix("/v1").rstrip("/")


def listener_of(url: str) -> int | None:
    """The process of this machine that listens at an address; None where it is another's, or not to be seen."""
    parts = urlsplit(url)
    return listening_pid(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))


def _behind(addresses: tuple[str, ...], given: str | None, gateway_url: str, notes: list[str]) -> str | None:
    if given is not None:
        if len(addresses) > 1:
            notes.append(
                f"the gateway has {len(addresses)} engines; only {given} is looked at, the load goes to all of them"
            )
        return given
    if len(addresses) > 1:
        raise InputError(
            f"the gateway at {gateway_url} has {len(addresses)} engines: name the one to look at by --engine-url",
            gateway=gateway_url,
        )
    if not addresses or not addresses[0].startswith(("http://", "https://")):
        raise InputError(
            f"the gateway at {gateway_url} does not tell its engine's address: give it by --engine-url",
            gateway=gateway_url,
        )
    return addresses[0]


def _served(url: str, model: str | None, token: str | None, limit_s: float) -> str:
    """The name that requests ask for: `model`, or the first that is served."""
    answer = fetch(f"{url}/v1/models", token=token, limit_s=limit_s, limit_bytes=_ANSWER_LIMIT_BYTES)
    names = _model_names(answer.body) if answer.status == 200 else ()
    if not names:
        if model is not None and answer.status in (200, 404):
            return model
        hint = "; give a key by --key-env" if answer.status in (401, 403) and token is None else ""
        raise SourceError(
            f"{url}/v1/models answers {answer.status} and names no model{hint}: it is no server with OpenAI's API, or serves none",
            source=url,
            status=answer.status,
        )
    if model is None:
        return names[0]
    if model not in names:
        raise FlagError(
            f"{url} serves no model {shorter(model)}; it serves {', '.join(shorter(name) for name in names[:5])}",
            flag="model",
            value=model,
        )
    return model


def _model_names(body: bytes) -> tuple[str, ...]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return ()
    data = found.get("data") if isinstance(found, dict) else None
    rows = data[:MOST_MODELS] if isinstance(data, list) else []
    names = (row.get("id") for row in rows if isinstance(row, dict))
    return tuple(name for name in names if isinstance(name, str) and 0 < len(name) <= 1000)


def _told(url: str, engine: str | None, token: str | None, limit_s: float, notes: list[str]) -> Measurement:
    try:
        found = engine_measurement(url, engine=engine, token=token, limit_s=limit_s)
    except VramledgerError as problem:
        notes.append(
            f"what answers at {url} does not show which engine it is ({problem.message}); behind a proxy, give --engine-url"
        )
        return Measurement(sources=(), engine=engine)
    # A server that is not in its development mode does not have these; all else that it keeps back is missed.
    notes += [note for note in found.notes if not any(path in note for path in _OPTIONAL_PATHS)]
    return found


def _is_gateway(url: str, token: str | None, limit_s: float) -> bool:
    """A vramledger gateway passes no path on that shows what its engine holds, and says so."""
    try:
        answer = fetch(f"{url}/metrics", token=token, limit_s=limit_s, limit_bytes=_ANSWER_LIMIT_BYTES)
    except SourceError:
        return False
    return answer.status == 403 and b'"path-guarded"' in answer.body


def _capacity(told: Measurement, where: str) -> Capacity | None:
    try:
        return capacity_of(told, Given(), where=where)
    except VramledgerError:
        return None


def _first_count(
    settings: dict[str, str | int | float | bool], names: tuple[str, ...], most: int
) -> int | None:
    for name in names:
        value = settings.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most:
            return value
    return None


def _vocab_of_folder(model: str | None) -> int | None:
    """The vocabulary of a model whose folder is on this machine, by its config.json."""
    if model is None or "\0" in model or not Path(model).is_absolute():
        return None
    path = Path(model) / "config.json"
    try:
        found = msgspec.json.decode(read_whole(path, _CONFIG_LIMIT_BYTES, SourceError))
    except (VramledgerError, OSError, msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    for part in (found, found.get("text_config") if isinstance(found, dict) else None):
        size = part.get("vocab_size") if isinstance(part, dict) else None
        if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= MOST_VOCAB:
            return size
    return None
