"""Bytes a graph's scratch takes on each device: ggml's own graph allocator, replayed on shapes.

Source: ggml-alloc.c (ggml_gallocr_alloc_graph_impl, ggml_dyn_tallocr_*), ggml-backend.cpp
(ggml_backend_sched_split_graph: copies of what a device reads from another) of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.engines.llamacpp.tensor_graph import HOST, INPLACE, Graph, GraphTensor
from vramledger.units import round_up

HOST_ALIGNMENT = 32
DEVICE_ALIGNMENT = 128
VIEWS = frozenset({"view", "reshape", "permute"})
_ENDLESS = 1 << 62


class _Arena:
    """Free blocks of one buffer by address, the last one endless; `peak` is the buffer's size."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.blocks: list[list[int]] = [[0, _ENDLESS]]
        self.peak = 0

    def take(self, size: int) -> int:
        """The smallest block that holds `size` (the later of equals), else the end of the buffer."""
        size = round_up(size, self.alignment)
        best = -1
        smallest = _ENDLESS
        for index in range(len(self.blocks) - 1):
            room = self.blocks[index][1]
            if size <= room <= smallest:
                best, smallest = index, room
        if best < 0:
            best = len(self.blocks) - 1
        block = self.blocks[best]
        offset = block[0]
        block[0] += size
        block[1] -= size
        if not block[1]:
            del self.blocks[best]
        self.peak = max(self.peak, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        size = round_up(size, self.alignment)
        if not size:
            return
        blocks = self.blocks
        place = 0
        while place < len(blocks) and blocks[place][0] < offset:
            place += 1
        if place and sum(blocks[place - 1]) == offset:
            blocks[place - 1][1] += size
            if place < len(blocks) and sum(blocks[place - 1]) == blocks[place][0]:
                blocks[place - 1][1] += blocks[place][1]
                del blocks[place]
        elif place < len(blocks) and offset + size == blocks[place][0]:
            blocks[place][0] = offset
            blocks[place][1] += size
        else:
            blocks.insert(place, [offset, size])


class _State:
    """What the allocator knows of one tensor."""

    __slots__ = ("device", "held", "offset", "readers", "views")

    def __init__(self) -> None:
        self.readers = 0
        self.views = 0
        self.device = HOST
        self.offset = 0
        self.held = False


def scratch_bytes(graph: Graph, *, copies: int = 1) -> Mapping[int, int]:
    """Bytes of scratch by device (HOST for the CPU backend's).

    `copies` above 1 is the scheduler with pipeline parallelism: that many copies of what crosses devices, none of
    which is reused within the graph.
    """
    nodes, first = _split(graph, copies)
    return _Allocator().run([*first, *graph.leaves], nodes)


def _split(graph: Graph, copies: int) -> tuple[list[GraphTensor], list[GraphTensor]]:
    """The nodes in order with the copies each run of one device needs before it, and the copies held throughout."""
    made: dict[tuple[int, int], GraphTensor] = {}
    order: list[GraphTensor] = []
    held: list[GraphTensor] = []
    run: list[GraphTensor] = []
    crossing: list[GraphTensor] = []

    def finish() -> None:
        order.extend(crossing)
        order.extend(run)
        crossing.clear()
        run.clear()

    device: int | None = None
    for node in graph.nodes:
        is_view = node.op in VIEWS
        if not is_view and (node.device != device or (crossing and _brings_weight(node))):
            finish()
            device = node.device
        changed = list(node.inputs)
        for position, source in enumerate(node.inputs):
            origin = source.root or source
            if is_view or origin.device == device:
                continue
            assert device is not None
            key = (id(source), device)
            if key not in made:
                made[key] = copy = GraphTensor(
                    "copy", source.shape, unit=source.unit, device=device, size_bytes=source.size_bytes
                )
                crossing.append(
                    GraphTensor("depend", source.shape, (source,), root=origin, device=origin.device)
                )
                if copies > 1:
                    copy.op = "shared"
                    held.extend(_duplicates(source, device, copies))
                    if origin.is_input and origin.op == "input":
                        origin.op = "held"
                        held.extend(_duplicates(source, origin.device, copies - 1))
                else:
                    crossing.append(copy)
            changed[position] = made[key]
        if any(new is not old for new, old in zip(changed, node.inputs, strict=True)):
            node.inputs = tuple(changed)
        run.append(node)
    finish()
    return order, held


def _duplicates(source: GraphTensor, device: int, count: int) -> list[GraphTensor]:
    """Copies that stay for the whole graph."""
    return [
        GraphTensor("held", source.shape, unit=source.unit, device=device, size_bytes=source.size_bytes)
        for _ in range(count)
    ]


def _brings_weight(node: GraphTensor) -> bool:
    """Whether a weight has to be copied for the node: a new run starts, so that the place of earlier ones is reused."""
    return any(source.op == "weight" and source.device != node.device for source in node.inputs)


class _Allocator:
    def __init__(self) -> None:
        self.arenas: dict[int, _Arena] = {}
        self.states: dict[int, _State] = {}

    def run(self, leaves: list[GraphTensor], nodes: list[GraphTensor]) -> Mapping[int, int]:
        for leaf in leaves:
            self._allocate(leaf)
        for node in nodes:
            if node.root is not None and node.op != "depend":
                self._state(node.root).views += 1
            for source in node.inputs:
                self._state(source).readers += 1
        for node in nodes:
            for source in node.inputs:
                self._allocate(source)
            self._allocate(node)
            for source in node.inputs:
                self._release(source)
        return {device: arena.peak for device, arena in self.arenas.items()}

    def _state(self, tensor: GraphTensor) -> _State:
        state = self.states.get(id(tensor))
        if state is None:
            state = self.states[id(tensor)] = _State()
        return state

    def _arena(self, device: int) -> _Arena:
        if device not in self.arenas:
            self.arenas[device] = _Arena(HOST_ALIGNMENT if device == HOST else DEVICE_ALIGNMENT)
        return self.arenas[device]

    def _allocate(self, tensor: GraphTensor) -> None:
        state = self._state(tensor)
        if state.held or tensor.stored or tensor.root is not None or tensor.op == "shared":
            return
        state.held = True
        if tensor.op in INPLACE and self._take_over(tensor, state):
            return
        state.device = tensor.device
        state.offset = self._arena(tensor.device).take(tensor.size_bytes)

    def _take_over(self, tensor: GraphTensor, state: _State) -> bool:
        """Whether the tensor takes the place of an argument that nobody else reads. A view's place is never taken."""
        for source in tensor.inputs:
            owner = self._state(source)
            if source.root is not None or not owner.held or not tensor.same_layout(source):
                continue
            if owner.readers == 1 and not owner.views:
                state.device, state.offset = owner.device, owner.offset
                owner.held = False
                return True
        return False

    def _release(self, tensor: GraphTensor) -> None:
        state = self._state(tensor)
        state.readers -= 1
        if state.readers or state.views:
            return
        if tensor.root is None:
            self._free(tensor, state)
            return
        owner = self._state(tensor.root)
        owner.views -= 1
        if not owner.views and not owner.readers:
            self._free(tensor.root, owner)

    def _free(self, tensor: GraphTensor, state: _State) -> None:
        if state.held and not tensor.stored and tensor.op != "held":
            self._arena(state.device).give(state.offset, tensor.size_bytes)
            state.held = False
