"""Expert load balancing: maps, load statistics and what a rearrangement of experts holds.

Source: vllm distributed/eplb/eplb_state.py (EplbState.add_model, rearrange), rebalance_execute.py,
eplb_communicator.py, config/parallel.py (EPLBConfig) of 0.9.2 to 0.33; v1/worker/gpu_model_runner.py and
v1/worker/gpu/eplb_utils.py for when the state is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vramledger.engines.option import Option, bad_value
from vramledger.engines.vllm.extras import Extra
from vramledger.engines.vllm.flags import LoadBalancing
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import calculated
from vramledger.ledger import AFTER_LOAD, ByteRange, Entry, Lifetime, Owner, Phase
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model

WINDOW_STEPS = 1000
MAX_COPIES = 1024  # MAX_EXPERT_REDUNDANCY + 1, slots of the map for every logical expert since 0.10
COMMUNICATORS = ("torch_nccl", "torch_gloo", "torch_xccl", "nixl", "pynccl")
_SOURCE = "vllm distributed/eplb/eplb_state.py"
_FIELDS: dict[str, type] = {
    "window_size": int,
    "step_interval": int,
    "num_redundant_experts": int,
    "log_balancedness": bool,
    "log_balancedness_interval": int,
    "use_async": bool,
    "policy": str,
    "communicator": str,
    "enable_migration_batching": bool,
}


def read_eplb_config(option: Option, value: Mapping[str, object]) -> dict[str, Any]:
    """`--eplb-config` as fields of VllmFlags. Raises FlagError for a key or a value that it does not take."""
    for key, item in value.items():
        kind = _FIELDS.get(key)
        if kind is None:
            raise bad_value(option, dict(value), f"has no key {key!r}; known: {', '.join(_FIELDS)}")
        if item is not None and (
            not isinstance(item, kind) or (kind is int and isinstance(item, bool)) or _below(key, item)
        ):
            raise bad_value(option, dict(value), f"has {key} {item!r}, which is not a {_WORDS[kind]}")
    communicator = value.get("communicator")
    if communicator is not None and communicator not in COMMUNICATORS:
        raise bad_value(
            option, dict(value), f"has communicator {communicator!r}: not one of {', '.join(COMMUNICATORS)}"
        )
    kept = {name: value.get(name) for name in LoadBalancing.__struct_fields__}
    out: dict[str, Any] = {"eplb_config": msgspec.convert(kept, LoadBalancing)}
    if value.get("num_redundant_experts"):
        out["num_redundant_experts"] = value["num_redundant_experts"]
    return out


_WORDS = {int: "whole number", bool: "true or false", str: "name"}


def _below(key: str, item: object) -> bool:
    least = 0 if key == "num_redundant_experts" else 1
    return isinstance(item, int) and not isinstance(item, bool) and item < least


def eplb_extras(
    model: Model,
    settings: Settings,
    layers: range,
    *,
    experts_bytes: int,
    activation_bytes: int,
    hidden_bytes: int,
) -> tuple[Extra, ...]:
    """What load balancing keeps on a rank and what its rearrangement takes; empty without it.

    `layers` are the stage's, `experts_bytes` its local experts', `activation_bytes` the profile's peak and
    `hidden_bytes` the hidden states alive with the rearrangement that ends a profile run.
    """
    mixers = _mixers(model, layers)
    if not settings.flags.enable_eplb or not mixers:
        return ()
    version, flags = settings.version, settings.flags
    count, logical = len(mixers), mixers[0].num_experts
    physical = logical + flags.num_redundant_experts
    window = flags.eplb_window_size or _config(settings).window_size or WINDOW_STEPS
    local = physical // settings.plan.ep
    counted = physical if version.since(10, 2) else local
    slots = MAX_COPIES if version.since(10) else flags.num_redundant_experts + 1
    maps = count * 8 * (physical + logical * slots + logical + (logical if version.since(31) else 0))
    loads = 4 * count * counted * (window + 1)
    layer = experts_bytes // count
    charged, loaded = _is_charged(settings)
    out = [
        Extra(
            owner=Owner.WORKSPACE,
            name="expert maps",
            bytes=ByteRange.exact(maps),
            charged=charged,
            loaded=loaded,
            evidence=calculated(
                _SOURCE,
                f"{count} layers x 8 B x ({physical} physical + {logical} logical experts x ({slots} slots + "
                f"{2 if version.since(31) else 1}))",
            ),
        ),
        Extra(
            owner=Owner.WORKSPACE,
            name="expert load window",
            bytes=ByteRange.exact(loads),
            charged=charged,
            loaded=loaded,
            evidence=calculated(_SOURCE, f"4 B x {count} layers x {counted} experts x ({window} steps + 1)"),
        ),
    ]
    if version.since(12):
        out.append(
            Extra(
                owner=Owner.WORKSPACE,
                name="expert rearrangement buffer",
                bytes=ByteRange.exact(layer),
                charged=charged,
                loaded=loaded,
                evidence=calculated(
                    _SOURCE, f"one layer's {local} local experts: {experts_bytes} B / {count} layers"
                ),
            )
        )
    moved = _moved(layer, settings)
    totals = 4 * window * count * (logical + 1)
    beyond = max(moved + totals + hidden_bytes - activation_bytes, 0)
    if beyond:
        out.append(
            Extra(
                owner=Owner.ACTIVATION,
                name="expert rearrangement beyond the activation peak",
                bytes=ByteRange.exact(beyond),
                charged=True,
                phases=AFTER_LOAD - {Phase.DECODE},
                lifetime=Lifetime.ITERATION,
                evidence=calculated(
                    f"{_SOURCE} (rearrange in the profile run)",
                    f"layer copy {moved} + load by logical expert 4 B x {window} x {count} x {logical + 1} + "
                    f"hidden states {hidden_bytes} - activation peak {activation_bytes}",
                ),
            )
        )
    return tuple(out)


def eplb_host_entries(settings: Settings, *, layer_bytes: int) -> tuple[Entry, ...]:
    """Host copies of one rank that the gloo communicator stages a layer through: every local expert sent and received."""
    if not settings.flags.enable_eplb or _communicator(settings) != "torch_gloo":
        return ()
    named = _config(settings).communicator is not None
    low = 0 if not named else layer_bytes
    return (
        Entry(
            owner=Owner.WORKSPACE,
            name="experts in transit",
            lifetime=Lifetime.ITERATION,
            phases=frozenset({Phase.PREFILL, Phase.DECODE, Phase.RECOVERY}),
            bytes=ByteRange(min(low, layer_bytes), layer_bytes, 2 * layer_bytes),
            evidence=calculated(
                "vllm distributed/eplb/eplb_communicator.py (TorchDistGlooStagedEplbCommunicator)",
                f"received copies of one layer {layer_bytes} B pinned, sent ones as much again; none with NIXL",
            ),
            inside_budget=False,
        ),
    )


def _mixers(model: Model, layers: range) -> list[MixtureOfExperts]:
    return [
        layer.channel_mixer
        for layer in model.layers
        if layer.index in layers and isinstance(layer.channel_mixer, MixtureOfExperts)
    ]


def _is_charged(settings: Settings) -> tuple[bool, bool]:
    """Whether the state counts in the budget, and in the weights' line: made outside the loading's measurement up to
    0.19 it counts nowhere; the V1 runner makes it inside since 0.20, the V2 runner after it, where the device's free
    memory tells since 0.27."""
    if settings.v2_runner:
        return settings.version.since(27), False
    return settings.version.since(20), settings.version.since(20)


def _moved(layer: int, settings: Settings) -> int:
    """A layer's experts once more while the profile rearranges; none with NIXL since 0.23."""
    if settings.version.since(23) and _config(settings).communicator == "nixl":
        return 0
    return layer


def _config(settings: Settings) -> LoadBalancing:
    return settings.flags.eplb_config or LoadBalancing()


def _communicator(settings: Settings) -> str:
    """torch_gloo is the last choice of asynchronous balancing, the default since 0.23; NCCL before."""
    config = _config(settings)
    if config.communicator is not None:
        return config.communicator
    asynchronous = config.use_async
    if asynchronous is None:
        asynchronous = settings.version.since(23)
    return "torch_gloo" if asynchronous and settings.version.since(20) else "torch_nccl"
