"""A set of adapters under vLLM: see `engines.adapter_service`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from vramledger.engines.adapter_service import AdapterService, Place
from vramledger.engines.vllm.lora_adapters import adapter_uses
from vramledger.engines.vllm.lora_settings import LoraSettings, allowed_ranks
from vramledger.engines.vllm.options import read_flags
from vramledger.engines.vllm.settings import Settings, resolve
from vramledger.engines.vllm.sharding import rank_kinds
from vramledger.engines.vllm.version import NEWEST, VllmVersion, parse_version
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.checkpoint import Checkpoint

_LORA = (
    "enable_lora", "adapter", "max_loras", "max_lora_rank", "max_cpu_loras", "fully_sharded_loras", "lora_dtype",
    "lora_extra_vocab_size", "lora_target_modules", "specialize_active_lora",
)  # fmt: skip


def adapter_service(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    adapters: Sequence[Adapter],
    hot: int | None,
) -> AdapterService:
    """Slots for the hot ones at the smallest rank that holds all; an adapter above the largest rank of the version
    or of a flag is refused like any other."""
    asked = NEWEST if version is None else parse_version(version)
    parallel, flags = read_flags(values)
    if hot is not None and not 1 <= hot <= len(adapters):
        raise FlagError(
            f"--hot {hot} is not between 1 and the {len(adapters)} adapters", flag="hot", value=hot
        )
    most = flags.max_lora_rank if flags.max_lora_rank is not None else allowed_ranks(asked)[-1]

    def settled(served: Sequence[Adapter], rank: int | None) -> Settings:
        given = replace(flags, adapter=tuple(served), enable_lora=True, max_lora_rank=rank)
        if hot is not None:
            given = replace(given, max_loras=max(min(hot, len(served)), 1))
        return resolve(checkpoint.model, device, asked, parallel, given)

    fitting = [adapter for adapter in adapters if adapter.config.largest_rank <= most]
    kind = rank_kinds(checkpoint.model, parallel, flags, asked)[0]
    first = adapter_uses(checkpoint, _with(settled(fitting, most), adapters), kind)
    loads = [use.placed.adapter for use in first if use.place is not Place.REFUSED]
    settings = settled(loads, flags.max_lora_rank)
    lora = settings.lora
    assert lora is not None
    return AdapterService(
        engine="vllm",
        version=str(asked),
        served=tuple(
            # A refusal is told as it is at the largest rank: the slots are made for those that load.
            replace(use, refusals=before.refusals) if before.place is Place.REFUSED else use
            for before, use in zip(
                first, adapter_uses(checkpoint, _with(settings, adapters), kind), strict=True
            )
        ),
        slots=lora.slots,
        rank=lora.rank,
        processes=parallel.world_size * parallel.dp,
        sharing=_sharing(lora, settings, asked, len(loads)),
    )


def _with(settings: Settings, adapters: Sequence[Adapter]) -> Settings:
    """The same slots, asked about other adapters."""
    assert settings.lora is not None
    return replace(settings, lora=replace(settings.lora, adapters=tuple(adapters)))


def with_adapters(
    values: Mapping[str, object], service: AdapterService
) -> tuple[dict[str, object], dict[str, object]]:
    """Flags with the adapters that load, in as many slots; and without adapters."""
    served = [use.placed.adapter for use in service.served if use.place is not Place.REFUSED]
    without = {name: value for name, value in values.items() if name not in _LORA}
    given = {name: value for name, value in values.items() if value is not None}
    given |= {"max_loras": service.slots, "max_lora_rank": service.rank}
    return given | ({"adapter": tuple(served)} if served else {"enable_lora": True}), without


def _sharing(lora: LoraSettings, settings: Settings, version: VllmVersion, count: int) -> tuple[str, ...]:
    """Source: v1/core/sched/scheduler.py (a request whose adapter has no slot left waits), v1/cudagraph_dispatcher.py."""
    out = []
    if count > lora.slots:
        out.append(
            f"a batch holds requests of at most {lora.slots} of {count} adapters (--max-loras); a request of another "
            "waits until one of them has no request left, and then its adapter is copied into the slot"
        )
    else:
        out.append("requests of all adapters, and without one, share a batch")
    if settings.flags.enforce_eager:
        out.append("no graphs are captured")
    elif lora.graph_sets == 1:
        out.append(f"every step runs the adapters' graphs in vllm {version}, also without an adapter")
    elif lora.graph_sets == 2:
        out.append("steps without an adapter run graphs of their own; all other steps share one set")
    else:
        out.append(
            f"{lora.graph_sets} sets of graphs: without an adapter, and for up to 1, 2, 4 ... of them in a step"
        )
    return tuple(out)
