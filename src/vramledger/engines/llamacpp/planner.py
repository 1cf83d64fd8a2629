"""The plan of a llama.cpp server: the file, settings, fitting, ledgers of devices and host, verdict."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from vramledger.answer import Plan, PlanInputs
from vramledger.engines.findings import Finding, assumptions, beyond_device, device_limit, verdict_of
from vramledger.engines.llamacpp.architectures import Architecture, architecture_of
from vramledger.engines.llamacpp.breakdown import breakdown_lines
from vramledger.engines.llamacpp.entries import device_entries, host_entries, output_bytes
from vramledger.engines.llamacpp.extra_files import extra_files
from vramledger.engines.llamacpp.file_model import FileModel, file_model
from vramledger.engines.llamacpp.fit import Fitted, fit
from vramledger.engines.llamacpp.flags import MOST_SLOTS, LlamaFlags
from vramledger.engines.llamacpp.held_contexts import held, held_conditions, held_findings
from vramledger.engines.llamacpp.log_lines import device_name, log_lines
from vramledger.engines.llamacpp.measure import Measured, measure
from vramledger.engines.llamacpp.sampling import sampling_entries
from vramledger.engines.llamacpp.settings import Settings, resolve, share_of_slots
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.engines.llamacpp.version import NEWEST, LlamaBuild, rules_note
from vramledger.engines.remedies import planned
from vramledger.engines.requests import shown_requests
from vramledger.engines.surroundings import driver_context
from vramledger.errors import FlagError
from vramledger.evidence import calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, RankLedger, WeightFigures
from vramledger.models.checkpoint import Checkpoint
from vramledger.pool import FloatRange, IntRange, KvGroup, KvPool
from vramledger.units import GIB, counted, format_gib
from vramledger.verdict import Verdict

OUTSIDE = "buffers, driver context and kernels"


def plan(
    checkpoint: Checkpoint,
    device: Device,
    *,
    build: LlamaBuild = NEWEST,
    flags: LlamaFlags | None = None,
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """Ledgers, pool and verdict of one server; the verdict is about `concurrency` full-length requests.

    With `remedies`, a plan that does not surely hold names single changes under which it does. Raises FlagError for
    flags that contradict, UnknownArchitecture for models that llama.cpp has no rules for here.
    """

    def plan_under(changed: LlamaFlags, requests: int) -> Plan:
        return _answer(checkpoint, device, build, changed, requests)

    return planned(plan_under, _remedies, flags or LlamaFlags(), concurrency, remedies=remedies)


def configure(
    checkpoint: Checkpoint, device: Device, build: LlamaBuild, flags: LlamaFlags
) -> tuple[FileModel, Architecture, Fitted]:
    """The file and the configuration that the engine would run, fitted where it fits."""
    model = checkpoint.model
    architecture = architecture_of(model)
    if build.number < architecture.since:
        raise FlagError(
            f"llama.cpp {build} has no architecture {architecture.name!r}; builds from b{architecture.since} have",
            flag="engine",
            value=str(build),
        )
    file = file_model(checkpoint, architecture, build, flags.ftype)
    settings = resolve(model, architecture, device, build, flags)
    context = driver_context(device).bytes.expected if device.vendor != "cpu" else 0
    free = [device.total_bytes - context] * settings.devices

    def tried(context: int, layers: int | None, experts: int | None) -> Measured:
        changed = resolve(model, architecture, device, build, flags, context) if context else settings
        return measure(model, architecture, file, changed, free, gpu_layers=layers, experts_on_host=experts)

    if build.has_fit and flags.fit != "off" and settings.devices:
        trained = model.max_position_embeddings
        return file, architecture, fit(settings, trained, model.num_layers, model.is_moe, free, tried)
    return file, architecture, Fitted(measured=tried(0, None, None), steps=())


def _answer(
    checkpoint: Checkpoint, device: Device, build: LlamaBuild, flags: LlamaFlags, concurrency: int
) -> Plan:
    model = checkpoint.model
    file, _, fitted = configure(checkpoint, device, build, flags)
    measured = fitted.measured
    settings = measured.settings
    extra = extra_files(flags, measured.placement)
    indices = list(range(settings.devices)) or [HOST]
    asked = sampling_entries(measured)
    ranks = _ranks(
        [
            RankLedger(
                ranks=(max(index, 0),),
                entries=(
                    *device_entries(measured, file, extra, device, index),
                    *(asked if index == HOST else ()),
                ),
                weights=_figures(checkpoint, measured, index),
                device_total_bytes=device.total_bytes,
            )
            for index in indices
        ]
    )
    pool = _pool(measured)
    output = output_bytes(measured)
    notes = (*model.notes, *checkpoint.differences, *file.notes, *(f"fit: {step}" for step in fitted.steps))
    return Plan(
        inputs=_inputs(checkpoint, device, measured, file),
        budget_bytes=device.total_bytes,
        ranks=ranks,
        kv_pool=pool,
        verdict=_judge(device, measured, fitted, ranks, concurrency, file, pool),
        host=(*host_entries(measured, file, extra, device), *asked) if settings.devices else (),
        printed=(*log_lines(measured, device, output), *_breakdown(measured, device)),
        notes=notes,
    )


def _breakdown(measured: Measured, device: Device) -> list[str]:
    names = [f"{device_name(device, index)} ({device.name})" for index in range(measured.settings.devices)]
    other = driver_context(device).bytes.expected if names else 0
    return breakdown_lines(measured, names, device.total_bytes, other)


def _ranks(ledgers: list[RankLedger]) -> tuple[RankLedger, ...]:
    """Every device is its own kind: it has its own layers."""
    return tuple(ledgers)


def _figures(checkpoint: Checkpoint, measured: Measured, index: int) -> WeightFigures:
    """Files are mapped; what goes to a device passes through a staging buffer or the mapping."""
    disk = checkpoint.disk_bytes if checkpoint.gguf is not None else sum_of(measured)
    host = measured.placement.host_bytes
    return WeightFigures(
        disk_bytes=disk,
        disk_evidence=checkpoint.disk_evidence
        if checkpoint.gguf is not None
        else calculated("llama.cpp src/llama-quant.cpp", "sum of the file's tensors"),
        host_peak_bytes=ByteRange(host, host + min(disk, GIB) // 16, host + disk),
        host_evidence=calculated(
            "llama.cpp src/llama-model-loader.cpp",
            "host tensors, four staging buffers of 1 MiB, pages of the mapping until released",
        ),
        device_bytes=ByteRange.exact(measured.model_bytes(index)),
    )


def sum_of(measured: Measured) -> int:
    """Bytes of the file's tensors: a tied table lies on a device a second time and in the file once."""
    placement = measured.placement
    held = sum(placement.device_bytes) + sum(placement.split_bytes) + placement.host_bytes
    return held - placement.tied_bytes


