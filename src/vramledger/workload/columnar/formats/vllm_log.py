"""vLLM's log with --enable-log-requests (before 0.10 without --disable-log-requests).

Wordings by version, from `vllm/entrypoints/logger.py` and, since 0.23, `vllm/entrypoints/serve/utils/request_logger.py`:
until 0.11.0 "Received request ID: prompt: ..., params: ..., prompt_token_ids: [...], ..." tells all of a prompt; since
0.11.1 "Received request ID: params: ..." does not, and "Request ID details: prompt: ..., prompt_token_ids: [...]" does at
level DEBUG alone. With --enable-log-outputs "Generated response ID..." has the output's ids, for a stream in deltas.
`--max-log-len` cuts both lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from vramledger.errors import InputError
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

RECEIVED, DETAILS = b"Received request ", b" details: prompt: "
GENERATED, FINISHED, ABORTED = b"Generated response ", b"Finished request ", b"Aborted request"
MARKS = (RECEIVED, DETAILS, GENERATED, FINISHED, ABORTED)
_ID = rb"([^\s:]{1,200})"
_RECEIVED = re.compile(RECEIVED + _ID + rb": (?:prompt|params): ")
_DETAILS = re.compile(rb"Request " + _ID + DETAILS)
_GENERATED = re.compile(GENERATED + _ID + rb"( \(streaming (?:delta|complete)\))?(?: details)?: ")
_ENDED = re.compile(rb"(?:Finished request|Aborted request(?:\(s\))?) ([^\s]{1,4000}?)\.?$")
_MAX_TOKENS = re.compile(rb", max_tokens=(\d{1,12})\b")
_N = re.compile(rb"SamplingParams\(n=(\d{1,6})\b")
_LORA = re.compile(rb"lora_name='([^']{1,200})'")
_COMPLETE = re.compile(rb"<streaming_complete: (\d{1,12}) tokens>")
_SUFFIXES = 3


def vllm_log_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of such a log."""
    reading = _Log(found)
    for number, line in lines_of(source, MARKS):
        reading.take(number, line.rstrip())
    reading.check()
    yield logged_piece(
        reading.requests,
        found,
        without_outputs="without a logged output: the bound max_tokens stands for it (--enable-log-outputs logs it)",
    )


class _Log:
    def __init__(self, found: Findings) -> None:
        self.requests: dict[str, Logged] = {}
        self._found = found
        self._times = LineTimes()

    def take(self, number: int, line: bytes) -> None:
        """One line that may tell of a request."""
        at_ns = self._times.of(line)
        for pattern, tell in (
            (_RECEIVED, self._received),
            (_DETAILS, self._details),
            (_GENERATED, self._generated),
            (_ENDED, self._ended),
        ):
            match = pattern.search(line, 0, 5_000)
            if match is not None:
                tell(match, number, line, -1 if at_ns is None else at_ns)
                return

    def _request(self, name: str, number: int, at_ns: int) -> Logged:
        request = self.requests.get(name)
        if request is None:
            request = self.requests[name] = Logged(line=number, arrival_ns=at_ns)
            bounded(self.requests, self._found)
        return request

    def _received(self, match: re.Match[bytes], number: int, line: bytes, at_ns: int) -> None:
        request = self._request(_text(match[1]), number, at_ns)
        params = line.rfind(b"SamplingParams(")
        if params >= 0:
            # The last one: a stop string before it may say anything.
            bounds, count = _MAX_TOKENS.findall(line, params), _N.match(line, params)
            if bounds:
                request.max_output_tokens = min(int(bounds[-1]), MOST_TOKENS)
            if count is not None:
                request.branches = int(count[1])
        adapter = _LORA.search(line, max(line.rfind(b"lora_request: "), 0))
        if adapter is not None:
            request.adapter = _text(adapter[1])
        _tell_prompt(request, line)

    def _details(self, match: re.Match[bytes], number: int, line: bytes, at_ns: int) -> None:
        _tell_prompt(self._request(_text(match[1]), number, at_ns), line)

    def _generated(self, match: re.Match[bytes], number: int, line: bytes, at_ns: int) -> None:
        request = self._known(_text(match[1]))
        if request is None:
            return
        complete = _COMPLETE.search(line)
        ids = _list_after(line, b"output_token_ids: ")
        if complete is not None:
            request.output_tokens = int(complete[1])
        elif ids is not None:
            count = 0 if not ids.strip() else ids.count(b",") + 1
            is_delta = match[2] is not None and b"delta" in match[2]
            request.output_tokens = max(request.output_tokens, 0) + count if is_delta else count
        request.end_ns = max(request.end_ns, at_ns)

    def _ended(self, match: re.Match[bytes], number: int, line: bytes, at_ns: int) -> None:
        for name in _text(match[1]).split(","):
            request = self._known(name)
            if request is not None and ABORTED in line:
                request.cancel_ns = at_ns

    def _known(self, name: str) -> Logged | None:
        """A request by the name that it has in later lines: newer versions put numbers and words behind it."""
        for _ in range(_SUFFIXES):
            if name in self.requests:
                return self.requests[name]
            if f"{name}-0" in self.requests:
                return self.requests[f"{name}-0"]
            name = name.rpartition("-")[0]
        return None

    def check(self) -> None:
        """Raises InputError where the log has no lengths; notes what may be cut."""
        lengths = Counter(item.prompt_tokens for item in self.requests.values() if item.prompt_tokens >= 0)
        if not lengths:
            raise InputError(
                f"{self._found.source_name} tells of requests but not how long prompts are: since 0.11.1 vLLM logs their ids at "
                "level DEBUG alone (VLLM_LOGGING_LEVEL=DEBUG with --enable-log-requests), and never with prompts as embeddings",
                file=self._found.source_name,
            )
        longest = max(lengths)
        if len(lengths) > 1 and lengths[longest] >= 10 and lengths[longest] * 5 >= lengths.total():
            self._found.note(
                f"{lengths[longest]:,} prompts have just {longest:,} ids: did --max-log-len cut them?"
            )
        if not self._times.has_fractions:
            self._found.note("the log's times are whole seconds")


def _tell_prompt(request: Logged, line: bytes) -> None:
    text = _list_after(line, b"prompt_token_ids: ")
    ids = None if text is None else token_ids(text)
    if ids is not None:
        request.prompt_tokens, request.prompt_ids = len(ids), ids


def _list_after(line: bytes, mark: bytes) -> bytes | None:
    """What stands in brackets after the last `mark`: a prompt's own text comes before it."""
    start = line.rfind(mark + b"[")
    if start < 0:
        return None
    start += len(mark) + 1
    end = line.find(b"]", start)
    return line[start:end] if end >= 0 else None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
