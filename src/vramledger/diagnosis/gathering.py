"""The facts of one incident, from its messages, its log, its samples, snapshots and what was said in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from vramledger.diagnosis.arithmetic import Arithmetic, merged_values
from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.frames import stage_in
from vramledger.diagnosis.incident import Incident, kind_of, standing_of
from vramledger.diagnosis.knobs import knobs_of
from vramledger.diagnosis.messages.executor_reading import executor_failure
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.messages.pool_reading import pool_books
from vramledger.diagnosis.messages.readings import size_of, whole_of
from vramledger.diagnosis.messages.torch_reading import torch_oom
from vramledger.diagnosis.moment import Moment, frame_stage, time_of
from vramledger.diagnosis.terms import RECOVERING, Stage
from vramledger.diagnosis.trends import Trend, is_host
from vramledger.engines import find_log, find_printed
from vramledger.ledger import ByteRange
from vramledger.observation import Event, Observation, Value

# Frames of a traceback stand within so many lines before its message, or after it where a log prints the message first.
FRAMES_BEFORE, FRAMES_AFTER = 160, 80
# Where a message is at home when nothing else tells where it stood.
_HOME = {
    "vllm-cumem-oom": Stage.WAKE,
    "memory-saver-oom": Stage.WAKE,
    "ggml-buffer": Stage.WEIGHT_LOAD,
}
_PROMPT_ROWS = ("prompt_logprobs", "gather_context_logits", "return_logprob", "logits_all", "echo_logprobs")
_WARMUP_OFF = ("no_warmup", "skip_server_warmup")
_GRAPHS_OFF = ("enforce_eager", "disable_cuda_graph", "cuda_graph_off")
_SLEEP = ("enable_sleep_mode", "enable_memory_saver")
# Other processes on a device that hold so nearly what the failing one holds are its siblings.
ALIKE = 0.25


class FreePieces(Struct, frozen=True, kw_only=True):
    """What an allocator snapshot says of the failing device: the largest free run and all that is free in its pools."""

    source: str
    device: int
    largest_free_run_bytes: int
    free_bytes: int
    reserved_bytes: int
    allocated_bytes: int


def facts_of(
    incident: Incident,
    now: Moment,
    sums: Arithmetic,
    *,
    engine: str | None = None,
    frames: Sequence[Observation] = (),
    trends: Sequence[Trend] = (),
    snapshots: Sequence[FreePieces] = (),
    symptoms: frozenset[str] = frozenset(),
    after: Sequence[Observation] = (),
    stated: Mapping[str, Value] | None = None,
    settings: Mapping[str, Value] | None = None,
    kernel_says_oom: bool | None = None,
) -> Facts:
    """Everything that is known, by the rules' names. `settings` are what the user gave; what the log `stated` stands behind them.
    `after` is what the same source said after the failure."""
    messages = incident.companions
    values = merged_values(messages)
    known = {**(stated or {}), **_share_of(engine, values), **(settings or {})}
    kind = incident.kind
    parsed = next((found for found in map(torch_oom, messages) if found is not None), None)
    stage, told_by = _stage(incident, now, frames, symptoms)
    own = parsed.own_process if parsed is not None else None
    if own is None and parsed is not None and parsed.allocated is not None:
        own = (
            parsed.allocated
            if parsed.reserved_unallocated is None
            else parsed.allocated + parsed.reserved_unallocated
        )
    siblings, alike = _siblings(incident)
    rising = [item for item in trends if item.rises]
    device_trend = next((item for item in rising if not is_host(item.name)), None)
    host_trend = next((item for item in rising if is_host(item.name)), None)
    peak = snapshots[0] if snapshots else None
    at, ready_at = time_of(incident.first), now.ready_at_s
    return Facts(
        kind="" if kind is None else kind.name,
        standing=standing_of(incident.first) or Standing.CAUSE,
        domain=_domain(incident, symptoms),
        engine=engine,
        stage=stage,
        stage_told_by=told_by,
        buffer=_buffer(values),
        is_proven=kind is None or kind.proves_memory or kernel_says_oom is True,
        requested_bytes=sums.wanted_bytes,
        free_bytes=sums.available_bytes if parsed is None else parsed.free,
        total_bytes=None if sums.total_bytes is None or sums.total_bytes.low <= 0 else sums.total_bytes,
        own_bytes=own,
        allocated_bytes=None if parsed is None else parsed.allocated,
        slack_bytes=_slack(parsed.reserved_unallocated if parsed is not None else None, peak),
        private_pool_bytes=None if parsed is None else parsed.private_pools,
        largest_free_run_bytes=None if peak is None else peak.largest_free_run_bytes,
        others_bytes=_others(sums, own, parsed is not None),
        outside_bytes=None if parsed is None else parsed.outside_framework,
        siblings=siblings,
        siblings_alike=alike,
        needed_bytes=size_of(values, "needed_bytes"),
        available_bytes=size_of(values, "available_bytes"),
        wanted_tokens=sums.wanted_tokens,
        available_tokens=sums.available_tokens,
        free_cells=_free_cells(incident, now, after),
        activation_bytes=now.sizes.get("activation_peak_bytes"),
        graph_bytes=now.sizes.get("graph_bytes"),
        weights_bytes=now.sizes.get("weights_bytes"),
        pool_loss_tokens=pool_loss(incident),
        resident_bytes=size_of(merged_values(incident.lines), "anon_rss_bytes"),
        pool_bytes=now.sizes.get("kv_cache_bytes"),
        ready=now.ready,
        served=now.served,
        since_ready_s=None if at is None or ready_at is None else at - ready_at,
        running_requests=now.running_requests,
        waiting_requests=now.waiting_requests,
        kv_usage_ratio=now.kv_usage_ratio if now.kv_usage_ratio is not None else _ratio(known),
        scheduled_tokens=now.scheduled_tokens,
        prefill_just_before=now.prefill_just_before,
        decode_just_before=now.decode_just_before,
        preemptions=now.preemptions or None,
        device_slope_bytes_per_h=None if device_trend is None else device_trend.slope_bytes_per_h,
        host_slope_bytes_per_h=None if host_trend is None else host_trend.slope_bytes_per_h,
        slope_hours=max((item.hours for item in rising), default=None),
        previous_engine_s=_previous(incident),
        recovery_beside=_recovery_beside(incident),
        kernel_says_oom=kernel_says_oom,
        raised="" if incident.exception is None else str(incident.exception.values["exception"]),
        symptoms=symptoms,
        settings={name: value for name, value in known.items() if not isinstance(value, ByteRange)},
        graphs_off=_switch(known, _GRAPHS_OFF),
        warmup_off=_switch(known, _WARMUP_OFF),
        prompt_rows=_switch(known, _PROMPT_ROWS),
        sleep_mode=_switch(known, _SLEEP),
    )


def _stage(
    incident: Incident, now: Moment, frames: Sequence[Observation], symptoms: frozenset[str]
) -> tuple[Stage | None, str]:
    """The stage and who told it: the message, then the traceback, then the log, then the message's home, then words."""
    for item in incident.companions:
        stated = item.values.get("stage")
        made = executor_failure(item)
        if made is not None and made.component in ("Model", "Model weights"):
            return Stage.WEIGHT_LOAD, "message"
        if isinstance(stated, str) and stated in set(Stage) and standing_of(item) is not Standing.EVIDENCE:
            return _first_request(Stage(stated), now), "message"
    named = next((stage for item in incident.companions if (stage := stage_in(item.text)) is not None), None)
    if named is not None and named is not Stage.SERVING:
        return named, "message"
    found = frame_stage(frames)
    if found is not None and found[0] is not Stage.SERVING:
        return found[0], "frame"
    kinds = (kind_of(item) for item in incident.companions)
    home = next((_HOME[kind.name] for kind in kinds if kind is not None and kind.name in _HOME), None)
    if _one_token_each(incident, now):
        return Stage.DECODE, "log"
    if now.stage is not None and not (home is not None and now.ready is not False):
        return _first_request(now.stage, now), "log"
    if home is not None:
        return home, "message"
    if found is not None:
        return found[0], "frame"
    if "startup" in symptoms:
        return Stage.STARTING, "words"
    if "warmup" in symptoms:
        return Stage.WARMUP_FORWARD, "words"
    if "generation" in symptoms and "prompt" not in symptoms:
        return Stage.DECODE, "words"
    if "in-service" in symptoms:
        return Stage.SERVING, "words"
    return None, ""


