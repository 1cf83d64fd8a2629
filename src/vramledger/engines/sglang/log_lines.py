"""The memory lines of a start-up log with expected values, worded as each version words them.

Source: sglang srt/model_executor/model_runner.py, mem_cache/memory_pool.py, managers/scheduler.py. "GB" in them is GiB.
"""

from __future__ import annotations

from vramledger.engines.sglang.layers import StageCells
from vramledger.engines.sglang.pools import Pools, pool_rows
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.states import SlotBytes
from vramledger.units import GIB

TYPED_SINCE = (5, 13)


def log_lines(
    settings: Settings,
    cells: StageCells,
    pools: Pools,
    slot: SlotBytes | None,
    *,
    pre_gib: float,
    avail_gib: float,
    weights_gib: float,
    after_pool_gib: float,
    at_end_gib: float,
) -> tuple[str, ...]:
    """The lines of rank 0's stage, in order, up to where it dies if the weights do not fit."""
    lines = [f"Load weight begin. avail mem={pre_gib:.2f} GB"]
    if avail_gib < 0:
        return tuple(lines)
    lines.append(
        f"Load weight end. type={settings.architecture}, dtype={_torch(settings.dtype.value)}, "
        f"avail mem={avail_gib:.2f} GB, mem usage={weights_gib:.2f} GB."
    )
    if not pools.tokens:
        return tuple(lines)
    if pools.swa_tokens is not None:
        lines.append(
            f"Use sliding window memory pool. full_layer_tokens={pools.tokens}, "
            f"swa_layer_tokens={pools.swa_tokens}"
        )
    if slot is not None and pools.slots is not None:
        rows = pools.slots + 1
        lines.append(
            f"Mamba Cache is allocated. max_mamba_cache_size: {pools.slots}, "
            f"conv_state size: {rows * slot.conv_bytes / GIB:.2f}GB, "
            f"ssm_state size: {rows * slot.state_bytes / GIB:.2f}GB "
        )
    if pools.swa_tokens is not None:
        lines.append(
            _pool_line(settings, pools.swa_tokens, cells.swa_bytes, cells.swa_layers, 0.5, "MHA", "SWA ")
        )
    lines.append(
        _pool_line(
            settings, pools.tokens, cells.full_bytes, cells.full_layers, cells.key_share, cells.kind,
            "Full " if pools.swa_tokens is not None else "", extra=cells.scale_bytes + cells.index_bytes + cells.overdraft_bytes,
        )
    )  # fmt: skip
    if pools.swa_tokens is not None:
        both = pool_rows(pools.swa_tokens, settings) * cells.swa_cell
        both += pool_rows(pools.tokens, settings) * cells.full_bytes * cells.full_layers
        lines.append(
            f"SWAKVPool mem usage: {both / GIB:.2f} GB, swa size: {pools.swa_tokens}, full size: {pools.tokens}"
        )
    lines.append(f"Memory pool end. avail mem={after_pool_gib:.2f} GB")
    line = (
        f"max_total_num_tokens={pools.tokens}, chunked_prefill_size={settings.chunked_prefill_size}, "
        f"max_prefill_tokens={settings.flags.max_prefill_tokens}, "
        f"max_running_requests={pools.max_running_requests}, context_len={settings.context_len}"
    )
    if settings.version.since(4, 7):
        line += f", available_gpu_mem={at_end_gib:.2f} GB"
    return (*lines, line)


def _pool_line(
    settings: Settings,
    tokens: int,
    per_token: int,
    layers: int,
    key_share: float,
    kind: str,
    prefix: str,
    *,
    extra: int = 0,
) -> str:
    """Printed sizes include the padding page that the budget does not."""
    rows = pool_rows(tokens, settings)
    size = rows * (per_token * layers + extra)
    named = prefix if settings.version.since(5, 18) else ""
    typed = f" dtype: {_torch(_stored(settings))}," if settings.version.since(*TYPED_SINCE) else ""
    head = f"{named}KV Cache is allocated.{typed} #tokens: {tokens}, "
    if kind != "MHA":
        return f"{head}KV size: {size / GIB:.2f} GB"
    return f"{head}K size: {size * key_share / GIB:.2f} GB, V size: {size * (1 - key_share) / GIB:.2f} GB"


_STORED = {
    "fp8_e4m3": "float8_e4m3fn", "mxfp8": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "bf16": "bfloat16",
    "nvfp4": "float4_e2m1fn_x2", "fp4_mx_block16": "float4_e2m1fn_x2", "fp4_e2m1": "float4_e2m1fn_x2",
}  # fmt: skip


def _stored(settings: Settings) -> str:
    return _STORED.get(settings.kv_dtype, settings.kv_dtype)


def _torch(name: str) -> str:
    return f"torch.{name}"
