"""Measured runs in folders: the workload that was sent, when requests were served, and what the engine was.

A folder has `meta.json`, `requests.jsonl.gz` and `workload.jsonl.gz`, and may have `timeseries.csv` and the published table of
another simulator, `llmservingsim-2.0-summary.txt` (data/traces/vllm-measured-runs/README.md says what is in them).
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from vramledger.errors import InputError
from vramledger.workload.request import Request

MOST_BYTES = 256 * 2**20
PS_PER_S = 10**12
_T = TypeVar("_T")


class ServedRow(Struct):
    """A line of requests.jsonl.gz: times of one monotonic clock in seconds, the arrival in seconds of the epoch."""

    request_id: str
    input_toks: int
    output_toks: int
    arrival_time: float
    queued_ts: float
    scheduled_ts: float
    first_token_ts: float
    last_token_ts: float


class SentRow(Struct):
    """A line of workload.jsonl.gz."""

    arrival_time_ns: int
    input_toks: int
    output_toks: int
    prompt_block16_ids: list[int]


class Served(Struct, frozen=True, kw_only=True):
    """When a request was served, in picoseconds since the first request was sent."""

    sent_ps: int
    queued_ps: int
    scheduled_ps: int
    first_token_ps: int
    end_ps: int
    output_tokens: int


class Tick(Struct, frozen=True, kw_only=True):
    """What the engine said of itself, once a second."""

    at_ps: int
    running: int
    waiting: int
    kv_percent: float


class MeasuredRun(Struct, frozen=True, kw_only=True):
    """One run. `num_gpu_blocks` is None where the engine's was not recorded."""

    name: str
    model: str
    device: str
    device_total_bytes: int | None
    engine_version: str
    engine_kwargs: dict[str, Any]
    num_gpu_blocks: int | None
    requests: tuple[Request, ...]
    served: tuple[Served, ...]
    ticks: tuple[Tick, ...]
    published: dict[str, float]
    """The other simulator's differences in percent, by the name of the figure ("TTFT Mean")."""

    @property
    def has_kv_use(self) -> bool:
        return any(tick.kv_percent for tick in self.ticks)


def measured_runs(folder: Path) -> list[MeasuredRun]:
    """The runs in the folders of `folder`, or the one that it is itself. Raises InputError where there is none."""
    found = (
        [folder] if (folder / "meta.json").is_file() else sorted(p.parent for p in folder.glob("*/meta.json"))
    )
    if not found:
        raise InputError(
            f"{folder}: neither a measured run (meta.json, requests.jsonl.gz) nor a folder of such"
        )
    return [read_run(path) for path in found]


def read_run(folder: Path) -> MeasuredRun:
    """Raises InputError naming file and line for what is missing or contradicts itself."""
    meta_path = folder / "meta.json"
    try:
        meta = json.loads(_bytes(meta_path))
        kwargs, model, version = dict(meta["engine_kwargs"]), str(meta["model"]), str(meta["vllm_version"])
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{meta_path}: {problem!r}") from None
    rows = list(_rows(folder / "requests.jsonl.gz", ServedRow))
    sent = list(_rows(folder / "workload.jsonl.gz", SentRow))
    by_number = dict(sorted((_number(row, folder), row) for row in rows))
    if list(by_number) != list(range(len(sent))):
        raise InputError(f"{folder}: {len(rows)} requests were served, the workload has {len(sent)}")
    for number, (row, line) in enumerate(zip(by_number.values(), sent, strict=True)):
        if (row.input_toks, row.output_toks) != (line.input_toks, line.output_toks):
            raise InputError(
                f"{folder}: request {number} has other lengths than line {number + 1} of the workload"
            )
    # The first request came to an idle engine: its queueing is the arrival on the engine's clock.
    start, began = by_number[0].arrival_time, by_number[0].queued_ts
    served = tuple(_served(row, start, began) for row in by_number.values())
    hardware = meta.get("hardware") or {}
    return MeasuredRun(
        name=folder.name,
        model=model,
        device=str(hardware.get("device_name") or _device_of(folder)),
        device_total_bytes=hardware.get("device_total_memory_bytes"),
        engine_version=version,
        engine_kwargs=kwargs,
        num_gpu_blocks=(meta.get("kv_cache") or {}).get("num_gpu_blocks"),
        requests=tuple(
            Request(
                arrival_ns=max(0, round((row.arrival_time - start) * 1e9)),
                prompt_tokens=line.input_toks,
                output_tokens=line.output_toks,
                blocks=tuple(line.prompt_block16_ids),
            )
            for row, line in zip(by_number.values(), sent, strict=True)
        ),
        served=served,
        ticks=tuple(_ticks(folder / "timeseries.csv", meta.get("started_at"), start)),
        published=_published(folder / "llmservingsim-2.0-summary.txt"),
    )


def _bytes(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError) as problem:
        raise InputError(f"{path}: {problem}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: more than {MOST_BYTES} bytes")
    return content


def _rows(path: Path, kind: type[_T]) -> Iterator[_T]:
    decoder = msgspec.json.Decoder(kind)
    for place, line in enumerate(_bytes(path).splitlines(), start=1):
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError as problem:
            raise InputError(f"{path}, line {place}: {problem}") from None


def _number(row: ServedRow, folder: Path) -> int:
    match = re.fullmatch(r"bench-([0-9]{1,9})", row.request_id)
    if match is None:
        raise InputError(f"{folder}: request_id {row.request_id[:40]!r} is not bench-<line of the workload>")
    return int(match.group(1))


def _served(row: ServedRow, start: float, began: float) -> Served:
    def since(instant: float) -> int:
        return round((instant - began) * PS_PER_S)

    return Served(
        sent_ps=max(0, round((row.arrival_time - start) * 1e9)) * 1000,
        queued_ps=since(row.queued_ts),
        scheduled_ps=since(row.scheduled_ts),
        first_token_ps=since(row.first_token_ts),
        end_ps=since(row.last_token_ts),
        output_tokens=row.output_toks,
    )


def _device_of(folder: Path) -> str:
    """The card by the folder's name ("RTXPRO6000_Llama-3.1-8B")."""
    return re.sub(r"(?<=[A-Za-z])(?=PRO|[0-9])", " ", folder.name.partition("_")[0])


def _ticks(path: Path, started_at: object, first_sent: float) -> Iterator[Tick]:
    if not path.is_file() or not isinstance(started_at, str):
        return
    late = first_sent - datetime.fromisoformat(started_at).timestamp()
    for place, row in enumerate(csv.DictReader(StringIO(_bytes(path).decode())), start=2):
        try:
            yield Tick(
                at_ps=round((float(row["t"]) - late) * PS_PER_S),
                running=int(row["running"]),
                waiting=int(row["waiting"]),
                kv_percent=float(row["kv_cache_pct"]),
            )
        except (ValueError, KeyError, TypeError) as problem:
            raise InputError(f"{path}, line {place}: {problem!r}") from None


def _published(path: Path) -> dict[str, float]:
    if not path.is_file():
        return {}
    rows = re.findall(r"^(\w+ \w+) +[\d.]+ +[\d.]+ +([+-][\d.]+)%$", _bytes(path).decode(), re.MULTILINE)
    return {name: float(percent) for name, percent in rows}
