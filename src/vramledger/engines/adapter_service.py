"""What an engine makes of a set of adapters: which it serves, where each lies, what a swap moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from vramledger.hardware.catalogue import Device
    from vramledger.models.adapters.adapter import Adapter
    from vramledger.models.adapters.placing import PlacedAdapter
    from vramledger.models.checkpoint import Checkpoint


class Place(StrEnum):
    """Where an adapter lies while the engine serves."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    REFUSED = "refused"


class ServedAdapter(Struct, frozen=True, kw_only=True):
    """One adapter under an engine's settings. `refusals` are why it is not loaded, `remarks` what loads but not
    as trained; `own_bytes` is what it takes on a rank at its own ranks, `slot_bytes` the slot it lies in,
    `host_bytes` what one process keeps of it in host memory. Bytes are those of the first kind of rank.
    """

    placed: PlacedAdapter
    place: Place
    refusals: tuple[str, ...]
    remarks: tuple[str, ...]
    own_bytes: int
    slot_bytes: int
    host_bytes: int

    @property
    def padding_bytes(self) -> int:
        """What the slot holds beyond the adapter: rank above its own, and modules that it does not change."""
        return max(self.slot_bytes - self.own_bytes, 0)


class AdapterService(Struct, frozen=True, kw_only=True):
    """A set of adapters under an engine. `slots` are adapters in one batch at most, `rank` that of every slot;
    `processes` each keep the host's adapters. `sharing` says what can share a batch and a graph."""

    engine: str
    version: str
    served: tuple[ServedAdapter, ...]
    slots: int
    rank: int
    processes: int
    sharing: tuple[str, ...]


class AdapterRules(Protocol):
    """What an engine's adapter module offers."""

    def adapter_service(
        self,
        checkpoint: Checkpoint,
        device: Device,
        *,
        version: str | None,
        values: Mapping[str, object],
        adapters: Sequence[Adapter],
        hot: int | None,
    ) -> AdapterService:
        """The adapters, hot ones first, under the engine's flags by name; `hot` of them are on the device at once.

        An adapter that the engine refuses is told, not raised. Raises FlagError for contradictory flags.
        """
        ...

    def with_adapters(
        self, values: Mapping[str, object], service: AdapterService
    ) -> tuple[dict[str, object], dict[str, object]]:
        """The engine's flags with the adapters it serves, and without any."""
        ...
