"""The KV pool from the model's name, the card and the flags alone, against what the engine printed."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from tools.fidelity.runs import MeasuredRun

from vramledger.answer import Plan
from vramledger.errors import InputError
from vramledger.hardware.catalogue import Device, find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.planning import load_model, plan

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FLAGS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "dtype",
    "kv_cache_dtype",
    "gpu_memory_utilization",
)


class PoolCheck(Struct, frozen=True, kw_only=True):
    """Blocks: low, expected and high as planned, the same where the card's total is the recorded one, and what was recorded."""

    low: int
    expected: int
    high: int
    expected_with_recorded_total: int | None
    recorded: int | None

    @property
    def is_inside(self) -> bool | None:
        return None if self.recorded is None else self.low <= self.recorded <= self.high


class Planned(Struct, frozen=True, kw_only=True):
    """What a run was planned as."""

    checkpoint: Checkpoint
    device: Device
    plan: Plan


def planned(run: MeasuredRun) -> Planned:
    """The run's plan: the model by its name (a folder under examples/ of that name or of its instruct sibling, which has the same
    shapes, else the hub), the card by its own."""
    checkpoint, device = load_model(_model(run.model)), find_device(run.device)
    return Planned(checkpoint=checkpoint, device=device, plan=_plan(run, checkpoint, device))


def pool_check(run: MeasuredRun, made: Planned) -> PoolCheck:
    """Raises InputError where the plan leaves no pool."""
    pool = made.plan.kv_pool
    if pool is None:
        raise InputError(f"{run.name}: the plan leaves no KV pool")
    exact: int | None = None
    total = run.device_total_bytes
    if total is not None:
        card = replace(made.device, total_bytes=total, total_low_bytes=total, total_high_bytes=total)
        again = _plan(run, made.checkpoint, card).kv_pool
        exact = None if again is None else again.num_blocks.expected
    return PoolCheck(
        low=pool.num_blocks.low,
        expected=pool.num_blocks.expected,
        high=pool.num_blocks.high,
        expected_with_recorded_total=exact,
        recorded=run.num_gpu_blocks,
    )


def _model(name: str) -> str:
    last = name.rpartition("/")[2]
    for folder in (last, f"{last}-Instruct"):
        if (EXAMPLES / folder).is_dir():
            return str(EXAMPLES / folder)
    return name


def _plan(run: MeasuredRun, checkpoint: Checkpoint, device: Device) -> Plan:
    flags = {name: run.engine_kwargs[name] for name in FLAGS if run.engine_kwargs.get(name) is not None}
    return plan(
        checkpoint,
        device,
        engine=f"vllm=={run.engine_version}",
        tp=int(run.engine_kwargs.get("tensor_parallel_size") or 1),
        dp=int(run.engine_kwargs.get("data_parallel_size") or 1),
        **flags,
    )
