"""What vLLM says to an adapter it is asked to load, and what the adapter takes beside its slot.

Source: vllm lora/peft_helper.py (PEFTHelper.validate_legal), lora/lora_model.py (lora/models.py before 0.13),
lora/model_manager.py of 0.6 to 0.33.
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from vramledger.engines.adapter_service import Place, ServedAdapter
from vramledger.engines.adapter_slots import adapter_elements
from vramledger.engines.partition import TOWERS
from vramledger.engines.vllm.lora import (
    EXPERTS,
    EXPERTS_SINCE,
    LoraBytes,
    expert_slots,
    linear_slots,
    local_lora_sizes,
    lora_bytes,
    takes_end,
)
from vramledger.engines.vllm.lora_settings import LoraSettings
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.evidence import calculated
from vramledger.ledger import AFTER_LOAD, ByteRange, Entry, Lifetime, Owner
from vramledger.models.adapters.placing import Misfit, PlacedAdapter, PlacedPair, place
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.model import Model
from vramledger.models.tensors import Component, Role, Tensor
from vramledger.units import format_bytes

RSLORA_SINCE = 7
BIAS_GONE_SINCE = (11, 1)
CLASSIFIERS_SINCE = 31
FEATURES_READ_SINCE = 32
"""From here the engine refuses what it would otherwise load wrongly, and heeds ranks and scales by pattern."""

_CLASSIFIERS = frozenset(("classifier", "score"))


def adapter_uses(checkpoint: Checkpoint, settings: Settings, kind: RankKind) -> tuple[ServedAdapter, ...]:
    """Every adapter that was named, on one kind of rank.

    Raises ConfigError for a pattern of a config that cannot be matched safely.
    """
    lora = settings.lora
    if lora is None or not lora.adapters:
        return ()
    model = checkpoint.model
    slot = lora_bytes(model, kind, settings)
    placed = [place(adapter, checkpoint) for adapter in lora.adapters]
    everywhere = replace(kind, layers=range(model.num_layers), is_first=True, is_last=True)
    modules = (*linear_slots(model, everywhere, settings), *expert_slots(model, everywhere, settings))
    slotted = frozenset(module.name for module in modules)
    found = []
    taken = 0
    for item in placed:
        use = _use(item, model, settings, lora, kind, slot, slotted, taken)
        found.append(use)
        taken += use.place is not Place.REFUSED
    return tuple(found)


def _use(
    placed: PlacedAdapter,
    model: Model,
    settings: Settings,
    lora: LoraSettings,
    kind: RankKind,
    slot: LoraBytes,
    slotted: frozenset[str],
    before: int,
) -> ServedAdapter:
    """`slotted` are the modules that have slots, `before` is how many adapters that load came before it."""
    element = lora.dtype.bits // 8
    refusals, remarks = judge_adapter(placed, model, settings)
    served = [pair for pair in placed.pairs if _has_slot(pair, slotted)]
    if len(served) < len(placed.pairs):
        names = {
            pair.tensor.module.rpartition(".")[2]: None
            for pair in placed.pairs
            if not _has_slot(pair, slotted)
        }
        remarks = (*remarks, f"changes {', '.join(list(names)[:4])}, for which there are no slots")

    def local(tensor: Tensor, axis: int) -> int:
        return local_axis(tensor, axis, kind, settings)

    own = adapter_elements(served, local, layers=kind.layers)
    loaded = Place.DEVICE if before < lora.slots else Place.HOST if before < lora.cpu_slots else Place.DISK
    return ServedAdapter(
        placed=placed,
        place=Place.REFUSED if refusals else loaded,
        refusals=refusals,
        remarks=remarks,
        own_bytes=own * element,
        slot_bytes=slot.of_one(lora.slots),
        host_bytes=placed.elements * element,
    )


def local_axis(tensor: Tensor, axis: int, kind: RankKind, settings: Settings) -> int:
    """Positions of an axis for an adapter's matrices; embedding and head keep the whole vocabulary."""
    if tensor.role in (Role.EMBEDDING, Role.LM_HEAD):
        return tensor.shape[axis]
    sizes = local_lora_sizes(tensor, kind, settings)
    if tensor.num_experts or axis == 0:
        return sizes[axis]
    return prod(sizes[1:])


