"""The published search: what `vramledger fit --json` and `vramledger sweep --json` write."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SCHEMA_VERSION, SchemaVersion
from vramledger.search.cost import Order
from vramledger.search.fit import Candidate, Fit
from vramledger.search.rows import Row


class CandidateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that holds."""

    is_best: Annotated[
        bool,
        Meta(
            description="On the Pareto front of price (else devices), tokens and both precision classes: no other plan "
            "is at least as good in all and better in one."
        ),
    ]
    weights_loss: Annotated[int, Meta(description="0 as published or 16 bits, 1 for 8 bits, 2 for 4.")]
    kv_loss: Annotated[int, Meta(description="0 for 16 bits or the checkpoint's own, 1 for 8 bits, 2 for 4.")]
    plan: Row


class RefusalDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Plans that no bytes would help, by reason."""

    reason: str
    count: int


class FitDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What holds, best first by `order`; near misses, the most useful first. Lists may be cut; counts are whole."""

    schema_version: SchemaVersion
    kind: Literal["fit"]
    order: Order
    points: Annotated[int, Meta(description="Size of the grid.")]
    beyond_limits: Annotated[int, Meta(description="Points with more devices or nodes than allowed.")]
    pruned: Annotated[
        int, Meta(description="Points not planned because the weights alone pass the devices' memory.")
    ]
    planned: int
    holding_count: int
    holding: tuple[CandidateDocument, ...]
    untold_count: int
    untold: tuple[Row, ...]
    near_count: int
    near: tuple[Row, ...]
    refused: tuple[RefusalDocument, ...]


class SweepDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A grid as rows, in its own order."""

    schema_version: SchemaVersion
    kind: Literal["sweep"]
    rows: tuple[Row, ...]


def fit_document(found: Fit, *, limit: int, front: bool = False) -> FitDocument:
    """The search as it is published, each list cut at `limit`; with `front` the best plans alone."""
    holding = [item for item in found.holding if item.is_best or not front]
    return FitDocument(
        schema_version=SCHEMA_VERSION,
        kind="fit",
        order=found.order,
        points=found.points,
        beyond_limits=found.beyond_limits,
        pruned=found.pruned,
        planned=found.planned,
        holding_count=len(found.holding),
        holding=tuple(_candidate(item) for item in holding[:limit]),
        untold_count=len(found.untold),
        untold=found.untold[:limit],
        near_count=len(found.near),
        near=found.near[:limit],
        refused=tuple(RefusalDocument(reason=item.reason, count=item.count) for item in found.refused),
    )


def _candidate(item: Candidate) -> CandidateDocument:
    return CandidateDocument(
        is_best=item.is_best,
        weights_loss=item.cost.weights_loss,
        kv_loss=item.cost.kv_loss,
        plan=item.row,
    )
