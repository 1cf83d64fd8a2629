"""Defaults that move memory: chunk, captured batch sizes, and the static fraction, by version and device memory.

Source: sglang srt/arg_groups/memory_hook.py (0.5.19 and newer), server_args.py before; every figure is MiB of
`memory.total` as nvidia-smi lists it.
"""

from __future__ import annotations

from bisect import bisect_right

from msgspec import Struct

from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.version import SglangVersion

FORMULA_SINCE = (5, 3)  # a reserve by formula; by class of card in 0.4.7 to 0.5.2, by parallel size before
PREFILL_GRAPHS_SINCE = (5, 10)
WIDER_SMALL_CARDS_SINCE = (5, 20)
FLOOR_MIB = 10 * 1024
UNKNOWN_FRACTION = 0.88
GIB_MIB = 1024


class Memory(Struct, frozen=True, kw_only=True):
    """What is known when the defaults are picked. `gpu_mem` is MiB, None where nobody tells it."""

    version: SglangVersion
    gpu_mem: float | None
    flags: SglangFlags
    is_mla: bool
    is_multimodal: bool
    prefill_graphs: bool


class Chunk(Struct, frozen=True, kw_only=True):
    """Chunk of a prompt (tokens of all attention groups, -1 for off) and largest batch captured for decode."""

    chunked_prefill_size: int
    decode_max_bs: int


_LIMITS = (20 * 1024, 35 * 1024, 60 * 1024, 90 * 1024, 160 * 1024)
_CHUNKS = (2048, 2048, 4096, 8192, 8192, 16384)
_NARROW, _WIDE = (8, 24, 32, 256, 256, 512), (8, 80, 160, 512, 512, 512)


def chunk_defaults(memory: Memory) -> Chunk:
    """What the flags say, else what a card of this size gets."""
    flags, version = memory.flags, memory.version
    chunk, batch = _card(memory.gpu_mem, flags, version)
    asked = flags.cuda_graph_max_bs
    running = flags.max_running_requests
    capped = version.since(5, 22) and asked is None and running is not None
    return Chunk(
        chunked_prefill_size=chunk if flags.chunked_prefill_size is None else flags.chunked_prefill_size,
        decode_max_bs=asked or (min(batch, running) if capped and running else batch),
    )


def _card(gpu_mem: float | None, flags: SglangFlags, version: SglangVersion) -> tuple[int, int]:
    many = flags.tp_size >= 4
    if gpu_mem is None:
        return 4096 if version.since(4, 7) else 16384 if flags.disaggregation_mode != "null" else 8192, 160
    if not version.since(4, 7):
        small = gpu_mem < 25_000
        chunk = 2048 if small else 16384 if flags.disaggregation_mode != "null" else 8192
        return chunk, (80 if many else 8) if small else _captured_before(gpu_mem)
    if not version.since(*FORMULA_SINCE):
        chunk = 2048 if gpu_mem < 35 * 1024 else 8192 if gpu_mem < 160 * 1024 else 16384
        return chunk, (80 if many else 8) if gpu_mem < 35 * 1024 else _captured_before(gpu_mem)
    row = bisect_right(_LIMITS, gpu_mem)
    chunk, batch = _CHUNKS[row], (_WIDE if many else _NARROW)[row]
    if row == 1:
        if version.since(*WIDER_SMALL_CARDS_SINCE):
            return 4096, 160 if many else 48
        if not version.since(5, 6) and not many:
            batch = 16
    return chunk, batch


def _captured_before(gpu_mem: float) -> int:
    """The end of the list that was captured without a flag (model_executor/cuda_graph_runner.py to 0.5.2)."""
    return 160 if gpu_mem <= 90 * 1024 else 256 if gpu_mem <= 160_000 else 512


