"""The message's own numbers: what was wanted, what was there, what is missing, and who holds the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from vramledger.diagnosis.messages.executor_reading import ExecutorFailure, executor_failure
from vramledger.diagnosis.messages.pool_reading import pool_books, pool_shortage
from vramledger.diagnosis.messages.readings import size_of, whole_of
from vramledger.diagnosis.messages.torch_reading import TorchOom, torch_oom
from vramledger.ledger import ZERO, ByteRange
from vramledger.observation import Observation, Value
from vramledger.units import format_bytes

_REQUESTED = ("requested_bytes", "required_bytes", "needed_bytes", "buffer_bytes")
_FREE = ("free_bytes", "available_bytes")
_WANTED_TOKENS = ("requested_tokens", "requested_requests", "batch_tokens")
_FREE_TOKENS = ("available_tokens", "available_requests")


class Holding(Struct, frozen=True, kw_only=True):
    """Bytes of the device and who holds them. A negative low end is what rounding allows."""

    who: str
    bytes: ByteRange


class Arithmetic(Struct, frozen=True, kw_only=True):
    """What the numbers of one failure come to; None and empty where the messages do not tell.

    `missing_bytes` is wanted less available, never below 0 at its low end. `lines` say in words what follows from the numbers.
    `largest_share` is the largest share of the device that a start-up check would pass, `share_interval` the shares under which
    both the static set and what comes after it fit; its ends cross where none does.
    """

    wanted_bytes: ByteRange | None = None
    available_bytes: ByteRange | None = None
    missing_bytes: ByteRange | None = None
    total_bytes: ByteRange | None = None
    wanted_tokens: int | None = None
    available_tokens: int | None = None
    holders: tuple[Holding, ...] = ()
    largest_share: float | None = None
    share_interval: tuple[float, float] | None = None
    longest_context_tokens: int | None = None
    lines: tuple[str, ...] = ()


def arithmetic(
    messages: Sequence[Observation], sizes: Mapping[str, ByteRange], settings: Mapping[str, Value]
) -> Arithmetic:
    """The arithmetic of a failure's own messages, `sizes` being what the log stated before and `settings` the engine's."""
    parsed = next((found for found in map(torch_oom, messages) if found is not None), None)
    values = merged_values(messages)
    if parsed is not None and parsed.requested is not None:
        return _of_torch(parsed, values)
    made = next((found for found in map(executor_failure, messages) if found is not None), None)
    if made is not None and made.components:
        return _of_executor(made)
    if "utilization_ratio" in values and size_of(values, "free_bytes") is not None:
        return _of_startup_check(values)
    if size_of(values, "needed_bytes") is not None and size_of(values, "available_bytes") is not None:
        return _of_kv_refusal(values)
    if size_of(values, "anon_rss_bytes") is not None:
        return _of_kill(values)
    wanted, free = _first(values, _REQUESTED), _first(values, _FREE)
    if parsed is not None:
        free = free or parsed.free
    missing = _missing(wanted, free)
    tokens, free_tokens = _whole(values, _WANTED_TOKENS), _whole(values, _FREE_TOKENS)
    lines = [*_token_lines(messages, tokens, free_tokens, settings)]
    interval = share_interval(sizes, settings)
    if interval is not None:
        lines.append(_interval_line(interval))
    if wanted is not None and free is not None:
        lines.append(f"{format_bytes(wanted.expected)} wanted, {format_bytes(free.expected)} there")
    return Arithmetic(
        wanted_bytes=wanted,
        available_bytes=free,
        missing_bytes=missing,
        total_bytes=size_of(values, "total_bytes"),
        wanted_tokens=tokens,
        available_tokens=free_tokens,
        share_interval=interval,
        lines=tuple(lines),
    )


def merged_values(messages: Sequence[Observation]) -> dict[str, Value]:
    """Values of a failure's messages, the first that states a name winning; an exact size wins over a rounded one of the
    same device."""
    merged: dict[str, Value] = {}
    for item in messages:
        for name, value in item.values.items():
            before = merged.setdefault(name, value)
            if (
                isinstance(before, ByteRange)
                and isinstance(value, int)
                and not isinstance(value, bool)
                and before.low <= value <= before.high
            ):
                merged[name] = value
    return merged


def _of_torch(parsed: TorchOom, values: Mapping[str, Value]) -> Arithmetic:
    wanted = _exact(values, "requested_bytes", parsed.requested)
    free = parsed.free
    missing = _missing(wanted, free)
    holders = [
        ("tensors of this process's framework", parsed.allocated),
        ("of these in private pools (graphs)", parsed.private_pools),
        ("reserved by the framework, not handed out", parsed.reserved_unallocated),
        ("this process outside the framework (context, libraries, other pools)", parsed.outside_framework),
        ("other processes and the driver", parsed.other_tenants),
        ("anything else: other processes, this one outside its framework", _rest(parsed)),
        ("free on the device", free),
    ]
    lines = []
    room = parsed.headroom_if_contiguous
    if wanted is not None and free is not None and room is not None:
        if free.low >= wanted.high:
            lines.append("more is free than was asked for: this is not exhaustion")
        elif room.expected >= wanted.expected > free.expected:
            lines.append(
                f"free and reserved-but-unallocated together are {format_bytes(room.expected)}: "
                f"{format_bytes(room.expected - wanted.expected)} more than was asked for, in pieces"
            )
        elif wanted.expected > room.expected:
            lines.append(
                f"even in one piece, free and reserved-but-unallocated would miss "
                f"{format_bytes(wanted.expected - room.expected)}"
            )
    if parsed.allowed is not None:
        lines.append(f"the process may use {format_bytes(parsed.allowed.expected)} at most, by its own limit")
    return Arithmetic(
        wanted_bytes=wanted,
        available_bytes=free,
        missing_bytes=missing,
        total_bytes=parsed.total,
        holders=tuple(Holding(who=who, bytes=size) for who, size in holders if size is not None),
        lines=tuple(lines),
    )


def _rest(parsed: TorchOom) -> ByteRange | None:
    """Where the message names no process: what is neither free nor the framework's."""
    known = (parsed.total, parsed.free, parsed.allocated, parsed.reserved_unallocated)
    if parsed.own_process is not None or any(size is None for size in known):
        return None
    total, free, allocated, slack = known
    return total - free - allocated - slack  # type: ignore[operator]


