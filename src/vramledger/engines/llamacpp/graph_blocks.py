"""The parts a layer's graph is made of, as llama.cpp builds them.

Source: llama.cpp src/llama-graph.cpp (build_norm, build_qkv, build_attn_mha, build_ffn, build_moe_ffn, build_rs),
src/models/mamba-base.cpp, lfm2.cpp, delta-net-base.cpp, qwen3next.cpp, deepseek2.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from vramledger.engines.llamacpp.file_tensors import FileTensor
from vramledger.engines.llamacpp.tensor_graph import HOST, Graph, GraphTensor
from vramledger.errors import HeaderError
from vramledger.formats.ggml import ggml_type
from vramledger.models.mixers import (
    FullAttention,
    GatedDeltaNet,
    LatentAttention,
    Mamba1,
    Mamba2,
    MixtureOfExperts,
    ShortConvolution,
)


class Batch(Struct, frozen=True, kw_only=True):
    """What a graph is reserved for: `tokens` of `sequences`, `outputs` rows of logits, `streams` of the cache."""

    tokens: int
    sequences: int
    outputs: int
    streams: int
    flash: bool
    key_type: str = "F16"
    value_type: str = "F16"

    @property
    def tokens_per_sequence(self) -> int:
        return self.tokens // self.sequences


class GraphRules(Struct, frozen=True, kw_only=True):
    """What differs between builds: `rows` writes caches by set_rows, `fused_gate` computes activation and product
    of a gated MLP as one operation, `half_mask` keeps the mask in F16 with flash attention (else it is cast),
    `mixed_input` carries embeddings beside tokens, `embedding_input` has room for embeddings alone,
    `second_mask` builds the windows' mask over the full cache."""

    rows: bool = True
    fused_gate: bool = True
    half_mask: bool = True
    mixed_input: bool = True
    embedding_input: bool = True
    rotated_cache: bool = True
    second_mask: bool = False


class CacheInput(Struct, kw_only=True):
    """The inputs of one cache: its cells, the widest layer's values, where rows go, what may be attended to."""

    cells: int
    value_width: int
    key_rows: GraphTensor
    value_rows: GraphTensor | None
    mask: GraphTensor
    key_rotation: GraphTensor | None = None
    value_rotation: GraphTensor | None = None


