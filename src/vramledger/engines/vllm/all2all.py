"""All-to-all back ends of the experts: what each keeps on a rank, and how tokens lie behind it.

Source: vllm distributed/device_communicators/all2all.py, fused_moe/all2all_utils.py by version; the libraries' own sources for what they allocate: DeepEP (see `deepep`), ppl-ai/pplx-kernels csrc/all_to_all,
FlashInfer comm (trtllm_alltoall.cuh, trtllm_moe_alltoall.py, mnnvl.py).
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.deepep import (
    SYMMETRIC_GRANULARITY,
    WORKSPACE_BYTES,
    Domain,
    elastic_bytes,
    low_latency_bytes,
)
from vramledger.engines.vllm.expert_parallel import BATCHED, CHUNK_TOKENS, all2all_backend, dispatches
from vramledger.engines.vllm.extras import Extra
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import Evidence, assumed, calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, Owner
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model
from vramledger.units import GIB, KIB, MIB, ceil_div, format_bytes, round_up

NODE_RANKS = 8
"""Devices of one node, where nothing says otherwise: what decides between NVLink and RDMA kernels."""

_FLASHINFER_TWO_SIDED = ("flashinfer_all2allv", "flashinfer_nvlink_two_sided")


def is_batched(settings: Settings) -> bool:
    """Whether dispatched tokens lie padded, a row of slots for each expert."""
    return (
        dispatches(settings.plan, settings.version)
        and all2all_backend(settings.flags, settings.version) in BATCHED
    )


def dispatched_tokens(settings: Settings) -> int:
    """Tokens a rank dispatches at once to a batched back end: chunks of 256 up to 0.19, the whole batch since."""
    if settings.version.since(20):
        return settings.max_tokens
    return min(CHUNK_TOKENS, settings.max_tokens)


def dispatchers(settings: Settings) -> int:
    """Ranks a batched expert has slots for."""
    plan = settings.plan
    if all2all_backend(settings.flags, settings.version) == "pplx":
        return plan.expert_group // plan.tp
    return plan.expert_group


class BatchedWorkspace(Struct, frozen=True, kw_only=True):
    """Elements of the two buffers of batched experts' kernels."""

    first: int
    second: int
    slots: int
    formula: str


def batched_workspace(
    settings: Settings, *, experts: int, width: int, both: int, activated: int
) -> BatchedWorkspace:
    """The workspace where every local expert has a slot for every token of every dispatcher
    (experts/fused_batched_moe.py, experts/batched_deep_gemm_moe.py)."""
    slots = dispatched_tokens(settings) * dispatchers(settings)
    return BatchedWorkspace(
        first=experts * slots * max(width, both),
        second=experts * slots * activated,
        slots=slots,
        formula=f"{experts} local experts x {slots} slots x (max(hidden {width}, gate and up {both}) + {activated})",
    )


def gathered_bytes(mixer: MixtureOfExperts, model: Model, settings: Settings) -> int:
    """Tokens and router logits of all data-parallel ranks on each, alive through the experts: what all-gather
    and the naive broadcast make, and what the DeepEP kernels receive at worst. Every rank is padded to the largest
    batch. 0 where experts see their own tokens only, or read slots of a symmetric buffer."""
    plan = settings.plan
    if plan.dp == 1 or is_batched(settings):
        return 0
    element = settings.dtype.bits // 8
    rows = settings.max_tokens * plan.dp
    return rows * (model.hidden_size + mixer.num_experts) * element


def all2all_extras(
    model: Model, settings: Settings, device: Device, *, experts_of_stage: int, expert_format: str
) -> tuple[Extra, ...]:
    """Buffers that the back end keeps from loading on; empty where it keeps none or no token travels.

    `experts_of_stage` are the MoE layers of the rank's stage; one buffer serves them all. They are made after
    the first snapshot and outside torch, so the profile charges them.
    """
    if not experts_of_stage or not dispatches(settings.plan, settings.version):
        return ()
    mixer = _widest(model)
    backend = all2all_backend(settings.flags, settings.version)
    size, evidence = _buffers(backend, mixer, model, settings, device, expert_format)
    if not size.high:
        return ()
    name = f"all-to-all buffers ({backend})"
    return (Extra(owner=Owner.COLLECTIVES, name=name, bytes=size, charged=True, evidence=evidence),)


def _widest(model: Model) -> MixtureOfExperts:
    return max(
        (layer.channel_mixer for layer in model.layers if isinstance(layer.channel_mixer, MixtureOfExperts)),
        key=lambda mixer: (mixer.num_experts, mixer.top_k),
    )