def _of_startup_check(values: Mapping[str, Value]) -> Arithmetic:
    free, total = size_of(values, "free_bytes"), size_of(values, "total_bytes")
    wanted = _first(values, ("desired_bytes", "requested_bytes", "needed_bytes", "required_bytes"))
    share = values.get("utilization_ratio")
    if wanted is None and total is not None and isinstance(share, int | float):
        wanted = ByteRange.exact(int(total.expected * share))
    largest = None
    lines = []
    holders: tuple[Holding, ...] = ()
    if free is not None and total is not None and total.low > 0:
        held = total - free
        holders = (
            Holding(who="held before the engine starts: driver, display, other processes", bytes=held),
            Holding(who="free on the device", bytes=free),
        )
        # Printed sizes are rounded: the share that surely passes is that of the least free and the largest total.
        largest = int(100 * free.low / total.high) / 100
        lines.append(
            f"{format_bytes(held.expected)} are held before this engine starts; "
            f"the largest share that passes is {largest:.2f}"
        )
    return Arithmetic(
        wanted_bytes=wanted,
        available_bytes=free,
        missing_bytes=_missing(wanted, free),
        total_bytes=total,
        holders=holders,
        largest_share=largest,
        lines=tuple(lines),
    )


def _of_kv_refusal(values: Mapping[str, Value]) -> Arithmetic:
    needed, available = size_of(values, "needed_bytes"), size_of(values, "available_bytes")
    assert needed is not None and available is not None
    length = whole_of(values, "max_model_len") or whole_of(values, "context_len")
    stated = whole_of(values, "estimated_max_model_len")
    longest, lines = stated, []
    if longest is None and length and needed.expected > 0:
        longest = max(0, available.low) * length // needed.high
    if longest is not None:
        by = "the engine's own estimate" if stated else "in proportion, at most, before rounding to blocks"
        lines.append(f"{format_bytes(available.expected)} hold a context of about {longest:,} tokens ({by})")
    return Arithmetic(
        wanted_bytes=needed,
        available_bytes=available,
        missing_bytes=_missing(needed, available),
        wanted_tokens=length,
        available_tokens=longest,
        longest_context_tokens=longest,
        lines=tuple(lines),
    )


