"""What is known of one failure when its class is asked for. A fact that no source tells is None (or empty)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.terms import Stage
from vramledger.ledger import ByteRange


class Facts(Struct, frozen=True, kw_only=True):
    """One failure and the moment it stood in.

    `stage_told_by` is "message", "frame", "log" or "words". `ready` is whether the instance had said that it is ready, None
    where what was read does not begin at its start. `served` is whether a request was seen before the failure.
    `own_bytes` is what the failing process holds of the device, `others_bytes` what other processes hold, `slack_bytes` what its
    allocator has reserved and not handed out, `largest_free_run_bytes` the largest piece of that. `siblings` counts further
    processes on the same device, `siblings_alike` those of them that hold about as much as the failing one.
    `is_proven` is whether the message alone proves that memory was short. `needed_bytes` and `available_bytes` are an engine's own refusal. `pool_loss_tokens` is what a pool's books miss (negative:
    count twice). `device_slope_bytes_per_h` and `host_slope_bytes_per_h` are trends under constant load.
    `resident_bytes` is what a killed process had in host memory of its own.
    `raised` is an error of unknown meaning that a traceback ends in, where only consequences of the failure were read.
    `symptoms` are things said in words by whoever wrote the file.
    """

    kind: str = ""
    standing: Standing = Standing.CAUSE
    domain: Domain | None = None
    engine: str | None = None
    stage: Stage | None = None
    stage_told_by: str = ""
    buffer: str | None = None
    is_proven: bool = True
    requested_bytes: ByteRange | None = None
    free_bytes: ByteRange | None = None
    total_bytes: ByteRange | None = None
    own_bytes: ByteRange | None = None
    allocated_bytes: ByteRange | None = None
    slack_bytes: ByteRange | None = None
    private_pool_bytes: ByteRange | None = None
    largest_free_run_bytes: int | None = None
    others_bytes: ByteRange | None = None
    outside_bytes: ByteRange | None = None
    siblings: int | None = None
    siblings_alike: int | None = None
    needed_bytes: ByteRange | None = None
    available_bytes: ByteRange | None = None
    wanted_tokens: int | None = None
    available_tokens: int | None = None
    free_cells: int | None = None
    activation_bytes: ByteRange | None = None
    graph_bytes: ByteRange | None = None
    weights_bytes: ByteRange | None = None
    pool_loss_tokens: int | None = None
    resident_bytes: ByteRange | None = None
    pool_bytes: ByteRange | None = None
    ready: bool | None = None
    served: bool = False
    since_ready_s: float | None = None
    running_requests: int | None = None
    waiting_requests: int | None = None
    kv_usage_ratio: float | None = None
    scheduled_tokens: int | None = None
    prefill_just_before: bool = False
    decode_just_before: bool = False
    preemptions: int | None = None
    device_slope_bytes_per_h: float | None = None
    host_slope_bytes_per_h: float | None = None
    slope_hours: float | None = None
    previous_engine_s: float | None = None
    recovery_beside: bool | None = None
    kernel_says_oom: bool | None = None
    raised: str = ""
    symptoms: frozenset[str] = frozenset()
    settings: Mapping[str, str | int | float | bool] = {}
    graphs_off: bool | None = None
    warmup_off: bool | None = None
    prompt_rows: bool | None = None
    sleep_mode: bool | None = None


# What would tell a fact that is missing: a line of the log, or the output of a command.
HOW_TO_LEARN: Mapping[str, str] = {
    "stage": "the log from the start of the process, so that the last step before the failure is known",
    "ready": "the log from the start of the process, up to the failure",
    "requested_bytes": "the allocator's whole message ('Tried to allocate ...' to its end)",
    "free_bytes": "the allocator's whole message, with what is free on the device",
    "slack_bytes": "the allocator's whole message, with 'reserved by PyTorch but unallocated'",
    "largest_free_run_bytes": "an allocator snapshot taken at the failure (torch.cuda.memory._dump_snapshot)",
    "others_bytes": "nvidia-smi --query-compute-apps=pid,used_memory --format=csv, taken before the engine starts",
    "siblings": "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
    "kv_usage_ratio": "the engine's periodic line (running, waiting, KV cache usage) or its /metrics just before the failure",
    "running_requests": "the engine's periodic line (running, waiting, KV cache usage) just before the failure",
    "device_slope_bytes_per_h": "device memory sampled over time under constant load (vramledger sample)",
    "host_slope_bytes_per_h": "resident memory of the processes sampled over time (vramledger sample)",
    "previous_engine_s": "when a previous engine on this device ended, and which processes hold it now (nvidia-smi)",
    "kernel_says_oom": "the kernel log (dmesg -T) or the container's memory.events at the time of the kill",
    "free_cells": "the slots of the server (GET /slots) or the usage of its KV cache at that moment",
    "symptoms": "the log itself: what was read is a description",
}


def told(facts: Facts, name: str) -> bool:
    """Whether a fact of this name is known."""
    value: object = getattr(facts, name)
    return value is not None and value not in ("", frozenset())
