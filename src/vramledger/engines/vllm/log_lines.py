"""The memory lines of a start-up log, worded as each version words them.

Source: vllm v1/worker/gpu_worker.py, gpu_model_runner.py, v1/core/kv_cache_utils.py, worker/worker.py (V0); the
wording by version is that of published logs.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.vllm.budget import RankTerms
from vramledger.engines.vllm.kv_budget import token_shards
from vramledger.engines.vllm.settings import Settings
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange
from vramledger.pool import KvPool
from vramledger.units import GIB


def log_lines(
    settings: Settings,
    device: Device,
    terms: Sequence[RankTerms],
    available: Sequence[ByteRange],
    pool: KvPool | None,
) -> tuple[str, ...]:
    """The lines with expected values; seconds are left out. "GB" stands where a version prints GiB as GB."""
    weights = max(item.loading_bytes for item in terms) / GIB
    room = min(item.expected for item in available) / GIB
    lines = [_weights_line(weights, settings)]
    if settings.version.since(9, 2) and settings.v1:
        lines.append(f"Available KV cache memory: {_figure(room, settings)} GiB")
    if pool is None:
        return tuple(lines)
    concurrency = (
        f"Maximum concurrency for {_length(pool.context_len, settings)} tokens per request: "
        f"{pool.max_concurrency.expected:.2f}x"
    )
    if not settings.v1:
        return (*lines, f"# GPU blocks: {pool.num_blocks.expected}", concurrency)
    word = "CPU" if device.vendor == "cpu" and settings.version.since(30) else "GPU"
    size = f"{word} KV cache size: {pool.tokens.expected:,} tokens"
    if settings.version.since(28):
        return (*lines, f"{size}, {concurrency}")
    return (*lines, *_multiplied(settings), size, concurrency)


def _multiplied(settings: Settings) -> tuple[str, ...]:
    """What versions before 0.20 say of ranks that share a context."""
    plan, version = settings.plan, settings.version
    if token_shards(settings) == 1 or version.since(20):
        return ()
    if not version.since(12):
        return (f"Multiplying the GPU KV cache size by the dcp_world_size {plan.dcp}.",)
    both = plan.pcp * plan.dcp
    of = f"(pcp_world_size {plan.pcp} * dcp_world_size {plan.dcp})"
    return (f"Multiplying the GPU KV cache size by the cp_world_size {both} {of}.",)


def _weights_line(weights_gib: float, settings: Settings) -> str:
    version = settings.version
    if not version.since(7):
        return f"Loading model weights took {weights_gib:.4f} GB"
    if not version.since(8, 5):
        return f"Model loading took {weights_gib:.4f} GB"
    plain = settings.v2_runner and not version.since(28)
    memory = " memory" if version.since(11, 2) and not plain else ""
    return f"Model loading took {_figure(weights_gib, settings, before=4)} GiB{memory}"


def _figure(gib: float, settings: Settings, *, before: int = 2) -> str:
    """`before` digits up to 0.13, then at most two without trailing zeros ("16.0", "3.1")."""
    return str(round(gib, 2)) if settings.version.since(14) else f"{gib:.{before}f}"


def _length(tokens: int, settings: Settings) -> str:
    """V1 prints thousands with commas, V0 plain digits."""
    return f"{tokens:,}" if settings.v1 else str(tokens)
