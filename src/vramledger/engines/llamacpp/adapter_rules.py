"""A set of adapters under llama.cpp: see `engines.adapter_service`.

Source: llama.cpp src/llama-adapter.cpp (every adapter is loaded whole, beside the weights it patches, at its own types),
tools/server/server-context.cpp (`can_batch_with`), convert_lora_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramledger.engines.adapter_service import AdapterService, Place, ServedAdapter
from vramledger.engines.llamacpp.extra_files import MOST_ADAPTERS
from vramledger.engines.llamacpp.options import flags_from
from vramledger.engines.llamacpp.version import NEWEST, parse_version
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.placing import PlacedAdapter, place
from vramledger.models.checkpoint import Checkpoint


def adapter_service(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: str | None,
    values: Mapping[str, object],
    adapters: Sequence[Adapter],
    hot: int | None,
) -> AdapterService:
    """Every adapter that loads lies on the devices for good; there are no slots, and none is cold."""
    build = NEWEST if version is None else parse_version(version)
    flags_from(values)
    if hot is not None and hot != len(adapters):
        raise FlagError(
            f"--hot {hot}: llama.cpp keeps every adapter it loads on the device; name {hot} of the {len(adapters)}",
            flag="hot",
            value=hot,
        )
    if len(adapters) > MOST_ADAPTERS:
        raise FlagError(
            f"{len(adapters)} adapters are more than {MOST_ADAPTERS}", flag="adapter", value=len(adapters)
        )
    served = tuple(_served(place(adapter, checkpoint)) for adapter in adapters)
    loaded = [use for use in served if use.place is not Place.REFUSED]
    return AdapterService(
        engine="llamacpp",
        version=str(build),
        served=served,
        slots=max(len(loaded), 1),
        rank=max((use.placed.largest_rank for use in loaded), default=0),
        processes=1,
        sharing=(
            "a batch holds requests of one set of adapters at the same scales; others run in a batch of their own",
            "the graph is built anew when the set changes",
        ),
    )


def with_adapters(
    values: Mapping[str, object], service: AdapterService
) -> tuple[dict[str, object], dict[str, object]]:
    """Flags with the files that load, and without any."""
    given = {name: value for name, value in values.items() if value is not None and name != "lora"}
    files = [use.placed.adapter.where for use in service.served if use.place is not Place.REFUSED]
    return (given | {"lora": ",".join(files)} if files else dict(given)), given


def _served(placed: PlacedAdapter) -> ServedAdapter:
    refusals = _refusals(placed)
    return ServedAdapter(
        placed=placed,
        place=Place.REFUSED if refusals else Place.DEVICE,
        refusals=refusals,
        remarks=(),
        own_bytes=placed.adapter.disk_bytes,
        slot_bytes=placed.adapter.disk_bytes,
        host_bytes=0,
    )


def _refusals(placed: PlacedAdapter) -> tuple[str, ...]:
    """A file that is no GGUF is not read; a matrix without its weight in the model ends the loading."""
    if not placed.adapter.is_gguf:
        config = placed.adapter.config
        out = ["is no GGUF file; convert it with llama.cpp's convert_lora_to_gguf.py"]
        if config.use_dora or placed.adapter.extras:
            out.append("holds tensors that are no A or B, at which the conversion stops")
        return tuple(out)
    return tuple(item.text for item in placed.mismatches)
