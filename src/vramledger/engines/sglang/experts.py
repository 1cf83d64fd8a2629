"""What experts over ranks hold beside their weights: buffers of the all-to-all, loads of past steps, a layer on the move.

Source: sglang srt/layers/moe/token_dispatcher/deepep.py (DeepEPBuffer.get_deepep_buffer), mooncake.py, nixl.py;
srt/eplb/expert_distribution.py, expert_location_updater.py; srt/server_args.py and arg_groups/overrides.py (_a2a_ep_size).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from vramledger.engines.deepep import WORKSPACE_BYTES, low_latency_bytes, normal_bytes
from vramledger.engines.device_tensors import GroupBytes
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.sharding import RankKind
from vramledger.errors import FlagError
from vramledger.ledger import ByteRange
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model
from vramledger.units import format_gib

_LIKE_DEEPEP = ("mooncake", "nixl")


class ExpertBytes(Struct, frozen=True, kw_only=True):
    """Bytes on one rank. `dispatch` are name, size, formula and whether the library's own rule gives the size;
    `resident` the routed experts of a layer on a rank, `active` those a token takes, `layers` how many layers have
    them, `weights` all their bytes."""

    dispatch: tuple[tuple[str, ByteRange, str, bool], ...]
    window: int
    window_formula: str
    moved: int
    moved_formula: str
    resident: int
    physical: int
    redundant: int
    active: int
    layers: int
    weights: int


def expert_bytes(
    model: Model, settings: Settings, kind: RankKind, groups: Mapping[str, GroupBytes]
) -> ExpertBytes | None:
    """None for a stage without routed experts.

    Raises FlagError for a number of ranks that DeepEP's high-throughput mode has no configuration for.
    """
    mixtures = [
        model.layers[layer].channel_mixer
        for layer in kind.layers
        if isinstance(model.layers[layer].channel_mixer, MixtureOfExperts)
    ]
    if not mixtures or "experts" not in groups:
        return None
    flags = settings.flags
    mixture = max(mixtures, key=lambda mixer: mixer.num_experts if isinstance(mixer, MixtureOfExperts) else 0)
    assert isinstance(mixture, MixtureOfExperts)
    physical = mixture.num_experts + flags.ep_num_redundant_experts
    weights = groups["experts"].total
    layer = weights // len(mixtures)
    window = 0
    if flags.enable_eplb:
        window = flags.eplb_rebalance_num_iterations * model.num_layers * physical * 4
    return ExpertBytes(
        dispatch=_dispatch(model, settings, physical),
        window=window,
        window_formula=f"{flags.eplb_rebalance_num_iterations} steps x {model.num_layers} layers x {physical} experts x 4 B",
        moved=max(layer, window) if flags.enable_eplb else 0,
        moved_formula=f"the experts of one layer on the rank, {weights} B / {len(mixtures)} layers",
        resident=physical // flags.ep_size,
        physical=physical,
        redundant=flags.ep_num_redundant_experts,
        active=mixture.top_k,
        layers=len(mixtures),
        weights=weights,
    )


def _dispatch(model: Model, settings: Settings, experts: int) -> tuple[tuple[str, ByteRange, str, bool], ...]:
    """Buffers of the all-to-all over the ranks of tp."""
    flags = settings.flags
    backend, ranks, hidden = flags.moe_a2a_backend, flags.tp_size, model.hidden_size
    tokens = flags.deepep_num_max_dispatch_tokens_per_rank
    if ranks == 1 or backend not in ("deepep", *_LIKE_DEEPEP):
        return ()
    formula = f"{tokens} tokens a rank, hidden {hidden}, {experts} experts"
    low = low_latency_bytes(tokens=tokens, hidden=hidden, experts=experts)
    if backend != "deepep":
        return ((f"{backend} buffers", ByteRange(0, low, low), formula, False),)
    out = [("DeepEP workspace", ByteRange.exact(WORKSPACE_BYTES), "32 MiB", True)]
    rdma = 0
    if flags.deepep_mode != "low_latency":
        normal = normal_bytes(hidden_bytes=2 * hidden, ranks=ranks)
        if normal is None:
            raise FlagError(
                f"DeepEP has no configuration for {ranks} ranks; --deepep-mode low_latency needs none",
                flag="tp_size",
                value=ranks,
            )
        out.append(
            (
                "DeepEP NVLink buffer", ByteRange.exact(normal.nvlink),
                f"20 SMs, {ranks} ranks, hidden {hidden} in 16 bits", True,
            )
        )  # fmt: skip
        rdma = normal.rdma
    if flags.deepep_mode != "normal":
        rdma = max(rdma, low)
    out.append(
        ("DeepEP symmetric buffer", ByteRange.exact(rdma), f"mode {flags.deepep_mode}, {formula}", True)
    )
    return tuple(out)


def experts_note(model: Model, settings: Settings, found: ExpertBytes | None) -> tuple[str, ...]:
    """Resident against active experts of a rank, and what of the all-to-all is not counted."""
    flags = settings.flags
    if found is None or flags.ep_size == 1:
        return ()
    one = found.weights // (found.layers * found.resident)
    token = one * found.active * found.layers
    copies = f" ({found.redundant} of them copies)" if found.redundant else ""
    held = (
        f"{found.resident} of a layer's {found.physical}{copies} lie on a rank, {format_gib(found.weights)}"
    )
    taken = f"a token takes {found.active} a layer, {format_gib(token)} over all ranks"
    out = [f"experts: {held} in {found.layers} layers; {taken}"]
    if flags.spans_experts and not found.dispatch and flags.tp_size > 1:
        out.append(
            f"the buffers of --moe-a2a-backend {flags.moe_a2a_backend} are not counted: its library was not read"
        )
    return tuple(out)
