"""A compute graph as ggml builds it: tensors with shapes and strides, views, and the order they are computed in.

Only what decides memory is kept: no values and no parameters of operations. Source: ggml.c (ggml_new_tensor,
ggml_view_impl, ggml_permute, ggml_build_forward_expand) of llama.cpp.
"""

from __future__ import annotations

from math import prod

Shape = tuple[int, int, int, int]

HOST = -1
"""The place of what the CPU backend computes; devices count from 0."""

# Operations whose result may take the place of an argument (ggml-alloc.c, ggml_op_can_inplace).
INPLACE = frozenset(
    {
        "scale",
        "add",
        "add_id",
        "sub",
        "mul",
        "div",
        "sqr",
        "unary",
        "rope",
        "rms_norm",
        "clamp",
        "soft_max",
        "fill",
    }
)


class GraphTensor:
    """One tensor of a graph. `strides` are in bytes; `root` is the tensor a view looks into; `stored` marks what
    lies in a buffer of its own (weights, caches); `device` is where it is computed or lies."""

    __slots__ = (
        "device",
        "inputs",
        "is_input",
        "op",
        "root",
        "shape",
        "size_bytes",
        "stored",
        "strides",
        "unit",
    )

    def __init__(
        self,
        op: str,
        shape: Shape,
        inputs: tuple[GraphTensor, ...] = (),
        *,
        unit: int = 4,
        strides: Shape | None = None,
        root: GraphTensor | None = None,
        device: int = 0,
        stored: bool = False,
        is_input: bool = False,
        size_bytes: int | None = None,
    ) -> None:
        self.op = op
        self.shape = shape
        self.inputs = inputs
        self.unit = unit
        self.strides = strides or _contiguous(shape, unit)
        self.root = root
        self.device = device
        self.stored = stored
        self.is_input = is_input
        self.size_bytes = prod(shape) * unit if size_bytes is None else size_bytes

    def same_layout(self, other: GraphTensor) -> bool:
        return self.unit == other.unit and self.shape == other.shape and self.strides == other.strides


def _contiguous(shape: Shape, unit: int) -> Shape:
    return (unit, unit * shape[0], unit * shape[0] * shape[1], unit * shape[0] * shape[1] * shape[2])


def full_shape(*dims: int) -> Shape:
    """Dimensions filled up with ones."""
    padded = dims + (1,) * (4 - len(dims))
    return padded[0], padded[1], padded[2], padded[3]


class Graph:
    """Nodes in the order of computation, and the leaves they start from. `device` is where new nodes go."""

    def __init__(self) -> None:
        self.nodes: list[GraphTensor] = []
        self.leaves: list[GraphTensor] = []
        self.device = 0
        self._seen: set[int] = set()

    # Leaves.

    def input(self, *dims: int, unit: int = 4) -> GraphTensor:
        """What the engine fills in before a step: tokens, positions, masks. The CPU backend holds it."""
        return GraphTensor("input", full_shape(*dims), unit=unit, is_input=True, device=HOST)

    def weight(self, *dims: int, device: int | None = None, size_bytes: int | None = None) -> GraphTensor:
        """A tensor of the file; `size_bytes` is what a copy of it takes on another device."""
        place = self.device if device is None else device
        return GraphTensor("weight", full_shape(*dims), stored=True, device=place, size_bytes=size_bytes)

    def cache(self, *dims: int, device: int, unit: int = 4, size_bytes: int | None = None) -> GraphTensor:
        """A tensor of a cache, kept between steps."""
        return GraphTensor(
            "cache", full_shape(*dims), unit=unit, stored=True, device=device, size_bytes=size_bytes
        )

    # Operations.

    def op(self, name: str, dims: tuple[int, ...], *inputs: GraphTensor, unit: int = 4) -> GraphTensor:
        return GraphTensor(name, full_shape(*dims), inputs, unit=unit, device=self.device)

    def like(self, name: str, source: GraphTensor, *others: GraphTensor) -> GraphTensor:
        """An operation whose result has the shape of its first argument."""
        return GraphTensor(name, source.shape, (source, *others), unit=source.unit, device=self.device)

    def matmul(self, weight: GraphTensor, x: GraphTensor) -> GraphTensor:
        return self.op("mul_mat", (weight.shape[1], *x.shape[1:]), weight, x)

    def view(
        self, source: GraphTensor, dims: tuple[int, ...], strides: tuple[int, ...] = (), name: str = "view"
    ) -> GraphTensor:
        """`strides` are those of dimensions 1, 2, 3; what is not given follows from the shape."""
        shape = full_shape(*dims)
        full = [source.unit, *strides]
        while len(full) < 4:
            full.append(full[-1] * shape[len(full) - 1])
        return GraphTensor(
            name,
            shape,
            (source,),
            unit=source.unit,
            strides=(full[0], full[1], full[2], full[3]),
            root=source.root or source,
            device=source.device,
        )

    def reshape(self, source: GraphTensor, *dims: int) -> GraphTensor:
        return self.view(source, dims, name="reshape")

    def permute(self, source: GraphTensor, *order: int) -> GraphTensor:
        """Dimension i of `source` becomes dimension order[i]."""
        shape, strides = [0] * 4, [0] * 4
        for position, target in enumerate(order):
            shape[target], strides[target] = source.shape[position], source.strides[position]
        made = self.view(source, tuple(shape), name="permute")
        made.strides = (strides[0], strides[1], strides[2], strides[3])
        return made

    def transpose(self, source: GraphTensor) -> GraphTensor:
        return self.permute(source, 1, 0, 2, 3)

    def cont(self, source: GraphTensor, *dims: int) -> GraphTensor:
        return self.op("cont", dims or source.shape, source, unit=source.unit)

    def write(self, target: GraphTensor, value: GraphTensor, *others: GraphTensor) -> GraphTensor:
        """A copy into a stored tensor or a view of one: the result is a view of the target."""
        return GraphTensor(
            "write",
            target.shape,
            (value, *others, target),
            unit=target.unit,
            strides=target.strides,
            root=target.root or target,
            device=(target.root or target).device,
        )

    # Order.

    def expand(self, tensor: GraphTensor) -> None:
        """Add what `tensor` needs and itself, arguments first, from the left."""
        stack: list[tuple[GraphTensor, int]] = [(tensor, 0)]
        while stack:
            current, position = stack.pop()
            if position == 0:
                if id(current) in self._seen:
                    continue
                self._seen.add(id(current))
            if position < len(current.inputs):
                stack.append((current, position + 1))
                if id(current.inputs[position]) not in self._seen:
                    stack.append((current.inputs[position], 0))
                continue
            if current.op in ("weight", "cache", "input"):
                self.leaves.append(current)
            else:
                self.nodes.append(current)
