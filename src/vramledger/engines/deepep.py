"""Sizes of DeepEP's buffers.

Source: deepseek-ai/DeepEP csrc/config.hpp (Config, LowLatencyLayout, get_low_latency_rdma_size_hint),
csrc/kernels/configs.cuh, deep_ep/buffer.py (get_dispatch_config, get_combine_config); csrc/elastic/buffer.hpp and deep_ep/include/deep_ep/common/layout.cuh for the elastic buffer of V2.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.units import MIB, ceil_div, round_up

WORKSPACE_BYTES = 32 * MIB
SYMMETRIC_GRANULARITY = 512 * MIB  # NVSHMEM_CUMEM_GRANULARITY, set by deep_ep/buffer.py
_ALIGNMENT = 128
_SCALE_BLOCK = 128
_CONTROL_BYTES = 16  # an int4 before each dispatched message


def low_latency_bytes(*, tokens: int, hidden: int, experts: int) -> int:
    """Symmetric bytes of the low-latency mode for `tokens` dispatched by a rank at most: two send, two receive and
    two signalling buffers, each with a slot for every token at every expert."""
    scales = hidden // _SCALE_BLOCK
    dispatch = _CONTROL_BYTES + max(2 * hidden, hidden + 4 * scales)
    combine = 4 * scales + 2 * hidden
    send = max(tokens * dispatch, experts * tokens * combine)
    receive = experts * tokens * max(dispatch, combine)
    signal = round_up(4 * experts, _ALIGNMENT)
    size = 2 * (send + receive + signal)
    return (size + _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT


NVLINK_PEERS = 8
NORMAL_SMS = 20  # Buffer.num_sms
_SOURCE_META_BYTES = 8
_MAX_TOP_K = _MAX_SCALES = 128
# Ranks: tokens received in pieces over NVLink and over RDMA, the larger of dispatch and combine; RDMA's is rounded up to
# a multiple of what is sent at once.
_PIECES = {
    2: (256, 132), 4: (256, 132), 8: (256, 132), 16: (288, 140), 24: (288, 128), 32: (288, 128), 48: (288, 128),
    64: (288, 128), 96: (480, 132), 128: (560, 132), 144: (720, 132), 160: (720, 132),
}  # fmt: skip


class NormalBytes(Struct, frozen=True, kw_only=True):
    """Buffers of the high-throughput mode on a rank."""

    nvlink: int
    rdma: int


def normal_bytes(*, hidden_bytes: int, ranks: int) -> NormalBytes | None:
    """What the recommended configurations of dispatch and combine take; None for a number of ranks that DeepEP refuses
    ("Unsupported number of EP ranks")."""
    if ranks not in _PIECES:
        return None
    over_nvlink, over_rdma = _PIECES[ranks]
    channels, peers, nodes = NORMAL_SMS // 2, min(ranks, NVLINK_PEERS), max(ranks // NVLINK_PEERS, 1)
    token = hidden_bytes + _SOURCE_META_BYTES + _MAX_TOP_K * (8 + 4) + _MAX_SCALES * 4
    nvlink = channels * peers * ((2 * nodes + 3) * 4 + over_nvlink * token)
    rdma = 0
    if ranks > NVLINK_PEERS:
        rdma = channels * nodes * ((2 * NVLINK_PEERS + 2) * 2 * 4 + 2 * over_rdma * (token + 16)) + MIB
    return NormalBytes(nvlink=round_up(nvlink, _ALIGNMENT), rdma=round_up(rdma, _ALIGNMENT))


class Domain(Struct, frozen=True, kw_only=True):
    """How the ranks of an expert group reach each other: `nodes` of `ranks_per_node` over NVLink."""

    nodes: int
    ranks_per_node: int

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


_MAX_CHANNELS = 8 * 160
_TMA_ALIGNMENT = 32
_MAX_RANKS, _MAX_EXPERTS, _MAX_GATHERS = 1024, 2048, 32


def elastic_bytes(*, tokens: int, hidden: int, top_k: int, fp8: bool, domain: Domain) -> int:
    """Bytes of an ElasticBuffer with single reduction (vLLM's default): the larger of its dispatch and combine
    layouts, in 2 MiB, and its workspace."""
    payload = hidden if fp8 else 2 * hidden
    scales = 4 * ceil_div(hidden, 32) if fp8 else 0
    dispatch = _token(payload, scales, 8 * top_k + 4 * (1 + top_k))
    combine = _token(2 * hidden, 0, 8 * top_k)
    if domain.nodes == 1:
        larger = max(domain.ranks * tokens * dispatch, top_k * tokens * combine)
    else:
        slots = tokens + _MAX_CHANNELS
        sent = (domain.ranks * tokens + tokens + domain.nodes * slots) * dispatch
        gathered = top_k * (domain.nodes * tokens + tokens + domain.nodes * slots) * combine
        larger = max(sent, gathered)
    return round_up(larger, 2 * MIB) + round_up(_elastic_workspace(), 2 * MIB)


def _token(payload: int, scales: int, metadata: int) -> int:
    return sum(round_up(part, _TMA_ALIGNMENT) for part in (payload, scales, metadata))


def _elastic_workspace() -> int:
    counts = _MAX_RANKS + _MAX_EXPERTS
    channels = _MAX_RANKS * _MAX_CHANNELS
    signals = 16 + 2 * 2 * 8 + (_MAX_GATHERS + 1) * _MAX_RANKS * 4
    return signals + 3 * counts * 8 + 2 * counts * 4 + 2 * _MAX_RANKS * 4 + channels * (8 + 4)
