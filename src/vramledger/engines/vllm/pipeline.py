"""Pipeline stages: what crosses their boundaries, which stage binds the pool, and a partition that evens them out.

Source: vllm v1/worker/gpu_worker.py (execute_model: irecv_tensor_dict, isend_tensor_dict), gpu_model_runner.py and
gpu/model_runner.py (intermediate_tensors), model_executor/models/ (make_empty_intermediate_tensors).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from vramledger.engines.vllm.extras import Extra
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.evidence import calculated
from vramledger.ledger import AFTER_LOAD, ByteRange, Lifetime, Owner, Phase
from vramledger.models.model import Model
from vramledger.units import format_bytes, format_gib

# Models whose layers add their residual themselves, so that hidden states cross alone.
HIDDEN_ALONE = frozenset(
    (
        "bloom", "chatglm", "falcon", "falcon_h1", "gpt2", "gptj", "granite", "granitemoe", "granitemoehybrid",
        "granitemoeshared", "olmo_hybrid", "opt", "orion", "stablelm", "step3p5",
    )
)  # fmt: skip
STREAMS = {"deepseek_v4": 4}
"""Residual streams of hyper-connections, which cross together."""
ASYNCHRONOUS_SEND_SINCE = 20


def boundary_bytes(model: Model, settings: Settings) -> tuple[int, str]:
    """What one stage hands to the next for a full batch, and the formula."""
    element = settings.dtype.bits // 8
    streams = STREAMS.get(model.model_type)
    if streams is not None:
        rows, what = streams, f"{streams} streams"
    elif model.model_type in HIDDEN_ALONE:
        rows, what = 1, "hidden states"
    else:
        rows, what = 2, "hidden states and residual"
    size = rows * settings.max_tokens * model.hidden_size * element
    return size, f"{what} {settings.max_tokens} x {model.hidden_size} x {rows * element} B"


def boundary_extras(model: Model, settings: Settings, kind: RankKind) -> tuple[Extra, ...]:
    """Received tensors, which a stage after the first keeps for a full batch, and the copies in flight.

    The V1 runner makes the kept ones in the profile run, which so charges them; the V2 runner while loading, where
    only the device's free memory tells (0.27 and newer). A step holds what it received beside them until it
    ends; what it sent stays until the next one begins since sends became asynchronous. Neither is in the profile.
    """
    if settings.plan.pp == 1:
        return ()
    size, formula = boundary_bytes(model, settings)
    out = []
    in_flight = frozenset({Phase.PREFILL, Phase.RECOVERY})
    if not kind.is_first:
        kept = (
            "vllm v1/worker/gpu/model_runner.py"
            if settings.v2_runner
            else "vllm v1/worker/gpu_model_runner.py"
        )
        out += [
            Extra(
                owner=Owner.WORKSPACE,
                name="received from the stage before",
                bytes=ByteRange.exact(size),
                charged=not settings.v2_runner or settings.version.since(27),
                phases=AFTER_LOAD,
                evidence=calculated(f"{kept} (intermediate_tensors)", formula),
            ),
            Extra(
                owner=Owner.COLLECTIVES,
                name="boundary copy being received",
                bytes=ByteRange.exact(size),
                charged=False,
                phases=in_flight,
                lifetime=Lifetime.ITERATION,
                evidence=calculated("vllm v1/worker/gpu_worker.py (irecv_tensor_dict)", formula),
            ),
        ]
    if not kind.is_last and settings.version.since(ASYNCHRONOUS_SEND_SINCE):
        out.append(
            Extra(
                owner=Owner.COLLECTIVES,
                name="boundary tensors being sent",
                bytes=ByteRange.exact(size),
                charged=False,
                phases=in_flight,
                lifetime=Lifetime.ITERATION,
                evidence=calculated("vllm v1/worker/gpu_worker.py (isend_tensor_dict)", formula),
            )
        )
    return tuple(out)


class StageRoom(Struct, frozen=True, kw_only=True):
    """One kind of rank: its stage, its layers, the bytes it leaves for KV and one block's bytes on it."""

    stage: int
    layers: range
    ranks: tuple[int, ...]
    room_bytes: int
    bytes_per_block: int

    @property
    def blocks(self) -> int:
        """Blocks that fit; negative where not even the weights do."""
        return self.room_bytes // self.bytes_per_block


def tightest_by_stage(rooms: Sequence[StageRoom]) -> list[StageRoom]:
    """The tightest kind of rank of every stage that keeps KV, in order of stages."""
    out: dict[int, StageRoom] = {}
    for room in rooms:
        if room.bytes_per_block and (room.stage not in out or room.blocks < out[room.stage].blocks):
            out[room.stage] = room
    return [out[stage] for stage in sorted(out)]


def binding_text(rooms: Sequence[StageRoom]) -> str | None:
    """Which stage decides the pool and how far the next is from it; None where there is one stage."""
    stages = tightest_by_stage(rooms)
    if len(stages) < 2:
        return None
    ordered = sorted(stages, key=lambda room: room.blocks)
    first, second = ordered[0], ordered[1]
    count = max(room.stage for room in rooms) + 1
    start = f"stage {first.stage + 1} of {count} (layers {first.layers.start} to {first.layers.stop - 1}"
    ranks = (
        f"ranks {first.ranks[0]} to {first.ranks[-1]}" if len(first.ranks) > 1 else f"rank {first.ranks[0]}"
    )
    unused = second.room_bytes - max(first.blocks, 0) * second.bytes_per_block
    short = second.blocks * first.bytes_per_block - first.room_bytes
    if first.blocks == second.blocks:
        return f"{start}, {ranks}) binds the pool at {max(first.blocks, 0):,} blocks, and stage {second.stage + 1} with it"
    return (
        f"{start}, {ranks}) binds the pool at {max(first.blocks, 0):,} blocks: it is {format_bytes(short)} a rank "
        f"tighter than stage {second.stage + 1}, where {format_gib(max(unused, 0))} stay unused"
    )


MOST_STEPS = 24


def balanced_partition(
    counts: tuple[int, ...], rooms_of: Callable[[tuple[int, ...]], Sequence[StageRoom] | None]
) -> tuple[int, ...]:
    """Layers of each stage that give the largest pool found by moving layers off the stage that binds.

    `rooms_of` plans a partition, None where it cannot be run. Each accepted step was planned and is better than
    the one before; `counts` itself comes back where no step is.
    """
    best, rooms = counts, rooms_of(counts)
    if rooms is None:
        return counts
    for _ in range(MOST_STEPS):
        stages = sorted(tightest_by_stage(rooms), key=lambda room: room.blocks)
        if len(stages) < 2:
            return best
        tightest = stages[0]
        if best[tightest.stage] < 2:
            return best
        found = None
        for roomy in reversed(stages[1:]):
            tried = list(best)
            tried[tightest.stage] -= 1
            tried[roomy.stage] += 1
            planned = rooms_of(tuple(tried))
            if planned is not None and _pool_blocks(planned) > tightest.blocks:
                found = (tuple(tried), planned)
                break
        if found is None:
            return best
        best, rooms = found
    return best


def _pool_blocks(rooms: Sequence[StageRoom]) -> int:
    return min((room.blocks for room in rooms if room.bytes_per_block), default=0)