def _pool(measured: Measured) -> KvPool | None:
    caches, settings = measured.caches, measured.settings
    if not caches.caches and not caches.states:
        return None
    full = [item for item in caches.caches if not item.is_windowed]
    windowed = [item for item in caches.caches if item.is_windowed]
    total = sum(item.bytes for item in caches.caches) + sum(item.bytes for item in caches.states)
    cells = caches.cells * settings.streams
    rows = sum(item.bytes // (item.cells * settings.streams) for item in full)
    state = sum(item.bytes for item in caches.states) // settings.slots
    length = settings.context_per_sequence
    groups = []
    if full:
        groups.append(
            _group(
                "kv" if full[0].value_width else "mla",
                len(full),
                full[0].bytes // (full[0].cells * settings.streams),
                length,
                cells,
            )
        )
    if windowed:
        one = windowed[0]
        count = min(length, one.cells)
        groups.append(
            _group(
                "kv_swa",
                len(windowed),
                one.bytes // (one.cells * settings.streams),
                count,
                one.cells * settings.streams,
                window=caches.window,
            )
        )
    if caches.states:
        groups.append(
            _group(
                "recurrent", len(caches.states), caches.states[0].bytes // settings.slots, 1, settings.slots
            )
        )
    window_row = sum(item.bytes // (item.cells * settings.streams) for item in windowed)
    request = rows * length + window_row * (min(length, windowed[0].cells) if windowed else 0) + state
    fits = float(settings.slots) if settings.streams > 1 or not full else cells / length if length else 0.0
    many = FloatRange(fits, fits, fits)
    return KvPool(
        bytes=_exact(total),
        groups=tuple(groups),
        bytes_per_block=rows or window_row,
        bytes_per_token=rows,
        state_bytes_per_sequence=state,
        block_size=1,
        num_blocks=_exact(cells),
        tokens=_exact(cells),
        max_concurrency=many,
        context_len=length,
        longest_context=_exact(length),
        tokens_rule="cells of the cache of full attention over all streams; windows and states are no budget",
        admission_bytes_per_request=request,
        steady_bytes_per_request=request,
        steady_concurrency=many,
        dtype=settings.key_type.lower()
        if settings.key_type == settings.value_type
        else f"{settings.key_type.lower()}/{settings.value_type.lower()}",
    )


def _group(
    kind: str, layers: int, page: int, per_request: int, blocks: int, window: int | None = None
) -> KvGroup:
    return KvGroup(
        kind=kind,
        num_layers=layers,
        block_size=1,
        page_bytes=page,
        blocks_per_request=per_request,
        pool_blocks=_exact(blocks),
        window_tokens=window,
    )


def _exact(value: int) -> IntRange:
    return IntRange(value, value, value)


def _judge(
    device: Device,
    measured: Measured,
    fitted: Fitted,
    ranks: tuple[RankLedger, ...],
    concurrency: int,
    file: FileModel,
    pool: KvPool | None,
) -> Verdict:
    settings = measured.settings
    beyond = beyond_device(ranks, device)
    kept = held(settings, pool, concurrency)
    findings = [*_slots(settings, concurrency), *held_findings(kept), *device_limit(beyond, OUTSIDE)]
    note = rules_note(settings.build)
    length = settings.context_per_sequence
    placed = measured.placement
    conditions = [
        f"llama.cpp {settings.build}, {counted(settings.devices, 'device')}, {placed.offloaded} of {placed.total_layers} layers on them",
        f"{device.name} with {format_gib(device.total_bytes)} that nobody else uses",
        f"weights {file.file_type}, KV cache {settings.key_type.lower()} and {settings.value_type.lower()}",
        f"{counted(settings.slots, 'slot')}, context {settings.context:,}, {length:,} a sequence, ubatch {settings.ubatch}",
    ]
    if settings.is_unified and settings.slots > 1:
        conditions.append(
            f"the unified pool is over-committed: {settings.slots} slots may each ask for {length:,} of {settings.context:,} cells; "
            f"{share_of_slots(settings):,} a slot are sure, beyond them running requests end with an error"
        )
    conditions.extend(held_conditions(kept))
    conditions.extend(f"fitted to free memory: {step}" for step in fitted.steps)
    if note:
        conditions.append(note)
    count = (
        settings.slots
        if settings.streams > 1 or not measured.caches.caches
        else max(1, settings.context // length)
    )
    while count > concurrency and held_findings(held(settings, pool, count)):
        count -= 1
    requests = "request" if count == 1 else "requests"
    return verdict_of(
        findings,
        holds=f"holds for {count:,} {requests} of {length:,} tokens at once",
        conditions=tuple(conditions),
        assumed=assumptions(ranks, device),
    )


def _slots(settings: Settings, requests: int) -> list[Finding]:
    if requests > settings.slots:
        return [
            Finding(
                certain=True,
                text=f"the server has {counted(settings.slots, 'slot')}, {requests:,} requests at once are asked for",
            )
        ]
    length = settings.context_per_sequence
    if settings.streams == 1 and requests * length > settings.context:
        text = (
            f"{requests:,} requests of {length:,} tokens need {requests * length:,} cells of one pool of {settings.context:,}: it is "
            f"over-committed, and llama.cpp ends running requests when it is full"
        )
        return [Finding(certain=True, text=text)]
    return []


def _inputs(checkpoint: Checkpoint, device: Device, measured: Measured, file: FileModel) -> PlanInputs:
    settings, placement = measured.settings, measured.placement
    shown: dict[str, object] = {
        "ctx_size": settings.context,
        "n_ctx_seq": settings.context_per_sequence,
        "parallel": settings.slots,
        "kv_unified": settings.is_unified,
        "batch_size": settings.batch,
        "ubatch_size": settings.ubatch,
        "n_outputs_max": settings.outputs,
        "gpu_layers": placement.offloaded,
        "gpus": settings.devices,
        "flash_attn": "on" if settings.flash else "off",
        "cache_type_k": settings.key_type.lower(),
        "cache_type_v": settings.value_type.lower(),
        "ftype": file.file_type,
    }
    for name in (
        "tensor_split",
        "split_mode",
        "override_tensor",
        "n_cpu_moe",
        "cpu_moe",
        "swa_full",
        "embedding",
        "lora",
        "mmproj",
    ):
        value = getattr(settings.flags, name)
        if value:
            shown[name] = value
    for name in ("kv_offload", "mmap", "op_offload"):
        if not getattr(settings.flags, name):
            shown[name] = False
    shown |= shown_requests(settings.flags.requests)
    return PlanInputs(
        model=checkpoint.model.id,
        architecture=checkpoint.model.architecture,
        quantization=file.file_type,
        engine="llamacpp",
        engine_version=str(settings.build),
        device=device.name,
        device_total_bytes=device.total_bytes,
        tp=1,
        pp=1,
        dp=1,
        ep=1,
        settings=tuple(
            (name, value if isinstance(value, str | int | float | bool) else str(value))
            for name, value in shown.items()
        ),
    )


_Candidate = tuple[str, LlamaFlags, int]


def _remedies(answer: Plan, flags: LlamaFlags, concurrency: int) -> Iterator[Iterator[_Candidate]]:
    """Single changes, each kind from the least intrusive value on; where slots or cells of one pool are too few for the
    requests, no change of placement or types adds any."""
    now = dict(answer.inputs.settings)
    context = int(now["ctx_size"])
    if concurrency > 1:
        yield from _for_requests(answer, flags, concurrency)
    cells = concurrency * int(now["n_ctx_seq"])
    if concurrency > int(now["parallel"]) or (now["kv_unified"] and cells > context):
        return
    if flags.cache_type_k is None and flags.cache_type_v is None and now["flash_attn"] == "on":
        yield iter(
            [("-ctk q8_0 -ctv q8_0", replace(flags, cache_type_k="q8_0", cache_type_v="q8_0"), concurrency)]
        )
    yield (
        (f"-c {size}", replace(flags, ctx_size=size), concurrency)
        for size in (context // 2, context // 4, context // 8)
        if size >= 256
    )
    offloaded = int(now["gpu_layers"])
    if not flags.cpu_moe:
        yield iter([("--cpu-moe", replace(flags, cpu_moe=True), concurrency)])
    yield (
        (f"-ngl {layers}", replace(flags, gpu_layers=str(layers)), concurrency)
        for layers in (offloaded * 3 // 4, offloaded // 2, offloaded // 4, 0)
    )
    devices = int(now["gpus"])
    yield (
        (f"--gpus {count}", replace(flags, gpus=count), concurrency)
        for count in (2, 4, 8)
        if devices and count > devices
    )


def _for_requests(answer: Plan, flags: LlamaFlags, concurrency: int) -> Iterator[Iterator[_Candidate]]:
    """A slot and its own cells for each request, or fewer requests."""
    pool = answer.kv_pool
    if pool is None:
        return
    size = pool.context_len * concurrency
    if concurrency <= MOST_SLOTS:
        changed = replace(flags, ctx_size=size, parallel=concurrency, kv_unified=False)
        yield iter([(f"-c {size} -np {concurrency}", changed, concurrency)])
    fewer = max(1, int(pool.max_concurrency.low))
    if fewer < concurrency:
        yield iter([(f"at most {counted(fewer, 'request')} of this length at once", flags, fewer)])
