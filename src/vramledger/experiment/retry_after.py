"""When a server that refuses asks to be asked again (RFC 9110, 10.2.3): seconds, or a date by the server's own clock."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

TRY_AGAIN = (429, 503)
LONGEST_RETRY_S = 600.0


def retry_after_s(retry_after: bytes, date: bytes) -> float | None:
    """Seconds to wait, from the headers Retry-After and Date; None where the first says nothing that can be heeded, or a
    longer time than anybody waits: that is a refusal. A date is counted from the second: without it nobody knows the server's clock."""
    if retry_after.isdigit():
        return _heeded(float(int(retry_after[:9])))
    then, now = _instant(retry_after), _instant(date)
    if then is None or now is None:
        return None
    return _heeded(max((then - now).total_seconds(), 0.0))


def _heeded(seconds: float) -> float | None:
    return seconds if seconds <= LONGEST_RETRY_S else None


def _instant(header: bytes) -> datetime | None:
    try:
        found = parsedate_to_datetime(header[:64].decode("ascii"))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
