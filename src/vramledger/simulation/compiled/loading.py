"""Memory of a new run, and requests loaded into it batch by batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vramledger.simulation.compiled import memory as at
from vramledger.simulation.compiled.memory import Ints
from vramledger.simulation.outcome import Status
from vramledger.simulation.outcome_columns import OutcomeColumns
from vramledger.simulation.schedulers.sglang_admission import NewTokenRatio
from vramledger.simulation.settings import Scheduling, SimulationSettings
from vramledger.simulation.step_model import PS_PER_NS
from vramledger.workload.columns import RequestColumns

RULES = {
    Scheduling.VLLM: at.VLLM,
    Scheduling.TRTLLM_NO_EVICT: at.TO_THE_END,
    Scheduling.TRTLLM_MAX_UTILIZATION: at.MOST_UTILIZATION,
    Scheduling.STATIC_BATCH: at.STATIC_BATCH,
    Scheduling.SGLANG: at.SGLANG,
}
"""Whose rules are compiled."""
_PAIRS = (at.FINISHES_AT, at.FILLS_AT, at.TIMERS_AT, at.SENDS_AT, at.RANKS_AT)
_COUNTS = {at.TIMERS_AT: at.TIMERS, at.SENDS_AT: at.SENDS, at.RANKS_AT: at.RANKS,
           at.FINISHES_AT: at.FINISHES, at.FILLS_AT: at.FILLS}  # fmt: skip


def new_memory(settings: SimulationSettings, *, id_tokens: int | None, samples: int) -> Ints:
    """An empty pool, nothing sent. `id_tokens` are the tokens of one of the workload's block identities."""
    layout, scheduler, step = settings.layout, settings.scheduler, settings.step
    usable = layout.usable_blocks
    block = layout.groups[0].block_tokens
    has_names = bool(id_tokens) or scheduler.priority
    table = 1 << (2 * usable).bit_length() if has_names else 2
    table_at = at.ENDS + (usable + 2) * at.NODE_COLUMNS
    residues_at = table_at + table
    samples_at = residues_at + block
    end = samples_at + 2 * samples * at.SAMPLE_COLUMNS
    first = at.ENDS + at.NODE_COLUMNS
    m = np.zeros(end, dtype=np.int64)
    for place, value in {
        at.BLOCK: block,
        at.MAX_SEQS: scheduler.max_num_seqs,
        at.BUDGET: scheduler.max_num_batched_tokens,
        at.CHUNKED: scheduler.chunked_prefill,
        at.CACHING: scheduler.prefix_caching,
        at.PRIORITY: scheduler.priority,
        at.GOES_ON: scheduler.priority and scheduler.priority_goes_on,
        at.THRESHOLD: scheduler.long_prefill_token_threshold,
        at.ALONE_UNBOUNDED: scheduler.long_prefill_alone_unbounded,
        at.WATERMARK: int(scheduler.watermark * layout.num_blocks),
        at.RESERVE_FULL: scheduler.reserve_full_prompt,
        at.LAG: scheduler.async_scheduling,
        at.SCHEDULING: RULES[scheduler.scheduling],
        at.UNCACHED_FIRST: layout.uncached_first,
        at.ID_TOKENS: id_tokens or 1,
        at.USABLE: usable,
        at.MAX_PREFILL: scheduler.max_prefill_tokens,
        at.CLIP: scheduler.clip_max_new_tokens,
        at.TIME_LIMIT: at.FOREVER if settings.time_limit_ps is None else settings.time_limit_ps,
        at.SAMPLE_LIMIT: 2 * samples,
        at.OVERHEAD_PS: step.overhead_ps,
        at.FLOOR_PS: step.floor_ps,
        at.TOKEN_PS: step.token_ps,
        at.DECODE_SEQ_PS: step.decode_seq_ps,
        at.KV_TOKEN_PS: step.kv_token_ps,
        at.PAIR_PS: step.pair_ps_per_1024,
        at.TABLE_AT: table_at,
        at.TABLE_MASK: table - 1,
        at.RESIDUES_AT: residues_at,
        at.SAMPLES_AT: samples_at,
        at.REQUESTS_AT: end,
        at.IDS_AT: end,
        at.FREE: usable,
        at.NODE_TOP: first,
        at.SAMPLE_SPACING: 1_000_000_000,
        at.ENDS + at.AHEAD: first,
        at.ENDS + at.BEHIND: first,
        first + at.AHEAD: at.ENDS,
        first + at.BEHIND: at.ENDS,
        first + at.COUNT: usable,
        first + at.REFS: at.NOBODY,
    }.items():
        m[place] = value
    m[[at.RUN_FIRST, at.RUN_LAST, at.WAIT_FIRST, at.WAIT_LAST, at.LIST_FIRST, at.LIST_LAST, at.PARTIAL]] = (
        at.NOBODY
    )
    ratio = NewTokenRatio(scheduler)
    m[at.RATIO : at.RATIO + 4].view(np.float64)[:] = ratio.current, ratio.initial, ratio.least, ratio.decay
    return m


