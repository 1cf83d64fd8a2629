"""What is free before and after a load on every kind of rank, and the pools that leaves.

Source: sglang srt/model_executor/model_runner.py (`init_torch_distributed`, `load_model`),
mem_cache/kv_cache_configurator.py (`_profile_available_bytes`). Free memory is the smallest of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.engines.sglang.experts import ExpertBytes, expert_bytes
from vramledger.engines.sglang.layers import DRAFT_IN_CELL_SINCE, StageCells, draft_layers, stage_cells
from vramledger.engines.sglang.lora import lora_bytes
from vramledger.engines.sglang.pools import Pools, solve
from vramledger.engines.sglang.runtime import (
    Activation,
    Calculated,
    Observed,
    activation,
    attention_workspace,
    collectives,
    context,
    graph_pool,
    load_growth,
)
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.sharding import RankKind
from vramledger.engines.sglang.states import SlotBytes, slot_bytes
from vramledger.engines.sglang.weights import RankWeights, draft_weights, rank_weights
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import RECURRENT
from vramledger.units import GIB


class RankTerms(Struct, frozen=True, kw_only=True):
    """Terms of one kind of rank, before pools. `draft_layer_bytes` is a token of all the draft's layers where the cell
    does not charge it."""

    kind: RankKind
    cells: StageCells
    slot: SlotBytes | None
    weights: RankWeights
    draft: RankWeights | None
    draft_layer_bytes: int
    lora_bytes: int
    activation: Activation
    workspace: Calculated
    graphs: Observed
    experts: ExpertBytes | None

    def resident(self, settings: Settings) -> ByteRange:
        """What lies on the device when the pool is sized, of what the rules know; a draft since 0.5.14."""
        held = self.weights.held + ByteRange.exact(self.lora_bytes + self.window_bytes)
        if self.draft is not None and settings.version.since(*DRAFT_IN_CELL_SINCE):
            held = held + self.draft.held
        return held

    @property
    def window_bytes(self) -> int:
        """Loads of experts of past steps, there before the weights are."""
        return 0 if self.experts is None else self.experts.window


class Free(Struct, frozen=True, kw_only=True):
    """Free bytes before the load, and what lasts outside the weights until pools are sized."""

    pre: ByteRange
    context: Observed
    collectives: Observed | None
    growth: Observed


def free_before(settings: Settings, device: Device) -> Free:
    """What the engine finds free after its context and communicators are there."""
    held = context(device)
    together = collectives(settings, device)
    taken = held.bytes if together is None else held.bytes + together.bytes
    pre = ByteRange(
        max(device.total_low_bytes - taken.high, 0),
        max(device.total_bytes - taken.expected, 0),
        max(_highest(device) - taken.low, 0),
    )
    return Free(pre=pre, context=held, collectives=together, growth=load_growth(settings, device))


def _highest(device: Device) -> int:
    """Ascend's total is by what this engine found free, so no more than the expected one can be."""
    return device.total_bytes if device.vendor == "huawei" else device.total_high_bytes


def rank_terms(checkpoint: Checkpoint, settings: Settings, device: Device, kind: RankKind) -> RankTerms:
    """Terms of one kind of rank. Raises FlagError where the plan does not divide the model."""
    model = checkpoint.model
    cells = stage_cells(model, settings, device, kind.layers)
    draft = draft_weights(checkpoint, settings, kind, device)
    weights = rank_weights(checkpoint, settings, kind, device)
    charged = settings.version.since(*DRAFT_IN_CELL_SINCE)
    apart = 0 if charged else draft_layers(model, settings) * (cells.full_bytes + _index_width(cells))
    return RankTerms(
        kind=kind,
        cells=cells,
        slot=slot_bytes(model, settings, kind.layers) if model.has_mixer(RECURRENT) else None,
        weights=weights,
        draft=draft,
        draft_layer_bytes=apart if kind.is_last else 0,
        lora_bytes=lora_bytes(model, kind, settings) if settings.flags.enable_lora else 0,
        activation=activation(model, settings, kind),
        workspace=attention_workspace(model, settings, kind, device),
        graphs=graph_pool(settings, device),
        experts=expert_bytes(model, settings, kind, weights.groups),
    )


def _index_width(cells: StageCells) -> int:
    return cells.index_bytes // cells.index_layers if cells.index_layers else 0


def largest_slot(terms: Sequence[RankTerms]) -> SlotBytes | None:
    """A recurrent slot of the stage that has most of them; None without recurrent layers."""
    slots = [item.slot for item in terms if item.slot is not None]
    return max(slots, key=lambda slot: slot.total, default=None)


class Sized(Struct, frozen=True, kw_only=True):
    """Pools for the low, the expected and the high end of free memory."""

    low: Pools
    expected: Pools
    high: Pools


def size_pools(terms: Sequence[RankTerms], free: Free, settings: Settings) -> Sized:
    """Pools of the instance: memory is the rank's that has least left."""
    resident = terms[0].resident(settings)
    for item in terms[1:]:
        resident = resident.upper(item.resident(settings))
    stages = [item.cells for item in terms]
    slot = largest_slot(terms)

    def at(pre: int, taken: int) -> Pools:
        return solve((pre - taken) / GIB, pre / GIB, stages, slot, settings)

    taken = resident + free.growth.bytes
    return Sized(
        low=at(free.pre.low, taken.high),
        expected=at(free.pre.expected, taken.expected),
        high=at(free.pre.high, taken.low),
    )