def judge_adapter(
    placed: PlacedAdapter, model: Model, settings: Settings
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why this version refuses the adapter, and what it loads otherwise than it was trained."""
    refusals = [*_features(placed, settings), *_modules(placed, model, settings)]
    return tuple(refusals), tuple(_remarks(placed, settings))


def _features(placed: PlacedAdapter, settings: Settings) -> list[str]:
    config, version, lora = placed.adapter.config, settings.version, settings.lora
    out = []
    if placed.adapter.is_gguf:
        out.append("is a GGUF adapter, which only llama.cpp reads")
    if lora is not None and placed.largest_rank > lora.rank:
        out.append(f"has rank {placed.largest_rank}, above --max-lora-rank {lora.rank}")
    whole = [
        name
        for name in config.modules_to_save
        if not (version.since(CLASSIFIERS_SINCE) and name in _CLASSIFIERS)
    ]
    if whole:
        out.append(f"replaces whole modules ({', '.join(whole[:4])})")
    if config.use_dora:
        out.append("is weight-decomposed (DoRA)")
    if config.use_rslora and not version.since(RSLORA_SINCE):
        out.append("scales by the root of its rank (rsLoRA)")
    if config.bias != "none":
        gone = version.since(*BIAS_GONE_SINCE)
        out.append("trains biases" + ("" if gone else ", which needs --enable-lora-bias"))
    if version.since(FEATURES_READ_SINCE):
        out += _unknown_features(placed)
    return out


def _unknown_features(placed: PlacedAdapter) -> list[str]:
    config = placed.adapter.config
    named = (
        (config.lora_bias, "has a bias in its own matrices (lora_bias)"),
        (bool(config.init), f"changed the base weights when it was made (init_lora_weights {config.init})"),
        (config.is_activated, "is switched on by tokens (aLoRA)"),
        (config.replicates_layers, "repeats layers of the base model (layer_replication)"),
        (config.is_block_diagonal, "is block-diagonal (BD-LoRA)"),
        (config.use_qalora, "is quantisation-aware (QALoRA)"),
    )
    return [text for there, text in named if there]


def _modules(placed: PlacedAdapter, model: Model, settings: Settings) -> list[str]:
    """Matrices that no module takes."""
    out = [
        item.text
        for item in placed.mismatches
        if not (item.kind is Misfit.VOCABULARY and _takes_tokens(placed, model, settings))
    ]
    ends = {
        "lora_head" if pair.on_head else "lora_embedding"
        for pair in placed.pairs
        if pair.on_head or pair.tensor.role is Role.EMBEDDING
    }
    for section in sorted(ends):
        if not takes_end(model, settings, section):
            name = "head" if section == "lora_head" else "embedding"
            out.append(f"changes the {name}, for which {model.architecture} has no slots")
    if any(pair.tensor.role in EXPERTS for pair in placed.pairs) and not settings.version.since(
        *EXPERTS_SINCE
    ):
        out.append("changes experts, which take adapters since 0.11.1")
    return out


def _takes_tokens(placed: PlacedAdapter, model: Model, settings: Settings) -> bool:
    """Up to 0.11 an adapter may add as many tokens as a slot has rows for them."""
    lora = settings.lora
    if lora is None or not lora.extra_vocab:
        return False
    rows = [item.shape[0] for item in placed.adapter.extras if len(item.shape) == 2]
    return all(count <= model.vocab_size + lora.extra_vocab for count in rows)


def _remarks(placed: PlacedAdapter, settings: Settings) -> list[str]:
    config = placed.adapter.config
    out = []
    if not settings.version.since(FEATURES_READ_SINCE):
        out += [f"{text}, which this version does not look at" for text in _unknown_features(placed)]
        if config.rank_pattern or config.alpha_pattern:
            out.append(
                "has ranks or scales of its own for some modules; this version scales all by the common one"
            )
    return out


def _has_slot(pair: PlacedPair, slotted: frozenset[str]) -> bool:
    """Encoders and draft layers have none; whether embedding and head have is judged before."""
    if pair.tensor.component in (*TOWERS, Component.DRAFT):
        return False
    ends = pair.on_head or pair.tensor.role in (Role.EMBEDDING, Role.LM_HEAD)
    return ends or pair.tensor.module in slotted


def host_entry(settings: Settings, uses: tuple[ServedAdapter, ...], slot_elements: int) -> Entry | None:
    """Adapters in host memory, pinned: each process keeps those it was given whole, up to --max-cpu-loras, and as
    many at the full rank again at most. `slot_elements` are those of one slot before any split."""
    lora, plan = settings.lora, settings.plan
    if lora is None:
        return None
    workers = plan.world_size * plan.dp
    held = [use for use in uses if use.place in (Place.DEVICE, Place.HOST)]
    kept = sum(use.host_bytes for use in held)
    open_slots = lora.cpu_slots - len(held)
    most = kept + open_slots * slot_elements * lora.dtype.bits // 8
    expected = kept if uses else most
    return Entry(
        owner=Owner.ADAPTERS,
        name="adapters in host memory (pinned)",
        lifetime=Lifetime.WORKER,
        phases=AFTER_LOAD,
        bytes=ByteRange(kept * workers, expected * workers, most * workers),
        evidence=calculated(
            "vllm lora/model_manager.py, --max-cpu-loras",
            f"{workers} processes x ({len(held)} adapters {kept} B + {open_slots} free places)",
        ),
        inside_budget=False,
    )


_PLACES = {
    Place.DEVICE: "hot",
    Place.HOST: "cold, in host memory",
    Place.DISK: "on disk",
    Place.REFUSED: "refused",
}


def adapter_notes(uses: tuple[ServedAdapter, ...], lora: LoraSettings) -> tuple[str, ...]:
    """One line an adapter: what of its slot it uses, and whether it is hot."""
    out = []
    for index, use in enumerate(uses):
        place_ = (
            "hot" if index < lora.slots else "cold, in host memory" if index < lora.cpu_slots else "on disk"
        )
        adapter = use.placed.adapter
        text = (
            f"adapter {adapter.id} ({place_}): rank {use.placed.largest_rank} of {lora.rank}, "
            f"{format_bytes(use.own_bytes)} of a slot of {format_bytes(use.slot_bytes)} on a rank"
        )
        out.append("; ".join([text, *use.remarks]))
    return tuple(out)