def decode_sizes(largest: int, *, speculative: bool, version: SglangVersion) -> tuple[int, ...]:
    """Batch sizes captured for decode; the largest asked for is always among them since 0.5.10."""
    if speculative:
        spans = (
            range(1, 9),
            range(10, 33, 2),
            range(40, 65 if version.since(5, 6) else 64, 4),
            range(72, 257, 8),
        )
        tail = range(272, largest + 1, 16)
    else:
        spans = (range(1, 3), range(4, 13, 4), range(16, 257, 8), range(272, 512, 16))
        tail = range(512, largest + 1, 32)
    listed = {size for span in (*spans, tail) for size in span if size <= largest}
    return tuple(sorted(listed | {largest} if version.since(5, 10) else listed))


def prefill_sizes(largest: int) -> tuple[int, ...]:
    """Token counts captured for prefill."""
    spans = (
        range(4, 33, 4), range(48, 257, 16), range(288, 513, 32), range(576, 1025, 64), range(1280, 4097, 256),
        range(4608, largest + 1, 512),
    )  # fmt: skip
    return tuple(size for span in spans for size in span if size <= largest)


def prefill_max(memory: Memory, chunk: Chunk) -> int:
    """The largest prefill captured: the chunk, less for latent attention, never above `--max-total-tokens`."""
    largest = chunk.chunked_prefill_size
    if memory.is_mla:
        largest = min(8192, largest) if memory.version.since(5, 23) else 2048
    if memory.flags.pp_size > 1 and memory.prefill_graphs and memory.version.since(5, 19):
        largest = min(largest, 8192)
    if memory.flags.max_total_tokens is not None:
        largest = min(largest, memory.flags.max_total_tokens)
    return largest


def static_fraction(memory: Memory, chunk: Chunk) -> float:
    """`mem_fraction_static` where no flag gives it, before what a multimodal model takes off."""
    version, gpu_mem, flags = memory.version, memory.gpu_mem, memory.flags
    if gpu_mem is None:
        return 0.95 if version.since(5, 20) else UNKNOWN_FRACTION
    if not version.since(4, 7):
        return _by_parallel_size(gpu_mem, flags, version)
    reserved = reserved_mib(memory, chunk)
    return round((gpu_mem - reserved) / gpu_mem, 3)


def reserved_mib(memory: Memory, chunk: Chunk) -> float:
    """MiB kept out of the static part; 0.4.7 and newer with a known card."""
    version, flags = memory.version, memory.flags
    assert memory.gpu_mem is not None
    if not version.since(*FORMULA_SINCE):
        return _by_card(memory.gpu_mem, flags, version)
    parallel = flags.tp_size * flags.pp_size / 8 * GIB_MIB
    if flags.enable_post_capture_kv_sizing and version.since(5, 18):
        return 1536 + parallel
    reserved = 512 + 1.5 * _activation_tokens(memory, chunk) + parallel + graph_mib(memory, chunk)
    if memory.gpu_mem > 60 * 1024:
        reserved = max(reserved, FLOOR_MIB)
    if version.since(5, 15):
        deepep = flags.moe_a2a_backend == "deepep" and flags.disaggregation_mode != "prefill"
        return reserved + (2 * GIB_MIB if deepep and not flags.disable_cuda_graph else 0)
    return reserved + _draft_mib(flags, version)


def _activation_tokens(memory: Memory, chunk: Chunk) -> int:
    flags = memory.flags
    if flags.disaggregation_mode == "decode" and memory.version.since(5, 15):
        running = flags.max_running_requests or chunk.decode_max_bs or 1
        return max(running * (flags.draft_tokens or 1), 2048)
    tokens = chunk.chunked_prefill_size if chunk.chunked_prefill_size > 0 else flags.max_prefill_tokens
    return max(tokens, 2048)


