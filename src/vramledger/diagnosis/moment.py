"""The moment a failure stood in: the stage of its instance, its running cohort, its pool, what came just before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from vramledger.diagnosis.terms import IN_SERVICE, Stage
from vramledger.ledger import ByteRange
from vramledger.observation import Event, Observation, Value

# What an instance is doing once it has printed such a line, where the line itself does not say more.
_AFTER: dict[Event, Stage] = {
    Event.VERSION: Stage.STARTING,
    Event.SETTINGS: Stage.STARTING,
    Event.MODEL: Stage.STARTING,
    Event.DEVICE: Stage.STARTING,
    Event.LOAD_BEGIN: Stage.WEIGHT_LOAD,
    Event.WEIGHTS: Stage.POST_LOAD,
    Event.PROFILE: Stage.KV_SIZING,
    Event.GRAPH_ESTIMATE: Stage.KV_SIZING,
    Event.KV_BUDGET: Stage.KV_ALLOC,
    Event.KV_POOL: Stage.WARMUP_FORWARD,
    Event.GRAPH_SHAPE: Stage.GRAPH_CAPTURE,
    Event.GRAPHS: Stage.WARMUP_FORWARD,
    Event.WARMUP: Stage.WARMUP_FORWARD,
    Event.READY: Stage.SERVING,
    Event.ADMITTED: Stage.PREFILL,
    Event.STEP: Stage.SERVING,
    Event.PREEMPTION: Stage.DECODE,
    Event.SLEEP: Stage.SLEEP,
    Event.WAKE: Stage.WAKE,
}
# vLLM runs its profile on the weights; llama.cpp's contexts come after its model's buffers.
_OF_ENGINE: dict[tuple[str, Event], Stage] = {
    ("vllm", Event.WEIGHTS): Stage.PROFILE_RUN,
    ("sglang", Event.WEIGHTS): Stage.KV_ALLOC,
    ("tensorrt-llm", Event.WEIGHTS): Stage.RUNTIME_BUFFERS,
}
_BUFFERS = {
    "model": Stage.WEIGHT_LOAD,
    "kv": Stage.COMPUTE_BUFFERS,
    "rs": Stage.COMPUTE_BUFFERS,
    "compute": Stage.WARMUP_FORWARD,
}
_STEPS = {
    "context": Stage.KV_ALLOC,
    "cache": Stage.KV_ALLOC,
    "graphs": Stage.GRAPH_CAPTURE,
    "graph": Stage.GRAPH_CAPTURE,
    "capture begins": Stage.GRAPH_CAPTURE,
}
_FREE_AT = {Event.LOAD_BEGIN: "free_before_load_bytes", Event.WEIGHTS: "free_after_load_bytes"}
_ENDS_WARMUP = frozenset({"init engine"})
_BEGINNINGS = frozenset(
    {
        Event.VERSION,
        Event.SETTINGS,
        Event.MODEL,
        Event.DEVICE,
        Event.LOAD_BEGIN,
        Event.WEIGHTS,
        Event.PROFILE,
        Event.KV_BUDGET,
        Event.KV_POOL,
        Event.BUFFER,
    }
)
# A prompt admitted so long before a failure is no longer being computed.
JUST_BEFORE_S = 15.0


class Moment(Struct, frozen=True, kw_only=True):
    """What the log of the failing instance said until the failure; None or empty where it did not."""

    stage: Stage | None = None
    stage_line: Observation | None = None
    ready: bool | None = None
    ready_at_s: float | None = None
    served: bool = False
    running_requests: int | None = None
    waiting_requests: int | None = None
    kv_usage_ratio: float | None = None
    scheduled_tokens: int | None = None
    free_blocks: int | None = None
    prefill_just_before: bool = False
    decode_just_before: bool = False
    preemptions: int = 0
    sizes: dict[str, ByteRange] = {}
    model: str | None = None
    engine_version: str | None = None
    settings: dict[str, Value] = {}
    notable: tuple[Observation, ...] = ()


def time_of(item: Observation) -> float | None:
    """Unix time, or seconds since its printer started where it prints only these: comparable within one source."""
    elapsed = item.values.get("elapsed_s")
    if item.at_s is not None:
        return item.at_s
    return float(elapsed) if isinstance(elapsed, int | float) and not isinstance(elapsed, bool) else None


def moment(before: Sequence[Observation], at_s: float | None) -> Moment:
    """The moment after these observations of one instance, in order; `at_s` is the failure's time as `time_of` has it."""
    busy: set[int] = set()
    slots_seen = False
    stage: Stage | None = None
    stage_line = step = admitted = None
    ready: bool | None = None
    ready_at = None
    served = False
    preemptions = 0
    model: str | None = None
    version: str | None = None
    prefill = decode = False
    sizes: dict[str, ByteRange] = {}
    settings: dict[str, Value] = {}
    figures: dict[str, Value] = {}
    notable: dict[Event, Observation] = {}
    for item in before:
        if item.event in _BEGINNINGS and ready is None:
            ready = False
        if isinstance(item.values.get("engine_version"), str):
            version = str(item.values["engine_version"])
        found = _stage_after(item, stage)
        if found is not None:
            stage, stage_line = found, item
        match item.event:
            case Event.READY:
                ready, ready_at = True, time_of(item)
            case Event.MODEL if isinstance(item.values.get("model"), str):
                model = str(item.values["model"])
            case Event.SETTINGS:
                settings.update(item.values)
            case Event.STEP:
                served = served or item.values.get("phase") != "idle"
                ready, step = True, item
                figures.update(item.values)
                if item.values.get("phase") == "released":
                    busy.discard(_whole(item.values, "slot_id") or 0)
                elif item.values.get("phase") == "idle":
                    busy.clear()
                    prefill = decode = False
                elif _whole(item.values, "running_requests") or is_prefill(item) or is_decode(item):
                    prefill, decode = is_prefill(item), is_decode(item)
            case Event.ADMITTED:
                served, admitted, prefill = True, item, True
                slot = _whole(item.values, "slot_id")
                if slot is not None:
                    slots_seen = True
                    busy.add(slot)
            case Event.PREEMPTION:
                served = True
                stated = _whole(item.values, "preempted_requests")
                preemptions += 1 if stated is None else stated
                preemptions = max(preemptions, _whole(item.values, "total_preempted_requests") or 0)
            case _:
                pass
        if item.event in _NOTABLE:
            notable[item.event] = item
        free = item.values.get("free_bytes")
        if isinstance(free, ByteRange) and item.event in _FREE_AT:
            sizes[_FREE_AT[item.event]] = free
        sizes.update({name: value for name, value in item.values.items() if isinstance(value, ByteRange)})
    last = admitted if prefill and admitted is not None else step
    then = None if last is None else time_of(last)
    recent = last is not None and (then is None or at_s is None or at_s - then <= JUST_BEFORE_S)
    return Moment(
        stage=stage,
        stage_line=stage_line,
        ready=ready,
        ready_at_s=ready_at,
        served=served,
        running_requests=len(busy) if slots_seen else _whole(figures, "running_requests"),
        waiting_requests=_whole(figures, "waiting_requests"),
        kv_usage_ratio=_number(figures, "kv_usage_ratio"),
        scheduled_tokens=_whole(figures, "scheduled_tokens"),
        free_blocks=_whole(figures, "kv_free_blocks"),
        prefill_just_before=prefill and recent,
        decode_just_before=decode and recent,
        preemptions=preemptions,
        sizes=sizes,
        model=model,
        engine_version=version,
        settings=settings,
        notable=tuple(notable.values()),
    )


