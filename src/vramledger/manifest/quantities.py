"""What two releases are compared by: quantities with a name, a unit and a group.

Values are expected ones of the fullest rank; headroom is that of the rank with the least. A quantity that a document does
not know is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramledger.documents.plan import PlanDocument, RankDocument
from vramledger.ledger import Owner, Phase
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.load_quantities import load_quantities
from vramledger.manifest.quantity import SETTINGS, Group, Quantity, Unit, Value

NOT_SET = "not set"


def quantities(document: ManifestDocument | PlanDocument) -> dict[str, Quantity]:
    """By name, in the order of groups. A plan has no measured figures and no revisions."""
    plan = document.plan if isinstance(document, ManifestDocument) else document
    manifest = document if isinstance(document, ManifestDocument) else None
    found = [
        *_verdict(plan),
        *load_quantities(manifest),
        *_inputs(plan, manifest),
        *_pool(plan),
        *_weights(plan, manifest),
        *_ledger(plan),
        *_measured(manifest),
    ]
    order = list(Group)
    return {item.name: item for item in sorted(found, key=lambda item: order.index(item.group))}


def value_of(found: Mapping[str, Quantity], name: str) -> Value:
    """The value of a name: None where the document does not know it, NOT_SET for a setting it does not have."""
    quantity = found.get(name)
    if quantity is None:
        return NOT_SET if name.startswith(SETTINGS) else None
    return quantity.value


def _verdict(plan: PlanDocument) -> Iterator[Quantity]:
    words = {True: "holds", False: "does not hold", None: "cannot be told"}
    yield _text("verdict", Group.VERDICT, words[plan.verdict.holds], "whether the plan holds")
    yield _bytes("shortfall", Group.VERDICT, plan.verdict.shortfall_bytes, "bytes missing at least")


def _inputs(plan: PlanDocument, manifest: ManifestDocument | None) -> Iterator[Quantity]:
    inputs, group = plan.inputs, Group.INPUTS
    yield _text("model", group, inputs.model, "the model's id")
    yield _text("model_revision", group, _at(manifest, "model_revision"), "the model's revision")
    yield _text("architecture", group, inputs.architecture, "its architecture")
    yield _text("weight_format", group, inputs.quantization, "format of the weights")
    yield _text("kv_format", group, _at(plan.kv_pool, "dtype"), "format of the KV cache")
    yield _text("engine", group, inputs.engine, "the engine")
    yield _text("engine_version", group, inputs.engine_version, "its version")
    yield _text("engine_revision", group, _at(manifest, "engine_revision"), "its build")
    yield _text("device", group, inputs.device, "the device")
    yield _bytes("device_total", group, inputs.device_total_bytes, "memory of one device")
    for name in ("tp", "pp", "dp", "ep"):
        yield _count(name, group, getattr(inputs, name), f"ranks of {name}")
    for name, value in inputs.settings.items():
        yield _setting(name, value)


def _setting(name: str, value: str | int | float | bool) -> Quantity:
    about = "a setting of the engine"
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = str(value).lower() if isinstance(value, bool) else value
        return _text(SETTINGS + name, Group.INPUTS, text, about)
    return _count(SETTINGS + name, Group.INPUTS, value, about)


def _pool(plan: PlanDocument) -> Iterator[Quantity]:
    pool, group = plan.kv_pool, Group.POOL
    physical = None if pool is None else pool.num_blocks.expected * pool.block_size
    headroom = min((r.device_total_bytes - _occupied(r) for r in plan.ranks), default=None)
    yield _of(
        Unit.TOKENS, "kv_tokens", group, _at(pool, "tokens.expected"), "tokens as the engine prints them"
    )
    yield _of(Unit.TOKENS, "kv_physical_tokens", group, physical, "blocks x tokens a block")
    yield _of(Unit.BLOCKS, "kv_blocks", group, _at(pool, "num_blocks.expected"), "blocks of the pool")
    yield _bytes("kv_pool", group, _at(pool, "bytes.expected"), "the pool on one rank")
    yield _of(
        Unit.REQUESTS,
        "max_concurrency",
        group,
        _at(pool, "max_concurrency.expected"),
        "requests of the full context at once",
    )
    yield _of(Unit.TOKENS, "context_len", group, _at(pool, "context_len"), "tokens of a full request")
    yield _of(
        Unit.TOKENS,
        "longest_context",
        group,
        _at(pool, "longest_context.expected"),
        "longest that fits alone",
    )
    yield _bytes("budget", group, plan.budget_bytes, "what the engine may use of a device")
    yield _bytes("headroom", group, headroom, "device total less the fullest phase")
    kv = Group.KV_PER_TOKEN
    yield _bytes("kv_bytes_per_token", kv, _at(pool, "bytes_per_token"), "one more token on one rank")
    yield _bytes("kv_bytes_per_block", kv, _at(pool, "bytes_per_block"), "one block on one rank")
    yield _bytes(
        "state_bytes_per_sequence", kv, _at(pool, "state_bytes_per_sequence"), "constant state of a sequence"
    )


def _weights(plan: PlanDocument, manifest: ManifestDocument | None) -> Iterator[Quantity]:
    group = Group.WEIGHTS
    disk = plan.ranks[0].weights.disk_bytes if plan.ranks else None
    device = max((rank.weights.device_bytes.expected for rank in plan.ranks), default=None)
    host = max((rank.weights.host_peak_bytes.expected for rank in plan.ranks), default=None)
    yield _bytes("raw_weights", group, disk, "all weight files")
    yield _bytes("weights", group, device, "weights on the device, steady")
    yield _bytes("host_peak", group, host, "host memory while a rank loads")
    yield _count("resident_parameters", group, _at(manifest, "parameters.resident"), "all parameters")
    yield _count("active_parameters", group, _at(manifest, "parameters.active"), "those that work on a token")


def _ledger(plan: PlanDocument) -> Iterator[Quantity]:
    yield _bytes("peak", Group.PEAKS, max(map(_occupied, plan.ranks), default=None), "the fullest phase")
    for phase in Phase:
        held = [peak.occupied.expected for rank in plan.ranks for peak in rank.peaks if peak.phase is phase]
        yield _bytes(f"peak.{phase.value}", Group.PEAKS, max(held, default=None), f"held in {phase.value}")
    for owner in Owner:
        owned = [
            sum(entry.bytes.expected for entry in rank.entries if entry.owner is owner) for rank in plan.ranks
        ]
        yield _bytes(
            f"owner.{owner.value}", Group.OWNERS, max(owned, default=None), f"all entries of {owner.value}"
        )
    yield _bytes(
        "host", Group.OWNERS, sum(e.bytes.expected for e in plan.host), "host memory of the instance"
    )


def _measured(manifest: ManifestDocument | None) -> Iterator[Quantity]:
    group = Group.MEASURED
    tokens = _at(manifest, "kv_tokens.measured_logical")
    yield _bytes(
        "measured_weights",
        group,
        _at(manifest, "measured_weight_steady_bytes_per_rank"),
        "weights on the device, measured",
    )
    yield _bytes(
        "measured_peak", group, _at(manifest, "measured_runtime_peak_bytes_per_rank"), "most held, measured"
    )
    yield _bytes(
        "measured_kv_pool", group, _at(manifest, "measured_kv_pool_bytes_per_rank"), "pool, measured"
    )
    yield _of(Unit.TOKENS, "measured_kv_tokens", group, tokens, "tokens the engine printed")
    yield _bytes(
        "measured_headroom", group, _at(manifest, "measured_headroom_bytes_per_rank"), "least free, measured"
    )


def _occupied(rank: RankDocument) -> int:
    return max((peak.occupied.expected for peak in rank.peaks), default=0)


def _at(holder: object, path: str) -> Any:
    """What stands at a path of attributes, None where something on it is."""
    for name in path.split("."):
        holder = None if holder is None else getattr(holder, name)
    return holder


def _of(unit: Unit, name: str, group: Group, value: Value, about: str) -> Quantity:
    return Quantity(name=name, group=group, unit=unit, value=value, about=about)


def _text(name: str, group: Group, value: str | None, about: str) -> Quantity:
    return _of(Unit.TEXT, name, group, value, about)


def _bytes(name: str, group: Group, value: int | None, about: str) -> Quantity:
    return _of(Unit.BYTES, name, group, value, about)


def _count(name: str, group: Group, value: int | float | None, about: str) -> Quantity:
    return _of(Unit.COUNT, name, group, value, about)
