"""Values of a GGUF header, read in order through a small window and never beyond the file."""

from __future__ import annotations

import struct

from msgspec import Struct

from vramledger.errors import HeaderError
from vramledger.models.sources.bounded_file import ReadAt, quote

WINDOW_BYTES = 2**20
MAX_HEADER_BYTES = 2**30
MAX_NAME_BYTES = 65_535
MAX_TEXT_BYTES = 16 * 2**20
KEPT_TEXT_BYTES = 65_536
KEPT_ITEMS = 4096
KEPT_TEXTS = 64
# Strings and nested arrays have to be stepped over one by one; the largest tokenizers have below 1 M of them.
MAX_STEPS = 4_000_000
MAX_NESTING = 4


class Array(Struct, frozen=True, kw_only=True):
    """An array that was counted and not kept: a tokenizer's tokens, scores, merges."""

    item_type: str
    length: int


class Text(Struct, frozen=True, kw_only=True):
    """A text that was measured and not kept."""

    length_bytes: int


GgufValue = int | float | bool | str | Array | Text | tuple["GgufValue", ...]

_SCALARS = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_TYPE_NAMES = {number: name for number, (name, _) in _SCALARS.items()} | {_STRING: "string", _ARRAY: "array"}


class GgufReader:
    """Reads one header front to back. Every method raises HeaderError at the end of the file."""

    def __init__(self, read_at: ReadAt, file_bytes: int, where: str) -> None:
        self._read_at = read_at
        self._limit = min(file_bytes, MAX_HEADER_BYTES)
        self._where = where
        self._window = b""
        self._window_at = 0
        self._steps = 0
        self._order = "<"
        self.position = 0
        self.big_endian = False

    def start(self) -> int:
        """Magic and version; the version tells the byte order."""
        magic = self.take(4)
        if magic != b"GGUF":
            raise self._fail(f"does not start with GGUF but with {quote(magic)}")
        raw = self.take(4)
        version = int.from_bytes(raw, "little")
        if version & 0xFFFF == 0:
            self.big_endian, self._order = True, ">"
            version = int.from_bytes(raw, "big")
        if version not in (2, 3):
            raise self._fail(f"has GGUF version {version}; 2 and 3 are read", "version", version)
        return version

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self.position
        self._move(size)
        at = start - self._window_at
        if at < 0 or at + size > len(self._window):
            self._window = self._read_at(start, min(max(size, WINDOW_BYTES), self._limit - start))
            self._window_at = start
            at = 0
            if len(self._window) < size:
                raise self._fail(f"is cut short: {size} bytes at {start} could not be read")
        return self._window[at : at + size]

    def _move(self, size: int) -> None:
        if size > self._limit - self.position:
            raise self._fail(
                f"is cut short or states a length that cannot be: {size} bytes are needed at {self.position}"
                f" and {self._limit - self.position} are left"
            )
        self.position += size

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big" if self.big_endian else "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "big" if self.big_endian else "little")

    def check_count(self, what: str, count: int, most: int, least_bytes: int) -> None:
        """Refuse a count that is beyond `most` or that the rest of the file cannot hold."""
        if count > most or count * least_bytes > self._limit - self.position:
            raise self._fail(f"states {count} {what}, more than it can hold", what, count)

    def name(self, what: str) -> str:
        """A length and that many bytes of UTF-8."""
        length = self.u64()
        if length > MAX_NAME_BYTES:
            raise self._fail(f"states {length} bytes for {what}", what, length)
        return self._decode(self.take(length), what)

    def value(self, key: str) -> GgufValue:
        """A metadata value with its type before it. Long texts and arrays are stepped over."""
        return self._value(self.u32(), key, 0)

    def _value(self, kind: int, key: str, depth: int) -> GgufValue:
        if kind in _SCALARS:
            return self._scalars(kind, 1, key)[0]
        if kind == _STRING:
            return self._text(key)
        if kind == _ARRAY:
            return self._array(key, depth + 1)
        raise self._fail(f"{quote(key)} has the value type {kind}, which GGUF does not have", key, kind)

    def _scalars(self, kind: int, count: int, key: str) -> tuple[int | float | bool, ...]:
        letter = _SCALARS[kind][1]
        values: tuple[int | float, ...] = struct.unpack(
            f"{self._order}{count}{letter}", self.take(count * struct.calcsize("=" + letter))
        )
        if kind != _BOOL:
            return values
        if any(value > 1 for value in values):
            raise self._fail(f"{quote(key)} is a truth value other than 0 and 1", key)
        return tuple(bool(value) for value in values)

    def _text(self, key: str) -> str | Text:
        length = self.u64()
        if length > MAX_TEXT_BYTES:
            raise self._fail(f"{quote(key)} states a text of {length} bytes", key, length)
        if length > KEPT_TEXT_BYTES:
            self._move(length)
            return Text(length_bytes=length)
        return self._decode(self.take(length), key)

    def _array(self, key: str, depth: int) -> GgufValue:
        if depth > MAX_NESTING:
            raise self._fail(f"{quote(key)} nests arrays more than {MAX_NESTING} deep", key)
        kind, count = self.u32(), self.u64()
        if kind in _SCALARS:
            size = struct.calcsize("=" + _SCALARS[kind][1])
            if count <= KEPT_ITEMS:
                return self._scalars(kind, count, key)
            self._move(size * count)
        elif kind in (_STRING, _ARRAY):
            self._steps += count
            if self._steps > MAX_STEPS or count * 8 > self._limit - self.position:
                raise self._fail(
                    f"{quote(key)} states an array of {count} items, more than it can hold", key, count
                )
            if count <= KEPT_TEXTS:
                return tuple(self._value(kind, key, depth) for _ in range(count))
            if kind == _STRING:
                self._skip_texts(count)
            else:
                for _ in range(count):
                    self._array(key, depth + 1)
        else:
            raise self._fail(
                f"{quote(key)} is an array of the type {kind}, which GGUF does not have", key, kind
            )
        return Array(item_type=_TYPE_NAMES[kind], length=count)

    def _skip_texts(self, count: int) -> None:
        length_at = struct.Struct(self._order + "Q").unpack_from
        while count:
            # Steps inside the window are all that a large vocabulary costs.
            self.take(8)
            self.position -= 8
            window, at = self._window, self.position - self._window_at
            stop = len(window) - 8
            while count and at <= stop:
                at += 8 + length_at(window, at)[0]
                count -= 1
            self._move(at + self._window_at - self.position)

    def _decode(self, raw: bytes, what: str) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._fail(f"{quote(what)} is not UTF-8: {quote(raw)}", what) from None

    def _fail(self, problem: str, key: str | None = None, value: object = None) -> HeaderError:
        return HeaderError(f"{self._where} {problem}", file=self._where, key=key, value=value)
