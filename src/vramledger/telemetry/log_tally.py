"""What became of the bytes of a log: how many were read, and what could not be."""

from __future__ import annotations

from msgspec import Struct


class SourceTally(Struct, kw_only=True):
    """One file or stream. `from_s` and `until_s` are the first and last time printed in it."""

    name: str
    size_bytes: int = 0
    lines: int = 0
    dropped_bytes: int = 0
    long_lines: int = 0
    undecodable_lines: int = 0
    nul_bytes: int = 0
    cut: str = ""
    ends_in_line: bool = False
    sampled: str = ""
    sha256: str | None = None
    from_s: float | None = None
    until_s: float | None = None


class LogTally(Struct, kw_only=True):
    """All sources of one reading, and the engines whose signs were found, in the order in which they were."""

    sources: list[SourceTally] = []
    engines: list[str] = []

    def notes(self) -> list[str]:
        """What was not read, in words; empty where all was."""
        out = []
        for source in self.sources:
            if source.cut:
                out.append(f"{source.name}: {source.cut}")
            if source.dropped_bytes:
                out.append(
                    f"{source.name}: {source.long_lines:,} lines were longer than read here; "
                    f"{source.dropped_bytes:,} bytes of them were passed over"
                )
            if source.undecodable_lines:
                out.append(f"{source.name}: {source.undecodable_lines:,} lines hold bytes that are not UTF-8")
            if source.nul_bytes:
                out.append(f"{source.name}: {source.nul_bytes:,} NUL bytes were passed over")
            if source.sampled:
                out.append(f"{source.name}: {source.sampled}")
            if source.ends_in_line:
                out.append(f"{source.name}: ends within a line")
        return out
