"""A set of adapters under SGLang: see `engines.adapter_service`; and what adapters that are named set by themselves.

Source: sglang srt/lora/lora_manager.py (`init_lora_shapes`, `validate_new_adapter`), lora_config.py, mem_pool.py of
0.4.9 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from vramledger.engines.adapter_service import AdapterService, Place, ServedAdapter
from vramledger.engines.adapter_slots import adapter_elements
from vramledger.engines.partition import local_sizes
from vramledger.engines.sglang.flags import LORA_MODULES
from vramledger.engines.sglang.lora import lora_bytes
from vramledger.engines.sglang.options import read_flags
from vramledger.engines.sglang.settings import Settings, resolve
from vramledger.engines.sglang.sharding import RankKind, rank_kinds
from vramledger.engines.sglang.version import NEWEST, SglangVersion, parse_version
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.placing import EXPERT_ROLES, PlacedAdapter, PlacedPair, place
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.tensors import Component, Role, Tensor

DORA_REFUSED_SINCE = (5, 13)
_LORA = ("enable_lora", "adapter", "max_loras_per_batch", "max_lora_rank", "lora_target_modules")


def adapter_service(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    adapters: Sequence[Adapter],
    hot: int | None,
) -> AdapterService:
    """The pool's slots hold the hot ones; every adapter is kept in host memory by each process."""
    asked = NEWEST if version is None else parse_version(version)
    if hot is not None and not 1 <= hot <= len(adapters):
        raise FlagError(
            f"--hot {hot} is not between 1 and the {len(adapters)} adapters", flag="hot", value=hot
        )
    placed = [place(adapter, checkpoint) for adapter in adapters]
    plain = {name: value for name, value in values.items() if value is not None}
    given_rank = plain.get("max_lora_rank")
    judged = [_refusals(item, asked, plain) for item in placed]
    loads = [item.adapter for item, why in zip(placed, judged, strict=True) if not why]
    asked_flags: dict[str, Any] = dict(plain)
    if hot is not None:
        asked_flags["max_loras_per_batch"] = hot
    if loads:
        asked_flags["adapter"] = tuple(loads)
    else:
        asked_flags |= {"enable_lora": True, "max_lora_rank": given_rank or 1}
    flags = read_flags(asked_flags)
    settings = resolve(checkpoint, device, asked, flags)
    kind = rank_kinds(checkpoint.model, settings, device)[0]
    slots = flags.max_loras_per_batch
    slot = lora_bytes(checkpoint.model, kind, settings) // slots
    served = []
    loaded = 0
    for item, why in zip(placed, judged, strict=True):
        served.append(_served(item, why, settings, kind, slot, is_hot=loaded < slots))
        loaded += not why
    return AdapterService(
        engine="sglang",
        version=str(asked),
        served=tuple(served),
        slots=slots,
        rank=flags.max_lora_rank or 0,
        processes=flags.tp_size * flags.pp_size,
        sharing=_sharing(loaded, slots),
    )


def with_adapters(
    values: Mapping[str, object], service: AdapterService
) -> tuple[dict[str, object], dict[str, object]]:
    """Flags with the adapters that load, in as many slots; and without adapters."""
    served = [use.placed.adapter for use in service.served if use.place is not Place.REFUSED]
    without = {name: value for name, value in values.items() if name not in _LORA}
    given = {name: value for name, value in values.items() if value is not None}
    given |= {"max_loras_per_batch": service.slots, "max_lora_rank": service.rank}
    return given | ({"adapter": tuple(served)} if served else {"enable_lora": True}), without


def _served(
    placed: PlacedAdapter,
    refusals: tuple[str, ...],
    settings: Settings,
    kind: RankKind,
    slot_bytes: int,
    *,
    is_hot: bool,
) -> ServedAdapter:
    def local(tensor: Tensor, axis: int) -> int:
        if tensor.role in (Role.EMBEDDING, Role.LM_HEAD):
            return tensor.shape[axis]
        sizes = local_sizes(tensor, kind.cuts_of(tensor))
        return sizes[axis] if tensor.num_experts or axis == 0 else prod(sizes[1:])

    held = [pair for pair in placed.pairs if _has_buffers(pair)]
    own = adapter_elements(held, local, layers=kind.layers)
    return ServedAdapter(
        placed=placed,
        place=Place.REFUSED if refusals else Place.DEVICE if is_hot else Place.HOST,
        refusals=refusals,
        remarks=_remarks(placed),
        own_bytes=settings.dtype.bytes_for(own),
        slot_bytes=slot_bytes,
        host_bytes=settings.dtype.bytes_for(placed.elements),
    )


def _refusals(placed: PlacedAdapter, version: SglangVersion, values: Mapping[str, object]) -> tuple[str, ...]:
    config = placed.adapter.config
    rank, targets = values.get("max_lora_rank"), values.get("lora_target_modules")
    out = []
    if placed.adapter.is_gguf:
        out.append("is a GGUF adapter, which only llama.cpp reads")
    if rank is not None and placed.largest_rank > int(str(rank)):
        out.append(f"has rank {placed.largest_rank}, above --max-lora-rank {rank}")
    if config.use_dora and version.since(*DORA_REFUSED_SINCE):
        out.append("is weight-decomposed (DoRA)")
    if config.target_pattern not in ("", "all-linear", "all") and targets is None:
        out.append("names its modules by a pattern, which needs --lora-target-modules")
    unknown = [name for name in config.target_modules if name.rpartition(".")[2] not in LORA_MODULES]
    if unknown:
        out.append(f"changes {', '.join(unknown[:4])}, which the pool has no buffers for")
    return (*out, *(item.text for item in placed.mismatches))


def _has_buffers(pair: PlacedPair) -> bool:
    """Whether the pool has buffers for the module: the language model's projections that its flag names."""
    end = pair.tensor.module.rpartition(".")[2]
    if pair.tensor.component is not Component.DECODER:
        return False
    return pair.on_head or pair.tensor.role in (*EXPERT_ROLES, Role.EMBEDDING) or end in LORA_MODULES


def _remarks(placed: PlacedAdapter) -> tuple[str, ...]:
    config = placed.adapter.config
    out = []
    if config.modules_to_save:
        out.append(f"replaces whole modules ({', '.join(config.modules_to_save[:4])}), which are not loaded")
    if config.bias != "none" or config.lora_bias:
        out.append("trains biases, which are not loaded")
    others = {pair.tensor.module.rpartition(".")[2]: None for pair in placed.pairs if not _has_buffers(pair)}
    if others:
        out.append(f"changes {', '.join(list(others)[:4])}, for which the pool has no buffers here")
    return tuple(out)


def _sharing(loaded: int, slots: int) -> tuple[str, ...]:
    """Source: managers/schedule_policy.py and mem_pool.py: requests without an adapter hold a slot too."""
    out = []
    if loaded > slots:
        out.append(
            f"a batch holds requests of at most {slots} of {loaded} adapters (--max-loras-per-batch); a request of "
            "another waits for a slot, and then its adapter is copied into it"
        )
    elif loaded == slots:
        out.append(
            "requests of all adapters share a batch; one without an adapter needs a slot of its own beside them"
        )
    else:
        out.append("requests of all adapters, and without one, share a batch")
    out.append("one set of graphs serves every mix of adapters")
    return tuple(out)
