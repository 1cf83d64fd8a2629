"""A stage sent to a live engine: each request when it is due, later turns after their parents' real ends and with their real answers."""

from __future__ import annotations

import asyncio
import gc
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from vramledger.errors import InputError
from vramledger.experiment.answer import Answer, Question
from vramledger.experiment.asking import Server, body_of, path_of
from vramledger.experiment.extra import not_installed
from vramledger.experiment.lateness import Lateness
from vramledger.experiment.served import Served
from vramledger.experiment.told_counts import believed, most_pieces
from vramledger.simulation.summary import Quantiles
from vramledger.workload.request import Request, WorkloadHeader

if TYPE_CHECKING:
    from vramledger.experiment.prompts import Prompts

__all__ = ["LoadRun", "Server", "run_load"]

STOP_POLL_S = 0.1
LONGEST_WORDS = 200
SHORT = 2
"""An output of less than its length by this is not the one that was asked for."""
LATE_NS = 20_000_000
"""An event loop that is more behind than this has something to say of first tokens."""


class LoadRun(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a stage, by number of request. Unix times. `is_whole` False where it was stopped: what had not been sent is in no row, and what
    was under way was left. `loop_late_ns` is by how much the client's own event loop was behind, looked at all the time: a token's
    instant is not known better than that."""

    served: tuple[Served, ...]
    began_s: float
    ended_s: float
    is_whole: bool = True
    loop_late_ns: Quantiles = Quantiles()
    notes: tuple[str, ...] = ()


def run_load(
    server: Server,
    header: WorkloadHeader,
    requests: Sequence[Request],
    *,
    seed: int,
    retries: int,
    told: Callable[[Served], None] | None = None,
    stop: Callable[[], bool] | None = None,
    stop_sending: Callable[[], bool] | None = None,
    kind: str = "",
    silence_s: float = 600.0,
    salt: int | None = None,
) -> LoadRun:
    """Sends all and returns when all have ended, or soon after `stop` says so; once `stop_sending` says so, no more are sent and what is under way
    is waited for. `told` hears of each request as it ends, from this thread.

    Prompts are made from `seed` and `salt`, as token ids or as text (see `is_text`); without a salt nothing of an earlier run is found in the engine's prefix cache. A request that follows another is due `pause_ns` after that one's end, whatever became of it.
    Clients leave at `cancel_ns` and at their deadlines, and heed a Retry-After up to `retries` times. The engine's going away is no error here: rows say it.

    Raises InputError without the extra `experiment`, and for parents that come after their children.
    """
    try:
        from vramledger.experiment.open_loop import OpenLoop
        from vramledger.experiment.prompts import IdPrompts
        from vramledger.experiment.text_prompts import TextPrompts
    except ImportError as problem:
        raise not_installed(problem) from None
    from vramledger.gateway.open_files import allow_open_files

    for number, request in enumerate(requests):
        if request.parent is not None and not 0 <= request.parent < number:
            raise InputError(
                f"request {number} follows request {request.parent}, which does not come before it"
            )
    allow_open_files(2 * len(requests))
    salt = secrets.randbits(62) if salt is None else salt
    prompts: Prompts = (
        TextPrompts(header, requests, seed=seed ^ salt)
        if is_text(server, requests)
        else IdPrompts(header, requests, seed=seed ^ salt, vocab_size=server.vocab_size)
    )
    stage = _Stage(server, requests, prompts, retries=retries, told=told, kind=kind)
    loop = OpenLoop(server.upstream, told=stage.answered, silence_s=silence_s)
    stage.ask = loop.ask
    late = Lateness()
    no_more = None if stop_sending is None else _once(stop_sending, loop.send_no_more)
    with _collected_before():
        was_stopped = asyncio.run(_sent(loop.run(stage.first_questions()), late, stop, no_more))
    behind = late.quantiles()
    return LoadRun(
        served=tuple(sorted(stage.served, key=lambda one: one.number)),
        began_s=loop.began_s,
        ended_s=time.time(),
        is_whole=not was_stopped,
        loop_late_ns=behind,
        notes=(*stage.notes(), *_of_lateness(behind)),
    )


class _Stage:
    """Turns requests into questions and answers into rows, and asks what follows."""

    def __init__(
        self,
        server: Server,
        requests: Sequence[Request],
        prompts: Prompts,
        *,
        retries: int,
        told: Callable[[Served], None] | None,
        kind: str,
    ) -> None:
        self._server = server
        self._requests = requests
        self._prompts = prompts
        self._retries = retries
        self._told = told
        self._kind = kind
        self._children: dict[int, list[int]] = {}
        for number, request in enumerate(requests):
            if request.parent is not None:
                self._children.setdefault(request.parent, []).append(number)
        self._is_text = is_text(server, requests)
        self._untold = 0
        self._unlikely = 0
        self._short = 0
        self.ask: Callable[[Question], None] = _nobody
        self.served: list[Served] = []

    def first_questions(self) -> list[Question]:
        """Of those that follow no other."""
        return [
            self._question(number, request.arrival_ns)
            for number, request in enumerate(self._requests)
            if request.parent is None
        ]

    def answered(self, answer: Answer) -> None:
        """An answer ended: its row is told, and its children are due after their pauses."""
        number = answer.number
        row = served_of(self._requests[number], answer, kind=self._kind)
        self.served.append(row)
        self._unlikely += (
            row.output_tokens != answer.output_tokens or row.prompt_tokens != answer.prompt_tokens
        )
        said_tokens = row.events if row.output_tokens is None else row.output_tokens
        self._short += row.whole and SHORT * said_tokens < row.asked_output_tokens
        if number in self._children:
            self._prompts.heard(answer)
            said = answer.output
            self._untold += bool(answer.events and not (said and (said.text if self._is_text else said.ids)))
            for child in self._children.pop(number):
                self.ask(self._question(child, answer.end_ns + self._requests[child].pause_ns))
        if self._told is not None:
            self._told(row)

    def notes(self) -> tuple[str, ...]:
        """What a reader of the rows has to know."""
        found = []
        if self._is_text:
            counted = [one for one in self.served if one.prompt_tokens is not None]
            asked = sum(one.asked_prompt_tokens for one in counted)
            found.append(
                "prompts are text, of words that are a token each in most vocabularies, for the engine is not known to tell token ids: "
                f"{asked:,} tokens were wanted, and the engine counted {sum(one.prompt_tokens or 0 for one in counted):,}"
            )
        if self._untold:
            found.append(
                f"of {self._untold:,} answers that were gone on from the engine did not tell what they said: other text stands in their "
                "place, of which a prefix cache holds nothing"
            )
        if self._unlikely:
            found.append(
                f"of {self._unlikely:,} answers the engine's own count of tokens cannot be true: pieces of output are counted in its place"
            )
        if self._short and self._server.forces_length:
            found.append(
                f"{self._short:,} of {len(self.served):,} answers ended before half of the length that was asked for, which this engine is told to "
                "keep: the load was lighter than it was to be"
            )
        if not self._server.forces_length:
            found.append(
                "outputs end where the model ends them, for this engine is not known to be told otherwise"
            )
        return tuple(found)

    def _question(self, number: int, at_ns: int) -> Question:
        request = self._requests[number]
        keeps = number in self._children
        leaves = [one for one in (request.cancel_ns, request.deadline_ns) if one is not None]
        return Question(
            number=number,
            at_ns=at_ns,
            body=lambda: body_of(self._server, request, self._prompts.prompt(number), keeps_output=keeps),
            path=path_of(self._server, keeps_output=keeps),
            leaves_after_ns=min(leaves, default=None),
            first_token_within_ns=request.first_token_deadline_ns,
            most_events=most_pieces(request),
            retries=self._retries,
            keeps_output=keeps,
        )


def _of_lateness(behind: Quantiles) -> tuple[str, ...]:
    if behind.p99 < LATE_NS:
        return ()
    words = (
        f"the client was held up: its event loop was {behind.p99 / 1e6:,.0f} ms behind at the 99th percentile, and tokens are told as much "
        "later than they came; give it a core of its own"
    )
    return (words,)


def is_text(server: Server, requests: Sequence[Request]) -> bool:
    """Whether prompts are text: every engine takes that. Token ids are sent to engines that are known to take them, and where answers
    are gone on from to those that tell them too."""
    return server.engine is None or (not server.tells_ids and any(one.parent is not None for one in requests))


def served_of(request: Request, answer: Answer, *, kind: str = "") -> Served:
    """A row of the records. Counts that cannot be true are not in it."""
    counts = believed(request, answer)
    return Served(
        number=answer.number,
        kind=kind,
        tenant=request.tenant,
        conversation=request.conversation,
        parent=request.parent,
        due_ns=answer.at_ns,
        sent_ns=answer.sent_ns,
        first_token_ns=answer.first_token_ns,
        last_token_ns=answer.last_token_ns,
        end_ns=answer.end_ns,
        longest_gap_ns=answer.longest_gap_ns,
        asked_prompt_tokens=request.prompt_tokens,
        asked_output_tokens=request.output_tokens,
        prompt_tokens=counts.prompt_tokens,
        cached_prompt_tokens=counts.cached_prompt_tokens,
        output_tokens=counts.output_tokens,
        events=answer.events,
        cancel_ns=request.cancel_ns,
        first_token_deadline_ns=request.first_token_deadline_ns,
        deadline_ns=request.deadline_ns,
        status=answer.status,
        whole=answer.whole,
        left=answer.left,
        attempts=answer.attempts,
        waited_to_retry_ns=answer.waited_to_retry_ns,
        error=answer.error[:LONGEST_WORDS],
        rule=answer.rule[:LONGEST_WORDS],
    )


@contextmanager
def _collected_before() -> Iterator[None]:
    """What lives now is not gone through again by the garbage collector, which would hold up the loop for as long."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _sent(
    sending: Coroutine[None, None, None],
    late: Lateness,
    stop: Callable[[], bool] | None,
    no_more: Callable[[], bool] | None,
) -> bool:
    """Whether it was stopped before all had been sent and had ended."""
    is_cut = False
    task = asyncio.create_task(sending)
    watching = asyncio.create_task(late.watch())
    try:
        while (stop is not None or no_more is not None) and not task.done():
            is_cut = is_cut or (no_more is not None and no_more())
            if stop is not None and stop():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                return True
            await asyncio.wait({task}, timeout=STOP_POLL_S)
        await task
    finally:
        task.cancel()
        watching.cancel()
        await asyncio.wait({task, watching})
    return is_cut


def _once(said: Callable[[], bool], then: Callable[[], None]) -> Callable[[], bool]:
    """Whether it has been said; what follows from it is done the first time."""
    is_said = False

    def asked() -> bool:
        nonlocal is_said
        if not is_said and said():
            is_said = True
            then()
        return is_said

    return asked


def _nobody(question: Question) -> None:
    raise AssertionError("nothing is asked before the loop is there")
