"""What printers and collectors put before the text of a line, and taking it off layer by layer.

Layers may stand in any order: a container's collector around an engine's own prefix, a JSON formatter inside a Docker
file, rank labels of launchers anywhere. Each layer is one expression that is matched at the beginning only and whose
repeats are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from vramledger.telemetry.log_times import full_time, month_number, yearless_time

MOST_LAYERS = 24

_ISO = r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?: ?(Z|UTC|[+-]\d\d:?\d\d)(?![\w]))?"
_LEVEL = r"(TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_LEVELS = {
    "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "D": "DEBUG", "V": "DEBUG", "T": "DEBUG",
    "WARN": "WARNING", "FATAL": "CRITICAL", "NOTICE": "INFO", "TRACE": "DEBUG",
}  # fmt: skip
_ANSI = re.compile(
    r"(?:\x1b|#033)(?:\[[0-9;:?]{0,64}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_=>])"
)
_LABEL = re.compile(r"(DP|PP|TP)_?(\d{1,5})(?!\d)")
_WORKER = re.compile(r"VllmWorker-(\d{1,5}) |.*\brank=(\d{1,5})\b")

ZONED, DATED, YEARLESS = 3, 2, 1


Rule = tuple[re.Pattern[str], Callable[["Prefix", re.Match[str]], bool]]


class Prefix:
    """What the layers taken off so far said. `own` tells that the printer itself said it, not only a collector."""

    __slots__ = (
        "after_time", "at_s", "container", "elapsed_s", "level", "own", "process", "quality", "rank",
        "reference_s",
    )  # fmt: skip

    def __init__(self, reference_s: float) -> None:
        self.reference_s = reference_s
        self.at_s: float | None = None
        self.quality = 0
        self.elapsed_s: float | None = None
        self.level: str | None = None
        self.rank: int | None = None
        self.process: str | None = None
        self.container: str | None = None
        self.own = False
        self.after_time: tuple[Rule, ...] = ()

    def copy(self) -> Prefix:
        other = Prefix(self.reference_s)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def take_time(self, at_s: float | None, quality: int) -> bool:
        """Keep a time if it is better than what is known: one with a zone, then one with a year, the inner of equals."""
        if at_s is None:
            return False
        if quality >= self.quality:
            self.at_s, self.quality = at_s, quality
        return True

    def take_level(self, name: str) -> None:
        name = name.upper()
        self.level = _LEVELS.get(name, name)
        self.own = True

    def take_process(self, label: str) -> None:
        self.process = label
        self.own = True
        rank = rank_of(label)
        if rank is not None:
            self.rank = rank

    def take_rank(self, rank: int) -> None:
        self.rank = rank
        self.own = True

    def take_container(self, name: str) -> None:
        self.container = name if self.container is None else f"{self.container}/{name}"


@lru_cache(maxsize=4096)
def rank_of(label: str) -> int | None:
    """The world rank that a printer's label tells: "rank=1", "VllmWorker-1", and "TP1" in the first pipeline stage."""
    found = _WORKER.match(label)
    if found is not None:
        return int(found.group(1) or found.group(2))
    parts = {kind: int(number) for kind, number in _LABEL.findall(label)}
    if "TP" not in parts or parts.get("PP", 0):
        return None
    if parts.get("DP", 0) and "_" in label:
        return None
    return parts["TP"]


def without_ansi(text: str) -> str:
    """`text` without colours and other sequences that a terminal obeys, also as rsyslog writes them."""
    return _ANSI.sub("", text) if "\x1b" in text or "#033" in text else text


def peel(text: str, prefix: Prefix) -> str:
    """`text` without the layers before it, which `prefix` is told of."""
    for _ in range(MOST_LAYERS):
        bare = text.lstrip(" \t\ufeff")
        shorter = _peeled_once(bare, prefix)
        if shorter is None:
            return bare
        text = shorter
    return text


def _peeled_once(text: str, prefix: Prefix) -> str | None:
    if prefix.after_time:
        rules, prefix.after_time = prefix.after_time, ()
        for pattern, told in rules:
            match = pattern.match(text)
            if match is not None and told(prefix, match):
                return text[match.end() :]
    first = text[:1]
    if first.isalpha() and _WORD.match(text) is None:
        return _without_stream(text, prefix)
    for pattern, told in _RULES.get(first, _NO_RULES):
        match = pattern.match(text)
        if match is not None and told(prefix, match):
            return text[match.end() :]
    return None


def _without_stream(text: str, prefix: Prefix) -> str | None:
    """`text` without the names that some collectors put before an engine's own prefix; None where there are none."""
    match = _STREAM.match(text) if not prefix.own else None
    if match is None:
        return None
    prefix.take_container(match.group(1).strip())
    return text[match.end() :]


def _iso(prefix: Prefix, match: re.Match[str]) -> bool:
    year, month, day, clock, zone = match.groups()[:5]
    prefix.after_time = _AFTER_TIME
    return prefix.take_time(full_time(year, month, day, clock, zone or ""), ZONED if zone else DATED)


