"""Peaks while the weights load, on the device and on the host, by `--load-format`.

Source: sglang srt/configs/load_config.py, model_loader/loader.py (DefaultModelLoader, 8 threads unless told since 0.5.10),
model_loader/weight_utils.py, read from 0.4.3 to 0.5.23. Every rank reads every file, except where the format says otherwise.
"""

from __future__ import annotations

from vramledger.engines.checkpoint_reading import (
    STREAMER_LIMIT_BYTES,
    Reading,
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
from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.settings import Settings
from vramledger.errors import FlagError
from vramledger.ledger import ByteRange
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import GIB

FORMATS: dict[str, tuple[int, int]] = {
    "auto": (0, 0), "safetensors": (0, 0), "pt": (0, 0), "npcache": (0, 0), "dummy": (0, 0), "mistral": (4, 0),
    "layered": (4, 0), "sharded_state": (4, 0), "gguf": (4, 0), "bitsandbytes": (4, 0), "fastsafetensors": (5, 7),
    "runai_streamer": (5, 10), "presharded": (5, 18), "ipc_cache": (5, 18), "instanttensor": (5, 22),
}  # fmt: skip
"""The first release that lists each; ways that fetch weights from another instance have no rules here."""
THREADS, THREADED_SINCE, EXTRA_SINCE, NO_MAPPING_SINCE, PREFETCH_SINCE = 8, (5, 10), (4, 9), (4, 9), (5, 12)
SOURCE = "sglang srt/model_loader/weight_utils.py"


def check_load_format(settings: Settings) -> None:
    """Raises FlagError for a way of loading that the version does not have, and for one without rules here."""
    flags, version = settings.flags, settings.version
    since = FORMATS.get(flags.load_format)
    if since is None:
        raise FlagError(
            f"--load-format {flags.load_format} has no rules here; these have: {', '.join(FORMATS)}",
            flag="load_format",
            value=flags.load_format,
        )
    for name, is_given, first in (
        (f"--load-format {flags.load_format}", since > (0, 0), since),
        ("--weight-loader-disable-mmap", flags.weight_loader_disable_mmap, NO_MAPPING_SINCE),
        ("--weight-loader-prefetch-checkpoints", flags.weight_loader_prefetch_checkpoints, PREFETCH_SINCE),
        ("--model-loader-extra-config", bool(flags.model_loader_extra_config), EXTRA_SINCE),
    ):
        if is_given and not version.since(*first):
            raise FlagError(
                f"{name}: sglang {version} does not have it, 0.{first[0]}.{first[1]} does",
                flag="load_format",
                value=flags.load_format,
            )


def how(flags: SglangFlags) -> str:
    """The way by its flags, as the entries name it."""
    words = [flags.load_format]
    if flags.weight_loader_disable_mmap:
        words.append("no mmap")
    if flags.weight_loader_prefetch_checkpoints:
        words.append("prefetched")
    return ", ".join(words)


def reading(checkpoint: Checkpoint, settings: Settings) -> Reading:
    """What reading the files takes, over all ranks of all replicas on one host."""
    flags = settings.flags
    extra = dict(flags.model_loader_extra_config)
    processes = flags.tp_size * flags.pp_size * flags.replicas
    match flags.load_format:
        case "dummy" | "ipc_cache":
            return nothing_read()
        case "pt" | "npcache":
            return read_whole(checkpoint, processes, copies=1, at_once=_threads(settings, extra))
        case "sharded_state" | "presharded":
            return own_shards(checkpoint, processes)
        case "fastsafetensors":
            return whole_files_on_device(
                checkpoint,
                extra_files=0,
                largest_tensor_bytes=largest_tensor_bytes(checkpoint) if processes > 1 else 0,
            )
        case "runai_streamer":
            limit = extra.get("memory_limit", STREAMER_LIMIT_BYTES)
            return streamed(
                checkpoint,
                processes,
                limit_bytes=limit if isinstance(limit, int) else STREAMER_LIMIT_BYTES,
                largest_tensor_bytes=largest_tensor_bytes(checkpoint),
            )
        case "instanttensor":
            size = shard_bytes(checkpoint)
            return Reading(
                host=ByteRange.exact(0),
                device=ByteRange(0, min(size, GIB), size),
                is_reclaimable=False,
                formula="a device buffer of the reader's choosing, at most a file",
            )
        case "gguf" | "bitsandbytes":
            return mapped(checkpoint)
        case _:
            return _safetensors(checkpoint, settings, extra, processes)


def _safetensors(
    checkpoint: Checkpoint, settings: Settings, extra: dict[str, object], processes: int
) -> Reading:
    flags = settings.flags
    if flags.weight_loader_disable_mmap:
        # A file's bytes and the tensors cut from them, for each thread.
        return read_whole(checkpoint, processes, copies=2, at_once=_threads(settings, extra))
    if flags.weight_loader_prefetch_checkpoints:
        return prefetched(checkpoint)
    return mapped(checkpoint, at_once=_threads(settings, extra))


def _threads(settings: Settings, extra: dict[str, object]) -> int:
    """Files that are open at once: one for each thread."""
    if not extra.get("enable_multithread_load", settings.version.since(*THREADED_SINCE)):
        return 1
    count = extra.get("num_threads", THREADS)
    return count if isinstance(count, int) and count > 0 else THREADS