def _one_token_each(incident: Incident, now: Moment) -> bool:
    """Whether a batch that found no cells had no more tokens than there are running requests: then each generated one."""
    kind = incident.kind
    wanted = whole_of(incident.first.values, "requested_tokens")
    return (
        kind is not None
        and kind.domain is Domain.KV_POOL
        and now.ready is True
        and wanted is not None
        and now.running_requests is not None
        and wanted <= now.running_requests
    )


def _free_cells(incident: Incident, now: Moment, after: Sequence[Observation]) -> int | None:
    """Cells that no slot held, at least: the pool's less what each slot is said to have held when it was let go right after
    the failure. None where not every running slot is let go. Slots may share cells, so more may have been free."""
    cells = next(
        (
            count
            for item in reversed(now.notable)
            if isinstance(count := item.values.get("cells_count"), int) and not isinstance(count, bool)
        ),
        None,
    )
    if cells is None or not now.running_requests or incident.kind is None:
        return None
    held: dict[int, int] = {}
    for item in after:
        slot, tokens = whole_of(item.values, "slot_id"), whole_of(item.values, "slot_tokens")
        if item.event is Event.ADMITTED:
            break
        if item.values.get("phase") == "released" and slot is not None and tokens is not None:
            held.setdefault(slot, tokens)
    return max(0, cells - sum(held.values())) if len(held) >= now.running_requests else None