class Blocks:
    """Builds layers into one graph. `places` are the devices of the model's weights by name."""

    def __init__(
        self,
        graph: Graph,
        batch: Batch,
        rules: GraphRules,
        tensors: Mapping[str, FileTensor],
        places: Mapping[str, int],
    ) -> None:
        self.graph = graph
        self.batch = batch
        self.rules = rules
        self.tensors = tensors
        self.places = places
        self._weights: dict[str, GraphTensor] = {}
        self.layer_device = 0
        self.cache_device = 0
        self.offloads = False
        self.host_attention = False

    # Weights.

    def has(self, name: str) -> bool:
        return name in self.tensors

    def stored(self, name: str) -> FileTensor:
        """The file's tensor. Raises HeaderError where it has none, as loading does."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise HeaderError(
                f"the file has no tensor {name!r}, which llama.cpp needs for a model of these keys; the file is cut short, "
                "a part of it is missing, or its keys are wrong",
                tensor=name,
            )
        return tensor

    def weight(self, name: str) -> GraphTensor:
        made = self._weights.get(name)
        if made is None:
            tensor = self.stored(name)
            made = self.graph.weight(
                *tensor.dims, device=self.places.get(name, self.layer_device), size_bytes=tensor.size_bytes
            )
            self._weights[name] = made
        return made

    def _at(self, name: str) -> None:
        """The device an operation on a weight runs on: the weight's, or the first device's where a large batch on
        a host weight is sent there."""
        place = self.places.get(name, self.layer_device)
        self.graph.device = 0 if place == HOST and self.offloads else place

    def project(self, name: str, x: GraphTensor) -> GraphTensor:
        """A weight times x, with its bias where the file has one."""
        self._at(f"{name}.weight")
        cur = self.graph.matmul(self.weight(f"{name}.weight"), x)
        if self.has(f"{name}.bias"):
            cur = self.graph.like("add", cur, self.weight(f"{name}.bias"))
        return cur

    def norm(self, x: GraphTensor, name: str, kind: str = "rms_norm") -> GraphTensor:
        self._at(f"{name}.weight")
        cur = self.graph.like(kind, x)
        scale = f"{name}.weight" if self.has(f"{name}.weight") else name
        if self.has(scale):
            cur = self.graph.like("mul", cur, self.weight(scale))
        if self.has(f"{name}.bias"):
            cur = self.graph.like("add", cur, self.weight(f"{name}.bias"))
        return cur

    # Attention over a cache.

    def cache_input(
        self, cells: int, key_width: int, value_width: int, head_dims: tuple[int, int]
    ) -> CacheInput:
        """`value_width` is 0 for a cache of keys alone. Quantised caches rotate rows by a Hadamard matrix."""
        graph, batch = self.graph, self.batch
        tokens = batch.tokens
        per_stream = tokens // batch.streams
        transposed = not batch.flash
        value_rows = None
        key_rows = graph.input(tokens if self.rules.rows else 1, unit=8)
        if value_width:
            count = tokens * (value_width if transposed else 1) if self.rules.rows else 1
            value_rows = graph.input(count, unit=8)
        half = batch.flash and self.rules.half_mask
        rows = per_stream if self.rules.half_mask else -(-per_stream // 64) * 64
        mask = graph.input(cells, rows, 1, batch.streams, unit=2 if half else 4)
        made = CacheInput(
            cells=cells, value_width=value_width, key_rows=key_rows, value_rows=value_rows, mask=mask
        )
        if batch.flash and not half:
            made.mask = graph.op("cast", mask.shape, mask, unit=2)
        if self.rules.rotated_cache and value_width:
            if _is_quantised(batch.key_type) and head_dims[0] % 64 == 0:
                width = 64
                while head_dims[0] % (2 * width) == 0:
                    width *= 2
                made.key_rotation = graph.input(width, width)
            if _is_quantised(batch.value_type) and head_dims[1] % 64 == 0:
                made.value_rotation = graph.input(64, 64)
        return made

    def rotate(self, x: GraphTensor, rotation: GraphTensor) -> GraphTensor:
        graph = self.graph
        width = rotation.shape[0]
        flat = graph.reshape(x, width, _elements(x) // width)
        return graph.reshape(graph.op("mul_mat", flat.shape, rotation, flat), *x.shape)

    def attend(
        self,
        cache: CacheInput,
        q: GraphTensor,
        k: GraphTensor | None,
        v: GraphTensor | None,
        kv_heads: int,
        *,
        soft_cap: bool = False,
        values_in_keys: int = 0,
        value_up: str = "",
        sinks: str = "",
    ) -> GraphTensor:
        """Scores, softmax and values; k and v are absent where a layer reads the cache of another.

        `values_in_keys` is the width of values kept inside the keys (latents), `value_up` what widens them after.
        """
        graph, batch = self.graph, self.batch
        compute = graph.device
        if cache.key_rotation is not None:
            q = self.rotate(q, cache.key_rotation)
            k = self.rotate(k, cache.key_rotation) if k is not None else None
        if cache.value_rotation is not None and v is not None:
            v = self.rotate(v, cache.value_rotation)
        for item in (q, v, k):
            if item is not None:
                graph.expand(item)
        head_k = q.shape[0]
        head_v = values_in_keys or (v.shape[0] if v is not None else head_k)
        if k is not None:
            self._store(k, cache.key_rows, cache.cells, transposed=False, widest=0)
        if v is not None and not values_in_keys:
            self._store(
                v, cache.value_rows, cache.cells, transposed=not batch.flash, widest=cache.value_width
            )
        graph.device = HOST if self.host_attention else compute
        streams, cells = batch.streams, cache.cells
        keys = self._cached(batch.key_type, head_k, kv_heads, cells, streams)
        if values_in_keys:
            values = graph.view(keys, (head_v, kv_heads, cells, streams), keys.strides[1:])
        elif batch.flash:
            values = self._cached(batch.value_type, head_v, kv_heads, cells, streams)
        else:
            unit = 2
            stored = graph.cache(
                cells,
                kv_heads,
                head_v,
                streams,
                device=self.cache_device,
                size_bytes=cells * kv_heads * head_v * streams * unit,
            )
            values = graph.view(
                stored,
                (cells, kv_heads, head_v, streams),
                (unit * cells * head_v, unit * cells, unit * cells * head_v * kv_heads),
            )
        q = graph.view(
            q,
            (q.shape[0], q.shape[1], q.shape[2] // streams, streams),
            (q.strides[1], q.strides[2], q.strides[2] * (q.shape[2] // streams)),
        )
        q, keys, values = (graph.permute(item, 0, 2, 1, 3) for item in (q, keys, values))
        heads, tokens = q.shape[2], q.shape[1]
        bias = (self.weight(sinks),) if sinks and self.has(sinks) else ()
        if batch.flash:
            cur = graph.op("flash_attn", (head_v, heads, tokens, streams), q, keys, values, cache.mask, *bias)
            if value_up:
                cur = graph.permute(cur, 0, 2, 1, 3)
                cur = self._widen(value_up, cur)
                cur = graph.cont(graph.permute(cur, 0, 2, 1, 3))
            cur = graph.reshape(cur, cur.shape[0] * cur.shape[1], cur.shape[2] * cur.shape[3])
        else:
            scores = graph.op("mul_mat", (cells, tokens, heads, streams), keys, q)
            if soft_cap:
                for name in ("scale", "unary", "scale"):
                    scores = graph.like(name, scores)
            scores = graph.like("soft_max", scores, cache.mask, *bias)
            if values_in_keys:
                values = graph.cont(graph.transpose(values))
            cur = graph.op("mul_mat", (head_v, tokens, heads, streams), values, scores)
            if value_up:
                cur = self._widen(value_up, cur)
            merged = graph.permute(cur, 0, 2, 1, 3)
            cur = graph.cont(merged, merged.shape[0] * merged.shape[1], merged.shape[2] * merged.shape[3])
        graph.expand(cur)
        if cache.value_rotation is not None:
            cur = self.rotate(cur, cache.value_rotation)
        return cur

    def _widen(self, name: str, x: GraphTensor) -> GraphTensor:
        weight = self.weight(name)
        return self.graph.op("mul_mat", (weight.shape[1], *x.shape[1:]), weight, x)

    def _cached(self, kind: str, head: int, heads: int, cells: int, streams: int) -> GraphTensor:
        """The part of a stored cache that is attended to. Its bytes matter where another device reads it."""
        held = ggml_type(kind).bytes_for(head * heads, 1) * cells * streams
        stored = self.graph.cache(
            head,
            heads,
            cells,
            streams,
            device=self.cache_device,
            unit=4 if kind == "F32" else 2,
            size_bytes=held,
        )
        view = self.graph.view(stored, (head, heads, cells, streams))
        view.size_bytes = held
        return view

    def _store(
        self, value: GraphTensor, rows: GraphTensor | None, cells: int, *, transposed: bool, widest: int
    ) -> None:
        """Transposed values are padded to the widest layer's."""
        graph = self.graph
        width, tokens = value.shape[0] * value.shape[1], value.shape[2]
        if transposed and value.strides[2] != width * value.unit:
            value = graph.cont(value, width, tokens)
        flat = (
            graph.view(value, (width, tokens), (value.strides[2],))
            if not transposed
            else graph.reshape(value, width, tokens)
        )
        if transposed and self.rules.rows and width < widest:
            flat = graph.op("pad", (widest, tokens), flat)
            width = widest
        if not self.rules.rows:
            flat = graph.transpose(flat) if transposed else flat
        elif transposed:
            flat = graph.reshape(flat, 1, width * tokens)
        target = graph.cache(width, cells, device=self.cache_device)
        others = (rows,) if rows is not None and self.rules.rows else ()
        graph.expand(graph.write(graph.view(target, (width, cells)), flat, *others))

    # MLPs.

    def mlp(
        self, x: GraphTensor, block: str, suffix: str, activation: str = "silu", *, joint: bool = False
    ) -> GraphTensor:
        """A dense MLP: gated where the file has a gate, or where up is gate and up in one (`joint`)."""
        graph = self.graph
        up = self.project(f"{block}ffn_up{suffix}", x)
        if self.has(f"{block}ffn_gate{suffix}.weight"):
            gate = self.project(f"{block}ffn_gate{suffix}", x)
            cur = self.gated(gate, up)
        elif joint:
            cur = graph.op("glu", (up.shape[0] // 2, *up.shape[1:]), up)
        else:
            cur = graph.like("unary", up)
            if activation == "relu_sqr":
                cur = graph.like("sqr", cur)
        return self.project(f"{block}ffn_down{suffix}", cur)

    def gated(self, gate: GraphTensor, up: GraphTensor) -> GraphTensor:
        graph = self.graph
        if self.rules.fused_gate:
            return graph.like("glu", gate, up)
        return graph.like("mul", graph.like("unary", gate), up)

    def experts(
        self,
        x: GraphTensor,
        block: str,
        mixer: MixtureOfExperts,
        *,
        normalised: bool = True,
        scaled: bool = False,
        softmax_after: bool = False,
        weigh_first: bool = False,
        gated: bool = True,
        activation: str = "silu",
        groups: int = 0,
        logits: GraphTensor | None = None,
    ) -> GraphTensor:
        """Router, selection, experts and their weighted sum. `softmax_after` weighs by a softmax over the selected."""
        graph = self.graph
        tokens, used, count = x.shape[1], mixer.top_k, mixer.num_experts
        if logits is None:
            logits = self.project(f"{block}ffn_gate_inp", x)
        probs = (
            logits
            if softmax_after
            else graph.like("soft_max" if not self.has(f"{block}exp_probs_b.bias") else "unary", logits)
        )
        selection = probs
        if self.has(f"{block}exp_probs_b.bias"):
            selection = graph.like("add", probs, self.weight(f"{block}exp_probs_b.bias"))
        if groups > 1:
            selection = self._group_mask(selection, groups, count, tokens)
        order = graph.like("argsort", selection)
        chosen = graph.view(order, (used, tokens), (order.strides[1],))
        weights = graph.op("get_rows", (1, used, tokens), graph.reshape(probs, 1, count, tokens), chosen)
        if softmax_after:
            flat = graph.reshape(weights, used, tokens)
            weights = graph.reshape(graph.like("soft_max", flat), 1, used, tokens)
        if normalised and not softmax_after:
            flat = graph.reshape(weights, used, tokens)
            summed = graph.like("clamp", graph.op("sum_rows", (1, tokens), flat))
            weights = graph.reshape(graph.like("div", flat, summed), 1, used, tokens)
        if scaled:
            weights = graph.like("scale", weights)
        graph.expand(weights)
        cur = graph.reshape(x, x.shape[0], 1, tokens)
        if weigh_first:
            cur = graph.like("mul", graph.op("repeat", (x.shape[0], used, tokens), cur), weights)
        if self.has(f"{block}ffn_gate_up_exps.weight"):
            both = self._expert(f"{block}ffn_gate_up_exps", cur, chosen, used)
            half = both.shape[0] // 2
            gate, up = (graph.view(both, (half, used, tokens), both.strides[1:]) for _ in range(2))
            cur = graph.op("glu", (half, used, tokens), gate, up)
        else:
            up = self._expert(f"{block}ffn_up_exps", cur, chosen, used)
            if gated:
                cur = self.gated(self._expert(f"{block}ffn_gate_exps", cur, chosen, used), up)
            else:
                cur = graph.like("unary", up)
                cur = graph.like("sqr", cur) if activation == "relu_sqr" else cur
        cur = self._expert(f"{block}ffn_down_exps", cur, chosen, used)
        if not weigh_first:
            cur = graph.like("mul", cur, weights)
        graph.expand(cur)
        width = cur.shape[0]
        parts = [graph.view(cur, (width, tokens), (cur.strides[2],)) for _ in range(used)]
        for part in parts:
            graph.expand(part)
        total = parts[0]
        for part in parts[1:]:
            total = graph.op("add", (width, tokens), total, part)
            graph.expand(total)
        return graph.cont(total) if used == 1 else total

    def _expert(self, name: str, x: GraphTensor, chosen: GraphTensor, used: int) -> GraphTensor:
        graph = self.graph
        self._at(f"{name}.weight")
        weight = self.weight(f"{name}.weight")
        cur = graph.op("mul_mat_id", (weight.shape[1], used, x.shape[2]), weight, x, chosen)
        if self.has(f"{name}.scale"):
            cur = graph.like("mul", cur, self.weight(f"{name}.scale"))
        if self.has(f"{name}.bias"):
            cur = graph.like("add_id", cur, self.weight(f"{name}.bias"), chosen)
        return cur

    def _group_mask(self, probs: GraphTensor, groups: int, count: int, tokens: int) -> GraphTensor:
        graph = self.graph
        size = count // groups
        by_group = graph.reshape(probs, size, groups, tokens)
        order = graph.like("argsort", by_group)
        top = graph.view(order, (2, groups, tokens), order.strides[1:3])
        scores = graph.op(
            "get_rows", (1, 2, groups, tokens), graph.reshape(by_group, 1, size, groups, tokens), top
        )
        summed = graph.op("sum_rows", (1, groups, tokens), graph.reshape(scores, 2, groups, tokens))
        ranked = graph.like("argsort", graph.reshape(summed, groups, tokens))
        kept = graph.view(ranked, (groups // 2, tokens), (ranked.strides[1],))
        rows = graph.op("get_rows", (size, groups // 2, tokens), by_group, kept)
        filled = graph.like("fill", by_group)
        masked = GraphTensor(
            "write",
            filled.shape,
            (rows, kept, filled),
            strides=filled.strides,
            root=filled,
            device=graph.device,
        )
        return graph.reshape(masked, count, tokens)

    # Recurrent layers.

    def states(self, elements: int, copy: GraphTensor) -> GraphTensor:
        """The states of the sequences of this batch, gathered from the cache."""
        graph = self.graph
        sequences = self.batch.sequences
        stored = graph.cache(elements, sequences, device=self.cache_device)
        flat = graph.reshape(stored, elements, sequences)
        graph.expand(graph.view(flat, (0,)))
        gathered = graph.op("get_rows", (elements, sequences), flat, copy)
        out = graph.view(gathered, (elements, sequences), (gathered.strides[1],))
        graph.expand(out)
        return out

    def _save(self, value: GraphTensor) -> None:
        graph = self.graph
        target = graph.cache(_elements(value), device=self.cache_device)
        graph.expand(graph.write(graph.view(target, (_elements(value),)), value))

    def _convolution(self, x: GraphTensor, channels: int, kernel: int, copy: GraphTensor) -> GraphTensor:
        """The state before the tokens, and the last columns kept for the next step."""
        graph, batch = self.graph, self.batch
        length, sequences = batch.tokens_per_sequence, batch.sequences
        state = graph.reshape(self.states((kernel - 1) * channels, copy), kernel - 1, channels, sequences)
        joined = graph.op("concat", (kernel - 1 + length, channels, sequences), state, graph.transpose(x))
        self._save(graph.view(joined, (kernel - 1, channels, sequences), joined.strides[1:3]))
        return joined

    def mamba2(self, x: GraphTensor, block: str, mixer: Mamba2, copy: GraphTensor) -> GraphTensor:
        graph, batch = self.graph, self.batch
        length, sequences = batch.tokens_per_sequence, batch.sequences
        inner, state, groups = mixer.inner, mixer.state, mixer.groups
        channels = inner + 2 * groups * state
        # The states are asked for first, so they are gathered before the projection.
        gathered = graph.reshape(
            self.states((mixer.conv_kernel - 1) * channels, copy), mixer.conv_kernel - 1, channels, sequences
        )
        projected = self.project(f"{block}ssm_in", x)
        projected = graph.reshape(projected, projected.shape[0], length, sequences)
        row, plane = projected.strides[1], projected.strides[2]
        gate = graph.view(
            projected, (mixer.head_dim, mixer.heads, length, sequences), (4 * mixer.head_dim, row, plane)
        )
        mixed = graph.view(projected, (channels, length, sequences), (row, plane))
        steps = graph.view(projected, (mixer.heads, length, sequences), (row, plane))
        joined = graph.op(
            "concat", (mixer.conv_kernel - 1 + length, channels, sequences), gathered, graph.transpose(mixed)
        )
        self._save(graph.view(joined, (mixer.conv_kernel - 1, channels, sequences), joined.strides[1:3]))
        cur = graph.op(
            "ssm_conv", (channels, length, sequences), joined, self.weight(f"{block}ssm_conv1d.weight")
        )
        if self.has(f"{block}ssm_conv1d.bias"):
            cur = graph.like("add", cur, self.weight(f"{block}ssm_conv1d.bias"))
        cur = graph.like("unary", cur)
        inputs = graph.view(
            cur, (mixer.head_dim, mixer.heads, length, sequences), (4 * mixer.head_dim, *cur.strides[1:3])
        )
        pair = [
            graph.view(cur, (state, groups, length, sequences), (4 * state, *cur.strides[1:3]))
            for _ in range(2)
        ]
        steps = graph.like("add", graph.cont(steps), self.weight(f"{block}ssm_dt.bias"))
        scanned = self._scan(inner * batch.tokens, state * inner, inputs, steps, f"{block}ssm_a", pair, copy)
        self._save(graph.view(scanned, (state * inner * sequences,)))
        out = graph.view(scanned, inputs.shape, (4 * mixer.head_dim, 4 * inner, 4 * inner * length))
        out = graph.like("add", out, graph.like("mul", inputs, self.weight(f"{block}ssm_d")))
        out = graph.like("glu", graph.cont(gate), out)
        if self.has(f"{block}ssm_norm.weight"):
            out = graph.reshape(out, inner // groups, groups, length, sequences)
            out = self.norm(out, f"{block}ssm_norm")
        return self.project(f"{block}ssm_out", graph.reshape(out, inner, batch.tokens))

    def _scan(
        self,
        output: int,
        state: int,
        inputs: GraphTensor,
        steps: GraphTensor,
        decay: str,
        pair: list[GraphTensor],
        copy: GraphTensor,
    ) -> GraphTensor:
        """The scan's result: outputs and new states in one. States are read straight from the cache; what the
        other sequences hold is gathered beside it."""
        graph = self.graph
        sequences = self.batch.sequences
        stored = graph.cache(state, sequences, device=self.cache_device)
        flat = graph.reshape(stored, state, sequences)
        graph.expand(graph.view(flat, (0,)))
        rest = graph.op("get_rows", (state, max(sequences - 1, 0)), flat, graph.view(copy, (sequences - 1,)))
        main = graph.view(copy, (sequences,))
        scanned = graph.op(
            "scan", (output + state * sequences,), flat, inputs, steps, self.weight(decay), *pair, main
        )
        graph.expand(scanned)
        left = graph.view(rest, (state, 0))
        graph.expand(graph.write(graph.view(stored, (state, 0)), left))
        return scanned

    def mamba1(self, x: GraphTensor, block: str, mixer: Mamba1, copy: GraphTensor) -> GraphTensor:
        graph, batch = self.graph, self.batch
        length, sequences = batch.tokens_per_sequence, batch.sequences
        inner, state = mixer.inner, mixer.state
        rank = self.stored(f"{block}ssm_dt.weight").dims[0]
        gathered = graph.reshape(
            self.states((mixer.conv_kernel - 1) * inner, copy), mixer.conv_kernel - 1, inner, sequences
        )
        both = self.project(f"{block}ssm_in", graph.reshape(x, x.shape[0], length, sequences))
        cur, gate = (graph.view(both, (inner, length, sequences), both.strides[1:3]) for _ in range(2))
        joined = graph.op(
            "concat", (mixer.conv_kernel - 1 + length, inner, sequences), gathered, graph.transpose(cur)
        )
        self._save(graph.view(joined, (mixer.conv_kernel - 1, inner, sequences), joined.strides[1:3]))
        cur = graph.op(
            "ssm_conv", (inner, length, sequences), joined, self.weight(f"{block}ssm_conv1d.weight")
        )
        cur = graph.like("unary", graph.like("add", cur, self.weight(f"{block}ssm_conv1d.bias")))
        mixed = graph.matmul(self.weight(f"{block}ssm_x.weight"), cur)
        steps = graph.view(mixed, (rank, length, sequences), mixed.strides[1:3])
        pair = [
            graph.view(mixed, (state, 1, length, sequences), (4 * state, *mixed.strides[1:3]))
            for _ in range(2)
        ]
        if self.has(f"{block}ssm_dt_norm.weight"):
            steps = self.norm(steps, f"{block}ssm_dt_norm")
            pair = [self.norm(pair[0], f"{block}ssm_b_norm"), self.norm(pair[1], f"{block}ssm_c_norm")]
        else:
            steps = graph.cont(steps)
        steps = graph.matmul(self.weight(f"{block}ssm_dt.weight"), steps)
        steps = graph.like("add", steps, self.weight(f"{block}ssm_dt.bias"))
        heads = graph.reshape(cur, 1, inner, length, sequences)
        scanned = self._scan(inner * batch.tokens, state * inner, heads, steps, f"{block}ssm_a", pair, copy)
        self._save(graph.view(scanned, (state * inner * sequences,)))
        out = graph.view(scanned, (inner, length, sequences), (4 * inner, 4 * inner * length))
        out = graph.like("add", out, graph.like("mul", cur, self.weight(f"{block}ssm_d")))
        out = graph.like("glu", graph.cont(gate), out)
        out = self.project(f"{block}ssm_out", out)
        return graph.reshape(out, out.shape[0], batch.tokens)

    def short_convolution(
        self, x: GraphTensor, block: str, mixer: ShortConvolution, copy: GraphTensor
    ) -> GraphTensor:
        graph, batch = self.graph, self.batch
        length, sequences, width = batch.tokens_per_sequence, batch.sequences, mixer.channels
        projected = self.project(f"{block}shortconv.in_proj", graph.reshape(x, x.shape[0], length, sequences))
        first, second, third = (
            graph.view(projected, (width, length, sequences), projected.strides[1:3]) for _ in range(3)
        )
        product = graph.op("mul", (width, length, sequences), first, third)
        joined = self._convolution(product, width, mixer.kernel, copy)
        cur = graph.op(
            "ssm_conv", (width, length, sequences), joined, self.weight(f"{block}shortconv.conv.weight")
        )
        cur = graph.op("mul", (width, length, sequences), second, cur)
        cur = self.project(f"{block}shortconv.out_proj", cur)
        return graph.reshape(cur, cur.shape[0], batch.tokens)

    def delta_net(self, x: GraphTensor, block: str, mixer: GatedDeltaNet, copy: GraphTensor) -> GraphTensor:
        """The gated delta rule with the fused kernel."""
        graph, batch = self.graph, self.batch
        length, sequences = batch.tokens_per_sequence, batch.sequences
        inner = mixer.v_heads * mixer.v_dim
        channels = inner + 2 * mixer.k_heads * mixer.k_dim
        mixed = self.project(f"{block}attn_qkv", x)
        mixed = graph.reshape(mixed, channels, length, sequences)
        gate = self.project(f"{block}attn_gate", x)
        if self.has(f"{block}ssm_ba.weight"):
            both = self.project(f"{block}ssm_ba", x)
            share = mixer.v_heads // mixer.k_heads
            split = graph.reshape(both, 2 * share, mixer.k_heads, length, sequences)
            beta, alpha = (
                graph.view(split, (share, mixer.k_heads, length, sequences), split.strides[1:])
                for _ in range(2)
            )
            beta = graph.like("unary", graph.cont(beta))
            alpha = graph.cont(alpha, mixer.v_heads, length, sequences)
        else:
            beta = self.project(f"{block}ssm_beta", x)
            beta = graph.like("unary", graph.reshape(beta, 1, mixer.v_heads, length, sequences))
            alpha = graph.reshape(self.project(f"{block}ssm_alpha", x), mixer.v_heads, length, sequences)
        alpha = graph.like("unary", graph.like("add", alpha, self.weight(f"{block}ssm_dt.bias")))
        decay = graph.like("mul", alpha, self.weight(f"{block}ssm_a"))
        beta = graph.reshape(beta, 1, mixer.v_heads, length, sequences)
        decay = graph.reshape(decay, 1, mixer.v_heads, length, sequences)
        joined = self._convolution(mixed, channels, mixer.conv_kernel, copy)
        state = graph.reshape(
            self.states(mixer.v_dim * mixer.v_dim * mixer.v_heads, copy),
            mixer.v_dim,
            mixer.v_dim,
            mixer.v_heads,
            sequences,
        )
        cur = graph.like(
            "unary",
            graph.op(
                "ssm_conv", (channels, length, sequences), joined, self.weight(f"{block}ssm_conv1d.weight")
            ),
        )
        row = 4 * channels
        q, k = (
            graph.view(
                cur, (mixer.k_dim, mixer.k_heads, length, sequences), (4 * mixer.k_dim, row, row * length)
            )
            for _ in range(2)
        )
        v = graph.view(
            cur, (mixer.v_dim, mixer.v_heads, length, sequences), (4 * mixer.v_dim, row, row * length)
        )
        q, k = graph.like("l2_norm", q), graph.like("l2_norm", k)
        if mixer.k_heads != mixer.v_heads and self.has(f"{block}ssm_ba.weight"):
            times = mixer.v_heads // mixer.k_heads
            q, k = (
                graph.reshape(
                    graph.op("repeat", (mixer.k_dim, times, mixer.k_heads, batch.tokens), graph.reshape(item, mixer.k_dim, 1, mixer.k_heads, batch.tokens)),
                    mixer.k_dim, mixer.v_heads, length, sequences,
                )
                for item in (q, k)
            )  # fmt: skip
        rows = (
            mixer.v_heads * mixer.v_dim * batch.tokens + mixer.v_dim * mixer.v_dim * mixer.v_heads * sequences
        )
        result = graph.op("delta", (rows,), q, k, v, decay, beta, state)
        output = graph.view(result, (mixer.v_dim, mixer.v_heads, length, sequences))
        self._save(graph.view(result, (mixer.v_dim * mixer.v_dim * mixer.v_heads * sequences,)))
        normed = self.norm(output, f"{block}ssm_norm")
        gate = graph.like("unary", graph.reshape(gate, mixer.v_dim, mixer.v_heads, length, sequences))
        out = graph.reshape(graph.like("mul", normed, gate), inner, length, sequences)
        out = self.project(f"{block}ssm_out", out)
        return graph.reshape(out, out.shape[0], batch.tokens)

    # Latent attention.

    def latent(
        self, x: GraphTensor, block: str, mixer: LatentAttention, cache: CacheInput, positions: GraphTensor
    ) -> GraphTensor:
        graph = self.graph
        tokens = self.batch.tokens
        nope, rope, rank, heads = mixer.nope_dim, mixer.rope_dim, mixer.kv_lora_rank, mixer.q_heads
        if self.has(f"{block}attn_q_a.weight"):
            q = self.norm(self.project(f"{block}attn_q_a", x), f"{block}attn_q_a_norm")
            q = self.project(f"{block}attn_q_b", q)
        else:
            q = self.project(f"{block}attn_q", x)
        q = graph.reshape(q, nope + rope, heads, tokens)
        joint = self.project(f"{block}attn_kv_a_mqa", x)
        latent = graph.view(joint, (rank, tokens), (joint.strides[1],))
        k_pe = graph.view(joint, (rope, 1, tokens), (joint.strides[1], joint.strides[1]))
        k_pe = graph.like("rope", k_pe, positions)
        latent = self.norm(latent, f"{block}attn_kv_a_norm")
        if self.has(f"{block}attn_k_b.weight"):
            q_nope = graph.view(q, (nope, heads, tokens), q.strides[1:3])
            q_pe = graph.like("rope", graph.view(q, (rope, heads, tokens), q.strides[1:3]), positions)
            absorbed = graph.op(
                "mul_mat",
                (rank, tokens, heads),
                self.weight(f"{block}attn_k_b.weight"),
                graph.permute(q_nope, 0, 2, 1, 3),
            )
            query = graph.op(
                "concat", (rank + rope, heads, tokens), graph.permute(absorbed, 0, 2, 1, 3), q_pe
            )
            latent = graph.reshape(latent, rank, 1, tokens)
            key = graph.op("concat", (rank + rope, 1, tokens), latent, k_pe)
            return self.attend(
                cache, query, key, latent, 1, values_in_keys=rank, value_up=f"{block}attn_v_b.weight"
            )
        wide = graph.matmul(self.weight(f"{block}attn_kv_b.weight"), latent)
        step = 4 * (nope + mixer.v_head_dim)
        k_nope = graph.view(wide, (nope, heads, tokens), (step, step * heads))
        value = graph.cont(graph.view(wide, (mixer.v_head_dim, heads, tokens), (step, step * heads)))
        query = graph.like("rope", q, positions)
        key = graph.op(
            "concat", (nope + rope, heads, tokens), k_nope, graph.op("repeat", (rope, heads, tokens), k_pe)
        )
        return self.attend(cache, query, key, value, heads)


def _elements(tensor: GraphTensor) -> int:
    return tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3]


def _is_quantised(name: str) -> bool:
    return ggml_type(name).block_elements > 1


__all__ = ["Batch", "Blocks", "CacheInput", "FullAttention", "GraphRules"]
