"""The published comparison of allocation schemes: what `vramledger layout --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.answer import Plan
from vramledger.documents.plan import SCHEMA_VERSION, ByteInterval, SchemaVersion, byte_interval
from vramledger.kvcache.lengths import Lengths
from vramledger.kvcache.schemes import Allocation


class WasteDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are held for no token, by cause."""

    rounding_bytes: Annotated[
        int, Meta(description="The rest of last blocks or pages, and layers that only pad a pool.")
    ]
    ahead_bytes: Annotated[int, Meta(description="Mapped or reserved for tokens to come.")]
    stale_bytes: Annotated[int, Meta(description="Tokens that have left a window.")]


class AllocationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One scheme; `refusal` says why it cannot be had, and then every figure is 0."""

    scheme: str
    source: str
    refusal: str | None
    unit_bytes: Annotated[int, Meta(description="The least that is handed out, all layers.")]
    unit_tokens: int
    used_bytes: Annotated[int, Meta(description="Tokens of all requests at a moment while they run.")]
    held_bytes: Annotated[ByteInterval, Meta(description="What is taken for them at that moment.")]
    final_bytes: Annotated[int, Meta(description="What is taken with every request at its last length.")]
    waste: WasteDocument
    fixed_bytes: Annotated[int, Meta(description="Held whatever runs.")]
    table_bytes: Annotated[int, Meta(description="Block tables on the device.")]
    virtual_bytes: Annotated[int, Meta(description="Addresses that are reserved.")]
    idle_bytes: Annotated[
        int, Meta(description="What the device does not get back when all requests have ended.")
    ]
    fit_running: Annotated[int, Meta(description="Requests that the pool holds while they run.")]
    fit_final: Annotated[int, Meta(description="Requests that the pool holds with each at its last length.")]
    notes: tuple[str, ...]


class LayoutDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Schemes side by side for one workload on one plan's pool; bytes are one rank's."""

    schema_version: SchemaVersion
    kind: Literal["layout"]
    model: str
    engine: str
    engine_version: str
    device: str
    refusal: Annotated[str | None, Meta(description="Why there is no pool, and then no allocations.")]
    pool_bytes: int
    max_len: int
    requests: Annotated[int, Meta(description="Requests that run at once.")]
    lengths: Annotated[
        int, Meta(description="Kinds of request that the means are over, each as often as it occurs.")
    ]
    mean_prompt_tokens: float
    mean_output_tokens: float
    longest_tokens: int
    outside_bytes_per_request: Annotated[
        int, Meta(description="Constant state of a request that lies outside the pool and is in no scheme.")
    ]
    cut_share: Annotated[float, Meta(description="Share of the requests that were longer than max_len.")]
    allocations: tuple[AllocationDocument, ...]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answers. `cut` of the lengths' requests were longer than the context; `outside_bytes` are a
    request's constant state where no group of the pool has it; `refusal` says why there is no pool, and then there
    are no answers."""

    plan: Plan
    requests: int
    lengths: Lengths
    pool_bytes: int = 0
    max_len: int = 0
    cut: int = 0
    outside_bytes: int = 0
    allocations: tuple[Allocation, ...] = ()
    refusal: str = ""

    @property
    def mean_prompt_tokens(self) -> float:
        return sum(item.prompt_tokens * item.weight for item in self.lengths.requests) / self.lengths.count

    @property
    def mean_output_tokens(self) -> float:
        return sum(item.output_tokens * item.weight for item in self.lengths.requests) / self.lengths.count

    @property
    def holds(self) -> bool:
        """Whether some scheme holds the asked requests while they run."""
        return any(found.fit_running >= self.requests for found in self.allocations)


def layout_document(layout: Layout) -> LayoutDocument:
    """The layout as it is published."""
    inputs = layout.plan.inputs
    return LayoutDocument(
        schema_version=SCHEMA_VERSION,
        kind="layout",
        model=inputs.model,
        engine=inputs.engine,
        engine_version=inputs.engine_version,
        device=inputs.device,
        refusal=layout.refusal or None,
        pool_bytes=layout.pool_bytes,
        max_len=layout.max_len,
        requests=layout.requests,
        lengths=len(layout.lengths.requests),
        mean_prompt_tokens=layout.mean_prompt_tokens,
        mean_output_tokens=layout.mean_output_tokens,
        longest_tokens=layout.lengths.longest,
        outside_bytes_per_request=layout.outside_bytes,
        cut_share=layout.cut / layout.lengths.count,
        allocations=tuple(_allocation(found) for found in layout.allocations),
    )


def _allocation(found: Allocation) -> AllocationDocument:
    waste = found.waste
    return AllocationDocument(
        scheme=found.scheme,
        source=found.source,
        refusal=found.refusal or None,
        unit_bytes=found.unit_bytes,
        unit_tokens=found.unit_tokens,
        used_bytes=found.used_bytes,
        held_bytes=byte_interval(found.held_bytes),
        final_bytes=found.final_bytes,
        waste=WasteDocument(
            rounding_bytes=waste.rounding_bytes, ahead_bytes=waste.ahead_bytes, stale_bytes=waste.stale_bytes
        ),
        fixed_bytes=found.fixed_bytes,
        table_bytes=found.table_bytes,
        virtual_bytes=found.virtual_bytes,
        idle_bytes=found.idle_bytes,
        fit_running=found.fit_running,
        fit_final=found.fit_final,
        notes=found.notes,
    )