def records_of(m: Ints) -> Ints:
    """The records of loaded requests, as they lie in memory."""
    start, count = int(m[at.REQUESTS_AT]), int(m[at.LOADED] - m[at.BASE])
    return m[start : start + count * at.COLUMNS].reshape(count, at.COLUMNS)


def with_batch(m: Ints, batch: RequestColumns, settings: SimulationSettings, *, told: int) -> Ints:
    """Memory with one batch of requests more, and without the first `told`, which are over and told of."""
    old = records_of(m)[told:]
    first = int(m[at.LOADED])
    rows, ids = _records(batch, settings, id_tokens=int(m[at.ID_TOKENS]), first=first)
    if settings.follow_parents:
        _link(rows, first)
    ids_at = int(m[at.IDS_AT])
    held_ids = np.where(old[:, at.PHASE] == at.OVER, 0, old[:, at.IDS])
    kept_ids, starts = _gathered(m, ids_at + old[:, at.IDS_FROM], held_ids)
    rows[:, at.IDS_FROM] += len(kept_ids)
    records = np.concatenate([old, rows])
    records[: len(old), at.IDS_FROM] = starts

    running = min(settings.scheduler.max_num_seqs, settings.layout.usable_blocks, len(records))
    keys = int(records[:, at.KEYS].max(initial=0))
    chosen = 2 * min(settings.scheduler.max_num_seqs, len(records)) + 2 if m[at.SCHEDULING] else 0
    timers = int((records[:, [at.CANCEL, at.FIRST_DEADLINE, at.DEADLINE]] >= 0).sum())
    held_keys = min(running * keys, int(records[:, at.KEYS].sum()))
    arena = max(2 * held_keys, int(m[at.ARENA_TOP]))
    heap_rows = max(4 * running + 64, int(m[at.HEAP_ROWS]))
    parts = {
        at.FINISHES_AT: 2 * heap_rows,
        at.FILLS_AT: 2 * heap_rows,
        at.TIMERS_AT: 2 * (int(m[at.TIMERS]) + timers + 1),
        at.SENDS_AT: 2 * (len(records) + 1),
        at.RANKS_AT: 2 * (int(m[at.RANKS]) + len(records) + running + 1)
        if settings.scheduler.priority
        else 0,
        at.PREFILLS_AT: max(running, int(m[at.PREFILLING])) + 1,
        at.ENDINGS_AT: max(running, int(m[at.ENDINGS])) + 1,
        at.CHOSEN_AT: chosen,
        at.AWAITED_AT: 2 * chosen,
        at.FOUND_AT: keys + 1,
        at.ARENA_AT: arena,
        at.IDS_AT: len(kept_ids) + len(ids),
        at.REQUESTS_AT: records.size,
    }
    fixed = int(m[at.SAMPLES_AT] + m[at.SAMPLE_LIMIT] * at.SAMPLE_COLUMNS)
    made = np.zeros(fixed + sum(parts.values()), dtype=np.int64)
    made[:fixed] = m[:fixed]
    place = fixed
    for part, size in parts.items():
        made[part] = place
        held = {
            at.PREFILLS_AT: int(m[at.PREFILLING]),
            at.ENDINGS_AT: int(m[at.ENDINGS]),
            at.ARENA_AT: int(m[at.ARENA_TOP]),
        }.get(part, 0)
        if part in _COUNTS:
            held = 2 * int(m[_COUNTS[part]])
        if held:
            made[place : place + held] = m[m[part] : m[part] + held]
        place += size
    start = int(made[at.IDS_AT])
    made[start : start + len(kept_ids)] = kept_ids
    made[start + len(kept_ids) : start + len(kept_ids) + len(ids)] = ids
    made[made[at.REQUESTS_AT] :] = records.ravel()
    made[at.ARENA_SIZE] = arena
    made[at.HEAP_ROWS] = heap_rows
    made[at.HAS_TIMERS] |= timers > 0
    made[at.BASE] += told
    made[at.LOADED] = first + len(rows)
    if not _is_sorted(rows):
        _send_unsorted(made, rows, first)
    return made


