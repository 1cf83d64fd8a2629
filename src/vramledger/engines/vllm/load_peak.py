"""Peaks while the weights load, on the device and on the host, by `--load-format`.

Source: vllm model_executor/model_loader (weight_utils.py, default_loader.py, bitsandbytes_loader.py,
runai_streamer_loader.py, sharded_state_loader.py, tensorizer.py), config/load.py, envs.py
(VLLM_FASTSAFETENSORS_QUEUE_SIZE), 0.6.6 to 0.33.0; fastsafetensors parallel_loader.py (how many batches its queue
holds). Every rank reads every file, except where the format says otherwise.
"""

from __future__ import annotations

from vramledger.engines.checkpoint_reading import (
    STREAMER_LIMIT_BYTES,
    UNREAD_FILES,
    Reading,
    buffered,
    largest_tensor_bytes,
    mapped,
    nothing_read,
    own_shards,
    prefetched,
    read_whole,
    shard_bytes,
    streamed,
    whole_files_on_device,
)
from vramledger.engines.entry import entry
from vramledger.engines.vllm.settings import Settings
from vramledger.errors import FlagError
from vramledger.evidence import assumed, calculated
from vramledger.ledger import ByteRange, Entry, Lifetime, Owner, Phase
from vramledger.models.checkpoint import Checkpoint

LOAD = frozenset({Phase.LOAD})
# First and last minor release that lists a format, None where the newest does.
_FORMATS: dict[str, tuple[tuple[int, int], int | None]] = {
    "auto": ((0, 0), None), "pt": ((0, 0), None), "safetensors": ((0, 0), None), "npcache": ((0, 0), None),
    "dummy": ((0, 0), None), "tensorizer": ((0, 0), None), "sharded_state": ((0, 0), None),
    "gguf": ((0, 0), 23), "bitsandbytes": ((0, 0), 27), "mistral": ((0, 0), None), "hf": ((12, 0), None),
    "runai_streamer": ((6, 6), None), "runai_streamer_sharded": ((9, 0), None), "fastsafetensors": ((8, 3), None),
    "instanttensor": ((19, 0), None), "modelexpress": ((24, 0), None), "ipc_cache": ((32, 0), None),
}  # fmt: skip
QUEUED_FILES_SINCE = 24
TENSORIZER_READERS = (1, 4, 8)
DEFAULT_THREADS = 4


def check_load_format(settings: Settings) -> None:
    """Raises FlagError for a format or an extra key that the version does not have."""
    name, version = settings.flags.load_format, settings.version
    known = _FORMATS.get(name)
    if known is None:
        raise FlagError(
            f"--load-format {name} is not one of vLLM's: {', '.join(_FORMATS)}",
            flag="load_format",
            value=name,
        )
    first, last = known
    if not version.since(*first) or (last is not None and version.since(last + 1)):
        when = (
            f"left it with 0.{last + 1}"
            if last is not None and version.since(last + 1)
            else f"has it since 0.{first[0]}"
        )
        raise FlagError(
            f"--load-format {name} is not one of vllm {version}, which {when}", flag="load_format", value=name
        )
    extra = settings.flags.model_loader_extra_config
    allowed = _EXTRA.get(name, ("enable_multithread_load", "num_threads"))
    for key, value in extra:
        if key not in allowed:
            raise FlagError(
                f"--model-loader-extra-config: {key!r} is not a key of --load-format {name}, which takes "
                f"{', '.join(allowed) or 'none'}",
                flag="model_loader_extra_config",
                value=key,
            )
        least, kind = _VALUES[key]
        is_right = isinstance(value, bool) if kind is bool else type(value) is int and value >= least
        if not is_right:
            raise FlagError(
                f"--model-loader-extra-config: {key} is {value!r}; it must be "
                + ("true or false" if kind is bool else f"a whole number of at least {least}"),
                flag="model_loader_extra_config",
                value=key,
            )


_EXTRA: dict[str, tuple[str, ...]] = {
    "runai_streamer": ("concurrency", "memory_limit", "distributed"),
    "runai_streamer_sharded": ("concurrency", "memory_limit", "distributed"),
    "tensorizer": ("num_readers",),
    "sharded_state": (),
    "dummy": (),
}
_VALUES: dict[str, tuple[int, type]] = {
    "concurrency": (1, int), "memory_limit": (-1, int), "distributed": (0, bool), "num_readers": (1, int),
    "enable_multithread_load": (0, bool), "num_threads": (1, int),
}  # fmt: skip


