"""The plan of a transformers server: settings, weights, what they leave free, the cache, ledger, verdict."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from vramledger.answer import Plan, PlanInputs
from vramledger.engines.held_weights import weight_figures
from vramledger.engines.remedies import planned
from vramledger.engines.surroundings import communicators, driver_context
from vramledger.engines.transformers.cache import cache_rules, free_bytes, kv_pool, size
from vramledger.engines.transformers.entries import host_entries, process_entries, slack
from vramledger.engines.transformers.flags import TransformersFlags
from vramledger.engines.transformers.geometry import geometry
from vramledger.engines.transformers.log_lines import log_lines
from vramledger.engines.transformers.settings import Settings, resolve
from vramledger.engines.transformers.tp_plan import kv_heads_held
from vramledger.engines.transformers.verdict import judge
from vramledger.engines.transformers.version import NEWEST, TransformersVersion
from vramledger.engines.transformers.weights import rank_weights
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, RankLedger
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import counted

SHARES = (0.95, 0.98)
BATCHES = (4096, 2048, 1024, 512)
WIDTHS = (2, 4, 8)


def plan(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: TransformersVersion = NEWEST,
    flags: TransformersFlags | None = None,
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """Ledger, cache and verdict of one server; the verdict is about `concurrency` full-length requests.

    With `remedies`, a plan that does not surely hold names single changes under which it does. Raises FlagError for
    contradictory flags and for models that continuous batching has no cache for.
    """

    def plan_under(changed: TransformersFlags, requests: int) -> Plan:
        return _answer(checkpoint, device, version, changed, requests)

    return planned(plan_under, _remedies, flags or TransformersFlags(), concurrency, remedies=remedies)


def _answer(
    checkpoint: Checkpoint,
    device: Device,
    version: TransformersVersion,
    flags: TransformersFlags,
    concurrency: int,
) -> Plan:
    model = checkpoint.model
    shape = geometry(model)
    settings = resolve(model, shape, device, version, flags)
    weights = rank_weights(checkpoint, settings)
    context, collectives = driver_context(device), communicators(flags.tp_size)
    around = [context] if collectives is None else [context, collectives]
    rules = cache_rules(settings, shape, kv_heads_held(model, shape.kv_heads, flags.tp_size))
    held = ByteRange.exact(weights.total_bytes) + slack()
    sized = size(rules, settings, free_bytes(device, settings, held, around))
    ranks = (
        RankLedger(
            ranks=tuple(range(flags.tp_size)),
            entries=process_entries(model, settings, weights, sized, context, collectives),
            weights=weight_figures(checkpoint, weights.total_bytes),
            device_total_bytes=device.total_bytes,
        ),
    )
    return Plan(
        inputs=_inputs(checkpoint, settings, device, sized.expected.batch_tokens),
        budget_bytes=sized.available.expected,
        ranks=ranks,
        kv_pool=kv_pool(sized, settings, model.max_position_embeddings),
        verdict=judge(checkpoint, settings, device, sized, ranks, concurrency=concurrency),
        host=host_entries(model, settings, rules.unit_bytes),
        printed=log_lines(settings, sized, rules.masks),
        notes=(*model.notes, *checkpoint.differences, *settings.notes),
    )


def _inputs(checkpoint: Checkpoint, settings: Settings, device: Device, batch_tokens: int) -> PlanInputs:
    flags = settings.flags
    shown: dict[str, str | int | float | bool] = {
        "max_length": settings.context_len,
        "attn_implementation": settings.attention,
        "dtype": settings.dtype.value,
        "block_size": settings.page_tokens,
        "max_batch_tokens": batch_tokens,
        "max_memory_percent": settings.memory_percent,
        "max_requests_per_batch": settings.max_requests,
        "max_blocks_per_request": settings.blocks_per_request,
        "use_cuda_graph": settings.has_graphs,
        "use_async_batching": settings.is_async,
    }
    for name in ("num_blocks", "quantization", "return_logprobs", "logits_processors", "cpu_offload_space"):
        value = getattr(flags, name)
        if value:
            shown[name] = value
    return PlanInputs(
        model=checkpoint.model.id,
        architecture=checkpoint.model.architecture,
        quantization=checkpoint.quantization,
        engine="transformers",
        engine_version=str(settings.version),
        device=device.name,
        device_total_bytes=device.total_bytes,
        tp=flags.tp_size,
        pp=1,
        dp=1,
        ep=1,
        settings=tuple(shown.items()),
    )


_Candidate = tuple[str, TransformersFlags, int]


def _remedies(answer: Plan, flags: TransformersFlags, concurrency: int) -> Iterator[Iterator[_Candidate]]:
    """Single changes, each kind from the least intrusive value on."""
    now = dict(answer.inputs.settings)
    pool = answer.kv_pool
    assert pool is not None
    if flags.attn_implementation is None and answer.inputs.device_total_bytes:
        yield iter(
            [
                (
                    "--attn-implementation flash_attention_2",
                    replace(flags, attn_implementation="flash_attention_2"),
                    concurrency,
                )
            ]
        )
    yield (
        (f"--cb-max-memory-percent {share}", replace(flags, max_memory_percent=share), concurrency)
        for share in SHARES
        if share > float(now["max_memory_percent"])
    )
    yield (
        (f"--cb-max-batch-tokens {tokens}", replace(flags, max_batch_tokens=tokens), concurrency)
        for tokens in BATCHES
        if tokens < int(now["max_batch_tokens"])
    )
    if flags.num_blocks is not None:
        yield iter([("no --cb-num-blocks", replace(flags, num_blocks=None), concurrency)])
    if concurrency > 1:
        count = int(pool.max_concurrency.low)
        yield (
            (f"at most {counted(fewer, 'request')} of this length at once", flags, fewer)
            for fewer in (count, count - 1)
            if 1 <= fewer < concurrency
        )
    each = pool.tokens.low // concurrency // pool.block_size * pool.block_size
    lengths = (pool.longest_context.low,) if concurrency == 1 else (pool.context_len // 2, each)
    yield (
        (f"--max-length {length}", replace(flags, max_length=length), concurrency)
        for length in lengths
        if 1 <= length < pool.context_len
    )
    yield (
        (f"--tp-size {width}", replace(flags, tp_size=width), concurrency)
        for width in WIDTHS
        if width > flags.tp_size
    )
