"""The XML of `nvidia-smi -q -x`, read as a stream of events; a document that declares entities is refused, and none outside it
is ever fetched.

Seen formats: nvsmi_device_v11.dtd and v12 (drivers 470 to 570).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.parsers import expat

from msgspec import Struct, field
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.telemetry.adapters.smi_reading import SmiLook
from vramledger.telemetry.adapters.smi_values import (
    LONGEST_NAME,
    printed_count,
    printed_size,
    printed_time,
)
from vramledger.telemetry.probes.nvml import DeviceProcess, DeviceReading

MOST_DEPTH = 60
MOST_ELEMENTS = 5_000_000
LONGEST_TEXT = 4_096
_SIZES = {
    "total": "total_bytes",
    "used": "used_bytes",
    "free": "free_bytes",
    "reserved": "reserved_bytes",
}
_ROOT = b"<nvidia_smi_log"


class _Gpu(Struct):
    """A device, or one of its instances, while its elements come."""

    sizes: dict[str, int | None] = field(default_factory=dict)
    uuid: str = ""
    name: str = ""
    number: int | None = None
    processes: list[DeviceProcess] = field(default_factory=list)
    instances: list[_Gpu] = field(default_factory=list)


class _Refusal(Exception):
    pass


def xml_looks(body: bytes, source: str) -> tuple[SmiLook, ...]:
    """The looks in one document, or in several one after another. Raises InputError for what is no XML of nvidia-smi."""
    looks = []
    for document in _documents(body):
        reader = _Reader()
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = reader.begin
        parser.EndElementHandler = reader.end
        parser.CharacterDataHandler = reader.text
        parser.EntityDeclHandler = _no_entities
        try:
            parser.Parse(document, True)
        except expat.ExpatError as problem:
            raise InputError(
                f"{source} is no XML of nvidia-smi: {expat.errors.messages[problem.code]} (line {problem.lineno} of "
                f"the document)",
                file=source,
            ) from None
        except _Refusal as problem:
            raise InputError(f"{source} is no XML of nvidia-smi: {problem}", file=source) from None
        looks.append(reader.look())
    return tuple(look for look in looks if look.devices)


def _documents(body: bytes) -> list[bytes]:
    """A loop prints document after document; each begins where its declaration does."""
    if body.count(_ROOT) <= 1:
        return [body]
    mark = b"<?xml" if body.count(b"<?xml") > 1 else _ROOT
    starts: list[int] = []
    at = body.find(mark)
    while at >= 0 and len(starts) < 1_000_000:
        starts.append(at)
        at = body.find(mark, at + 1)
    return [body[start:end] for start, end in zip(starts, [*starts[1:], len(body)], strict=True)]


def _no_entities(*_: object) -> None:
    raise _Refusal("it declares entities")


class _Reader:
    """Takes the events of one document."""

    def __init__(self) -> None:
        self._path: list[str] = []
        self._text = ""
        self._elements = 0
        self._gpus: list[_Gpu] = []
        self._at_s: float | None = None
        self._driver = ""

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path and name != "nvidia_smi_log":
            raise _Refusal(f"its root is {name[:60]!r}")
        self._elements += 1
        self._path.append(name)
        if len(self._path) > MOST_DEPTH or self._elements > MOST_ELEMENTS:
            raise _Refusal("it is deeper or longer than any of them")
        self._text = ""
        if self._path == ["nvidia_smi_log", "gpu"]:
            self._gpus.append(_Gpu(uuid=attributes.get("id", "")[:LONGEST_NAME]))
        elif name == "mig_device" and self._gpus:
            self._gpus[-1].instances.append(_Gpu())
        elif name == "process_info" and self._gpus:
            self._gpus[-1].processes.append(DeviceProcess(pid=0))

    def text(self, data: str) -> None:
        self._text = (self._text + data)[:LONGEST_TEXT]

    def end(self, name: str) -> None:
        text, self._text = self._text.strip(), ""
        path = self._path[1:]
        self._path.pop()
        if path == ["timestamp"]:
            self._at_s = printed_time(text)
        elif path == ["driver_version"]:
            self._driver = text[:40]
        elif path[:1] == ["gpu"] and self._gpus:
            self._take(self._gpus[-1], path[1:], name, text)

    def _take(self, gpu: _Gpu, path: list[str], name: str, text: str) -> None:
        holder = gpu.instances[-1] if "mig_device" in path and gpu.instances else gpu
        if path[-2:-1] == ["fb_memory_usage"] and name in _SIZES:
            holder.sizes[_SIZES[name]] = printed_size(text)
        elif path == ["product_name"]:
            gpu.name = text[:LONGEST_NAME]
        elif path == ["uuid"]:
            gpu.uuid = text[:LONGEST_NAME]
        elif path[-2:] == ["mig_device", "index"]:
            holder.number = printed_count(text)
        elif path[-2:-1] == ["process_info"] and gpu.processes:
            last = gpu.processes[-1]
            changes: dict[str, Callable[[str], Any]] = {
                "pid": lambda value: {"pid": printed_count(value) or 0},
                "process_name": lambda value: {"name": value[:LONGEST_NAME]},
                "used_memory": lambda value: {"used_bytes": printed_size(value)},
            }
            if name in changes:
                gpu.processes[-1] = replace(last, **changes[name](text))

    def look(self) -> SmiLook:
        readings = []
        for index, gpu in enumerate(self._gpus):
            processes = tuple(process for process in gpu.processes if process.pid)
            whole = DeviceReading(index=index, name=gpu.name, uuid=gpu.uuid, processes=processes)
            readings.append(replace(whole, **gpu.sizes))
            readings += [
                replace(DeviceReading(index=index, instance=instance.number, name=gpu.name), **instance.sizes)
                for instance in gpu.instances
                if instance.number is not None
            ]
        return SmiLook(devices=tuple(readings), at_s=self._at_s, driver=self._driver)
