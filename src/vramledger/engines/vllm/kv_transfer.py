"""What moving KV between instances, or to the host, holds on devices and hosts; and what stays in the pool for it.

Source: vllm distributed/kv_transfer/kv_connector/v1/ (nixl, p2p, mooncake, offloading, lmcache, example, moriio),
v1/kv_offload/cpu/spec.py, v1/simple_kv_offload/, kv_connector/simple_connector.py and kv_lookup_buffer (V0) by
version.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.vllm.extras import Extra
from vramledger.engines.vllm.flags import KvTransfer
from vramledger.engines.vllm.kv_connectors import CONSUMERS, NIXL, PRODUCERS, connectors
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import Evidence, assumed, calculated
from vramledger.ledger import AFTER_LOAD, SERVING, ByteRange, Entry, Lifetime, Owner
from vramledger.units import GIB, ceil_div, format_gib, round_up

BUFFER_BYTES = 10**9  # kv_buffer_size
P2P_POOL_GIB = 32  # DEFAULT_MEM_POOL_SIZE_GB
LMCACHE_CHUNK_TOKENS = 256
LMCACHE_HOST_GB = 5.0
MOONCAKE_SEGMENT_BYTES = 4 * GIB
SIMPLE_OFFLOAD_BYTES = 8 * GIB
HOST_PAGE = 4096
_V1 = "vllm distributed/kv_transfer/kv_connector/v1"


class KvShape(Struct, frozen=True, kw_only=True):
    """One rank's KV as connectors see it: bytes of a token in every layer, of a block and of a full request, how
    many caches there are, and whether all of them are latents, which ranks hold alike."""

    bytes_per_token: int
    bytes_per_block: int
    layers: int
    request_bytes: int
    is_latent: bool


def transfer_extras(settings: Settings, shape: KvShape) -> tuple[Extra, ...]:
    """Staging on the device of one rank, which the engine's budget knows nothing of."""
    out: list[Extra] = []
    for item in connectors(settings.flags, settings.version, settings.plan.world_size):
        out += _staging(item, settings, shape)
    return tuple(out)


def _staging(item: KvTransfer, settings: Settings, shape: KvShape) -> list[Extra]:
    buffer = item.buffer_size_bytes or BUFFER_BYTES
    name = item.connector
    if not settings.v1:
        if item.buffer_device == "cpu" or name.startswith(("LMCache", "Mooncake")):
            return []
        return [
            _extra(
                "KV waiting to be sent" if item.role == "kv_producer" else "KV received",
                ByteRange(0, buffer, buffer),
                calculated("vllm distributed/kv_transfer/kv_lookup_buffer", f"kv_buffer_size {buffer} B"),
            )
        ]
    if name == "P2pNcclConnector":
        return _p2p(item, settings, shape, buffer)
    if name == "LMCacheConnectorV1":
        tokens = int(item.number("lmcache.chunk_size") or LMCACHE_CHUNK_TOKENS)
        size = tokens * shape.bytes_per_token
        return [
            _extra(
                "LMCache staging of one chunk",
                ByteRange(0, size, size),
                assumed(
                    "LMCache's connector gathers a chunk on the device; none with its own disaggregation",
                    f"{tokens} tokens x {shape.bytes_per_token} B",
                ),
                lifetime=Lifetime.WORKER,
            )
        ]
    if name in NIXL and item.permutes and item.role in CONSUMERS:
        one = ceil_div(shape.request_bytes, max(shape.layers, 1))
        return [
            _extra(
                "received blocks being permuted",
                ByteRange(0, one, 2 * one),
                calculated(
                    f"{_V1}/nixl (permute_device_kv)",
                    f"a request's blocks of one layer {one} B, once or twice",
                ),
                lifetime=Lifetime.ITERATION,
            )
        ]
    if name in ("SharedStorageConnector", "ExampleConnector"):
        one = ceil_div(settings.max_tokens * shape.bytes_per_token, max(shape.layers, 1))
        return [
            _extra(
                "one layer's KV on its way to files",
                ByteRange(0, one, one),
                calculated(
                    f"{_V1} (save_kv_layer, start_load_kv)", f"{settings.max_tokens} tokens of one layer"
                ),
                lifetime=Lifetime.ITERATION,
            )
        ]
    return []


