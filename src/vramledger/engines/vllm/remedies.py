"""What would make a plan hold: every remedy is planned before it is named."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.engines.vllm.flags import ParallelPlan, VllmFlags
from vramledger.units import counted

SHARES = (0.9, 0.92, 0.95, 0.97)
SEQUENCES = (512, 256, 128, 64, 32, 16, 8)
WIDTHS = (2, 4, 8, 16, 32)
SMALLEST_CONTEXT = 256


Asked = tuple[ParallelPlan, VllmFlags]


def changes(
    answer: Plan,
    parallel: ParallelPlan,
    flags: VllmFlags,
    concurrency: int,
    partition: tuple[int, ...] | None,
) -> Iterator[Iterator[tuple[str, Asked, int]]]:
    """Single changes by kind, the least intrusive value of each first, the kinds in order of what they cost.

    `partition` is a partition of the layers that evens out what is left for KV.
    """
    for candidates in (
        _partition(parallel, flags, concurrency, partition),
        _pool(answer, flags, parallel, concurrency),
        _shares(answer, parallel, flags, concurrency),
        _sequences(answer, parallel, flags, concurrency),
        _formats(answer, parallel, flags, concurrency),
        _requests(answer, parallel, flags, concurrency),
        _contexts(answer, parallel, flags, concurrency),
        _widths(parallel, flags, concurrency),
    ):
        yield (
            (text, (changed_parallel, changed_flags), requests)
            for text, changed_parallel, changed_flags, requests in candidates
        )


Candidate = tuple[str, ParallelPlan, VllmFlags, int]


def _partition(
    parallel: ParallelPlan, flags: VllmFlags, concurrency: int, partition: tuple[int, ...] | None
) -> Iterator[Candidate]:
    if partition is not None:
        changed = replace(flags, pp_layer_partition=partition)
        yield f"VLLM_PP_LAYER_PARTITION={joined(partition)}", parallel, changed, concurrency


def joined(partition: tuple[int, ...]) -> str:
    """A partition as the environment variable has it."""
    return ",".join(map(str, partition))


def _pool(answer: Plan, flags: VllmFlags, parallel: ParallelPlan, concurrency: int) -> Iterator[Candidate]:
    """A pool of stated size is made as large as the requests need."""
    pool = answer.kv_pool
    if pool is None:
        return
    share = ceil(concurrency / parallel.dp)
    need = pool.admission_bytes_per_request * share + pool.bytes_per_block
    if flags.kv_cache_memory_bytes is not None:
        changed = replace(flags, kv_cache_memory_bytes=need)
        yield f"--kv-cache-memory-bytes {need}", parallel, changed, concurrency
    if flags.num_gpu_blocks_override is not None:
        blocks = need // pool.bytes_per_block
        changed = replace(flags, num_gpu_blocks_override=blocks)
        yield f"--num-gpu-blocks-override {blocks}", parallel, changed, concurrency


def _shares(answer: Plan, parallel: ParallelPlan, flags: VllmFlags, concurrency: int) -> Iterator[Candidate]:
    now = float(dict(answer.inputs.settings)["gpu_memory_utilization"])
    nearest = sorted(SHARES, key=lambda share: abs(share - now))
    for share in nearest:
        if share != now and flags.kv_cache_memory_bytes is None:
            yield (
                f"--gpu-memory-utilization {share}",
                parallel,
                replace(flags, gpu_memory_utilization=share),
                concurrency,
            )


def _sequences(
    answer: Plan, parallel: ParallelPlan, flags: VllmFlags, concurrency: int
) -> Iterator[Candidate]:
    """Fewer sequences shrink the sampler; more let more requests run."""
    now = int(dict(answer.inputs.settings)["max_num_seqs"])
    share = ceil(concurrency / parallel.dp)
    if share > now:
        yield f"--max-num-seqs {share}", parallel, replace(flags, max_num_seqs=share), concurrency
    for count in SEQUENCES:
        if share <= count < now:
            yield f"--max-num-seqs {count}", parallel, replace(flags, max_num_seqs=count), concurrency


def _formats(answer: Plan, parallel: ParallelPlan, flags: VllmFlags, concurrency: int) -> Iterator[Candidate]:
    pool = answer.kv_pool
    if pool is not None and pool.dtype in ("bfloat16", "float16", "float32"):
        yield "--kv-cache-dtype fp8", parallel, replace(flags, kv_cache_dtype="fp8"), concurrency


def _requests(
    answer: Plan, parallel: ParallelPlan, flags: VllmFlags, concurrency: int
) -> Iterator[Candidate]:
    pool = answer.kv_pool
    if pool is None or concurrency == 1:
        return
    count = int(pool.max_concurrency.low) * parallel.dp
    if 1 <= count < concurrency:
        yield f"at most {counted(count, 'request')} of this length at once", parallel, flags, count


def _contexts(
    answer: Plan, parallel: ParallelPlan, flags: VllmFlags, concurrency: int
) -> Iterator[Candidate]:
    """The longest context of the low end, then halves of the asked one."""
    pool = answer.kv_pool
    if pool is None:
        return
    length = pool.longest_context.low if concurrency == 1 else pool.context_len // 2
    while length >= SMALLEST_CONTEXT:
        if length < pool.context_len:
            yield f"--max-model-len {length}", parallel, replace(flags, max_model_len=length), concurrency
        length //= 2


def _widths(parallel: ParallelPlan, flags: VllmFlags, concurrency: int) -> Iterator[Candidate]:
    for width in WIDTHS:
        if width > parallel.tp:
            yield (
                f"--tensor-parallel-size {width}",
                replace(parallel, tp=width),
                flags,
                concurrency,
            )
