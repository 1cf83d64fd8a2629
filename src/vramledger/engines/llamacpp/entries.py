"""The ledger lines of a llama.cpp process, on its devices and on the host."""

from __future__ import annotations

from vramledger.engines.llamacpp.extra_files import ExtraFiles
from vramledger.engines.llamacpp.file_model import FileModel
from vramledger.engines.llamacpp.log_lines import device_name, host_name
from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.llamacpp.settings import DEFAULT_CHECKPOINTS, DEFAULT_PROMPT_CACHE_MIB
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.engines.surroundings import Surroundings, driver_context
from vramledger.evidence import Evidence, assumed, calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import AFTER_LOAD, ALL_PHASES, SERVING, ByteRange, Entry, Lifetime, Owner
from vramledger.units import MIB, format_bytes

_CACHE_SOURCE = "llama.cpp src/llama-kv-cache.cpp"
_GRAPH_SOURCE = "llama.cpp src/llama-context.cpp (sched_reserve), ggml-alloc.c replayed on the graph's shapes"


def device_entries(
    measured: Measured, file: FileModel, extra: ExtraFiles, device: Device, index: int
) -> tuple[Entry, ...]:
    """What one device holds; HOST for a build without devices."""
    placement = measured.placement
    name = device_name(device, index)
    out: list[Entry] = []
    if index == HOST:
        out.append(_entry(Owner.WEIGHTS, f"{name} model buffer", measured.model_bytes(HOST), file.evidence))
    else:
        size = placement.device_bytes[index]
        tied = placement.tied_bytes if placement.output == index and not placement.split_bytes[index] else 0
        label = f"{name} model buffer" + (" with the tied embedding again" if tied else "")
        out.append(_entry(Owner.WEIGHTS, label, size, file.evidence))
        if placement.split_bytes[index]:
            out.append(
                _entry(
                    Owner.WEIGHTS, f"{name}_Split model buffer", placement.split_bytes[index], file.evidence
                )
            )
    if extra.adapters.get(index):
        source = calculated(
            "llama.cpp src/llama-adapter.cpp", f"A and B of {extra.adapter_count} adapter file(s)"
        )
        out.append(_entry(Owner.ADAPTERS, f"{name} LoRA buffer", extra.adapters[index], source))
    if extra.projector_bytes and index == _projector_device(measured):
        out.extend(_projector(extra))
    out.extend(_context(measured, index, name))
    out.append(
        Entry(
            owner=Owner.WORKSPACE,
            name=f"{name} compute buffer",
            lifetime=Lifetime.WORKER,
            phases=AFTER_LOAD,
            bytes=measured.compute[index],
            evidence=_compute_evidence(measured),
        )
    )
    if index == HOST:
        out.extend(_shared_host(measured, "CPU"))
    context = _server_process() if device.vendor == "cpu" else driver_context(device)
    out.append(
        Entry(
            owner=Owner.RUNTIME_CONTEXT,
            name="driver context, kernels and their pools" if index != HOST else "process",
            lifetime=Lifetime.WORKER,
            phases=ALL_PHASES,
            bytes=context.bytes,
            evidence=assumed(context.source),
            inside_budget=False,
        )
    )
    return tuple(item for item in out if item.bytes.high)


def host_entries(measured: Measured, file: FileModel, extra: ExtraFiles, device: Device) -> tuple[Entry, ...]:
    """What the process keeps in host memory beside its devices."""
    placement, flags = measured.placement, measured.settings.flags
    out: list[Entry] = []
    if placement.host_bytes:
        mapped = flags.mmap
        span = placement.host_span_bytes if mapped else placement.host_bytes
        name = "CPU_Mapped model buffer" if mapped else f"{host_name(device)} model buffer"
        evidence = calculated(
            "llama.cpp src/llama-model-loader.cpp" if mapped else file.evidence.source,
            f"tensors {format_bytes(placement.host_bytes)}"
            + (f", the mapping from the first to the last covers {format_bytes(span)}" if mapped else ""),
        )
        size = ByteRange(placement.host_bytes, placement.host_bytes, max(span, placement.host_bytes))
        out.append(
            Entry(
                owner=Owner.WEIGHTS,
                name=name,
                lifetime=Lifetime.WORKER,
                phases=ALL_PHASES,
                bytes=size,
                evidence=evidence,
            )
        )
    if extra.adapters.get(HOST):
        source = calculated(
            "llama.cpp src/llama-adapter.cpp", f"A and B of {extra.adapter_count} adapter file(s)"
        )
        out.append(_entry(Owner.ADAPTERS, "CPU LoRA buffer", extra.adapters[HOST], source))
    if extra.projector_bytes and _projector_device(measured) == HOST:
        out.extend(_projector(extra))
    out.extend(_context(measured, HOST, "CPU"))
    out.append(
        Entry(
            owner=Owner.WORKSPACE,
            name=f"{host_name(device)} compute buffer",
            lifetime=Lifetime.WORKER,
            phases=AFTER_LOAD,
            bytes=measured.compute[HOST],
            evidence=_compute_evidence(measured),
        )
    )
    out.extend(_shared_host(measured, host_name(device)))
    return tuple(item for item in out if item.bytes.high)


def output_bytes(measured: Measured, rows: int = 0) -> int:
    """The buffer of logits (and embeddings): one row a sequence when a context is made, `rows` where more are asked for."""
    settings = measured.settings
    width = measured.vocab + (measured.hidden if settings.flags.embedding else 0)
    return width * 4 * max(rows, settings.slots)


