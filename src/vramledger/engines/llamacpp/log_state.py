"""The buffers of one start-up of llama.cpp: of each model file, and of each context made for it.

Lines say only which device and what kind. Which model and which cache they are of follows from the lines before.
"""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.engines.log_facts import count_of, size_of, text_of
from vramledger.ledger import ByteRange
from vramledger.observation import Event, Observation

_CONTEXT_KINDS = ("KV", "windowed KV", "indexer key", "RS", "output", "input", "compute")


class Buffer:
    """A buffer and the line that named it last."""

    __slots__ = ("kind", "line", "size", "where")

    def __init__(self, where: str, kind: str, size: ByteRange, line: Observation) -> None:
        self.where, self.kind, self.size, self.line = where, kind, size, line

    @property
    def name(self) -> str:
        """As the ledger names it: "CUDA0 KV buffer"."""
        return f"{self.where} {self.kind} buffer".lstrip()


class Loaded:
    """One model file with the contexts made for it."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.weights: dict[tuple[str, str], Buffer] = {}
        self.contexts: list[dict[tuple[str, str], Buffer]] = []
        self.caches: list[list[tuple[Observation, str]]] = []

    def open_context(self) -> None:
        if not self.contexts or self.contexts[-1]:
            self.contexts.append({})
            self.caches.append([])

    @property
    def main(self) -> int:
        """The context that serves: the first whose graph was reserved."""
        whole = (at for at, found in enumerate(self.contexts) if any(kind == "compute" for _, kind in found))
        return next(whole, len(self.contexts) - 1)


class State:
    """What the lines of one start-up add up to."""

    def __init__(self) -> None:
        self.models: list[Loaded] = []
        self.settings: dict[str, str] = {}
        self.cache = ""

    @property
    def model(self) -> Loaded:
        if not self.models:
            self.models.append(Loaded(None))
        return self.models[-1]

    def take(self, item: Observation) -> None:
        if item.event is Event.MODEL:
            self._model(item)
        elif item.event is Event.WARMUP:
            self._warmup(item)
        elif item.event is Event.SETTINGS:
            self._settings(item)
        elif item.event is Event.BUFFER:
            self._buffer(item)
        elif item.event in (Event.KV_POOL, Event.STATE_POOL) and self.model.contexts:
            self.model.caches[-1].append((item, self.cache))

    def _model(self, item: Observation) -> None:
        path = text_of(item, "model")
        if path is None or "tensors_count" not in item.values:
            return
        known = next((model for model in self.models if model.path == path), None)
        if known is not None and known is not self.models[-1]:
            self.models.remove(known)
        elif known is not None:
            self.models.pop()
        self.models.append(Loaded(path))

    def _warmup(self, item: Observation) -> None:
        if item.values.get("step") == "context":
            self.model.open_context()
            self.cache = ""
        elif item.values.get("step") == "cache":
            name = (text_of(item, "cache") or "").strip()
            self.cache = {"SWA": "windowed KV", "indexer": "indexer key", "lid": "indexer key"}.get(name, "")

    def _settings(self, item: Observation) -> None:
        for name, value in item.values.items():
            if name == "n_seq_max" or (name == "n_ctx" and "n_ctx" in self.settings):
                self.model.open_context()
            if isinstance(value, str) and name not in ("command", "request") and len(self.models) <= 1:
                self.settings[name] = value

    def _buffer(self, item: Observation) -> None:
        size, kind = size_of(item, "size_bytes"), text_of(item, "buffer")
        if size is None:
            whole = count_of(item, "size_bytes")
            size = None if whole is None else ByteRange.exact(whole)
        if size is None or kind is None:
            return
        where = text_of(item, "where") or (
            "CPU" if kind != "projector" else self.settings.get("projector_backend", "")
        )
        if kind == "KV" and self.cache:
            kind = self.cache
        if kind not in _CONTEXT_KINDS:
            self.model.weights[where, kind] = Buffer(where, kind, size, item)
            return
        if not self.model.contexts:
            self.model.open_context()
        found = self.model.contexts[-1]
        known = found.get((where, kind))
        rough = item.values.get("rounded_by") is not None
        if known is None or kind in ("compute", "output"):
            if known is None or not rough:
                found[where, kind] = Buffer(where, kind, size, item)
        elif not rough:
            found[where, kind] = Buffer(where, kind, known.size + size, item)


def state_of(said: Iterable[Observation]) -> State:
    """The state after all lines of a start-up."""
    state = State()
    for item in said:
        state.take(item)
    return state


def is_host(where: str) -> bool:
    """Whether a buffer's name is one of host memory: CPU, CPU_Mapped, CPU_REPACK, CUDA_Host, AMX."""
    return where.startswith(("CPU", "AMX", "BLAS")) or where.endswith("_Host")


def device_of(where: str) -> str:
    """The device of a buffer's name: "CUDA0_Split" lies on CUDA0, "Metal_Mapped" on Metal."""
    return where.partition("_")[0]