def reading(checkpoint: Checkpoint, settings: Settings) -> Reading:
    """What reading the files takes, over all ranks of all replicas on one host."""
    flags = settings.flags
    extra = dict(flags.model_loader_extra_config)
    processes = settings.plan.world_size * settings.plan.dp
    match _resolved(checkpoint, settings):
        case "dummy" | "ipc_cache":
            return nothing_read()
        case "pt" | "npcache":
            at_once = (
                _int(extra, "num_threads", DEFAULT_THREADS) if extra.get("enable_multithread_load") else 1
            )
            return read_whole(checkpoint, processes, copies=1, at_once=at_once)
        case "runai_streamer" | "runai_streamer_sharded":
            unlimited = extra.get("distributed") is True
            limit = _int(extra, "memory_limit", -1 if unlimited else STREAMER_LIMIT_BYTES)
            return streamed(
                checkpoint,
                processes,
                limit_bytes=limit,
                largest_tensor_bytes=largest_tensor_bytes(checkpoint),
            )
        case "fastsafetensors":
            return whole_files_on_device(
                checkpoint,
                extra_files=1 if settings.version.since(QUEUED_FILES_SINCE) else 0,
                largest_tensor_bytes=largest_tensor_bytes(checkpoint) if processes > 1 else 0,
            )
        case "tensorizer":
            low, expected, high = (
                buffered(
                    processes, largest_tensor_bytes=largest_tensor_bytes(checkpoint), readers=count
                ).host.expected
                for count in (
                    [_int(extra, "num_readers", 1)] * 3 if "num_readers" in extra else TENSORIZER_READERS
                )
            )
            return Reading(
                host=ByteRange(low, expected, high),
                device=ByteRange.exact(0),
                is_reclaimable=False,
                formula=f"{processes} processes x readers x the largest tensor",
            )
        case "sharded_state":
            return own_shards(checkpoint, processes)
        case "instanttensor":
            size = shard_bytes(checkpoint)
            return Reading(
                host=ByteRange.exact(0),
                device=ByteRange(0, min(size, 2**30), size),
                is_reclaimable=False,
                formula="a device buffer of the reader's choosing, at most a file",
            )
        case _:
            return _safetensors(checkpoint, settings, extra, processes)


def _safetensors(
    checkpoint: Checkpoint, settings: Settings, extra: dict[str, object], processes: int
) -> Reading:
    if extra.get("enable_multithread_load"):
        # load_file maps each file; its tensors are of the mapping until they are popped.
        return read_whole(
            checkpoint, processes, copies=1, at_once=_int(extra, "num_threads", DEFAULT_THREADS)
        )
    match settings.flags.safetensors_load_strategy:
        case "eager":
            return read_whole(
                checkpoint, processes, copies=2
            )  # the file's bytes and the tensors cut from them
        case "torchao":
            return read_whole(checkpoint, processes, copies=1)
        case "prefetch":
            return prefetched(checkpoint)
        case _:
            return mapped(checkpoint)


def _resolved(checkpoint: Checkpoint, settings: Settings) -> str:
    name = settings.flags.load_format
    if name == "auto" and checkpoint.quantization.startswith("gguf"):
        return "gguf"
    return name


def _int(extra: dict[str, object], key: str, default: int) -> int:
    value = extra.get(key, default)
    return value if isinstance(value, int) else default


def load_entry(settings: Settings, read: Reading) -> Entry:
    """What stands on the device beside the weights while files are read, repacking apart."""
    return entry(
        Owner.WORKSPACE, f"files on the device ({settings.flags.load_format})", LOAD, read.device,
        calculated("vllm model_executor/model_loader/weight_utils.py", read.formula),
        lifetime=Lifetime.ITERATION,
        inside=False,
    )  # fmt: skip


def host_entries(settings: Settings, read: Reading, *, is_size_known: bool) -> list[Entry]:
    """What the host holds while files are read."""
    if not read.host.high:
        return []
    strategy = settings.flags.safetensors_load_strategy
    how = settings.flags.load_format + (f", {strategy}" if strategy else "")
    kind = "page cache of the weight files" if read.is_reclaimable else "weight files in host memory"
    source = "vllm model_executor/model_loader/weight_utils.py"
    evidence = (
        calculated(source, read.formula)
        if is_size_known
        else assumed(f"{source}; {UNREAD_FILES}", read.formula)
    )
    return [
        entry(
            Owner.WEIGHTS,
            f"{kind} ({how})",
            LOAD,
            read.host,
            evidence,
            lifetime=Lifetime.ITERATION,
        )
    ]