def _shared_host(measured: Measured, name: str) -> list[Entry]:
    """Output rows, finished prompts, snapshots: they grow while serving."""
    settings = measured.settings
    first = output_bytes(measured)
    out = [
        Entry(
            owner=Owner.WORKSPACE,
            name=f"{name} output buffer",
            lifetime=Lifetime.WORKER,
            phases=AFTER_LOAD,
            bytes=ByteRange(first, first, output_bytes(measured, settings.outputs)),
            evidence=calculated(
                "llama.cpp src/llama-context.cpp (output_reserve)",
                f"{first // settings.slots:,} B x {settings.slots} rows, up to {settings.outputs:,} where more are asked for",
            ),
        )
    ]
    limit = settings.flags.cache_ram
    limit = DEFAULT_PROMPT_CACHE_MIB if limit is None else limit
    if settings.build.has_prompt_cache and limit:
        most = limit * MIB if limit > 0 else 0
        out.append(
            Entry(
                owner=Owner.KV_CACHE,
                name="prompt cache (--cache-ram)" if limit > 0 else "prompt cache without a limit",
                lifetime=Lifetime.REQUEST,
                phases=SERVING,
                bytes=ByteRange(0, most, most),
                evidence=calculated(
                    "llama.cpp tools/server (server_prompt_cache)", f"at most {limit} MiB of finished prompts"
                ),
            )
        )
    kept = settings.flags.ctx_checkpoints
    kept = DEFAULT_CHECKPOINTS if kept is None else kept
    each = _checkpoint_bytes(measured)
    if settings.build.has_prompt_cache and kept and each:
        out.append(
            Entry(
                owner=Owner.KV_CACHE,
                name="context checkpoints of windows and states",
                lifetime=Lifetime.REQUEST,
                phases=SERVING,
                bytes=ByteRange(0, each * settings.slots, each * kept * settings.slots),
                evidence=calculated(
                    "llama.cpp tools/server (--ctx-checkpoints)",
                    f"up to {kept} a slot of {format_bytes(each)}, {settings.slots} slot(s)",
                ),
            )
        )
    return out


def _checkpoint_bytes(measured: Measured) -> int:
    """One snapshot: the windows of one sequence and its states."""
    caches, settings = measured.caches, measured.settings
    windows = sum(
        item.bytes // (item.cells * settings.streams) * min(caches.window, item.cells)
        for item in caches.caches
        if item.is_windowed
    )
    return windows + sum(item.bytes for item in caches.states) // settings.slots


def _context(measured: Measured, index: int, name: str) -> list[Entry]:
    settings, caches = measured.settings, measured.caches
    out = []
    for windowed, index_keys in ((False, False), (True, False), (False, True)):
        layers = [
            item
            for item in caches.caches
            if item.is_windowed is windowed
            and item.is_index is index_keys
            and measured.cache_device(item.layer) == index
        ]
        if not layers:
            continue
        one = layers[0]
        kind = "windowed KV buffer" if windowed else "indexer key buffer" if index_keys else "KV buffer"
        formula = (
            f"{len(layers)} layers x {one.cells:,} cells x {settings.streams} stream(s) x "
            f"(K {one.key_width} {settings.key_type.lower()} + V {one.value_width} {settings.value_type.lower()})"
        )
        out.append(
            _entry(
                Owner.KV_CACHE,
                f"{name} {kind}",
                sum(item.bytes for item in layers),
                calculated(_CACHE_SOURCE, formula),
            )
        )
    states = [item for item in caches.states if measured.cache_device(item.layer) == index]
    if states:
        formula = (
            f"{len(states)} layers x {settings.slots} sequence(s) x (R {states[0].shift_bytes // settings.slots:,} B + "
            f"S {states[0].state_bytes // settings.slots:,} B)"
        )
        size = sum(item.bytes for item in states)
        out.append(
            _entry(
                Owner.KV_CACHE,
                f"{name} RS buffer",
                size,
                calculated("llama.cpp src/llama-memory-recurrent.cpp", formula),
            )
        )
    return out


def _compute_evidence(measured: Measured) -> Evidence:
    settings = measured.settings
    if not measured.graph_is_known:
        return assumed(
            "no rules here for this architecture's graph; a plain transformer's, from half to three times"
        )
    flash = "on" if settings.flash else "off"
    return calculated(
        _GRAPH_SOURCE,
        f"{settings.tokens:,} tokens of {settings.slots} sequence(s), {min(settings.tokens, settings.outputs):,} outputs, "
        f"{measured.caches.cells:,} cells, flash attention {flash}",
    )


def _projector_device(measured: Measured) -> int:
    return 0 if measured.settings.devices and measured.settings.flags.mmproj_offload else HOST


def _projector(extra: ExtraFiles) -> list[Entry]:
    size = extra.projector_bytes
    return [
        _entry(
            Owner.WEIGHTS,
            "projector and encoder (--mmproj)",
            size,
            calculated("llama.cpp tools/mtmd/clip.cpp", "tensors of the file"),
        ),
        Entry(
            owner=Owner.WORKSPACE,
            name="projector's compute buffer",
            lifetime=Lifetime.ITERATION,
            phases=SERVING,
            bytes=ByteRange(size // 20, size // 4, size),
            evidence=assumed("sized by a warm-up picture or sound; larger ones grow it"),
        ),
    ]


def _entry(owner: Owner, name: str, size: int, evidence: Evidence) -> Entry:
    return Entry(
        owner=owner, name=name, lifetime=Lifetime.WORKER, phases=ALL_PHASES if owner is Owner.WEIGHTS else AFTER_LOAD,
        bytes=ByteRange.exact(size), evidence=evidence,
    )  # fmt: skip


def _server_process() -> Surroundings:
    """The server itself on a host: code, threads, tokenizer, HTTP."""
    return Surroundings(
        bytes=ByteRange(25 * MIB, 50 * MIB, 90 * MIB),
        source="resident set beside weights, KV and compute buffers of its server with 3 models: 27 to 72 MiB",
    )