def _buffers(
    backend: str,
    mixer: MixtureOfExperts,
    model: Model,
    settings: Settings,
    device: Device,
    expert_format: str,
) -> tuple[ByteRange, Evidence]:
    hidden, experts = model.hidden_size, mixer.num_experts + settings.flags.num_redundant_experts
    ranks, tokens = settings.plan.expert_group, settings.max_tokens
    if backend == "deepep_high_throughput":
        return _high_throughput(ranks)
    if backend in ("deepep_low_latency", "nixl_ep"):
        slots = dispatched_tokens(settings)
        return _low_latency(backend, slots, hidden, experts)
    if backend == "deepep_v2":
        size = elastic_bytes(
            tokens=tokens,
            hidden=hidden,
            top_k=mixer.top_k,
            fp8=expert_format == "fp8_block",
            domain=domain(ranks),
        )
        formula = f"{ranks} ranks, {tokens} tokens, top-k {mixer.top_k}, hidden {hidden}: larger of dispatch and combine, and workspace"
        return ByteRange.exact(size), calculated("DeepEP csrc/elastic/buffer.hpp", formula)
    if backend == "pplx":
        return _pplx(dispatched_tokens(settings), experts, hidden, settings, expert_format)
    if backend in _FLASHINFER_TWO_SIDED:
        return _two_sided(ranks, device)
    if backend == "flashinfer_nvlink_one_sided":
        return _one_sided(ranks, tokens, hidden, mixer.top_k, expert_format)
    if backend.startswith("mori"):
        return _mori(settings)
    if backend == "moonep":
        slots = (tokens * mixer.top_k + 128 * mixer.num_experts) * hidden * 2
        return ByteRange(slots, 2 * slots, 4 * slots), assumed(
            "MoonEP keeps static buffers of S x K token slots; two of hidden states are taken",
            f"({tokens} x {mixer.top_k} + padding) x hidden {hidden} x 2 B each",
        )
    return ByteRange.exact(0), calculated("vllm distributed/device_communicators/all2all.py")


def domain(ranks: int) -> Domain:
    """Ranks over nodes of NODE_RANKS devices."""
    per_node = min(ranks, NODE_RANKS)
    return Domain(nodes=ceil_div(ranks, per_node), ranks_per_node=per_node)


def _high_throughput(ranks: int) -> tuple[ByteRange, Evidence]:
    """VLLM_DEEPEP_BUFFER_SIZE_MB (1024) over NVLink, as much again over RDMA beyond one node, and DeepEP's
    workspace. The RDMA part lies in NVSHMEM's heap, which grows by 512 MiB."""
    remote = domain(ranks).nodes > 1
    held = GIB + WORKSPACE_BYTES
    source = "vllm all2all.py (DeepEPHTAll2AllManager), DeepEP csrc/kernels/configs.cuh"
    if not remote:
        return ByteRange.exact(held), calculated(
            source, f"NVLink buffer 1 GiB + workspace 32 MiB; {ranks} ranks of one node of {NODE_RANKS}"
        )
    held += GIB
    return ByteRange(held, held, held + SYMMETRIC_GRANULARITY), calculated(
        source, f"NVLink and RDMA buffers 1 GiB each + workspace 32 MiB; {ranks} ranks, {NODE_RANKS} a node"
    )


def _low_latency(backend: str, tokens: int, hidden: int, experts: int) -> tuple[ByteRange, Evidence]:
    """The size hint, in whole pieces of NVSHMEM's heap; DeepEP takes its NVLink buffer and workspace too."""
    hint = low_latency_bytes(tokens=tokens, hidden=hidden, experts=experts)
    formula = f"size hint {hint} B of {tokens} tokens a rank, hidden {hidden}, {experts} experts"
    if backend == "nixl_ep":
        return ByteRange(hint, hint, hint + SYMMETRIC_GRANULARITY), assumed(
            "NIXL EP's buffers follow DeepEP's low-latency layout", formula
        )
    heap = round_up(hint, SYMMETRIC_GRANULARITY)
    fixed = GIB + WORKSPACE_BYTES
    return ByteRange(fixed + hint, fixed + heap, fixed + heap + SYMMETRIC_GRANULARITY), calculated(
        "DeepEP csrc/config.hpp, vllm all2all.py (DeepEPLLAll2AllManager)",
        f"{formula}, in pieces of 512 MiB, + NVLink buffer 1 GiB + workspace 32 MiB",
    )


