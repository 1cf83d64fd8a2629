"""How an admitted request ended, from what its answer said: the same for a relayed answer and for one that another proxy relays. Pure."""

from __future__ import annotations

from vramledger.gateway.admitter import Ended, Ending
from vramledger.gateway.answer_reading import AnswerReading
from vramledger.gateway.counters import Counters
from vramledger.gateway.record import RequestRecord


def ending_of(
    reading: AnswerReading | None,
    status: int,
    how: Ended = Ended.COMPLETED,
    *,
    first_output_ns: int | None = None,
) -> Ending:
    """A request's end with what its answer said of its tokens; where it said nothing, its events are counted. `status` is 0
    where no answer began, `reading` None where nothing was read of it."""
    if reading is None:
        return Ending(how=how)
    if how is Ended.COMPLETED and (reading.error is not None or status >= 400):
        how = Ended.ENGINE_ERROR
    counted = reading.output_tokens is None and reading.output_events > 0
    return Ending(
        how=how,
        prompt_tokens=reading.prompt_tokens,
        cached_prompt_tokens=reading.cached_prompt_tokens,
        output_tokens=reading.output_events if counted else reading.output_tokens,
        counted=counted,
        output_events=reading.output_events,
        first_output_ns=first_output_ns,
    )


def note_errors(
    counters: Counters, reading: AnswerReading | None, status: int, record: RequestRecord | None = None
) -> None:
    """Counts the errors that the engine told in an answer that began, once for each request, and notes its error in `record`."""
    if reading is None or not status:
        return
    counters.unread_events += reading.unread
    if (error := reading.error) is not None:
        counters.engine_ran_out += error.ran_out
        if record is not None:
            record.engine_error, record.ran_out = error.code or error.type, error.ran_out
    if status >= 500 or (reading.error is not None and status < 400):
        counters.engine_errors += 1
        if status < 400:
            counters.engine_errors_in_streams += 1