def _first_request(stage: Stage, now: Moment) -> Stage:
    return Stage.FIRST_REQUEST if stage is Stage.SERVING and now.ready and not now.served else stage


def _share_of(engine: str | None, values: Mapping[str, Value]) -> dict[str, Value]:
    """The engine's share of the device, where a refusal itself states it."""
    name = knobs_of(engine).share
    share = values.get("utilization_ratio", values.get("static_ratio"))
    return {name: share} if name is not None and isinstance(share, float) else {}


def measured_settings(engine: str | None, before: Sequence[Observation]) -> dict[str, Value]:
    """What the engine's log states of its settings, under the names of its flags here, numbers as numbers."""
    log = None if engine is None else find_log(engine)
    if engine is None or log is None or not before:
        return {}
    printed = find_printed(engine)
    flag_of = {} if printed is None else printed.FLAG_OF
    measurement = log.measured(before)
    found = {flag_of.get(name, name): _plain(value) for name, value in measurement.settings}
    if measurement.model is not None:
        found.setdefault("model", measurement.model)
    return found


def _plain(value: Value) -> Value:
    if isinstance(value, str) and value.isdecimal() and len(value) <= 18:
        return int(value)
    return value


def frames_near(incident: Incident, observations: Sequence[Observation]) -> list[Observation]:
    """Frames of the failing process around its message, in order."""
    place = incident.first.place
    return [
        item
        for item in observations
        if item.event is Event.FRAME
        and item.place.source == place.source
        and -FRAMES_BEFORE <= item.place.line - place.line <= FRAMES_AFTER
        and (item.process == incident.first.process or item.process is None or incident.first.process is None)
    ]


def _domain(incident: Incident, symptoms: frozenset[str]) -> Domain | None:
    kind = incident.kind
    if kind is not None:
        return kind.domain
    if "host" in symptoms:
        return Domain.HOST
    return None


def _buffer(values: Mapping[str, Value]) -> str | None:
    value, call = values.get("buffer"), str(values.get("call", ""))
    if call == "ggml_cuda_device_malloc":
        return "fallback-pool"
    if call.startswith("cuMem"):
        return "vmm-pool"
    return value if isinstance(value, str) else None


def _slack(stated: ByteRange | None, peak: FreePieces | None) -> ByteRange | None:
    return stated if peak is None else ByteRange.exact(peak.free_bytes)


def _others(sums: Arithmetic, own: ByteRange | None, is_torch: bool) -> ByteRange | None:
    """What is neither free nor this process's; without its own part, what its framework does not account for."""
    if not is_torch or sums.total_bytes is None or sums.available_bytes is None or own is None:
        return None
    return sums.total_bytes - sums.available_bytes - own


def _siblings(incident: Incident) -> tuple[int | None, int | None]:
    """Further processes that the message names on the device, and how many of them hold about as much as this one."""
    for item in incident.companions:
        parsed = torch_oom(item)
        if parsed is None or not parsed.processes:
            continue
        used = sorted(
            (entry.used.expected for entry in parsed.processes if entry.used is not None), reverse=True
        )
        own = parsed.this_process or parsed.own_process
        if own is None:
            others = used[1:]
            reference = used[0] if used else 0
        else:
            others, reference = list(used), own.expected
            if parsed.this_process is None and reference in others:
                others.remove(reference)
        alike = [size for size in others if reference > 0 and abs(size - reference) <= ALIKE * reference]
        return len(others), len(alike)
    return None, None


def pool_loss(incident: Incident) -> int | None:
    """What the books of a pool miss, of several pools the one that misses most; None where they are not stated."""
    losses = [
        books.loss for item in incident.companions for books in pool_books(item) if books.loss is not None
    ]
    return max(losses, key=abs, default=None)


def _recovery_beside(incident: Incident) -> bool | None:
    """Whether the same source speaks of a sleep, a wake, an unload or a reload right beside the failure."""
    stages = {item.values.get("stage") for item in incident.companions if item is not incident.first}
    return True if stages & {stage.value for stage in RECOVERING} else None


def _previous(incident: Incident) -> float | None:
    """Seconds from the last line of an earlier instance on the device to this one's start."""
    earlier = incident.earlier
    if earlier is None or earlier.at_s is None:
        return None
    start = next((item.at_s for item in incident.before if item.at_s is not None), incident.first.at_s)
    return None if start is None else start - earlier.at_s


def _switch(settings: Mapping[str, Value], names: Sequence[str]) -> bool | None:
    """Whether any setting of these names is on; None where none of them is stated."""
    stated = [settings[name] for name in names if name in settings]
    if not stated:
        return None
    return any(value not in (False, 0, None, "", "not set", "False", "false", "0") for value in stated)


def _ratio(settings: Mapping[str, Value]) -> float | None:
    value = settings.get("kv_usage_ratio")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
