"""The plan of a TensorRT-LLM instance: settings, terms of every kind of rank, pools, ledgers, verdict."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from vramledger.answer import Plan, PlanInputs
from vramledger.engines.checkpoint_reading import Reading, prefetched
from vramledger.engines.held_weights import weight_figures
from vramledger.engines.load_entries import host_load_entries
from vramledger.engines.remedies import planned
from vramledger.engines.requests import shown_requests
from vramledger.engines.tensorrtllm.beams import beam_entries
from vramledger.engines.tensorrtllm.budget import rank_terms, share
from vramledger.engines.tensorrtllm.capacity import capacity, kv_pool
from vramledger.engines.tensorrtllm.entries import host_entries, rank_entries
from vramledger.engines.tensorrtllm.flags import TrtLlmFlags
from vramledger.engines.tensorrtllm.log_lines import log_lines
from vramledger.engines.tensorrtllm.ranks import rank_kinds
from vramledger.engines.tensorrtllm.settings import Settings, check_device, resolve
from vramledger.engines.tensorrtllm.spikes import check_requests, request_entries, request_host_entries
from vramledger.engines.tensorrtllm.verdict import judge, stranded_notes
from vramledger.engines.tensorrtllm.version import NEWEST, TrtLlmVersion
from vramledger.hardware.catalogue import Device
from vramledger.ledger import Entry, RankLedger, WeightFigures
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import counted

FRACTIONS = (0.95, 0.97)
BATCHES = (512, 256, 128, 64, 32, 16, 8)
STEPS = (4096, 2048, 1024)
WIDTHS = (2, 4, 8, 16)


def plan(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: TrtLlmVersion = NEWEST,
    flags: TrtLlmFlags | None = None,
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """Ledger, pools and verdict of one instance; the verdict is about `concurrency` full-length requests.

    With `remedies`, a plan that does not surely hold names single changes under which it does. Raises FlagError for
    contradictory flags, a parallel plan that does not divide the model, and layers without rules here.
    """

    def plan_under(changed: TrtLlmFlags, requests: int) -> Plan:
        return _answer(checkpoint, device, version, changed, requests)

    return planned(plan_under, _remedies, flags or TrtLlmFlags(), concurrency, remedies=remedies)


def _answer(
    checkpoint: Checkpoint, device: Device, version: TrtLlmVersion, flags: TrtLlmFlags, concurrency: int
) -> Plan:
    model = checkpoint.model
    check_device(device)
    settings = resolve(checkpoint, version, flags)
    check_requests(settings)
    kinds = rank_kinds(model, flags)
    terms = [rank_terms(checkpoint, settings, device, kind) for kind in kinds]
    found = capacity(terms, settings)
    read = prefetched(checkpoint) if settings.is_pytorch else None
    ranks = tuple(
        RankLedger(
            ranks=item.kind.ranks,
            entries=(
                *rank_entries(model, settings, item, found.ends(index)),
                *beam_entries(settings),
                *request_entries(model, settings, item),
            ),
            weights=_figures(weight_figures(checkpoint, item.loaded_bytes), read),
            device_total_bytes=device.total_bytes,
        )
        for index, item in enumerate(terms)
    )
    binding = min(range(len(terms)), key=lambda index: terms[index].available.expected)
    return Plan(
        inputs=_inputs(checkpoint, settings, device),
        budget_bytes=share(terms[binding].available, settings).expected,
        ranks=ranks,
        kv_pool=kv_pool(found, settings),
        verdict=judge(checkpoint, settings, device, terms, found, ranks, concurrency=concurrency),
        host=(
            *host_entries(
                settings,
                [(len(item.kind.ranks), pools) for item, pools in zip(terms, found.expected, strict=True)],
            ),
            *request_host_entries(model, settings),
            *_while_loading(checkpoint, read),
        ),
        printed=log_lines(settings, device, terms[binding], found.expected[binding]),
        notes=(*model.notes, *checkpoint.differences, *settings.notes, *stranded_notes(settings, found)),
    )


def _figures(figures: WeightFigures, read: Reading | None) -> WeightFigures:
    return figures if read is None else replace(figures, host_peak_bytes=read.host)


def _while_loading(checkpoint: Checkpoint, read: Reading | None) -> tuple[Entry, ...]:
    """The PyTorch back end reads every file into the page cache, where 0.9 of the host's free memory holds them, and
    keeps all tensors mapped until the model has its own (models/checkpoints/hf/weight_loader.py). The TRT back end reads
    an engine, whose size is not the checkpoint's."""
    if read is None:
        return ()
    return host_load_entries(
        read,
        source="tensorrt-llm _torch/models/checkpoints/hf/weight_loader.py",
        how="prefetched",
        is_size_known=bool(checkpoint.largest_file_bytes),
    )


