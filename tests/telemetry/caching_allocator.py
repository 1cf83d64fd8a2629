"""A small caching allocator after PyTorch's rules, which writes what it holds in the layout of a snapshot."""

from __future__ import annotations

from typing import Any

from vramledger.engines.allocator import MIN_BLOCK, SMALL, segment_bytes
from vramledger.units import MIB, round_up


class CachingAllocator:
    """Best fit over free blocks, split and merged as CUDACachingAllocator does; addresses from a counter."""

    def __init__(self) -> None:
        self.segments: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._next = 0x7F00_0000_0000

    def malloc(self, size: int, *, pool: tuple[int, int] = (0, 0), frame: str = "model.py") -> int:
        wanted = max(round_up(size, MIN_BLOCK), MIN_BLOCK)
        small = wanted <= SMALL
        best = min(
            (
                (block["size"], block["address"], segment, block)
                for segment in self.segments
                if segment["segment_pool_id"] == pool and (segment["segment_type"] == "small") == small
                for block in segment["blocks"]
                if block["state"] == "inactive" and block["size"] >= wanted
            ),
            key=lambda item: item[:2],
            default=None,
        )
        if best is None:
            total = segment_bytes(wanted)
            block: dict[str, Any] = {
                "address": self._next,
                "size": total,
                "requested_size": 0,
                "state": "inactive",
            }
            segment: dict[str, Any] = {
                "device": 0, "address": self._next, "total_size": total, "stream": 0, "is_expandable": False,
                "segment_type": "small" if small else "large", "segment_pool_id": pool, "blocks": [block],
            }  # fmt: skip
            self._next += round_up(total, 2 * MIB) + 2 * MIB
            self.segments.append(segment)
        else:
            _, _, segment, block = best
        rest = block["size"] - wanted
        if rest >= MIN_BLOCK if small else rest > SMALL:
            where = segment["blocks"].index(block) + 1
            segment["blocks"].insert(
                where,
                {
                    "address": block["address"] + wanted,
                    "size": rest,
                    "requested_size": 0,
                    "state": "inactive",
                },
            )
            block["size"] = wanted
        block["state"] = "active_allocated"
        block["requested_size"] = size
        block["frames"] = [
            {
                "filename": "/usr/lib/python3/site-packages/torch/nn/modules/linear.py",
                "line": 1,
                "name": "forward",
            },
            {"filename": f"/srv/app/{frame}", "line": 7, "name": "load"},
        ]
        self.events.append(
            {"action": "alloc", "addr": block["address"], "size": wanted, "stream": 0, "time_us": 1}
        )
        return int(block["address"])

    def free(self, address: int) -> None:
        for segment in self.segments:
            blocks = segment["blocks"]
            for index, block in enumerate(blocks):
                if block["address"] == address and block["state"] == "active_allocated":
                    block.update(state="inactive", requested_size=0)
                    block.pop("frames", None)
                    for left in (index, index - 1):
                        if 0 <= left < len(blocks) - 1 and all(
                            item["state"] == "inactive" for item in blocks[left : left + 2]
                        ):
                            blocks[left]["size"] += blocks.pop(left + 1)["size"]
                    return
        raise KeyError(address)

    def empty_cache(self) -> None:
        self.segments = [
            segment
            for segment in self.segments
            if segment["segment_pool_id"] != (0, 0)
            or any(b["state"] != "inactive" for b in segment["blocks"])
        ]

    def fail(self, size: int, device_free: int) -> None:
        self.events.append(
            {"action": "oom", "device_free": device_free, "size": size, "stream": 0, "time_us": 5_000_000}
        )

    def snapshot(self) -> dict[str, Any]:
        return {
            "segments": self.segments,
            "device_traces": [self.events],
            "allocator_settings": {"max_split_size": -1, "expandable_segments": False},
        }