def _p2p(item: KvTransfer, settings: Settings, shape: KvShape, buffer: int) -> list[Extra]:
    """Copies of a step's prompts until they are sent, and received layers up to kv_buffer_size (the rest goes to the
    pinned pool)."""
    out = []
    if item.role in PRODUCERS:
        step = settings.max_tokens * shape.bytes_per_token
        out.append(
            _extra(
                "KV copied out for sending",
                ByteRange(0, step, step),
                calculated(
                    f"{_V1}/p2p (extract_kv_from_layer, wait_for_sent)",
                    f"max_num_batched_tokens {settings.max_tokens} x {shape.bytes_per_token} B; "
                    f"with send_type GET at most kv_buffer_size {buffer} B",
                ),
            )
        )
    if item.role in CONSUMERS:
        out.append(
            _extra(
                "KV received before it enters the pool",
                ByteRange(0, buffer, buffer),
                calculated(f"{_V1}/p2p/p2p_nccl_engine.py (recv_store)", f"kv_buffer_size {buffer} B"),
            )
        )
    return out


def _extra(name: str, size: ByteRange, evidence: Evidence, *, lifetime: Lifetime = Lifetime.REQUEST) -> Extra:
    return Extra(
        owner=Owner.COLLECTIVES,
        name=name,
        bytes=size,
        charged=False,
        phases=SERVING,
        lifetime=lifetime,
        evidence=evidence,
    )


def transfer_host_entries(settings: Settings, shape: KvShape, pool_bytes: ByteRange) -> tuple[Entry, ...]:
    """Pools and buffers of the connectors in host memory over all ranks of one instance."""
    ranks = settings.plan.world_size
    out: list[Entry] = []
    for item in connectors(settings.flags, settings.version, ranks):
        out += _host(item, settings, shape, pool_bytes, ranks)
    return tuple(out)


def _host(
    item: KvTransfer, settings: Settings, shape: KvShape, pool_bytes: ByteRange, ranks: int
) -> list[Entry]:
    name = item.connector
    if not settings.v1:
        return []
    if name == "P2pNcclConnector":
        asked = int((item.number("mem_pool_size_gb") or P2P_POOL_GIB) * GIB)
        each = 1 << max(asked - 1, 1).bit_length()
        return [
            _host_entry(
                "pool of received KV (P2pNccl)",
                ByteRange.exact(each * ranks),
                calculated(
                    f"{_V1}/p2p/tensor_memory_pool.py",
                    f"{ranks} ranks x mem_pool_size_gb {format_gib(asked)} pinned, a power of two",
                ),
            )
        ]
    if name in NIXL and item.buffer_device == "cpu":
        copies = ByteRange(pool_bytes.low * ranks, pool_bytes.expected * ranks, pool_bytes.high * ranks)
        return [
            _host_entry(
                "copy of the KV pool (NIXL over host memory)",
                copies,
                calculated(f"{_V1}/nixl (initialize_host_xfer_buffer)", f"{ranks} ranks x the pool's bytes"),
            )
        ]
    if name == "OffloadingConnector":
        return _offloaded(item, settings, shape, ranks)
    if name == "SimpleCPUOffloadConnector":
        return _simply_offloaded(item, shape, ranks)
    if name == "LMCacheConnectorV1":
        gigabytes = item.number("lmcache.max_local_cpu_size") or item.number("max_local_cpu_size")
        share = int((gigabytes or LMCACHE_HOST_GB) * GIB)
        text = f"{ranks} ranks x max_local_cpu_size {format_gib(share)}"
        evidence = (
            assumed(
                f"LMCache's default of {LMCACHE_HOST_GB:g} GB a worker; its own configuration decides", text
            )
            if gigabytes is None
            else calculated("lmcache.max_local_cpu_size", text)
        )
        return [_host_entry("LMCache's local CPU cache", ByteRange.exact(share * ranks), evidence)]
    if name == "MooncakeStoreConnector":
        size = 2 * MOONCAKE_SEGMENT_BYTES * ranks
        return [
            _host_entry(
                "Mooncake Store segment and local buffer",
                ByteRange.exact(size),
                assumed(
                    "global_segment_size and local_buffer_size of 4 GiB (vllm distributed/mooncake_store.py); "
                    "MOONCAKE_CONFIG_PATH decides",
                    f"{ranks} ranks x 2 x 4 GiB",
                ),
            )
        ]
    if name == "HiSparseConnector":
        gib = item.number("host_pool_gib") or 0.0
        return [
            _host_entry(
                "HiSparse host pool",
                ByteRange.exact(int(gib * GIB)),
                calculated("vllm v1/hisparse/layout.py", f"host_pool_gib {gib:g}"),
            )
        ]
    return []