def graph_mib(memory: Memory, chunk: Chunk) -> float:
    """MiB of the reserve that stand for graphs and for DP attention's padding."""
    flags, version = memory.flags, memory.version
    by_phase = version.since(5, 15)
    batch = chunk.decode_max_bs
    decodes = not (by_phase and (flags.disaggregation_mode == "prefill" or flags.disable_cuda_graph))
    reserved = 2.0 * batch if decodes else 0.0
    if flags.enable_dp_attention and not (by_phase and flags.disaggregation_mode == "prefill"):
        reserved += 3.0 * batch * flags.dp_size
        if batch > 300:
            reserved += 1.5 * batch * flags.dp_size
    if memory.prefill_graphs and not (by_phase and flags.disaggregation_mode == "decode"):
        largest = prefill_max(memory, chunk)
        reserved += 1536 if memory.is_mla else 8 * len(prefill_sizes(largest))
        if by_phase and flags.moe_a2a_backend == "deepep" and version.since(5, 18):
            reserved += GIB_MIB
    return reserved


def _draft_mib(flags: SglangFlags, version: SglangVersion) -> float:
    """A reserve for a draft's weights and graphs; since 0.5.14 they are loaded before the pool is sized."""
    if flags.speculative_algorithm in (None, "NGRAM") or version.since(5, 14):
        return 0
    if flags.speculative_algorithm == "STANDALONE":
        return 6 * GIB_MIB
    return 4 * GIB_MIB if version.since(5, 10) else 2 * GIB_MIB


def _by_card(gpu_mem: float, flags: SglangFlags, version: SglangVersion) -> float:
    parallel = flags.tp_size * flags.pp_size
    if gpu_mem < 35 * 1024:
        reserved = (2.8 + parallel / 10) * GIB_MIB
    elif gpu_mem < 90 * 1024:
        reserved = (9.5 + parallel / 2) * GIB_MIB
    elif gpu_mem < 160 * 1024:
        reserved = (12 + parallel / 2) * GIB_MIB
    else:
        reserved = 32 * GIB_MIB
    if flags.speculative_algorithm is not None:
        standalone = flags.speculative_algorithm == "STANDALONE" and version.since(5, 2)
        reserved += (6 if standalone else 2) * GIB_MIB
    return reserved + (4 * GIB_MIB if flags.enable_dp_attention else 0)


_BY_TP: tuple[tuple[tuple[int, int], tuple[tuple[int, float], ...]], ...] = (
    ((4, 0), ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))),
    ((2, 10), ((16, 0.79), (8, 0.83), (4, 0.85), (2, 0.87), (1, 0.88))),
    ((2, 0), ((16, 0.80), (8, 0.84), (4, 0.86), (2, 0.88), (1, 0.89))),
    ((0, 0), ((8, 0.80), (4, 0.82), (2, 0.85), (1, 0.90))),
)
"""Fractions by tensor-parallel ranks up to 0.4.4, newest first, each since a release."""


def _by_parallel_size(gpu_mem: float, flags: SglangFlags, version: SglangVersion) -> float:
    """By how many ranks a model is cut over, up to 0.4.6; up to 0.4.4 whatever the card."""
    parallel = flags.tp_size * flags.pp_size
    if not version.since(4, 5):
        old = next(table for since, table in _BY_TP if version.since(*since))
        return next(value for least, value in old if flags.tp_size >= least)
    fraction = 0.88
    if gpu_mem <= 81920:
        steps = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87))
        fraction = next((value for least, value in steps if parallel >= least), fraction)
    if gpu_mem > 96 * 1024:
        fraction = min(fraction + 48 * 1024 * (1 - fraction) / gpu_mem, (gpu_mem - 18 * 1024) / gpu_mem)
    return fraction


def multimodal_factor(version: SglangVersion, vision_layers: int, vision_hidden: int) -> float:
    """What the fraction of a multimodal model is multiplied by: less for larger vision towers than ViT-L/14."""
    if not version.since(4, 9):
        return 1.0
    if not version.since(5):
        return 0.90
    complexity = vision_layers * vision_hidden**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))
