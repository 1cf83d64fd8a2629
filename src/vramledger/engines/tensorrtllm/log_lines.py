"""The memory lines of the engine's start-up log, as each back end and version words them.

Source: tensorrt_llm/_torch/pyexecutor/_util.py, resource_manager.py; cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.tensorrtllm.activation import estimation_tokens
from vramledger.engines.tensorrtllm.budget import RankTerms, share
from vramledger.engines.tensorrtllm.pools import RankPools, quota, windows_of
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.hardware.catalogue import Device
from vramledger.units import GIB


def log_lines(settings: Settings, device: Device, terms: RankTerms, pools: RankPools) -> tuple[str, ...]:
    """The lines of one rank with expected values; none for a model that keeps no KV."""
    if not pools.pools:
        return ()
    first = _profiled(settings, device, terms, pools) if settings.is_pytorch else _measured(device, terms)
    return (*first, *_sizes(settings, pools), *_limits(settings, pools))


def _profiled(settings: Settings, device: Device, terms: RankTerms, pools: RankPools) -> list[str]:
    outside = terms.outside.expected
    lines = [
        (
            "Memory used after loading model weights (inside torch) in memory usage profiling: "
            f"{_gib(terms.loaded_bytes)} GiB"
        ),
        f"Memory used after loading model weights (outside torch) in memory usage profiling: {_gib(outside)} GiB",
    ]
    per_token = sum(pool.token_bytes for pool in windows_of(terms.layers, settings))
    budget = share(terms.available, settings).expected
    if settings.runs_estimation:
        temporary = estimation_tokens(settings, budget // max(per_token, 1)) * per_token
        peak = device.total_bytes - terms.available.expected + temporary
        lines += [
            (
                "Memory dynamically allocated during inference (inside torch) in memory usage profiling: "
                f"{_gib(terms.step.bytes.expected)} GiB"
            ),
            (
                "Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: "
                f"{_gib(outside + temporary)} GiB"
            ),
            _peak_line(settings, device, peak, budget, per_token, temporary),
        ]
    limit = settings.flags.max_gpu_total_bytes
    if settings.uses_v2:
        allowed = quota(settings, windows_of(terms.layers, settings), min(budget, limit) if limit else budget)
        if settings.flags.max_tokens is not None:
            own = settings.flags.max_tokens * per_token / settings.flags.max_util_for_resume
            lines.append(
                f"max_tokens {settings.flags.max_tokens} is provided. Allowed quota from max_tokens is {_gib(own)} GiB. "
                f"New quota is {_gib(allowed)} GiB"
            )
        return [*lines, f"KV cache manager v2 device quota set to {_gib(allowed)} GiB"]
    lines.append(f"Estimated max memory in KV cache : {_gib(min(budget, limit) if limit else budget)} GiB")
    return lines


def _peak_line(
    settings: Settings, device: Device, peak: int, budget: int, per_token: int, temporary: int
) -> str:
    """All inputs of the rule on one line, reworded in 1.3."""
    head = (
        f"Peak memory during memory usage profiling (torch + non-torch): {_gib(peak)} GiB, available KV cache memory when "
        f"calculating max tokens: {_gib(budget)} GiB, fraction is set {settings.fraction:g}, "
    )
    total = f"device total memory {_gib(device.total_bytes)} GiB, "
    if settings.version.since(1, 3):
        return f"{head}kv size per token is {per_token}. {total}temporary kv cache memory during profiling {_gib(temporary)} GiB"
    return f"{head}kv size is {per_token}. {total}, tmp kv_mem {_gib(temporary)} GiB"


def _measured(device: Device, terms: RankTerms) -> list[str]:
    return [
        f"[MemUsageChange] Allocated {terms.step.bytes.expected / 2**20:.2f} MiB for execution context memory.",
        (
            "Memory usage when calculating max tokens in paged kv cache: "
            f"total: {_gib(device.total_bytes)} GiB, available: {_gib(terms.available.expected)} GiB"
        ),
    ]


def _sizes(settings: Settings, pools: RankPools) -> list[str]:
    size = settings.tokens_per_block
    tokens = sum(pool.blocks for pool in pools.pools) * size
    lines = []
    if len(pools.pools) > 1 or (settings.is_pytorch and settings.version.since(1, 0)):
        lines.append("Blocks per window size:")
        lines += [
            f"[windowSize={pool.window}] {{.primaryBlocks={pool.blocks}, .secondayBlocks={pool.host_blocks}}}"
            for pool in pools.pools
        ]
    else:
        (pool,) = pools.pools
        lines += [
            f"Number of blocks in KV cache primary pool: {pool.blocks}",
            (
                f"Number of blocks in KV cache secondary pool: {pool.host_blocks}, onboard blocks to primary memory before "
                "reuse: true"
            ),
        ]
    lines += [
        f"Number of tokens per block: {size}.",
        f"[MemUsageChange] Allocated {_gib(pools.kv_bytes)} GiB for max tokens in paged KV cache ({tokens}).",
    ]
    return lines


def _limits(settings: Settings, pools: RankPools) -> Sequence[str]:
    lowered = []
    if pools.reached_len < settings.asked_len:
        if settings.is_pytorch and settings.version.since(1, 0):
            lowered = [
                (
                    f"Attention window size {settings.asked_len} exceeds upper bound {pools.reached_len} for available blocks. "
                    f"Reducing to {pools.reached_len}."
                ),
                f"Adjusted max_seq_len to {pools.reached_len}",
            ]
        else:
            lowered = [
                (
                    "maxAttentionWindow and maxSequenceLen are too large for at least one sequence to fit in kvCache. They are "
                    f"reduced to {pools.reached_len}"
                )
            ]
    if not settings.is_pytorch:
        return lowered
    return (
        *lowered,
        (
            f"max_seq_len={pools.reached_len}, max_num_requests={settings.max_batch}, "
            f"max_num_tokens={settings.max_tokens_a_step}, max_batch_size={settings.max_batch}"
        ),
    )


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"
