"""An answer as one flat row: what tables, orders and fronts are made of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Struct

from vramledger.answer import Plan
from vramledger.engines import find_engine
from vramledger.engines.option import OptionKind, spelled
from vramledger.ledger import Owner, Phase
from vramledger.pool import FloatRange, IntRange
from vramledger.search.evaluation import Outcome, Status, Subject, blamed, held
from vramledger.units import ceil_div

DEVICES_PER_NODE = 8


def _said(text: str) -> Meta:
    return Meta(description=text)


class Row(Struct, frozen=True, kw_only=True):
    """One plan in one line. Bytes are those of the rank that holds most while serving, expected unless the name says
    low or high; null where there is no plan, and in the pool's columns where the model keeps no KV."""

    model: Annotated[str, _said("The model's id, or the folder or file it was read from.")]
    weights: Annotated[str, _said("Weight format asked for; stored is what the checkpoint has.")]
    quantization: Annotated[str, _said("The checkpoint's formats in words.")]
    engine: Annotated[str, _said("The engine as it was asked for.")]
    engine_version: Annotated[str | None, _said("The version whose rules were used.")]
    device: Annotated[str, _said("The device by its name in the catalogue.")]
    devices: Annotated[int, _said("Devices of one instance: tp x pp.")]
    nodes: Annotated[int, _said("Machines these devices take.")]
    tp: Annotated[int, _said("Devices a layer is cut over.")]
    pp: Annotated[int, _said("Stages of layers.")]
    ep: Annotated[bool, _said("Whether experts are spread over the devices whole.")]
    kv: Annotated[str, _said("KV cache format asked for; auto is the engine's own choice.")]
    kv_dtype: Annotated[str | None, _said("KV cache format in the engine's word.")]
    context_tokens: Annotated[int | None, _said("Tokens of a request's context.")]
    concurrency: Annotated[int, _said("Requests of that context asked to be held at once.")]
    status: Annotated[
        Status, _said("holds, fails by bytes, untold, or refused: does not start or cannot be asked for.")
    ]
    shortfall_bytes: Annotated[int, _said("What a failing plan lacks on a device, at least.")]
    owner: Annotated[Owner | None, _said("The owner of bytes that a failing plan fails by.")]
    reason: Annotated[str, _said("The verdict in a sentence, or why there is no plan.")]
    price: Annotated[float | None, _said("Price of all devices, in the unit of the prices given.")]
    device_total_bytes: Annotated[int | None, _said("The device's memory as the framework sees it.")]
    budget_bytes: Annotated[int | None, _said("What the engine's share allots on one device.")]
    pool_bytes_low: int | None
    pool_bytes: Annotated[int | None, _said("The KV pool of one rank.")]
    pool_bytes_high: int | None
    pool_tokens_low: int | None
    pool_tokens: Annotated[int | None, _said("Tokens of the pool as the engine prints them.")]
    pool_tokens_high: int | None
    max_concurrency_low: float | None
    max_concurrency: Annotated[
        float | None, _said("Requests of the context the pool holds, as the engine prints it.")
    ]
    max_concurrency_high: float | None
    longest_context_low: int | None
    longest_context: Annotated[int | None, _said("Longest request that fits alone, tokens.")]
    longest_context_high: int | None
    bytes_per_token: Annotated[int | None, _said("Bytes of one more token on one rank.")]
    phase: Annotated[Phase | None, _said("The serving phase with the larger peak; the bytes below are its.")]
    weights_bytes: int | None
    adapters_bytes: int | None
    kv_cache_bytes: int | None
    activation_bytes: int | None
    workspace_bytes: int | None
    collectives_bytes: int | None
    graph_pool_bytes: int | None
    runtime_context_bytes: int | None
    allocator_bytes: int | None
    headroom_bytes: int | None
    unused_bytes: Annotated[
        int | None, _said("What is left of the device; negative where more is held than it has.")
    ]
    host_bytes: Annotated[int | None, _said("What one instance holds in host memory.")]
    flags: Annotated[str, _said("The engine's own flags of this plan, beside those that hold for all.")]