def leading_outcomes(m: Ints) -> OutcomeColumns:
    """Outcomes of the leading requests that are over."""
    going_on = np.flatnonzero(records_of(m)[:, at.PHASE] != at.OVER)
    return outcomes_of(m, int(going_on[0]) if len(going_on) else int(m[at.LOADED] - m[at.BASE]))


def outcomes_of(m: Ints, count: int, *, replica: int = 0) -> OutcomeColumns:
    """Outcomes of the first requests in memory."""
    rows = records_of(m)[:count]
    phase = rows[:, at.PHASE]
    known = np.where(phase == at.DECODE, rows[:, at.COMPUTED] + m[at.STEP] + 1, rows[:, at.KNOWN])
    was_queued = (phase != at.UNSENT) & (rows[:, at.FITS] != 0)
    return OutcomeColumns(
        number=np.arange(count, dtype=np.int64) + m[at.BASE],
        replica=np.where(was_queued, replica, -1).astype(np.int64),
        status=rows[:, at.STATUS].copy(),
        sent_ps=np.where((phase == at.UNSENT) & (rows[:, at.PARENT] >= 0), -1, rows[:, at.SENT]),
        admitted_ps=rows[:, at.ADMITTED].copy(),
        first_token_ps=rows[:, at.FIRST_TOKEN].copy(),
        end_ps=rows[:, at.END].copy(),
        prompt_tokens=rows[:, at.PROMPT].copy(),
        output_tokens=known - rows[:, at.PROMPT],
        hit_tokens=rows[:, at.HIT].copy(),
        recomputed_tokens=rows[:, at.RECOMPUTED].copy(),
        preemptions=rows[:, at.PREEMPTED].copy(),
    )


def fitting(batch: RequestColumns, settings: SimulationSettings) -> npt.NDArray[np.bool_]:
    """Which requests the model and the empty pool have room for (`reference.fits`)."""
    prompt, limit = batch.prompt_tokens, settings.scheduler.max_model_len
    output, expected = lengths(batch, settings)
    block = settings.layout.groups[0].block_tokens
    tokens = prompt + (output - 1 if settings.scheduler.scheduling is Scheduling.VLLM else expected)
    blocks = (tokens + block - 1) // block
    fits = blocks <= settings.layout.usable_blocks
    if settings.scheduler.scheduling is Scheduling.SGLANG:
        fits = output_rooms(batch, settings) >= 1
    return (prompt + 1 <= limit) & fits


def lengths(batch: RequestColumns, settings: SimulationSettings) -> tuple[Ints, Ints]:
    """Output tokens of requests, and those that the engine expects at most (`schedulers.sequence.lengths_of`)."""
    room = np.maximum(settings.scheduler.max_model_len - batch.prompt_tokens, 1)
    output = np.minimum(np.maximum(batch.output_tokens, 1), room)
    expected = np.where(batch.max_output_tokens >= 0, batch.max_output_tokens, output)
    expected = np.maximum(output, np.minimum(expected, room))
    if settings.scheduler.scheduling is Scheduling.SGLANG:
        rooms = np.maximum(output_rooms(batch, settings), 1)
        return np.minimum(output, rooms), np.minimum(expected, rooms)
    return output, expected


def output_rooms(batch: RequestColumns, settings: SimulationSettings) -> Ints:
    """Output tokens that SGLang's empty pool has room for beside each prompt (`sglang_admission.output_room`)."""
    page = settings.layout.groups[0].block_tokens
    whole = (batch.prompt_tokens + page - 1) // page * page
    return settings.layout.usable_blocks * page - whole - page - 1