def share_interval(
    sizes: Mapping[str, ByteRange], settings: Mapping[str, Value]
) -> tuple[float, float] | None:
    """SGLang's shares (mem_fraction_static) that can work: below, weights and a token do not fit; above, what comes after the pool
    does not. None where the log does not state what was free before and after the weights.

    Rule: SGLang's KV bytes are free-after-load less (1 - share) of free-before-load (model_runner.profile_max_num_token), and what the
    share leaves must hold graphs and activations.
    """
    before, after = sizes.get("free_before_load_bytes"), sizes.get("free_after_load_bytes")
    if before is None or after is None or before.expected <= 0:
        return None
    later = sum(sizes[name].expected for name in ("graph_bytes", "activation_peak_bytes") if name in sizes)
    return 1 - after.expected / before.expected, 1 - later / before.expected


def _interval_line(interval: tuple[float, float]) -> str:
    low, high = interval
    if low >= high:
        return f"no share can work: the static set needs more than {low:.3f}, what comes after it less than {high:.3f}"
    return f"a share above {low:.3f} leaves room for KV" + (
        f", one below {high:.3f} room for graphs and activations" if high < 1 else ""
    )


def _token_lines(
    messages: Sequence[Observation], wanted: int | None, free: int | None, settings: Mapping[str, Value]
) -> list[str]:
    lines = []
    for books in (books for item in messages for books in pool_books(item)):
        if books.loss:
            lines.append(
                f"{books.pool} pool: {books.total:,} in all, {books.available:,} available, {books.evictable or 0:,} evictable, "
                f"{books.protected or 0:,} protected: {abs(books.loss):,} {'missing' if books.loss > 0 else 'counted twice'}"
            )
        elif books.loss == 0:
            lines.append(f"{books.pool} pool: its books balance")
    if wanted is None or free is None:
        return lines
    lines.append(f"{wanted:,} wanted, {free:,} there")
    if wanted <= free and any(pool_shortage(item) is not None for item in messages):
        page = settings.get("page_size")
        known = isinstance(page, int) and not isinstance(page, bool) and page > 0
        lines.append(
            "more tokens are there than were asked for: each request may need a whole page"
            + (f", and {free // page:,} pages of {page} are free for {wanted:,} requests" if known else "")  # type: ignore[operator]
        )
    return lines


def _of_kill(values: Mapping[str, Value]) -> Arithmetic:
    """What the kernel says a killed process held, and its container's use and limit where they stand beside it."""
    held = [
        ("memory of the killed process's own", size_of(values, "anon_rss_bytes")),
        ("files that it had mapped", size_of(values, "file_rss_bytes")),
        ("shared memory that it had mapped", size_of(values, "shmem_rss_bytes")),
        ("its page tables", size_of(values, "pgtables_bytes")),
        ("used in its container", size_of(values, "used_bytes")),
    ]
    return Arithmetic(
        total_bytes=size_of(values, "limit_bytes"),
        holders=tuple(Holding(who=who, bytes=size) for who, size in held if size is not None),
        lines=("the kernel chose this process; others may have held more of what was short",),
    )


def _of_executor(made: ExecutorFailure) -> Arithmetic:
    """Components with what each took; what is missing is not printed."""
    holders = [Holding(who=item.name, bytes=item.taken) for item in made.components]
    if made.components and made.free is not None:
        holders.append(
            Holding(
                who="between the last row and the failure", bytes=made.components[-1].free_after - made.free
            )
        )
    if made.free is not None:
        holders.append(Holding(who="free on the device", bytes=made.free))
    what = f"{made.component} could not be created" if made.component else "a component could not be created"
    return Arithmetic(
        available_bytes=made.free, total_bytes=made.total, holders=tuple(holders), lines=(what,)
    )


def _missing(wanted: ByteRange | None, free: ByteRange | None) -> ByteRange | None:
    return None if wanted is None or free is None else (wanted - free).upper(ZERO)


def _exact(values: Mapping[str, Value], name: str, printed: ByteRange | None) -> ByteRange | None:
    whole = whole_of(values, name)
    return printed if whole is None else ByteRange.exact(whole)


def _first(values: Mapping[str, Value], names: Sequence[str]) -> ByteRange | None:
    return next((size for size in (size_of(values, name) for name in names) if size is not None), None)


def _whole(values: Mapping[str, Value], names: Sequence[str]) -> int | None:
    return next((count for count in (whole_of(values, name) for name in names) if count is not None), None)
