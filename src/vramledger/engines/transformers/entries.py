"""The ledger of one process: weights and context, the cache, and what the memory handler sets aside for a batch."""

from __future__ import annotations

from vramledger.engines.entry import entry as _entry
from vramledger.engines.held_weights import HeldWeights
from vramledger.engines.surroundings import Surroundings
from vramledger.engines.transformers.cache import Sized
from vramledger.engines.transformers.settings import Settings
from vramledger.engines.transformers.sizing import Reserve
from vramledger.evidence import assumed, calculated
from vramledger.ledger import (
    AFTER_LOAD,
    ALL_PHASES,
    SERVING,
    ByteRange,
    Entry,
    Lifetime,
    Owner,
    Phase,
)
from vramledger.models.mixers import DenseMlp, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.units import GIB, KIB, MIB, counted

_CACHE_FILE = "generation/continuous_batching/cache.py"
_BATCH = frozenset({Phase.WARMUP, Phase.PREFILL, Phase.RECOVERY})
_IN_DECODE = frozenset({"keys and values read back", "logits of a batch's requests"})
# A captured graph adds 100 to 340 KiB a layer in vLLM's start-up logs; nothing is known of this library's.
_GRAPH_BYTES = ByteRange(0, 250 * KIB, 340 * KIB)


def process_entries(
    model: Model,
    settings: Settings,
    weights: HeldWeights,
    sized: Sized,
    context: Surroundings,
    communicators: Surroundings | None,
) -> tuple[Entry, ...]:
    """Every entry of one process."""
    out = [*_weights(settings, weights), *_around(settings, context, communicators)]
    out += _cache(settings, sized)
    out += _reserves(settings, sized)
    out += _beyond(model, settings, sized)
    return tuple(entry for entry in out if entry.bytes.high)


def _weights(settings: Settings, weights: HeldWeights) -> list[Entry]:
    source = f"transformers {settings.version} modeling_utils.py, tp {settings.flags.tp_size}"
    out = [
        _entry(
            Owner.WEIGHTS,
            group.name,
            ALL_PHASES,
            group.bytes,
            calculated(source, group.formula),
            inside=False,
        )
        for group in weights.groups
    ]
    rests = assumed(
        "the loader reserves the parameters in one piece (caching_allocator_warmup); rests of a segment"
    )
    out.append(_entry(Owner.ALLOCATOR, "idle beside weights", ALL_PHASES, slack(), rests, inside=False))
    return out


def slack() -> ByteRange:
    """What the allocator reserves beside the weights."""
    return ByteRange(0, 2 * MIB, 20 * MIB)


def _around(settings: Settings, context: Surroundings, communicators: Surroundings | None) -> list[Entry]:
    out = [
        _entry(
            Owner.RUNTIME_CONTEXT, "driver context and libraries", ALL_PHASES, context.bytes,
            assumed(context.source), inside=False,
        )
    ]  # fmt: skip
    if communicators is not None:
        out.append(
            _entry(
                Owner.COLLECTIVES, "communicators", ALL_PHASES, communicators.bytes, assumed(communicators.source),
                inside=False,
            )
        )  # fmt: skip
    return out


def _cache(settings: Settings, sized: Sized) -> list[Entry]:
    rules, units = sized.rules, sized.units
    word = "sectors" if settings.version.since(18) else "blocks"
    source = f"transformers {settings.version} {_CACHE_FILE}"
    held = ByteRange(*(count * rules.unit_bytes for count in (units.low, units.expected, units.high)))
    shown = ", ".join(
        f"{group.kind} {group.num_layers} layers x {group.page_bytes} B" for group in rules.groups
    )
    trash = rules.extra_units * rules.unit_bytes
    return [
        _entry(
            Owner.KV_CACHE, f"paged cache, {word}", AFTER_LOAD, held,
            calculated(source, f"{units.expected} {word} of {rules.unit_bytes} B: {shown}"),
            is_remainder=settings.flags.num_blocks is None,
        ),
        _entry(
            Owner.KV_CACHE, f"trash {word}", AFTER_LOAD, trash,
            calculated(source, f"{rules.extra_units} x {rules.unit_bytes} B for padding tokens"),
            inside=settings.version.since(18),
        ),
    ]  # fmt: skip


def _reserves(settings: Settings, sized: Sized) -> list[Entry]:
    """What is set aside for a full batch, each with the cache of the low, the expected and the high end."""
    ends = [
        sized.rules.reserves(item.batch_tokens, max(item.units, 0))
        for item in (sized.low, sized.expected, sized.high)
    ]
    source = f"transformers {settings.version} {_CACHE_FILE}, as the handler sets it aside"
    return [_reserve(low, middle, high, source) for low, middle, high in zip(*ends, strict=True)]