COLUMNS: tuple[str, ...] = Row.__struct_fields__


def row_of(
    outcome: Outcome,
    subject: Subject,
    prices: Mapping[str, float] | None = None,
    devices_per_node: int = DEVICES_PER_NODE,
) -> Row:
    """The row of an answer. `prices` are those of one device by the catalogue's name."""
    question, plan = outcome.question, outcome.plan
    device = subject.device(question.device)
    each = (prices or {}).get(device.name)
    checkpoint = subject.checkpoints[question.model]
    asked = {
        "model": checkpoint.model.id,
        "weights": question.weights,
        "engine": question.engine,
        "device": device.name,
        "devices": question.devices,
        "nodes": ceil_div(question.devices, devices_per_node),
        "tp": question.tp,
        "pp": question.pp,
        "ep": question.ep,
        "kv": question.kv,
        "concurrency": question.concurrency,
        "status": outcome.status,
        "shortfall_bytes": outcome.shortfall_bytes,
        "reason": outcome.reason,
        "price": None if each is None else each * question.devices,
        "flags": flags_of_outcome(outcome),
    }
    if plan is None:
        return Row(**asked, **_NO_PLAN | {"quantization": "", "context_tokens": question.context_tokens})  # type: ignore[arg-type]
    most = held(plan)
    return Row(
        **asked,  # type: ignore[arg-type]
        quantization=plan.inputs.quantization,
        engine_version=plan.inputs.engine_version,
        context_tokens=plan.kv_pool.context_len if plan.kv_pool is not None else question.context_tokens,
        owner=blamed(plan, most) if outcome.status is Status.FAILS else None,
        device_total_bytes=plan.inputs.device_total_bytes,
        budget_bytes=plan.budget_bytes,
        **_pool(plan),  # type: ignore[arg-type]
        phase=most.phase,
        **{f"{owner.value}_bytes": most.by_owner.get(owner, 0) for owner in Owner},  # type: ignore[arg-type]
        unused_bytes=most.unused_bytes,
        host_bytes=sum(entry.bytes.expected for entry in plan.host),
    )


def _pool(plan: Plan) -> dict[str, object]:
    pool = plan.kv_pool
    if pool is None:
        return _NO_POOL
    return {
        "kv_dtype": pool.dtype,
        "bytes_per_token": pool.bytes_per_token,
        **_ends("pool_bytes", pool.bytes),
        **_ends("pool_tokens", pool.tokens),
        **_ends("max_concurrency", pool.max_concurrency),
        **_ends("longest_context", pool.longest_context),
    }


def _ends(name: str, size: IntRange | FloatRange) -> dict[str, object]:
    return {f"{name}_low": size.low, name: size.expected, f"{name}_high": size.high}


_NO_POOL: dict[str, object] = {
    "kv_dtype": None,
    "bytes_per_token": None,
    **dict.fromkeys(
        f"{name}{end}"
        for name in ("pool_bytes", "pool_tokens", "max_concurrency", "longest_context")
        for end in ("_low", "", "_high")
    ),
}
_NO_PLAN: dict[str, object] = {
    **_NO_POOL,
    **dict.fromkeys(f"{owner.value}_bytes" for owner in Owner),
    **dict.fromkeys(
        (
            "engine_version",
            "owner",
            "device_total_bytes",
            "budget_bytes",
            "phase",
            "unused_bytes",
            "host_bytes",
        )
    ),
}


def flags_of_outcome(outcome: Outcome) -> str:
    """The question on the engine's own command line; empty of a plan that was made before."""
    switches = _switches(outcome.question.engine)
    return " ".join(
        spelled(name) if name in switches else f"{spelled(name)} {value}"
        for name, value in outcome.flags.items()
    )


@lru_cache(maxsize=64)
def _switches(engine: str) -> frozenset[str]:
    return frozenset(
        option.name for option in find_engine(engine)[0].OPTIONS if option.kind is OptionKind.SWITCH
    )