def _own_iso(prefix: Prefix, match: re.Match[str]) -> bool:
    if not _iso(prefix, match):
        return False
    prefix.own = True
    prefix.after_time = _AFTER_OWN_TIME
    rest = match.group(6)
    if rest:
        prefix.take_process(rest.strip())
    return True


def _rust(prefix: Prefix, match: re.Match[str]) -> bool:
    if not _iso(prefix, match):
        return False
    prefix.take_level(match.group(6))
    prefix.after_time = ()
    return True


def _trtllm(prefix: Prefix, match: re.Match[str]) -> bool:
    month, day, year, clock = match.groups()
    prefix.own = True
    return prefix.take_time(full_time(year, month, day, clock), DATED)


def _engine_time(prefix: Prefix, match: re.Match[str]) -> bool:
    level, month, day, clock = match.groups()
    prefix.take_level(level)
    return prefix.take_time(yearless_time(month, day, clock, prefix.reference_s), YEARLESS)


def _dmesg_date(prefix: Prefix, match: re.Match[str]) -> bool:
    month, day, clock, year = match.groups()
    return prefix.take_time(full_time(year, month_number(month), day, clock), DATED)


def _syslog(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.after_time = _AFTER_SYSLOG
    month, day, clock = match.groups()
    return prefix.take_time(yearless_time(month, day, clock, prefix.reference_s), YEARLESS)


def _syslog_5424(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.take_container(match.group(7))
    kept = _iso(prefix, match)
    prefix.after_time = ()
    return kept


def _elapsed(prefix: Prefix, match: re.Match[str]) -> bool:
    minutes, seconds, millis, micros, level = match.groups()
    prefix.elapsed_s = int(minutes) * 60 + int(seconds) + int(millis) / 1e3 + int(micros) / 1e6
    prefix.take_level(level)
    return True


def _since_boot(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.elapsed_s = float(match.group(1))
    return True


def _epoch(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.after_time = _AFTER_TIME
    return prefix.take_time(float(match.group(1)), ZONED)


def _level(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.take_level(match.group(1))
    return True


def _bracketed_level(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.take_level(match.group().strip("[] "))
    return True


def _logfmt(prefix: Prefix, match: re.Match[str]) -> bool:
    if match.group(6):
        prefix.take_level(match.group(6))
    kept = _iso(prefix, match)
    prefix.after_time = ()
    return kept


def _process(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.take_process(match.group(1))
    return True


def _rank(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.take_rank(int(match.group(1)))
    return True


def _container(prefix: Prefix, match: re.Match[str]) -> bool:
    """A service of compose; after a printer's own prefix only one with a number, any other word may be text."""
    if prefix.own and not match.group(1)[-1].isdigit():
        return False
    prefix.take_container(match.group(1))
    return True


def _host(prefix: Prefix, match: re.Match[str]) -> bool:
    prefix.take_container(match.group(1))
    return True


def _nothing(prefix: Prefix, match: re.Match[str]) -> bool:
    return True


def _rule(pattern: str, told: Callable[[Prefix, re.Match[str]], bool]) -> Rule:
    return re.compile(pattern), told


# What may follow a time directly; elsewhere these would take words of the text.
_AFTER_OWN_TIME: tuple[Rule, ...] = (
    _rule(r"- [\w.]{1,100} - " + _LEVEL + r" - (?:[\w./]{1,100}:\d{1,6} - )?", _level),
    _rule(r"\[\d{1,10}\] (?=\[)", _nothing),
    _rule(
        _LEVEL + r"(?= )(?! +\d\d-\d\d )(?! +\[[\w./-]{1,200}\.py:)(?: +[\w.:<>-]{1,200}:(?= ))? *", _level
    ),
)
_AFTER_TIME: tuple[Rule, ...] = (
    _rule(r"(?:stdout|stderr) [FP](?: |$)", _nothing),
    _rule(r"\| *" + _LEVEL + r" *\| *[^|\s]{1,200} - ", _level),
    _rule(r"\{(?:[\w.]{1,100}=\"[^\"]{0,300}\"(?:, ?)?){1,40}\} ", _nothing),
    _rule(r"[\w.:-]{1,255} ((?:[\w./@+-]{1,128}\[\d{1,10}\])|kernel): ", _host),
    _rule(r"[\w./-]{1,100}\.go:\d{1,6}: ", _nothing),
    *_AFTER_OWN_TIME,
)
_AFTER_SYSLOG: tuple[Rule, ...] = (
    _rule(r"[\w.:-]{1,255} ([\w./@+-]{1,128}(?:\[\d{1,10}\])?): ", _host),
    *_AFTER_TIME,
)
# What begins with a letter and is a prefix looks like one of these.
_WORD = re.compile(
    _LEVEL + r"[ :]|[IWEF]\d{4} \d|[A-Z][a-z]{2} {1,2}\d{1,2} \d|(?:time|ts)=|[\w.@-]{1,200} {0,80}\|"
)
# stern and CloudWatch put bare names before a line: told only by the engine's unmistakable prefix after them.
_STREAM = re.compile(
    r"((?:[\w./@:+-]{1,200} {1,8}){1,3})(?=\([\w.-]{1,60}(?: rank=\d{1,6})? pid=\d|\[T(?:RT|ensorRT)-LLM\]|"
    + _LEVEL
    + r" +\d\d-\d\d \d\d:\d\d:\d\d|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"
)
_NO_RULES: tuple[Rule, ...] = ()
_DIGIT = (
    _rule(_ISO + r",?(?= |$|\t|\[|\|)", _iso),
    _rule(r"(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3}) ([IWEDT]) ", _elapsed),
    _rule(r"(\d{10}\.\d{3,9}) ", _epoch),
    _rule(r"(\d{1,5}): (?=[\[({]|" + _LEVEL + r"\b|\d{4}-)", _rank),
)
_BRACKET = (
    _rule(r"\[" + _ISO + r"((?: (?:[A-Z]{1,8}_?)+\d{1,5}){0,6})\] ?", _own_iso),
    _rule(r"\[(\d\d)/(\d\d)/(\d{4})-(\d\d:\d\d:\d\d)\] ?", _trtllm),
    _rule(r"\[(?:TRT-LLM|TensorRT-LLM|TRT)\] ?", _nothing),
    _rule(r"\[(?:" + _LEVEL[1:-1] + r"|[IWEFVD])\] ?", _bracketed_level),
    _rule(r"\[(?:RANK |rank|default|gpu_?i?d?=)(\d{1,6})\]:? ?", _rank),
    _rule(r"\[\d{1,9},(\d{1,6})\]<(?:stdout|stderr|stddiag)>: ?", _rank),
    _rule(r"\[pod/([^\]\s]{1,300})\] ?", _host),
    _rule(r"\[ {0,8}(\d{1,10}\.\d{6})\] ?(?:\[ {0,8}[TC]\d{1,8}\] ?)?", _since_boot),
    _rule(r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})\] ?", _dmesg_date),
    _rule(r"\[([IWEF])(\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d{1,9}) [^\]]{1,160}\] ?", _engine_time),
    _rule(r"\[" + _ISO + " " + _LEVEL + r" {1,3}[\w:.-]{1,200}\] ?", _rust),
)
_PAREN = (
    _rule(
        r"\(((?:[^() ]{1,100} )?(?:rank=\d{1,6} )?pid=\d{1,10}(?:, ?ip=[0-9A-Fa-f.:]{2,45})?)\) ?", _process
    ),
    _rule(r"\((raylet|gcs_server|autoscaler[^()]{0,20})\) ", _process),
)
_ANGLE = (
    _rule(
        r"<\d{1,3}>1 " + _ISO + r" (\S{1,255}) (\S{1,48}) \S{1,128} \S{1,32} (?:-|\[[^\]]{0,1000}\]) ?",
        _syslog_5424,
    ),
    _rule(r"<\d{1,3}>(?=[A-Z\d\[])", _nothing),
)
_COMPOSE = _rule(r"([\w.@-]{1,200}) {0,80}\| ", _container)
_LEVELLED = (
    _rule(
        _LEVEL
        + r" +(\d\d)-(\d\d) (\d\d:\d\d:\d\d(?:[.,]\d{1,6})?) (?:\[[^\]\s]{1,200}\]|[\w./-]{1,200}:\d{1,6}\]) ?",
        _engine_time,
    ),
    _rule(_LEVEL + r" +\[[\w./-]{1,200}\.py:\d{1,6}\] ?", _level),
    _rule(_LEVEL + r": +", _level),
    _rule(_LEVEL + r":[\w.]{1,100}:", _level),
)
_GLOG = _rule(r"([IWEF])(\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d{1,9}) +\d{1,10} [^\] ]{1,100}\] ", _engine_time)
_SYSLOG = _rule(r"([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d(?:\.\d{1,9})?) ", _syslog)
_LOGFMT = _rule(
    r"(?:time|ts)=\"?" + _ISO + r"\"? (?:level=" + _LEVEL + r" )?(?:source=[\w./:-]{1,200} )?",
    _logfmt,
)


def _rules() -> dict[str, tuple[Rule, ...]]:
    table: dict[str, tuple[Rule, ...]] = dict.fromkeys("0123456789", (*_DIGIT, _COMPOSE))
    table |= dict.fromkeys("abcdefghijklmnopqrstuvwxyz_", (_COMPOSE,))
    table |= dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", (_SYSLOG, _COMPOSE))
    for letter in "TDINWECF":
        table[letter] = (*_LEVELLED, *((_GLOG,) if letter in "IWEF" else ()), _SYSLOG, _COMPOSE)
    table["t"] = (_LOGFMT, _COMPOSE)
    return table | {"[": _BRACKET, "(": _PAREN, "<": _ANGLE}


_RULES = _rules()
