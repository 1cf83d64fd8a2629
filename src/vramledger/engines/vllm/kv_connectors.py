"""KV connectors by name: which a version has, how `--kv-transfer-config` reads, what each does to the layout of the pool.

Source: vllm config/kv_transfer.py, distributed/kv_transfer/kv_connector/factory.py and v1/base.py (SupportsHMA),
config/vllm.py (`_post_init_kv_transfer_config`, the hybrid manager's default) by version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramledger.engines.option import Option, bad_value
from vramledger.engines.vllm.flags import KvTransfer, VllmFlags
from vramledger.engines.vllm.version import VllmVersion
from vramledger.errors import FlagError

PRODUCERS = ("kv_producer", "kv_both")
CONSUMERS = ("kv_consumer", "kv_both")
ROLES = ("kv_producer", "kv_consumer", "kv_both")

# Runs of minor releases read that register a connector ("first-last", the last open): V0's end with 0.9.
_CONNECTORS: dict[str, str] = {
    "PyNcclConnector": "6-9", "SimpleConnector": "9-9", "LMCacheConnector": "8-9", "LMCacheConnectorV1": "9-",
    "LMCacheMPConnector": "12-", "MooncakeConnector": "7-9 16-", "MooncakeStoreConnector": "9-9 22-",
    "MultiConnector": "9-", "NixlConnector": "9-", "NixlPullConnector": "24-", "NixlPushConnector": "24-",
    "P2pNcclConnector": "9-25", "SharedStorageConnector": "9-12", "ExampleConnector": "16-",
    "ExampleHiddenStatesConnector": "20-", "OffloadingConnector": "11-", "SimpleCPUOffloadConnector": "20-",
    "DecodeBenchConnector": "12-", "MoRIIOConnector": "16-", "HF3FSKVConnector": "20-",
    "FlexKVConnectorV1": "20-", "HiSparseConnector": "31-",
}  # fmt: skip
CONNECTOR_NAMES = tuple(_CONNECTORS)
NIXL = ("NixlConnector", "NixlPullConnector", "NixlPushConnector")

# Connectors that keep a group's blocks apart, by first release; the manager stays on with them by itself since 0.23.
_KEEP_GROUPS = {
    "NixlConnector": 18, "MooncakeConnector": 20, "SimpleCPUOffloadConnector": 20, "DecodeBenchConnector": 22,
    "ExampleHiddenStatesConnector": 22, "MooncakeStoreConnector": 22, "MultiConnector": 22,
    "OffloadingConnector": 22, "NixlPullConnector": 24, "NixlPushConnector": 24, "HiSparseConnector": 31,
    "MoRIIOConnector": 31,
}  # fmt: skip
GROUPS_KEPT_SINCE = 23

_KEYS = frozenset(
    ("kv_connector", "engine_id", "kv_buffer_device", "kv_buffer_size", "kv_role", "kv_rank", "kv_parallel_size",
     "kv_ip", "kv_port", "kv_connector_extra_config", "kv_connector_module_path", "enable_permute_local_kv",
     "kv_load_failure_policy")
)  # fmt: skip
MOST_CHILDREN = 16


def read_kv_transfer(option: Option, value: Mapping[str, object]) -> KvTransfer:
    """`--kv-transfer-config` as a value. Raises FlagError for a key, a connector, a role or a size it does not take."""
    return _one(option, value, value, depth=0)


def _one(
    option: Option, value: Mapping[str, object], whole: Mapping[str, object], *, depth: int
) -> KvTransfer:
    def refuse(why: str) -> FlagError:
        return bad_value(option, dict(whole), why)

    unknown = sorted(set(value) - _KEYS)
    if unknown:
        raise refuse(f"has no key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    name = value.get("kv_connector")
    if not isinstance(name, str) or not name:
        raise refuse("names no kv_connector")
    module = value.get("kv_connector_module_path")
    if name not in _CONNECTORS and module is None:
        from difflib import get_close_matches

        near = get_close_matches(name, CONNECTOR_NAMES, n=3) or list(CONNECTOR_NAMES)
        raise refuse(f"names {name!r}, which is no connector of vLLM's; did you mean {' or '.join(near)}?")
    role = value.get("kv_role")
    if role not in ROLES:
        raise refuse(f"has kv_role {role!r}; it is one of {', '.join(ROLES)}")
    device = value.get("kv_buffer_device")
    if device is not None and device not in ("cuda", "cpu", "xpu"):
        raise refuse(f"has kv_buffer_device {device!r}; it is cuda, cpu or xpu")
    size = value.get("kv_buffer_size")
    if size is not None and (
        isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < 2**60
    ):
        raise refuse(f"has kv_buffer_size {size!r}, which is no number of bytes")
    extra = value.get("kv_connector_extra_config") or {}
    if not isinstance(extra, Mapping) or not all(isinstance(key, str) for key in extra):
        raise refuse("has a kv_connector_extra_config that is not an object")
    return KvTransfer(
        connector=name,
        role=str(role),
        buffer_device=None if device is None else str(device),
        buffer_size_bytes=None if size is None else int(size),
        permutes=bool(value.get("enable_permute_local_kv")),
        numbers=_numbers(extra),
        children=_children(option, name, str(role), extra, whole, depth=depth),
    )


def _numbers(extra: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """The sizes and counts among a connector's own settings, also those written as text."""
    out = []
    for key, item in sorted(extra.items()):
        number = _number(item)
        if number is not None and 0 <= number < 2**60:
            out.append((key, number))
    return tuple(out)


