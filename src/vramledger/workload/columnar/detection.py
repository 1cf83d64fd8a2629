"""Which trace a file is, told by its content alone: its first bytes, its header, the keys of its first line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from vramledger.errors import InputError
from vramledger.models.sources.bounded_file import quote
from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.formats import sglang_log, vllm_log
from vramledger.workload.columnar.formats.agent_runs import agent_run_pieces
from vramledger.workload.columnar.formats.agentic import agentic_workload
from vramledger.workload.columnar.formats.block_lines import (
    bailian_pieces,
    measured_pieces,
    mooncake_pieces,
)
from vramledger.workload.columnar.formats.named_files import (
    burstgpt_pieces,
    csv_pieces,
    json_pieces,
    parquet_pieces,
)
from vramledger.workload.columnar.formats.own import is_own, own_workload
from vramledger.workload.columnar.formats.sglang_log import sglang_log_pieces
from vramledger.workload.columnar.formats.vllm_log import vllm_log_pieces
from vramledger.workload.columnar.piece import Piece
from vramledger.workload.columnar.source import Source
from vramledger.workload.columnar.tables import csv_header, parquet_names
from vramledger.workload.columns import Workload
from vramledger.workload.field_names import plain
from vramledger.workload.reading_options import FORMATS, ReadingOptions

Pieces = Callable[[Source, Findings], Iterator[Piece]]
LOG_HEAD_BYTES = 2**23
PARQUET, CSV, JSON = "Parquet", "CSV", "JSON lines"


class Trace(NamedTuple):
    """How a file is read. `whole` makes the workload itself, `pieces` requests in the file's order.

    `starts_at_first` tells that times count from a moment long before the first request, `names_blocks_alone` that an id
    may stand for a block without what is before it.
    """

    name: str
    unit_of_rows: str
    pieces: Pieces | None = None
    whole: Callable[[Source, Findings], Workload] | None = None
    starts_at_first: bool = False
    names_blocks_alone: bool = False


_LINES = {
    "mooncake": Trace("mooncake", "line", mooncake_pieces),
    "bailian": Trace("bailian", "line", bailian_pieces, names_blocks_alone=True),
    "measured-run": Trace("measured-run", "line", measured_pieces),
    "lmcache-agents": Trace("lmcache-agents", "line", agent_run_pieces, starts_at_first=True),
    "agentic": Trace("agentic", "line", whole=agentic_workload),
}
_LOGS = {
    "vllm-log": Trace("vllm-log", "line", vllm_log_pieces, starts_at_first=True),
    "sglang-log": Trace("sglang-log", "line", sglang_log_pieces, starts_at_first=True),
}
_COLUMNS = {
    CSV: Trace("columns", "row", csv_pieces),
    PARQUET: Trace("columns", "row", parquet_pieces),
    JSON: Trace("columns", "line", json_pieces),
}
_AZURE = Trace("azure", "row", csv_pieces)
_OWN = Trace("vramledger", "row", whole=own_workload)
_BURSTGPT = Trace("burstgpt", "row", burstgpt_pieces, starts_at_first=True)


def find_trace(source: Source, options: ReadingOptions) -> Trace:
    """How to read `source`: as `options.format` says, else as its content does. Raises InputError for no trace."""
    head = source.head(2**16)
    if not head.strip():
        raise InputError(f"{source.name} is empty", file=source.name)
    if is_own(source, head):
        return _fitting(source, options, "vramledger", _OWN)
    if head[:4] == b"PAR1":
        return _parquet(source, options)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"[" and _is_json_start(text):
        raise InputError(
            f"{source.name} is one JSON array; traces are JSON lines, an object a line", file=source.name
        )
    if text[:1] == b"{" and sglang_log.JSON_RECEIVE not in head and sglang_log.JSON_FINISH not in head:
        return _json(source, options)
    if b"\0" in head:
        raise InputError(f"{source.name} is neither text nor Parquet", file=source.name)
    return _text(source, options)


def _is_json_start(text: bytes) -> bool:
    return text[1:].lstrip()[:1] in (b"{", b"[", b"]")


def _parquet(source: Source, options: ReadingOptions) -> Trace:
    names = {plain(name) for name in parquet_names(source)}
    if {"client", "ts"} <= names and (names & {"rateperserver", "ratepers", "pdf"}):
        raise InputError(
            f"{source.name} holds rates or lengths of clients (ServeGen), no requests: sample requests from a pair "
            "NAME.rates.parquet and NAME.pdfs.parquet (vramledger workload NAME.rates.parquet)",
            file=source.name,
        )
    return _fitting(source, options, "columns", _COLUMNS[PARQUET])


def _json(source: Source, options: ReadingOptions) -> Trace:
    line = source.first_line().removeprefix(b"\xef\xbb\xbf")
    try:
        keys = set(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, RecursionError):
        raise InputError(
            f"{source.name}: the first line is no whole JSON object ({quote(line[:40].decode('utf-8', 'replace'))}...)",
            file=source.name,
            row=1,
        ) from None
    if "requests" in keys and keys & {"block_size", "hash_id_scope", "tool_tokens"}:
        name = "agentic"
    elif {"arrival_time_ns", "input_toks", "output_toks"} <= keys:
        name = "measured-run"
    elif {"chat_id", "timestamp", "input_length", "output_length"} <= keys:
        name = "bailian"
    elif {"set", "session_id", "timestamp_us", "input_length"} <= keys:
        name = "lmcache-agents"
    elif {"timestamp", "input_length", "output_length", "hash_ids"} <= keys:
        name = "mooncake"
    else:
        name = "columns"
    return _fitting(source, options, name, _LINES.get(name, _COLUMNS[JSON]))


def _log(head: bytes) -> str | None:
    """The engine whose request log this is: what it prints for one comes in the first lines, after those of its start."""
    if any(mark in head for mark in (sglang_log.RECEIVE, sglang_log.FINISH, sglang_log.JSON_FINISH)):
        return "sglang-log"
    if vllm_log.RECEIVED in head or (b"Added request " in head and b"INFO" in head):
        return "vllm-log"
    return None


def _text(source: Source, options: ReadingOptions) -> Trace:
    log = _log(source.head(LOG_HEAD_BYTES))
    if log is not None:
        return _fitting(source, options, log, _LOGS[log])
    names, _ = csv_header(source)
    there = {plain(name) for name in names}
    if {"timestamp", "contexttokens", "generatedtokens"} <= there:
        return _fitting(source, options, "azure", _AZURE)
    if {"timestamp", "requesttokens", "responsetokens", "logtype"} <= there:
        return _fitting(source, options, "burstgpt", _BURSTGPT)
    return _fitting(source, options, "columns", _COLUMNS[CSV])


def _fitting(source: Source, options: ReadingOptions, seen: str, trace: Trace) -> Trace:
    """`trace`, unless another format was asked for that lines of this kind can be."""
    asked = options.format
    if asked is None or asked == seen:
        return trace
    if trace.pieces is not None or trace.whole is not None:
        same_kind: dict[str, Trace] = {}
        if trace is _COLUMNS[JSON] or seen in _LINES:
            same_kind = {**_LINES, "columns": _COLUMNS[JSON]}
        elif trace in (_COLUMNS[CSV], _AZURE, _BURSTGPT):
            same_kind = {"columns": _COLUMNS[CSV], "azure": _AZURE, "burstgpt": _BURSTGPT, **_LOGS}
        if asked in same_kind:
            return same_kind[asked]
    raise InputError(
        f"{source.name} looks like {seen} ({FORMATS[seen]}) and cannot be read as {asked}", file=source.name
    )