def _offloaded(item: KvTransfer, settings: Settings, shape: KvShape, ranks: int) -> list[Entry]:
    """Chunks of blocks of all workers in one region, whole ones within `cpu_bytes_to_use`; up to 0.12 a count of
    blocks. Since 0.29 workers whose latents are equal share one copy."""
    factor = int(item.number("blocks_per_chunk") or 1)
    copies = 1 if shape.is_latent and settings.plan.pp == 1 and settings.version.since(29) else ranks
    chunk = shape.bytes_per_block * factor * copies
    if settings.version.since(26):
        chunk = round_up(chunk, HOST_PAGE)
    asked = item.number("cpu_bytes_to_use")
    count = int(item.number("num_cpu_blocks") or 0)
    if asked is not None and chunk:
        count = int(asked) // chunk
    formula = f"{count} chunks x {chunk} B"
    if asked is not None:
        formula += f" within {format_gib(int(asked))}"
    return [
        _host_entry(
            "offloaded KV",
            ByteRange.exact(count * chunk),
            calculated("vllm v1/kv_offload/cpu/spec.py", f"{formula}: {copies} worker(s), pinned"),
        )
    ]


def _simply_offloaded(item: KvTransfer, shape: KvShape, ranks: int) -> list[Entry]:
    asked = item.number("cpu_bytes_to_use_per_rank")
    share = (
        int(asked)
        if asked is not None
        else int(item.number("cpu_bytes_to_use") or SIMPLE_OFFLOAD_BYTES) // ranks
    )
    blocks = share // shape.bytes_per_block if shape.bytes_per_block else 0
    return [
        _host_entry(
            "offloaded KV",
            ByteRange.exact(blocks * shape.bytes_per_block * ranks),
            calculated(
                "vllm v1/simple_kv_offload/manager.py",
                f"{ranks} ranks x {blocks} blocks x {shape.bytes_per_block} B, pinned",
            ),
        )
    ]


def _host_entry(name: str, size: ByteRange, evidence: Evidence) -> Entry:
    return Entry(
        owner=Owner.KV_CACHE,
        name=name,
        lifetime=Lifetime.WORKER,
        phases=AFTER_LOAD,
        bytes=size,
        evidence=evidence,
        inside_budget=False,
    )


def transfer_conditions(settings: Settings, request_bytes: int) -> tuple[str, ...]:
    """What has to be true of the other side for the pool to be as large as it looks: blocks that wait for it."""
    out = []
    each = f"up to {format_gib(request_bytes)} a request of {settings.context_len:,} tokens"
    for item in connectors(settings.flags, settings.version, settings.plan.world_size):
        held = _lease(item.connector, settings)
        if item.role in PRODUCERS and held:
            out.append(f"blocks of finished prompts stay in the pool until they are fetched, {held}: {each}")
        if item.role in CONSUMERS and held:
            out.append(f"a request holds its blocks from the moment its KV is awaited: {each}")
        unknown = _UNKNOWN.get(item.connector)
        if unknown is not None:
            out.append(unknown)
        elif item.connector not in _KNOWN:
            out.append(f"what {item.connector} keeps on the device and the host is not known here")
    return tuple(dict.fromkeys(out))


_UNKNOWN = {
    "LMCacheMPConnector": "LMCache's server process keeps its own host memory, which is not counted here",
    "FlexKVConnectorV1": "what FlexKV keeps on the host is not known here",
    "HF3FSKVConnector": "what the 3FS client keeps on the host is not known here",
}
_KNOWN = frozenset(
    (
        *NIXL, "P2pNcclConnector", "LMCacheConnectorV1", "LMCacheConnector", "OffloadingConnector",
        "SimpleCPUOffloadConnector", "MooncakeConnector", "MooncakeStoreConnector", "MoRIIOConnector",
        "SharedStorageConnector", "ExampleConnector", "ExampleHiddenStatesConnector", "DecodeBenchConnector",
        "HiSparseConnector", "PyNcclConnector", "SimpleConnector",
    )
)  # fmt: skip


def _lease(connector: str, settings: Settings) -> str:
    """How long a producer keeps what nobody fetches; "" for connectors that keep nothing."""
    version = settings.version
    if connector in NIXL:
        if version.since(22):
            return "30 s without a heartbeat at most (kv_lease_duration)"
        if not version.since(10):
            return "without a limit"
        seconds = 480 if version.since(11, 1) else 120
        return f"{seconds} s at most (VLLM_NIXL_ABORT_REQUEST_TIMEOUT)"
    if connector == "MooncakeConnector" and version.since(16):
        return "480 s at most (VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT)"
    if connector == "MoRIIOConnector":
        return "an hour at most"
    return ""
