"""SGLang's log with --log-requests, as text or JSON (`sglang/srt/utils/request_logger.py`).

"Receive: obj=GenerateReqInput(rid=...)" says when a request came, "Finish: obj=..., out={... 'meta_info': {...}}" how long its
prompt and output were. --log-requests-format json writes the same as {"timestamp", "event", "rid", "obj", "out"}. A request
that was received and has no end is not known by length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.formats.request_log import (
    LineTimes,
    Logged,
    bounded,
    lines_of,
    logged_piece,
    token_ids,
)
from vramledger.workload.columnar.piece import MOST_TOKENS, Piece
from vramledger.workload.columnar.source import Source

RECEIVE, FINISH = b"Receive: obj=", b"Finish: obj="
JSON_RECEIVE, JSON_FINISH = b'"event": "request.received"', b'"event": "request.finished"'
MARKS = (RECEIVE, FINISH, JSON_RECEIVE, JSON_FINISH)
_RID = re.compile(rb"\brid='([^']{1,200})'")
_META = re.compile(
    rb"'(id|prompt_tokens|completion_tokens|e2e_latency)': (?:'([^']{0,200})'|([-+.\de]{1,30}))"
)
_MAX_NEW = re.compile(rb"'max_new_tokens': (\d{1,12})\b")
_PRIORITY = re.compile(rb"\bpriority=(-?\d{1,9})\b")
_ADAPTER = re.compile(rb"\blora_path='([^']{1,200})'")
_N = re.compile(rb"'n': (\d{1,6})\b")


class _Object(msgspec.Struct):
    sampling_params: Any = None
    input_ids: Any = None
    lora_path: Any = None
    priority: Any = None


class _Out(msgspec.Struct):
    meta_info: dict[str, Any] = {}


class _Event(msgspec.Struct):
    event: str
    timestamp: str = ""
    rid: Any = None
    obj: _Object | None = None
    out: _Out | None = None


def sglang_log_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of such a log."""
    reading = _Log(found)
    for number, line in lines_of(source, MARKS):
        if JSON_RECEIVE in line or JSON_FINISH in line:
            reading.take_json(number, line)
        else:
            reading.take_text(number, line)
    unfinished = [name for name, item in reading.requests.items() if not reading.is_finished(name)]
    if unfinished:
        lines = [reading.requests.pop(name).line for name in unfinished]
        found.count("received and not finished in the log: left out, as their lengths are not known", lines)
    if not reading.times.has_fractions:
        found.note("the log's times are whole seconds")
    yield logged_piece(
        reading.requests, found, without_outputs="without a logged output: max_new_tokens stands for it"
    )


class _Log:
    def __init__(self, found: Findings) -> None:
        self.requests: dict[str, Logged] = {}
        self.times = LineTimes()
        self._found = found
        self._finished: set[str] = set()

    def is_finished(self, name: str) -> bool:
        """Whether the log has the request's end."""
        return name in self._finished

    def take_text(self, number: int, line: bytes) -> None:
        """A line of the form text."""
        at_ns = self.times.of(line)
        name = _RID.search(line, 0, 20_000)
        is_end = FINISH in line
        meta: dict[str, Any] = {}
        if is_end:
            start = line.rfind(b"'meta_info': {")
            for key, text, value in _META.findall(line, start) if start >= 0 else ():
                meta.setdefault(key.decode(), text.decode("utf-8", "replace") if text else _number(value))
        rid = name[1].decode("utf-8", "replace") if name is not None else meta.get("id")
        if not isinstance(rid, str) or at_ns is None:
            return
        request = self._request(rid, number, at_ns, is_end, meta)
        head = line[: line.rfind(b", out=")] if is_end else line
        most, count = _MAX_NEW.search(head), _N.search(head)
        if most is not None:
            request.max_output_tokens = min(int(most[1]), MOST_TOKENS)
        if count is not None:
            request.branches = int(count[1])
        priority, adapter = _PRIORITY.search(head), _ADAPTER.search(head)
        if priority is not None:
            request.priority = int(priority[1])
        if adapter is not None:
            request.adapter = adapter[1].decode("utf-8", "replace")
        start = head.rfind(b"input_ids=[")
        if start >= 0:
            self._ids(request, token_ids(head[start + 11 : head.find(b"]", start)]))

    def take_json(self, number: int, line: bytes) -> None:
        """A line of the form JSON, perhaps after the printer's own time."""
        start = line.find(b"{")
        try:
            event = msgspec.json.decode(line[start:], type=_Event)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
            self._found.bad(number, f"is no whole JSON object ({' '.join(str(problem).split())[:120]})")
            return
        at_ns = self.times.of(event.timestamp.encode())
        if not isinstance(event.rid, str) or at_ns is None:
            return
        meta = event.out.meta_info if event.out is not None else {}
        request = self._request(event.rid, number, at_ns, event.event == "request.finished", meta)
        body = event.obj or _Object()
        params = body.sampling_params if isinstance(body.sampling_params, dict) else {}
        if _is_count(params.get("max_new_tokens")):
            request.max_output_tokens = min(params["max_new_tokens"], MOST_TOKENS)
        if _is_count(params.get("n")):
            request.branches = min(params["n"], 10**6)
        if isinstance(body.lora_path, str):
            request.adapter = body.lora_path
        if type(body.priority) is int and abs(body.priority) < 2**31:
            request.priority = body.priority
        if isinstance(body.input_ids, list) and all(_is_count(item) for item in body.input_ids):
            self._ids(request, token_ids(b",".join(b"%d" % item for item in body.input_ids)))

    def _request(self, rid: str, number: int, at_ns: int, is_end: bool, meta: dict[str, Any]) -> Logged:
        request = self.requests.get(rid)
        if request is None:
            latency = meta.get("e2e_latency")
            spent = round(latency * 10**9) if isinstance(latency, int | float) and 0 <= latency < 10**7 else 0
            request = self.requests[rid] = Logged(line=number, arrival_ns=at_ns - spent)
            bounded(self.requests, self._found)
        if is_end:
            self._finished.add(rid)
            request.end_ns = at_ns
            for key, field in (("prompt_tokens", "prompt_tokens"), ("completion_tokens", "output_tokens")):
                if _is_count(meta.get(key)):
                    setattr(request, field, meta[key])
        return request

    def _ids(self, request: Logged, ids: Any) -> None:
        """Keep a prompt's ids. Longer lists are cut at level 2, so what is kept must be of the prompt's length in the end."""
        if ids is not None and (request.prompt_tokens < 0 or len(ids) == request.prompt_tokens):
            request.prompt_ids = ids


def _number(text: bytes) -> int | float:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return -1


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**40
