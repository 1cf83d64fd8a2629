"""From a snapshot file to values: every field checked, every count bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NoReturn

from vramledger.errors import InputError, SourceError, shorter
from vramledger.models.sources.bounded_file import regular_file_bytes
from vramledger.telemetry.snapshots.plain_pickle import load_plain
from vramledger.telemetry.snapshots.snapshot import Block, BlockState, FailedRequest, Segment, Snapshot

MOST_BLOCKS = 20_000_000
MOST_EVENTS = 50_000_000
LARGEST = 2**63
_STATES = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING,
    "active_awaiting_free": BlockState.PENDING,
    "inactive": BlockState.FREE,
}


def read_snapshot(path: str | PathLike[str]) -> Snapshot:
    """The snapshot in a file that `torch.cuda.memory._dump_snapshot` or a pickle of `_snapshot()` wrote.

    Raises SourceError for a file that cannot be read, InputError for what is no snapshot, is cut, holds more than plain values or
    sizes that cannot be.
    """
    where = fspath(path)
    size_bytes = regular_file_bytes(Path(where))
    try:
        with Path(where).open("rb") as stream:
            content = load_plain(stream, where=where, size_bytes=size_bytes)
    except OSError as problem:
        raise SourceError(f"{where} cannot be read: {problem.strerror or problem}", file=where) from None
    return snapshot_of(content, where=where)


def snapshot_of(content: Any, *, where: str) -> Snapshot:
    """The snapshot in plain values; a bare list is the segments alone, as PyTorch 1.11 wrote it. Raises InputError."""
    return _Reader(where).snapshot(content)


class _Reader:
    def __init__(self, where: str) -> None:
        self.where = where
        self.blocks = 0
        self.events = 0
        self.actions: Counter[str] = Counter()
        self.frames: dict[int, str] = {}
        self.unknown: Counter[str] = Counter()

    def snapshot(self, content: Any) -> Snapshot:
        if isinstance(content, list):
            content = {"segments": content}
        if not isinstance(content, dict) or not isinstance(content.get("segments"), list):
            self.fail("snapshot", content, "a table with a list of segments")
        segments = tuple(self.segment(item, index) for index, item in enumerate(content["segments"]))
        failures = tuple(self.failures(content.get("device_traces", [])))
        settings = content.get("allocator_settings", {})
        notes = [
            f"{count:,} blocks in state {name!r}, which is not known here, are counted as allocated"
            for name, count in self.unknown.items()
        ]
        return Snapshot(
            segments=segments,
            failures=failures,
            settings=tuple((str(key)[:100], shorter(value)) for key, value in settings.items())
            if isinstance(settings, dict)
            else (),
            history_events=tuple(sorted(self.actions.items())),
            notes=tuple(notes),
        )

    def segment(self, item: Any, index: int) -> Segment:
        place = f"segments[{index}]"
        table: dict[Any, Any] = self.table(item, place)
        size = self.count(table.get("total_size"), f"{place}.total_size")
        address = self.count(table.get("address", 0), f"{place}.address")
        blocks = []
        position = address
        listed = table.get("blocks", [])
        if not isinstance(listed, list):
            self.fail(f"{place}.blocks", listed, "a list")
        for number, entry in enumerate(listed):
            self.blocks += 1
            if self.blocks > MOST_BLOCKS:
                raise InputError(f"{self.where} has more than {MOST_BLOCKS:,} blocks", file=self.where)
            block = self.block(entry, f"{place}.blocks[{number}]", position)
            blocks.append(block)
            position = block.address + block.size_bytes
        if sum(block.size_bytes for block in blocks) != size:
            raise InputError(
                f"{self.where}: the blocks of {place} take {sum(block.size_bytes for block in blocks):,} bytes of "
                f"{size:,}; the file is cut or was changed",
                file=self.where,
                key=f"{place}.blocks",
            )
        pool: Any = table.get("segment_pool_id", (0, 0))
        if not (isinstance(pool, tuple | list) and len(pool) == 2):
            self.fail(f"{place}.segment_pool_id", pool, "two numbers")
        return Segment(
            device=self.count(table.get("device", 0), f"{place}.device"),
            address=address,
            size_bytes=size,
            stream=self.count(table.get("stream", 0), f"{place}.stream"),
            pool=(
                self.count(pool[0], f"{place}.segment_pool_id"),
                self.count(pool[1], f"{place}.segment_pool_id"),
            ),
            is_small=table.get("segment_type") == "small",
            is_expandable=table.get("is_expandable") is True,
            blocks=tuple(blocks),
        )

    def block(self, item: Any, place: str, position: int) -> Block:
        table = self.table(item, place)
        size = self.count(table.get("size"), f"{place}.size")
        history = table.get("history")
        frames, requested = table.get("frames"), table.get("requested_size")
        if isinstance(history, list) and history and isinstance(history[0], dict):  # PyTorch 1.11 to 2.0
            frames = history[0].get("frames", frames)
            requested = history[0].get("real_size", requested)
        name = table.get("state")
        state = _STATES.get(name) if isinstance(name, str) else None
        if state is None:
            if not isinstance(name, str):
                self.fail(f"{place}.state", name, "a text")
            self.unknown[name[:40]] += 1
            state = BlockState.ALLOCATED
        # The old files leave a freed block's last size behind.
        asked = size if requested is None else self.count(requested, f"{place}.requested_size")
        return Block(
            self.count(table.get("address", position), f"{place}.address"),
            size,
            0 if state is BlockState.FREE else min(asked, size),
            state,
            self.frame(frames) if state is not BlockState.FREE else "",
        )

    def failures(self, traces: Any) -> Iterator[FailedRequest]:
        if not isinstance(traces, list):
            return
        for device, events in enumerate(traces):
            if not isinstance(events, list):
                continue
            for number, event in enumerate(events):
                self.events += 1
                if self.events > MOST_EVENTS:
                    raise InputError(f"{self.where} has more than {MOST_EVENTS:,} events", file=self.where)
                if not isinstance(event, dict):
                    self.fail(f"device_traces[{device}][{number}]", event, "a table")
                action = event.get("action")
                self.actions[action[:40] if isinstance(action, str) else "unknown"] += 1
                if action != "oom":
                    continue
                place = f"device_traces[{device}][{number}]"
                free, at = event.get("device_free"), event.get("time_us")
                yield FailedRequest(
                    device=device,
                    size_bytes=self.count(event.get("size"), f"{place}.size"),
                    device_free_bytes=None if free is None else self.count(free, f"{place}.device_free"),
                    at_us=at if type(at) is int and 0 <= at < LARGEST else None,
                    frame=self.frame(event.get("frames") or event.get("cpp_frames")),
                )

    def frame(self, frames: Any) -> str:
        """The innermost frame that is not PyTorch's own; equal stacks are one list in a pickle, and looked at once."""
        if not isinstance(frames, list) or not frames:
            return ""
        known = self.frames.get(id(frames))
        if known is None:
            known = self.frames[id(frames)] = next(filter(None, map(_frame_text, frames[:200])), "")
        return known

    def table(self, item: Any, place: str) -> dict[Any, Any]:
        if not isinstance(item, dict):
            self.fail(place, item, "a table")
        found: dict[Any, Any] = item
        return found

    def count(self, value: Any, place: str) -> int:
        if type(value) is not int or not 0 <= value < LARGEST * 2:
            self.fail(place, value, "a whole number of at least 0")
        number: int = value
        return number

    def fail(self, place: str, value: Any, wanted: str) -> NoReturn:
        raise InputError(
            f"{self.where} is no allocator snapshot: {place} should be {wanted}, not {shorter(value)}",
            file=self.where,
            key=place,
            value=shorter(value),
        )


def _frame_text(frame: Any) -> str:
    if not isinstance(frame, dict):
        return ""
    file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
    if not (isinstance(file, str) and isinstance(name, str)):
        return ""
    if not file or file == "??" or "/torch/" in file or file.startswith("torch/"):
        return ""
    # One's own frames are Python's; what is left of C++ frames has no source file.
    if not file.endswith(".py"):
        return ""
    short = "/".join(file.split("/")[-3:])
    return f"{short[-100:]}:{line if type(line) is int else '?'}:{name[:80]}"
