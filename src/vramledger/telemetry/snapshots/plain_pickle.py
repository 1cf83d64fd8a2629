"""A pickle that may hold plain values only: None, booleans, numbers, texts, bytes, lists, tuples and dictionaries.

An opcode that would name, build or call anything else is refused before it runs. The interpreter is the standard library's own
in Python, with all other opcodes taken out of its table: unlike the one in C, its memory of earlier values is a dictionary, so a
file cannot ask for a table of a size that it names.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from vramledger.errors import InputError

LARGEST_FILE_BYTES = 2 * 2**30

_PLAIN = """
PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE
INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8
EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
EMPTY_DICT DICT SETITEM SETITEMS GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE
"""
_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}


class NotPlain(InputError):
    """A pickle that holds, or would build, something that is no plain value."""

    code = "input"


def load_plain(stream: BinaryIO, *, where: str, size_bytes: int) -> Any:
    """The value of a pickle of `size_bytes`; `where` names it in errors.

    Raises NotPlain for an opcode that is not of the plain ones, with its name and offset, and InputError for what is no pickle, is cut
    or is larger than 2 GiB.
    """
    if size_bytes > LARGEST_FILE_BYTES:
        raise InputError(
            f"{where} has {size_bytes:,} bytes; snapshots of up to {LARGEST_FILE_BYTES:,} are read",
            file=where,
            size_bytes=size_bytes,
        )
    reader = _PlainUnpickler(stream, where)
    try:
        return reader.load()
    except NotPlain:
        raise
    except (
        pickle.UnpicklingError, struct.error, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError,
        MemoryError, UnicodeError,
    ) as problem:  # fmt: skip
        reason = str(problem) or type(problem).__name__
        raise InputError(
            f"{where} is no whole pickle: {reason[:200]}; write one with torch.cuda.memory._dump_snapshot(path)",
            file=where,
            reason=reason[:200],
        ) from None


class _Refusals(dict[int, Callable[[Any], None]]):
    """The opcode table; what it lacks is refused by name."""

    def __missing__(self, code: int) -> Callable[[Any], None]:
        name = _NAMES.get(code)

        def refuse(reader: _PlainUnpickler) -> None:
            reader.refuse(f"opcode {name}" if name else f"byte 0x{code:02x}", known=name is not None)

        return refuse


class _PlainUnpickler(pickle._Unpickler):
    """Runs the plain opcodes and no other."""

    dispatch = _Refusals(
        {
            ord(op.code): pickle._Unpickler.dispatch[ord(op.code)]
            for op in pickletools.opcodes
            if op.name in set(_PLAIN.split())
        }
    )

    def __init__(self, stream: BinaryIO, where: str) -> None:
        self._stream = stream
        self._where = where
        super().__init__(stream)

    def refuse(self, what: str, *, known: bool) -> None:
        offset = self._stream.tell() if self._stream.seekable() else -1
        if not known:
            raise pickle.UnpicklingError(f"{what} is no opcode of a pickle")
        raise NotPlain(
            f"{self._where} is refused: {what} (before byte {offset:,}) would build more than plain values; "
            "an allocator snapshot holds lists, dictionaries, texts and numbers only",
            file=self._where,
            opcode=what,
            offset_bytes=offset,
        )

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise NotPlain(f"{self._where} is refused: it names {module_name}.{global_name}", file=self._where)