def _reserve(low: Reserve, middle: Reserve, high: Reserve, source: str) -> Entry:
    sizes = sorted((low.bytes, middle.bytes, high.bytes))
    lasts = middle.owner is Owner.WORKSPACE
    in_decode = middle.name in _IN_DECODE
    phases = AFTER_LOAD if lasts else SERVING | _BATCH if in_decode else _BATCH
    return _entry(
        middle.owner, middle.name, phases, ByteRange(*sizes), calculated(source, middle.formula),
        lifetime=Lifetime.WORKER if lasts else Lifetime.ITERATION,
    )  # fmt: skip


def _beyond(model: Model, settings: Settings, sized: Sized) -> list[Entry]:
    """What lives in the share that the handler leaves: MLPs wider than the attention peak, graphs, and air."""
    solution = sized.expected
    set_aside = sum(
        item.bytes
        for item in sized.rules.reserves(solution.batch_tokens, max(solution.units, 0))
        if item.owner is Owner.ACTIVATION
    )
    width, formula = _mlp_width(model)
    mlp = solution.batch_tokens * width * settings.element_bytes
    more = max(mlp - set_aside, 0)
    out = [
        _entry(
            Owner.ACTIVATION, "MLP beyond what is set aside", _BATCH, ByteRange(0, more, more),
            calculated(
                "hidden states, gate, up and their product alive at once",
                f"{solution.batch_tokens} tokens x ({formula}) x {settings.element_bytes} B - {set_aside} B",
            ),
            lifetime=Lifetime.ITERATION, inside=False,
        )
    ]  # fmt: skip
    if settings.has_graphs:
        graphs = _graphs(settings)
        each = _GRAPH_BYTES
        scale = graphs * model.num_layers
        out.append(
            _entry(
                Owner.GRAPH_POOL, "CUDA graphs", AFTER_LOAD,
                ByteRange(scale * each.low, scale * each.expected, scale * each.high),
                assumed("bytes a graph and layer as in vLLM's logs", f"{counted(graphs, 'graph')} captured at warm-up"),
                inside=False,
            )
        )  # fmt: skip
    air = sized.free.expected - solution.available_bytes
    out.append(
        _entry(
            Owner.HEADROOM, "above max_memory_percent", frozenset(), max(air, 0),
            calculated(
                "max_memory_percent", f"{sized.free.expected} B free x (1 - {settings.memory_percent})"
            ),
            inside=False,
        )
    )  # fmt: skip
    return out


def _mlp_width(model: Model) -> tuple[int, str]:
    """Elements a token needs inside the widest channel mixer."""
    hidden = model.hidden_size
    best, formula = hidden, f"{hidden}"
    for mixer in {layer.channel_mixer for layer in model.layers}:
        if isinstance(mixer, DenseMlp):
            parts, inner, count = (3 if mixer.gated else 2), mixer.intermediate, 1
        elif isinstance(mixer, MixtureOfExperts):
            parts, inner, count = (3 if mixer.gated else 2), mixer.intermediate, mixer.top_k
        else:
            continue
        width = hidden + count * (parts * inner + (hidden if count > 1 else 0))
        if width > best:
            best = width
            formula = f"{hidden} + {count} x {parts} x {inner}" + (
                f" + {count} x {hidden}" if count > 1 else ""
            )
    return best, formula


def _graphs(settings: Settings) -> int:
    """One graph of the largest batch, and one for each power of two of requests where decode has its own path."""
    decode = settings.max_requests.bit_length() if settings.blocks_per_request else 0
    return settings.io_sets * (1 + decode)


def host_entries(model: Model, settings: Settings, unit_bytes: int) -> tuple[Entry, ...]:
    """What all processes of the server keep in host memory."""
    processes = settings.flags.tp_size
    out = [
        _entry(
            Owner.RUNTIME_CONTEXT, "Python, torch and libraries", ALL_PHASES,
            ByteRange(processes * GIB // 2, processes * GIB, processes * 5 * GIB // 2),
            assumed("0.5 GiB resident for a tiny model on the CPU; with CUDA libraries 1 to 2.5 GiB a process"),
        )
    ]  # fmt: skip
    offload = int(settings.flags.cpu_offload_space * GIB)
    sectors = offload // unit_bytes
    if sectors:
        out.append(
            _entry(
                Owner.KV_CACHE, "pinned swap pool", AFTER_LOAD, processes * sectors * unit_bytes,
                calculated(
                    f"transformers {settings.version} generation/continuous_batching/offloading_manager.py",
                    f"{processes} x {sectors} sectors of {unit_bytes} B",
                ),
            )
        )  # fmt: skip
    return tuple(out)