def _inputs(checkpoint: Checkpoint, settings: Settings, device: Device) -> PlanInputs:
    flags = settings.flags
    shown: dict[str, object] = {
        "backend": settings.backend,
        "max_seq_len": settings.asked_len,
        "max_batch_size": settings.max_batch,
        "max_num_tokens": settings.max_tokens_a_step,
        "free_gpu_memory_fraction": settings.fraction,
        "tokens_per_block": settings.tokens_per_block,
        "dtype": settings.dtype.value,
        "kv_cache_dtype": settings.cache,
        "enable_block_reuse": flags.enable_block_reuse,
        "capacity_scheduler_policy": flags.capacity_scheduler_policy,
    }
    plain = TrtLlmFlags()
    for name in TrtLlmFlags.__struct_fields__:
        value = getattr(flags, name)
        if name == "requests":
            shown |= shown_requests(flags.requests)
        elif name not in shown and value != getattr(plain, name):
            shown[name] = value
    return PlanInputs(
        model=checkpoint.model.id,
        architecture=checkpoint.model.architecture,
        quantization=checkpoint.quantization if flags.quantization is None else flags.quantization,
        engine="tensorrt-llm",
        engine_version=str(settings.version),
        device=device.name,
        device_total_bytes=device.total_bytes,
        tp=flags.tp_size,
        pp=flags.pp_size,
        dp=1,
        ep=flags.ep,
        settings=tuple(
            (name, value if isinstance(value, str | int | float | bool) else str(value))
            for name, value in shown.items()
        ),
    )


_Candidate = tuple[str, TrtLlmFlags, int]


def _remedies(answer: Plan, flags: TrtLlmFlags, concurrency: int) -> Iterator[Iterator[_Candidate]]:
    """Single changes, each kind from the least intrusive value on."""
    now, pool = dict(answer.inputs.settings), answer.kv_pool
    if flags.max_tokens is not None:
        yield iter([("no --max-tokens", replace(flags, max_tokens=None), concurrency)])
    yield (
        (
            f"--free-gpu-memory-fraction {fraction}",
            replace(flags, free_gpu_memory_fraction=fraction),
            concurrency,
        )
        for fraction in FRACTIONS
        if fraction > float(now["free_gpu_memory_fraction"])
    )
    yield (
        (f"--max-batch-size {size}", replace(flags, max_batch_size=size), concurrency)
        for size in BATCHES
        if concurrency <= size < int(now["max_batch_size"])
    )
    yield (
        (f"--max-num-tokens {tokens}", replace(flags, max_num_tokens=tokens), concurrency)
        for tokens in STEPS
        if tokens < int(now["max_num_tokens"])
    )
    if now["kv_cache_dtype"] in ("bfloat16", "float16"):
        yield iter([("--kv-cache-dtype fp8", replace(flags, kv_cache_dtype="fp8"), concurrency)])
    if pool is not None:
        fewer = int(pool.max_concurrency.low)
        if 1 <= fewer < concurrency:
            yield iter([(f"at most {counted(fewer, 'request')} of this length at once", flags, fewer)])
        each = pool.tokens.low // concurrency // pool.block_size * pool.block_size
        lengths = (pool.longest_context.low, pool.context_len // 2, pool.context_len // 4, each)
        yield (
            (f"--max-seq-len {length}", replace(flags, max_seq_len=length), concurrency)
            for length in lengths
            if 1 <= length < int(now["max_seq_len"])
        )
    yield (
        (f"--tp-size {width}", replace(flags, tp_size=width), concurrency)
        for width in WIDTHS
        if width > flags.tp_size
    )
