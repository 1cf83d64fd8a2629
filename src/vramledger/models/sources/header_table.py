"""A checkpoint's tensors by name template, element type and shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from msgspec import Struct

from vramledger.models.sources.names import compress, index_position


class TensorEntry(Struct, frozen=True, kw_only=True):
    """One tensor of one file. `begin` and `end` are offsets in bytes into the file's data; `dtype` is the file's own name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class HeaderRow(Struct, frozen=True, kw_only=True):
    """Tensors whose names differ only in their indices and that share an element type and a shape.

    `template` has `{}` for each index (see names.py), `layers` holds the values of the first one in ascending
    runs, `dtype` is the file format's own name of the type, `tensor_bytes` is the size of each.
    """

    template: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    layers: tuple[range, ...]
    tensor_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.count * self.tensor_bytes

    @property
    def total_elements(self) -> int:
        return self.count * prod(self.shape)

    @property
    def num_layers(self) -> int:
        """How many values the first index takes, 0 where the names have none."""
        return sum(len(run) for run in self.layers)


class HeaderFile(Struct, frozen=True, kw_only=True):
    """One file. `data_bytes` is everything after the header, `header_bytes` everything before it."""

    name: str
    file_bytes: int | None
    header_bytes: int
    data_bytes: int
    tensor_count: int
    metadata: tuple[tuple[str, str], ...] = ()


class HeaderTable(Struct, frozen=True, kw_only=True):
    """All tensors of a checkpoint. Sums are exact; `notes` says what is odd about the files."""

    rows: tuple[HeaderRow, ...]
    files: tuple[HeaderFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def tensor_count(self) -> int:
        return sum(row.count for row in self.rows)

    @property
    def total_elements(self) -> int:
        """Elements as the headers count them: a packed 4-bit tensor stored as U8 counts its bytes."""
        return sum(row.total_elements for row in self.rows)

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors, without headers and gaps."""
        return sum(row.total_bytes for row in self.rows)

    @property
    def data_bytes(self) -> int:
        """Bytes of the files' data sections, gaps included."""
        return sum(file.data_bytes for file in self.files)

    @property
    def file_bytes(self) -> int | None:
        """Bytes of the files on disk, None where the size of one is not known."""
        sizes = [file.file_bytes for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def bytes_by_dtype(self) -> dict[str, int]:
        """Bytes of each of the format's element types, largest first."""
        sums: Counter[str] = Counter()
        for row in self.rows:
            sums[row.dtype] += row.total_bytes
        return dict(sums.most_common())

    def elements_by_dtype(self) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for row in self.rows:
            sums[row.dtype] += row.total_elements
        return dict(sums.most_common())

    def has(self, template: str) -> bool:
        """Whether there is a tensor of this name, or of names with this template."""
        return any(row.template == template for row in self.rows)


class RowBuilder:
    """A row while headers are read."""

    __slots__ = ("count", "indices", "position", "tensor_bytes")

    def __init__(self, name: str, template: str, tensor_bytes: int = 0) -> None:
        self.tensor_bytes = tensor_bytes
        self.position = index_position(name, template)
        self.count = 0
        self.indices: set[str] = set()

    def add(self, name: str) -> None:
        self.count += 1
        start = self.position
        if start >= 0:
            stop = name.find(".", start)
            self.indices.add(name[start:stop] if stop > 0 else name[start:])


def build_rows(rows: Mapping[tuple[str, str, tuple[int, ...]], RowBuilder]) -> tuple[HeaderRow, ...]:
    """Finished rows, sorted by template, type and shape."""
    return tuple(
        HeaderRow(
            template=template,
            dtype=dtype,
            shape=shape,
            count=row.count,
            layers=compress(row.indices),
            tensor_bytes=row.tensor_bytes,
        )
        for (template, dtype, shape), row in sorted(rows.items())
    )


def stored_twice(rows: Iterable[HeaderRow]) -> list[str]:
    """Notes about names that more than one file holds, where counts can tell: names of at most one index."""
    counts: Counter[str] = Counter()
    indices: dict[str, set[int]] = {}
    for row in rows:
        if row.template.count("{}") <= 1:
            counts[row.template] += row.count
            indices.setdefault(row.template, set()).update(*row.layers)
    return [
        f"{template} is stored more than once ({count} tensors for {max(1, len(indices[template]))} name(s))"
        for template, count in counts.items()
        if count > max(1, len(indices[template]))
    ]
