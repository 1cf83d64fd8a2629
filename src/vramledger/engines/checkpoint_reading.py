"""How weight files get to a device, and what the ways hold on both sides meanwhile.

Source: safetensors (`safe_open` maps a file, `load` copies it), runai-model-streamer (a host buffer of
RUNAI_STREAMER_MEMORY_LIMIT), fastsafetensors (whole files in device memory before tensors are cut from them),
tensorizer (a host buffer a reader), torch.load (a whole file).
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.formats.weights import stored_bytes
from vramledger.ledger import ByteRange
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import GIB

# Transformers' save_pretrained splits at 5 GB.
DEFAULT_SHARD_BYTES = 5 * 10**9
UNREAD_FILES = f"weight files of {DEFAULT_SHARD_BYTES // 10**9} GB, Transformers' default; headers would tell"
STREAMER_LIMIT_BYTES = 40 * 10**9
"""RUNAI_STREAMER_MEMORY_LIMIT without a value (docs/src/env-vars.md), in each process."""


class Reading(Struct, frozen=True, kw_only=True):
    """Bytes held while files are read: `host` by the whole instance, `device` on each device beside the weights.

    `is_reclaimable` says that the host's part is page cache, which the kernel takes back under pressure. `formula`
    has the inputs.
    """

    host: ByteRange
    device: ByteRange
    is_reclaimable: bool
    formula: str


NOTHING = ByteRange(0, 0, 0)


def shard_bytes(checkpoint: Checkpoint) -> int:
    """The largest weight file; of a usual size where no header told."""
    return checkpoint.largest_file_bytes or min(checkpoint.disk_bytes, DEFAULT_SHARD_BYTES)


def mapped(checkpoint: Checkpoint, *, at_once: int = 1) -> Reading:
    """Files mapped `at_once` at a time. All processes share the page cache, which may keep from a gibibyte to everything."""
    shard, disk = shard_bytes(checkpoint), checkpoint.disk_bytes
    several = f"{at_once} files at once, the " if at_once > 1 else ""
    return Reading(
        host=ByteRange(min(shard, GIB), max(min(at_once * shard, disk), shard), max(disk, shard)),
        device=NOTHING,
        is_reclaimable=True,
        formula=f"{several}largest file {shard} B mapped, all files {disk} B",
    )


def largest_tensor_bytes(checkpoint: Checkpoint) -> int:
    """The largest tensor of the files as it is stored, an expert's matrix on its own."""
    return max(
        (
            stored_bytes(item.tensor.shape, item.format) // max(item.tensor.num_experts, 1)
            for item in checkpoint.stored
        ),
        default=0,
    )


def prefetched(checkpoint: Checkpoint) -> Reading:
    """Every file read into the page cache ahead of the mapping."""
    shard, disk = shard_bytes(checkpoint), checkpoint.disk_bytes
    return Reading(
        host=ByteRange(shard, max(disk, shard), max(disk, shard)),
        device=NOTHING,
        is_reclaimable=True,
        formula=f"all files {disk} B in the page cache",
    )


def read_whole(checkpoint: Checkpoint, processes: int, *, copies: int, at_once: int = 1) -> Reading:
    """Whole files in the memory of each process: `at_once` files, each `copies` times."""
    size = min(
        processes * copies * at_once * shard_bytes(checkpoint), processes * copies * checkpoint.disk_bytes
    )
    return Reading(
        host=ByteRange.exact(size),
        device=NOTHING,
        is_reclaimable=False,
        formula=f"{processes} processes x {at_once} files x {copies} x {shard_bytes(checkpoint)} B",
    )


def streamed(
    checkpoint: Checkpoint, processes: int, *, limit_bytes: int, largest_tensor_bytes: int
) -> Reading:
    """A host buffer in each process: at most `limit_bytes` (-1: the files, 0: the largest tensor), and a clone of one
    tensor."""
    disk = checkpoint.disk_bytes
    room = disk if limit_bytes < 0 else min(max(limit_bytes, largest_tensor_bytes), disk)
    each = room + largest_tensor_bytes
    return Reading(
        host=ByteRange.exact(processes * each),
        device=NOTHING,
        is_reclaimable=False,
        formula=f"{processes} processes x (buffer {room} B + clone of a tensor {largest_tensor_bytes} B)",
    )


def whole_files_on_device(checkpoint: Checkpoint, *, extra_files: int, largest_tensor_bytes: int) -> Reading:
    """GPU-direct reads: a whole file in device memory, `extra_files` more in a queue, and a tensor received from the
    rank that has its file. Without GPUDirect Storage a host bounce buffer is used, which is small."""
    shard = shard_bytes(checkpoint)
    size = min((1 + extra_files) * shard, checkpoint.disk_bytes) + largest_tensor_bytes
    return Reading(
        host=NOTHING,
        device=ByteRange.exact(size),
        is_reclaimable=False,
        formula=f"{1 + extra_files} files of {shard} B + a tensor of {largest_tensor_bytes} B",
    )


def own_shards(checkpoint: Checkpoint, processes: int) -> Reading:
    """Each process maps files that hold its own shard alone."""
    disk = checkpoint.disk_bytes
    own = -(-disk // processes)
    shard = min(shard_bytes(checkpoint), own)
    return Reading(
        host=ByteRange(min(shard, GIB), processes * shard, max(disk, processes * shard)),
        device=NOTHING,
        is_reclaimable=True,
        formula=f"{processes} processes x a file of at most {shard} B, {own} B a rank",
    )


def buffered(processes: int, *, largest_tensor_bytes: int, readers: int) -> Reading:
    """A host buffer of the largest tensor for each reader, copied straight to its place on the device."""
    return Reading(
        host=ByteRange.exact(processes * readers * largest_tensor_bytes),
        device=NOTHING,
        is_reclaimable=False,
        formula=f"{processes} processes x {readers} readers x {largest_tensor_bytes} B",
    )


def nothing_read() -> Reading:
    """Weights made up in place."""
    return Reading(host=NOTHING, device=NOTHING, is_reclaimable=False, formula="no file is read")
