"""The parts a layer's graph is made of, as llama.cpp builds them.

Source: llama.cpp src/llama-graph.cpp (build_norm, build_qkv, build_attn_mha, build_ffn, build_moe_ffn),
src/models/deepseek2.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from vramledger.engines.llamacpp.file_tensors import FileTensor
from vramledger.engines.llamacpp.tensor_graph import HOST, Graph, GraphTensor
from vramledger.errors import HeaderError
from vramledger.formats.ggml import ggml_type
from vramledger.models.mixers import (
    LatentAttention,
    MixtureOfExperts,
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
        flat = graph.reshape(x, width, elements_of(x) // width)
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


def elements_of(tensor: GraphTensor) -> int:
    return tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3]


def _is_quantised(name: str) -> bool:
    return ggml_type(name).block_elements > 1
