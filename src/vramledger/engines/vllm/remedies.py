"""What would make a plan hold: every remedy is planned before it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.engines.vllm.flags import ParallelPlan, VllmFlags
from vramledger.units import counted

Holds = Callable[[ParallelPlan, VllmFlags, int], bool]
"""Whether the same model, device and version hold under another plan, other flags, another concurrency."""

SHARES = (0.9, 0.92, 0.95, 0.97)
SEQUENCES = (512, 256, 128, 64, 32, 16, 8)
WIDTHS = (2, 4, 8, 16, 32)
SMALLEST_CONTEXT = 256


def find_remedies(
    answer: Plan, parallel: ParallelPlan, flags: VllmFlags, concurrency: int, holds: Holds
) -> tuple[str, ...]:
    """Single changes under which the plan holds, the least intrusive value of each, in order of what they cost."""
    found = []
    for candidates in (
        _pool(answer, flags, parallel, concurrency),
        _shares(answer, parallel, flags, concurrency),
        _sequences(answer, parallel, flags, concurrency),
        _formats(answer, parallel, flags, concurrency),
        _requests(answer, parallel, flags, concurrency),
        _contexts(answer, parallel, flags, concurrency),
        _widths(parallel, flags, concurrency),
    ):
        for text, changed_parallel, changed_flags, requests in candidates:
            if holds(changed_parallel, changed_flags, requests):
                found.append(text)
                break
    return tuple(found)


Candidate = tuple[str, ParallelPlan, VllmFlags, int]


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