def _number(item: object) -> float | None:
    if isinstance(item, bool) or not isinstance(item, int | float | str):
        return None
    try:
        return float(item)
    except (ValueError, OverflowError):
        return None


def _children(
    option: Option, name: str, role: str, extra: Mapping[str, Any], whole: Mapping[str, object], *, depth: int
) -> tuple[KvTransfer, ...]:
    if name != "MultiConnector":
        return ()
    listed = extra.get("connectors")
    if not isinstance(listed, list) or not 0 < len(listed) <= MOST_CHILDREN or depth:
        raise bad_value(
            option, dict(whole), "has a MultiConnector without 1 to 16 plain connectors in its extra config"
        )
    out = []
    for child in listed:
        if not isinstance(child, Mapping):
            raise bad_value(option, dict(whole), "lists a connector that is not an object")
        out.append(_one(option, {"kv_role": role, **child}, whole, depth=depth + 1))
    return tuple(out)


def connectors(flags: VllmFlags, version: VllmVersion, ranks: int) -> tuple[KvTransfer, ...]:
    """The connectors that run, those of a MultiConnector one by one, and the one `--kv-offloading-size` stands for.

    Raises FlagError for one that the version does not have.
    """
    given = flags.kv_transfer_config
    found: list[KvTransfer] = []
    if given is not None:
        found += given.children or (given,)
    if flags.kv_offloading_size is not None:
        found = [_offloading(flags, version, ranks)]
    for item in (*(() if given is None else (given,)), *found):
        _check_listed(item, version)
    return tuple(found)


def _offloading(flags: VllmFlags, version: VllmVersion, ranks: int) -> KvTransfer:
    """`--kv-offloading-size` GiB over all ranks, in the engine's own connector or LMCache's."""
    size = flags.kv_offloading_size or 0.0
    if flags.kv_offloading_backend == "lmcache":
        if version.since(26):
            return KvTransfer(connector="LMCacheMPConnector", role="kv_both")
        share = (("lmcache.max_local_cpu_size", size / ranks),)
        return KvTransfer(connector="LMCacheConnectorV1", role="kv_both", numbers=share)
    return KvTransfer(
        connector="OffloadingConnector", role="kv_both", numbers=(("cpu_bytes_to_use", size * 2**30),)
    )


def _check_listed(item: KvTransfer, version: VllmVersion) -> None:
    spans = _CONNECTORS.get(item.connector)
    if spans is None:
        return
    for span in spans.split():
        first, _, last = span.partition("-")
        if version.since(int(first)) and not (last and version.since(int(last) + 1)):
            return
    told = ", ".join(
        f"0.{span.replace('-', ' to 0.') if span[-1] != '-' else span[:-1] + ' and newer'}"
        for span in spans.split()
    )
    raise FlagError(
        f"--kv-transfer-config: vllm {version} has no {item.connector}; it is in {told}",
        flag="kv_transfer_config",
        value=item.connector,
    )


def keeps_groups(flags: VllmFlags, version: VllmVersion, ranks: int) -> bool:
    """Whether the hybrid KV cache manager stays on with the connectors: never before 0.23 by itself, since then
    where all of them keep groups apart."""
    running = connectors(flags, version, ranks)
    if not running:
        return True
    if not version.since(GROUPS_KEPT_SINCE):
        return False
    firsts = [_KEEP_GROUPS.get(item.connector) for item in running]
    return all(first is not None and version.since(first) for first in firsts)