def _pplx(
    tokens: int, experts: int, hidden: int, settings: Settings, expert_format: str
) -> tuple[ByteRange, Evidence]:
    """One send buffer for each peer within a node (cudaMalloc), symmetric buffers beyond (nvshmem_malloc)."""
    ranks, tp = settings.plan.expert_group, settings.plan.tp
    local = ceil_div(experts, ranks)
    payload, scales = _quantised_row(hidden, settings.dtype.bits // 8, expert_format)
    message = round_up(round_up(payload, 16) + round_up(scales, 16) + 4, 16)
    combine = round_up(4 * hidden, 16)
    counts = round_up(4 * local, 16) + 16
    tracking = 4 * local * tokens
    if domain(ranks).nodes == 1:
        each = counts + tokens * local * max(message, combine)
        size = ranks * each + 6 * tracking * ranks
        formula = (
            f"{ranks} peers x {each} B ({tokens} tokens x {local} local experts x {max(message, combine)} B)"
        )
        return ByteRange.exact(size), calculated("pplx-kernels csrc/all_to_all/intranode.cpp", formula)
    slots = local * (ranks // tp) * tokens
    size = tokens * message + slots * message + slots * combine + tokens * experts * combine
    size += 5 * 4 * slots + 8 * (2 * local * (ranks // tp) + tokens + ranks)
    heap = round_up(size, SYMMETRIC_GRANULARITY)
    formula = (
        f"{slots} slots x ({message} + {combine}) B + {tokens} tokens x ({message} + {experts} x {combine}) B"
    )
    return ByteRange(size, heap, heap + SYMMETRIC_GRANULARITY), calculated(
        "pplx-kernels csrc/all_to_all/internode.cpp, in pieces of NVSHMEM's heap of 512 MiB", formula
    )


def _quantised_row(hidden: int, element: int, expert_format: str) -> tuple[int, int]:
    """Payload and scales of one dispatched token as the experts' format quantises it."""
    if expert_format == "fp8_block":
        return hidden, 4 * ceil_div(hidden, 128)
    if expert_format.startswith("fp8"):
        return hidden, 4
    return hidden * element, 0


_FIFO_BYTES = 8 * 256 * KIB


def _two_sided(ranks: int, device: Device) -> tuple[ByteRange, Evidence]:
    """A FIFO of 2 MiB and a connection of 256 B for each peer and channel; half the multiprocessors carry channels."""
    low, expected, high = (
        (device.sm_count,) * 3 if device.sm_count is not None else (108, 132, 160)
    )  # fmt: skip
    sizes = [_fifo_bytes(ranks, count) for count in (low, expected, high)]
    formula = f"{ranks} peers x {_channels(ranks, expected)} channels x (8 x 256 KiB + 256 B)"
    return ByteRange(*sizes), calculated("FlashInfer trtllm_alltoall.cuh (getMoeCommWorkspaceSize)", formula)


def _channels(ranks: int, multiprocessors: int) -> int:
    return max(multiprocessors // 2 // (2 * ceil_div(ranks, 8)), 1)


def _fifo_bytes(ranks: int, multiprocessors: int) -> int:
    prepare = 256 * ranks
    return round_up(ranks * _channels(ranks, multiprocessors) * (_FIFO_BYTES + 256), 2 * MIB) + round_up(
        prepare, 2 * MIB
    )


_AUXILIARY_PER_TOKEN = 2 * 4 * 22  # two int32 for each of at most 22 experts


def _one_sided(
    ranks: int, tokens: int, hidden: int, top_k: int, expert_format: str
) -> tuple[ByteRange, Evidence]:
    """Slots for every token of every rank, dispatched as the experts' format has it and combined in 2 bytes, beside
    counters of at most some 200 bytes a token."""
    rows = {"nvfp4": hidden // 2 + hidden // 16, "fp8_block": hidden + 4 * (hidden // 128)}
    payload = rows.get(expert_format, 2 * hidden) + 8 * top_k
    slots = round_up(ranks * tokens * payload, 128) + round_up(ranks * tokens * 2 * hidden, 128)
    most = slots + tokens * _AUXILIARY_PER_TOKEN + 64 * KIB
    expected = slots + tokens * 8 * top_k
    formula = f"{ranks} ranks x {tokens} tokens x ({payload} + {2 * hidden}) B and counters"
    return (
        ByteRange(*(round_up(size, 2 * MIB) for size in (slots, expected, most))),
        calculated("FlashInfer comm/trtllm_moe_alltoall.py (moe_a2a_get_workspace_size_per_rank)", formula),
    )


def _mori(settings: Settings) -> tuple[ByteRange, Evidence]:
    """MoRI's symmetric heap, whole from the start: 2 GiB, 8 GiB with the mega kernels (MORI_SHMEM_HEAP_SIZE)."""
    mega = settings.flags.moe_backend == "aiter_mega_moe"
    size = (8 if mega else 2) * GIB
    return ByteRange.exact(size), assumed(
        "MoRI's heap of 2 GiB, set to 8 GiB for aiter_mega_moe (vllm all2all.py, MoriAll2AllManager)",
        f"MORI_SHMEM_HEAP_SIZE {format_bytes(size)}",
    )