def _records(
    batch: RequestColumns, settings: SimulationSettings, *, id_tokens: int, first: int
) -> tuple[Ints, Ints]:
    scheduler, block = settings.scheduler, settings.layout.groups[0].block_tokens
    rows = np.zeros((batch.rows, at.COLUMNS), dtype=np.int64)
    prompt = batch.prompt_tokens
    output, expected = lengths(batch, settings)
    tokens = prompt + output - 1
    ids = np.diff(batch.block_offsets)
    if scheduler.prefix_caching:
        rows[:, at.IDENTIFIED] = np.minimum(tokens // block, ids * id_tokens // block)
        # By priority a sequence may lose blocks in the step that fills them, and then holds a second copy beside the first: so each
        # of its blocks has a name.
        rows[:, at.KEYS] = tokens // block if scheduler.priority else rows[:, at.IDENTIFIED]
    for column, values in {
        at.SENT: batch.arrival_ns * PS_PER_NS,
        at.PROMPT: prompt,
        at.KNOWN: prompt,
        at.OUTPUT: output,
        at.EXPECTED: expected,
        at.IDS_FROM: batch.block_offsets[:-1] - batch.block_offsets[0],
        at.IDS: ids,
        at.TAG: batch.boundary,
        at.OWN_NUMBER: np.arange(batch.rows, dtype=np.int64) + first,
        at.RANK: batch.priority,
        at.CANCEL: np.where(batch.cancel_ns >= 0, batch.cancel_ns * PS_PER_NS, -1),
        at.FIRST_DEADLINE: np.where(
            batch.first_token_deadline_ns >= 0, batch.first_token_deadline_ns * PS_PER_NS, -1
        ),
        at.DEADLINE: np.where(batch.deadline_ns >= 0, batch.deadline_ns * PS_PER_NS, -1),
        at.PARENT: batch.parent if settings.follow_parents else -1,
        at.PAUSE: batch.pause_ns * PS_PER_NS,
        at.FITS: fitting(batch, settings),
        at.STATUS: int(Status.UNFINISHED),
        # An engine that plans ahead computes one token too many where it expects more than come.
        at.IS_OVERRUN: np.minimum(batch.max_output_tokens, scheduler.max_model_len - prompt) > output,
    }.items():
        rows[:, column] = values
    for column in (
        at.CHILD, at.SIBLING, at.ADMITTED, at.FIRST_TOKEN, at.END, at.PREVIOUS, at.NEXT, at.RUN_NODE,
        at.EARLIER, at.LATER_ONE,
    ):  # fmt: skip
        rows[:, column] = at.NOBODY
    return rows, batch.block_ids[batch.block_offsets[0] : batch.block_offsets[-1]]


def _link(rows: Ints, first: int) -> None:
    """Lists of children. A parent that is not there is never over."""
    inside = (rows[:, at.PARENT] >= first) & (rows[:, at.PARENT] < first + len(rows))
    children = np.flatnonzero(inside)
    parents = rows[children, at.PARENT] - first
    order = np.argsort(parents, kind="stable")
    children, parents = children[order], parents[order]
    is_first = np.ones(len(parents), dtype=np.bool_)
    is_first[1:] = parents[1:] != parents[:-1]
    rows[parents[is_first], at.CHILD] = children[is_first] + first
    later = np.flatnonzero(~is_first)
    rows[children[later - 1], at.SIBLING] = children[later] + first


def _is_sorted(rows: Ints) -> bool:
    sent = rows[rows[:, at.PARENT] < 0, at.SENT]
    return bool((sent[1:] >= sent[:-1]).all())


def _send_unsorted(m: Ints, rows: Ints, first: int) -> None:
    """Requests that are out of order are all known when the run begins: they go into the heap of what is to be sent."""
    roots = np.flatnonzero(rows[:, at.PARENT] < 0)
    order = np.lexsort((roots, rows[roots, at.SENT]))
    start = int(m[at.SENDS_AT])
    pairs = m[start : start + 2 * len(roots)].reshape(-1, 2)
    pairs[:, 0] = rows[roots[order], at.SENT]
    pairs[:, 1] = roots[order] + first
    m[at.SENDS] = len(roots)
    m[at.NEXT_NUMBER] = m[at.LOADED]


def _gathered(values: Ints, starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Pieces of `values` one behind the other, and where each starts then."""
    ends = np.cumsum(lengths)
    where = ends - lengths
    total = int(ends[-1]) if len(ends) else 0
    picks = np.repeat(starts - where, lengths) + np.arange(total, dtype=np.int64)
    return values[picks], where