_NOTABLE = frozenset(
    {
        Event.DEVICE,
        Event.WEIGHTS,
        Event.PROFILE,
        Event.KV_BUDGET,
        Event.KV_POOL,
        Event.GRAPHS,
        Event.GRAPH_ESTIMATE,
        Event.READY,
        Event.ADMITTED,
        Event.STEP,
        Event.PREEMPTION,
        Event.SLEEP,
        Event.WAKE,
    }
)


def _stage_after(item: Observation, stage: Stage | None) -> Stage | None:
    """The stage once a line was printed; None where the line does not tell. Frames do not, they are read at the failure."""
    if item.event in (Event.FAILURE, Event.FRAME, Event.REMARK):
        return None
    stated = item.values.get("stage")
    if isinstance(stated, str) and stated in set(Stage):
        return Stage(stated)
    if item.event is Event.BUFFER:
        return _BUFFERS.get(str(item.values.get("buffer")).lower()) if stage not in IN_SERVICE else None
    if item.event is Event.WARMUP and item.values.get("step") in _ENDS_WARMUP:
        return Stage.SERVING
    if item.event is Event.WARMUP:
        return _STEPS.get(str(item.values.get("step")), Stage.WARMUP_FORWARD)
    found = _OF_ENGINE.get((item.engine or "", item.event), _AFTER.get(item.event))
    if found in (Stage.STARTING,) and stage is not None and stage not in IN_SERVICE:
        return None
    if item.event is Event.STEP:
        return Stage.PREFILL if is_prefill(item) else Stage.SERVING
    return found


def is_prefill(item: Observation) -> bool:
    """Whether a step computed prompts."""
    return item.values.get("phase") == "prefill" or (
        _rate(item, "prompt") > 0 and _rate(item, "generated") == 0
    )


def is_decode(item: Observation) -> bool:
    """Whether a step generated only."""
    return item.values.get("phase") == "decode" or (
        _rate(item, "generated") > 0 and _rate(item, "prompt") == 0
    )


def _rate(item: Observation, what: str) -> float:
    return _number(item.values, f"{what}_tokens_per_s") or 0.0


def frame_stage(frames: Iterable[Observation]) -> tuple[Stage, Observation] | None:
    """What a traceback's functions say: an outer step (profile, capture, wake) wins, else the innermost known one."""
    from vramledger.diagnosis.frames import OUTER

    found: tuple[Stage, Observation] | None = None
    for item in frames:
        stage = Stage(str(item.values["stage"]))
        if stage in OUTER:
            return stage, item
        found = (stage, item)
    return found


def _whole(values: object, name: str) -> int | None:
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(values: object, name: str) -> float | None:
    value = values.get(name) if isinstance(values, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
