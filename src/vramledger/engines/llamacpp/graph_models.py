"""The whole graph of a model, layer by layer, as llama.cpp's model files build it.

Source: llama.cpp src/models/*.cpp (order of norms, residuals and gates), src/llama-graph.cpp (inputs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from vramledger.engines.llamacpp.architectures import Architecture
from vramledger.engines.llamacpp.file_tensors import FileTensor
from vramledger.engines.llamacpp.graph_blocks import Batch, CacheInput, GraphRules
from vramledger.engines.llamacpp.graph_gemma import EffectiveGemma
from vramledger.engines.llamacpp.graph_recurrent import RecurrentBlocks
from vramledger.engines.llamacpp.tensor_graph import HOST, Graph, GraphTensor
from vramledger.models.mixers import (
    RECURRENT,
    ChunkedAttention,
    FullAttention,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    Mamba1,
    Mamba2,
    MixtureOfExperts,
    SharedKvAttention,
    ShortConvolution,
    SlidingWindowAttention,
)
from vramledger.models.model import Model

_SANDWICH = {"gemma2", "gemma3", "gemma4", "olmo2", "exaone4", "glm4"}
"""Architectures that norm what attention gave before they add it."""
_SCALED_INPUT = {"gemma", "gemma2", "gemma3", "gemma4", "gemma3n"}
_SCALED_ROWS = {"gemma3", "gemma4", "gemma3n"}
_NO_ROPE = {"jamba", "nemotron_h", "nemotron_h_moe", "granitehybrid", "mpt", "bloom", "gpt2", "starcoder"}
_QUERY_SCALED = {"gemma", "gemma2", "gemma3", "phi3", "phi2"}
_FOUR_POSITIONS = {"qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"}
_LAYER_NORM = {
    "command-r",
    "cohere2",
    "gpt2",
    "gptneox",
    "falcon",
    "phi2",
    "stablelm",
    "starcoder2",
    "starcoder",
    "bloom",
    "mpt",
    "olmo",
    "nemotron",
    "phimoe",
}
_SOFTMAX_AFTER = {"gpt-oss"}
_UNNORMALISED = {"jamba", "llama4", "olmoe", "qwen2moe"}
_SINGLE = {"nemotron_h", "nemotron_h_moe"}
"""Architectures whose layers are one block, a mixer or an MLP."""
_SQUARED = {"nemotron_h", "nemotron_h_moe", "nemotron"}
_SCALED_STREAM = {"granite", "granitemoe", "granitehybrid", "minicpm"}
_RESIDUAL_FIRST = {"lfm2", "lfm2moe", "jamba"}
"""Architectures that add to the residual stream, where others add the stream: it decides which place is reused."""
_RESIDUAL_FIRST_MLP = _RESIDUAL_FIRST | {"phi3", "phimoe"}


class GraphPlan(Struct, frozen=True, kw_only=True):
    """What a graph is built from beside the model: `layer_devices` by block, then the output's; `cells` of the
    full cache and of the windowed one (0: none); `window_layers` by block."""

    batch: Batch
    rules: GraphRules
    layer_devices: tuple[int, ...]
    output_device: int
    cache_devices: tuple[int, ...]
    cells: int
    window_cells: int
    window_layers: frozenset[int]
    offloads: bool = False
    host_attention: bool = False


def build_graph(
    model: Model,
    architecture: Architecture,
    tensors: Sequence[FileTensor],
    places: Mapping[str, int],
    plan: GraphPlan,
    layers: Sequence[Layer],
) -> Graph:
    """The graph of `layers` (all of a model's, or enough of them that every kind follows every other)."""
    graph = Graph()
    by_name = {item.name: item for item in tensors}
    blocks = RecurrentBlocks(graph, plan.batch, plan.rules, by_name, places)
    blocks.offloads = plan.offloads
    blocks.host_attention = plan.host_attention
    return _Builder(model, architecture, blocks, plan, layers).build()


class _Builder:
    def __init__(
        self,
        model: Model,
        architecture: Architecture,
        blocks: RecurrentBlocks,
        plan: GraphPlan,
        layers: Sequence[Layer],
    ) -> None:
        self.model = model
        self.arch = architecture.name
        self.parallel = architecture.graph == "parallel"
        self.blocks = blocks
        self.graph = blocks.graph
        self.plan = plan
        self.batch = plan.batch
        self.layers = layers
        self.kind = "norm" if self.arch in _LAYER_NORM else "rms_norm"
        self.scaled = self.arch in _SCALED_STREAM and model.model_type != "bamba"
        self.positions: GraphTensor | None = None
        self.copy: GraphTensor | None = None
        self.full: CacheInput | None = None
        self.windowed: CacheInput | None = None
        self.second: CacheInput | None = None
        self.effective = EffectiveGemma(blocks, model) if self.arch in ("gemma3n", "gemma4") else None

    def build(self) -> Graph:
        graph, batch = self.graph, self.batch
        if self.effective is not None and self.arch == "gemma4":
            self.effective.gather()
        cur = self._embed()
        graph.device = self.plan.layer_devices[self.layers[0].index]
        self._inputs()
        if self.effective is not None:
            cur = self.effective.start(cur)
        outputs = graph.input(batch.outputs, unit=4)
        last = self.layers[-1].index
        for layer in self.layers:
            self.blocks.layer_device = graph.device = self.plan.layer_devices[layer.index]
            if self.plan.offloads and graph.device == HOST:
                graph.device = 0
            self.blocks.cache_device = self.plan.cache_devices[layer.index]
            cur = self._layer(cur, layer, outputs if layer.index == last else None)
        graph.device = self.plan.output_device
        self.blocks.layer_device = graph.device
        if self.arch == "gemma3n" and self.effective is not None:
            cur = self.effective.finish(cur, outputs)
        cur = self.blocks.norm(
            cur, "token_embd_norm" if self.arch.startswith("lfm2") else "output_norm", self.kind
        )
        if self.arch in _SINGLE:
            cur = self._rows(cur, outputs)
        head = "output.weight" if self.blocks.has("output.weight") else "token_embd.weight"
        graph.device = self.plan.output_device
        tensor = self.blocks.stored(head)
        weight = graph.weight(*tensor.dims, device=self.plan.output_device, size_bytes=tensor.size_bytes)
        if self.plan.offloads and self.plan.output_device == HOST:
            graph.device = 0
        cur = graph.matmul(weight, cur)
        if self.blocks.has("output.bias"):
            cur = graph.like("add", cur, self.blocks.weight("output.bias"))
        if self.arch in ("gemma2", "gemma4"):
            for name in ("scale", "unary", "scale"):
                cur = graph.like(name, cur)
        elif self.scaled or self.arch in ("command-r", "cohere2"):
            cur = graph.like("scale", cur)
        graph.expand(cur)
        return graph

    def _rows(self, x: GraphTensor, rows: GraphTensor) -> GraphTensor:
        return self.graph.op("get_rows", (x.shape[0], self.batch.outputs), x, rows)

    def _embed(self) -> GraphTensor:
        graph, tokens = self.graph, self.batch.tokens
        width = self.model.hidden_size
        graph.device = HOST
        table = self.blocks.stored("token_embd.weight")
        stored = graph.weight(*table.dims, device=HOST)
        rows = graph.op("get_rows", (width, tokens), stored, graph.input(tokens))
        graph.expand(rows)
        if self.plan.rules.embedding_input:
            graph.expand(graph.input(width, tokens))
        if self.plan.rules.mixed_input:
            other = graph.op("get_rows", (width, tokens), stored, graph.input(tokens))
            base = graph.op("dup", (width, tokens), graph.input(width, tokens))
            graph.expand(
                GraphTensor(
                    "write",
                    base.shape,
                    (other, graph.input(tokens, unit=8), base),
                    strides=base.strides,
                    root=base,
                    device=HOST,
                )
            )
        cur = rows
        if self.arch in _SCALED_INPUT:
            graph.device = self.plan.layer_devices[0] if self.plan.layer_devices[0] != HOST else HOST
            if self.plan.rules.mixed_input and self.arch in _SCALED_ROWS:
                cur = graph.like("mul", cur, graph.input(1, tokens))
            else:
                cur = graph.like("scale", cur)
        if self.scaled:
            cur = graph.like("scale", cur)
        graph.expand(cur)
        return cur

    def _inputs(self) -> None:
        graph, batch = self.graph, self.batch
        attention = [mixer for mixer in self.model.token_mixers if isinstance(mixer, FullAttention)]
        latents = [mixer for mixer in self.model.token_mixers if isinstance(mixer, LatentAttention)]
        if attention or latents:
            self.positions = graph.input(batch.tokens * (4 if self.arch in _FOUR_POSITIONS else 1))
        if any(isinstance(mixer, RECURRENT) for mixer in self.model.token_mixers):
            self.copy = graph.input(batch.sequences)
        if latents:
            absorbed = any(".attn_k_b." in name for name in self.blocks.tensors)
            mixer = latents[0]
            heads = (mixer.nope_dim + mixer.rope_dim, mixer.v_head_dim)
            width = 0 if absorbed else mixer.q_heads * mixer.v_head_dim
            self.full = self.blocks.cache_input(self.plan.cells, 1, width, heads)
            return
        if not attention:
            return
        widest = max(mixer.kv_heads * mixer.v_head_dim for mixer in attention)
        uniform = len({(mixer.head_dim, mixer.v_head_dim) for mixer in attention}) == 1
        kept = (attention[0].head_dim, attention[0].v_head_dim) if uniform else (1, 1)
        if len(self.plan.window_layers) < len(attention) or not self.plan.window_cells:
            self.full = self.blocks.cache_input(self.plan.cells, 1, widest, kept)
        if self.plan.rules.second_mask:
            self.second = self.blocks.cache_input(self.plan.cells, 1, widest, kept)
        if self.plan.window_cells:
            self.windowed = self.blocks.cache_input(self.plan.window_cells, 1, widest, kept)

    def _layer(self, x: GraphTensor, layer: Layer, outputs: GraphTensor | None) -> GraphTensor:
        block = f"blk.{layer.index}."
        if self.arch == "gemma3n" and self.effective is not None:
            return self.effective.layer(x, layer, self._attention, outputs)
        if self.arch in _SINGLE:
            return self._single(x, layer, block)
        if self.parallel:
            return self._parallel(x, layer, block, outputs)
        graph, blocks = self.graph, self.blocks
        residual = x
        cur = x
        if blocks.has(f"{block}attn_norm.weight") or self.arch == "olmo":
            cur = blocks.norm(x, f"{block}attn_norm", self.kind)
        if any(isinstance(mixer, GatedDeltaNet) for mixer in self.model.token_mixers):
            graph.expand(cur)
        if len(layer.token_mixers) == 2:
            return self._both(cur, residual, layer, block, outputs)
        cur = self._mix(cur, layer, block)
        if outputs is not None:
            cur, residual = self._rows(cur, outputs), self._rows(residual, outputs)
        if self.arch in _SANDWICH and blocks.has(f"{block}post_attention_norm.weight"):
            cur = blocks.norm(cur, f"{block}post_attention_norm", self.kind)
        if self.scaled:
            cur = graph.like("scale", cur)
        pair = (residual, cur) if self.arch in _RESIDUAL_FIRST else (cur, residual)
        middle = graph.op("add", cur.shape, *pair)
        if layer.channel_mixer is None:
            return middle
        cur = self._channel(middle, layer, block)
        if blocks.has(f"{block}post_ffw_norm.weight"):
            cur = blocks.norm(cur, f"{block}post_ffw_norm", self.kind)
        if self.scaled:
            cur = graph.like("scale", cur)
        pair = (middle, cur) if self.arch in _RESIDUAL_FIRST_MLP else (cur, middle)
        cur = graph.op("add", cur.shape, *pair)
        if self.arch == "gemma4" and self.effective is not None:
            cur = self.effective.after(cur, layer, outputs)
        return cur

    def _both(
        self, cur: GraphTensor, residual: GraphTensor, layer: Layer, block: str, outputs: GraphTensor | None
    ) -> GraphTensor:
        """A layer with attention and a recurrence beside it (Falcon-H1)."""
        graph, blocks = self.graph, self.blocks
        attention, recurrence = layer.token_mixers
        assert (
            isinstance(attention, FullAttention) and isinstance(recurrence, Mamba2) and self.copy is not None
        )
        first = self._attention(cur, attention, layer.index, block)
        again = blocks.norm(residual, f"{block}attn_norm", self.kind)
        second = blocks.mamba2(again, block, recurrence, self.copy)
        joined = graph.op("add", first.shape, first, second)
        middle = graph.op("add", joined.shape, joined, residual)
        if outputs is not None:
            graph.expand(self._rows(joined, outputs))
            middle = self._rows(middle, outputs)
        cur = self._channel(middle, layer, block)
        return graph.op("add", cur.shape, cur, middle)

    def _single(self, x: GraphTensor, layer: Layer, block: str) -> GraphTensor:
        """A layer that is one block: a mixer or an MLP (Nemotron-H)."""
        cur = self.blocks.norm(x, f"{block}attn_norm", self.kind)
        cur = self._mix(cur, layer, block) if layer.token_mixers else self._ffn(cur, layer, block)
        return self.graph.op("add", cur.shape, cur, x)

    def _parallel(self, x: GraphTensor, layer: Layer, block: str, outputs: GraphTensor | None) -> GraphTensor:
        """Attention and MLP read the same norm (Command-R, Falcon, Phi-2)."""
        graph = self.graph
        blocks = self.blocks
        normed = blocks.norm(x, f"{block}attn_norm", self.kind)
        mixed = normed
        if blocks.has(f"{block}attn_norm_2.weight"):
            mixed = blocks.norm(x, f"{block}attn_norm_2", self.kind)
        cur = self._mix(mixed, layer, block)
        if outputs is not None:
            cur, x, normed = (self._rows(item, outputs) for item in (cur, x, normed))
        attention = cur
        if blocks.has(f"{block}ffn_norm.weight"):
            normed = blocks.norm(x, f"{block}ffn_norm", self.kind)
        cur = self._ffn(normed, layer, block)
        if self.arch == "phi2":
            cur = graph.op("add", cur.shape, attention, cur)
            return graph.op("add", cur.shape, cur, x)
        cur = graph.op("add", cur.shape, cur, x)
        return graph.op("add", cur.shape, cur, attention)

    def _mix(self, x: GraphTensor, layer: Layer, block: str) -> GraphTensor:
        if not layer.token_mixers:
            return x
        mixer = layer.token_mixers[0]
        copy = self.copy
        if isinstance(mixer, LatentAttention) and self.full is not None and self.positions is not None:
            cur = self.blocks.latent(x, block, mixer, self.full, self.positions)
            return self.blocks.project(f"{block}attn_output", cur)
        if isinstance(mixer, FullAttention):
            return self._attention(x, mixer, layer.index, block)
        if copy is not None and isinstance(mixer, Mamba2):
            return self.blocks.mamba2(x, block, mixer, copy)
        if copy is not None and isinstance(mixer, Mamba1):
            return self.blocks.mamba1(x, block, mixer, copy)
        if copy is not None and isinstance(mixer, ShortConvolution):
            return self.blocks.short_convolution(x, block, mixer, copy)
        if copy is not None and isinstance(mixer, GatedDeltaNet):
            return self.blocks.delta_net(x, block, mixer, copy)
        raise TypeError(f"no graph for {type(mixer).__name__}")

    def _attention(self, x: GraphTensor, mixer: FullAttention, index: int, block: str) -> GraphTensor:
        graph, blocks = self.graph, self.blocks
        tokens = self.batch.tokens
        cache = self.windowed if index in self.plan.window_layers else self.full
        if self.second is not None and isinstance(mixer, (SlidingWindowAttention, ChunkedAttention)):
            cache = self.second
        assert cache is not None
        shared = isinstance(mixer, SharedKvAttention)
        if blocks.has(f"{block}attn_qkv.weight"):
            joint = blocks.project(f"{block}attn_qkv", x)
            row = joint.strides[1]
            q = graph.view(joint, (mixer.head_dim, mixer.q_heads, tokens), (4 * mixer.head_dim, row))
            k: GraphTensor | None = graph.view(
                joint, (mixer.head_dim, mixer.kv_heads, tokens), (4 * mixer.head_dim, row)
            )
            v: GraphTensor | None = graph.view(
                joint, (mixer.v_head_dim, mixer.kv_heads, tokens), (4 * mixer.v_head_dim, row)
            )
            gate = None
        else:
            wide = blocks.project(f"{block}attn_q", x)
            gate = None
            if wide.shape[0] == 2 * mixer.q_heads * mixer.head_dim:
                both = graph.reshape(wide, 2 * mixer.head_dim, mixer.q_heads, tokens)
                q, gate = (
                    graph.view(both, (mixer.head_dim, mixer.q_heads, tokens), both.strides[1:3])
                    for _ in range(2)
                )
            elif self._whole_norm(block):
                q = wide
            else:
                q = graph.reshape(wide, mixer.head_dim, mixer.q_heads, tokens)
            k = v = None
            if not shared:
                k = blocks.project(f"{block}attn_k", x)
                v = blocks.project(f"{block}attn_v", x) if blocks.has(f"{block}attn_v.weight") else k
                if not self._whole_norm(block):
                    k = graph.reshape(k, mixer.head_dim, mixer.kv_heads, tokens)
                v = graph.reshape(v, mixer.v_head_dim, mixer.kv_heads, tokens)
        if blocks.has(f"{block}attn_q_norm.weight"):
            q = blocks.norm(q, f"{block}attn_q_norm", self.kind)
            k = blocks.norm(k, f"{block}attn_k_norm", self.kind) if k is not None else None
        if self._whole_norm(block):
            q = graph.reshape(q, mixer.head_dim, mixer.q_heads, tokens)
            k = graph.reshape(k, mixer.head_dim, mixer.kv_heads, tokens) if k is not None else None
        if self.arch in ("gemma3n", "gemma4") and v is not None:
            v = graph.like("rms_norm", v)
        turned = (self.arch not in _NO_ROPE or self.model.model_type == "bamba") and (
            self.arch != "cohere2" or index in self.plan.window_layers
        )
        if self.positions is not None and turned:
            q = graph.like("rope", q, self.positions)
            k = graph.like("rope", k, self.positions) if k is not None else None
        if self.arch in _QUERY_SCALED:
            q = graph.like("scale", q)
        cur = blocks.attend(
            cache, q, k, v, mixer.kv_heads, soft_cap=self.arch == "gemma2", sinks=f"{block}attn_sinks.weight"
        )
        if gate is not None:
            flat = graph.cont(gate, mixer.head_dim * mixer.q_heads, tokens)
            cur = graph.op("mul", cur.shape, cur, graph.like("unary", flat))
        return blocks.project(f"{block}attn_output", cur)

    def _whole_norm(self, block: str) -> bool:
        """Whether the norm of queries goes over all heads at once (OLMo-2)."""
        norm = self.blocks.tensors.get(f"{block}attn_q_norm.weight")
        query = self.blocks.tensors.get(f"{block}attn_q.weight")
        return norm is not None and query is not None and norm.dims[0] == query.dims[1]

    def _channel(self, middle: GraphTensor, layer: Layer, block: str) -> GraphTensor:
        blocks = self.blocks
        if self.arch == "gemma4" and isinstance(layer.channel_mixer, MixtureOfExperts):
            return self._gemma4_experts(middle, layer.channel_mixer, block)
        name = "ffn_norm" if blocks.has(f"{block}ffn_norm.weight") else "post_attention_norm"
        cur = middle
        if name == "ffn_norm" or self.arch not in _SANDWICH:
            cur = blocks.norm(middle, f"{block}{name}", self.kind)
        return self._ffn(cur, layer, block)

    def _ffn(self, cur: GraphTensor, layer: Layer, block: str) -> GraphTensor:
        graph, blocks, mixer = self.graph, self.blocks, layer.channel_mixer
        squared = "relu_sqr" if self.arch in _SQUARED else "silu"
        if not isinstance(mixer, MixtureOfExperts):
            joint = self.arch in ("phi3", "glm4", "chatglm")
            return blocks.mlp(cur, block, "", squared, joint=joint)
        routed = cur
        logits = blocks.project(f"{block}ffn_gate_inp", cur) if self.arch in _SINGLE else None
        if blocks.has(f"{block}ffn_latent_down.weight"):
            routed = blocks.project(f"{block}ffn_latent_down", cur)
        out = blocks.experts(
            routed,
            block,
            mixer,
            normalised=self.arch not in _UNNORMALISED,
            scaled=self.arch in ("deepseek2", "nemotron_h_moe", "glm4moe", "dots1"),
            softmax_after=self.arch in _SOFTMAX_AFTER,
            weigh_first=self.arch == "llama4",
            gated=mixer.gated,
            activation=squared,
            groups=8 if self.arch == "deepseek2" and mixer.num_experts == 256 else 0,
            logits=logits,
        )
        if blocks.has(f"{block}ffn_latent_up.weight"):
            out = blocks.project(f"{block}ffn_latent_up", out)
        if not mixer.shared_intermediate:
            return out
        shared = blocks.mlp(cur, block, "_shexp", squared)
        if blocks.has(f"{block}ffn_gate_inp_shexp.weight"):
            gate = graph.like("unary", blocks.project(f"{block}ffn_gate_inp_shexp", cur))
            shared = graph.like("mul", shared, gate)
        return graph.op("add", out.shape, out, shared)

    def _gemma4_experts(self, middle: GraphTensor, mixer: MixtureOfExperts, block: str) -> GraphTensor:
        """A dense MLP and experts beside it, each with norms of its own."""
        graph, blocks = self.graph, self.blocks
        dense = blocks.mlp(blocks.norm(middle, f"{block}ffn_norm"), block, "")
        dense = blocks.norm(dense, f"{block}post_ffw_norm_1")
        routed = blocks.norm(middle, f"{block}pre_ffw_norm_2")
        router = graph.like("scale", graph.like("rms_norm", middle))
        router = graph.like("mul", router, blocks.weight(f"{block}ffn_gate_inp.scale"))
        logits = graph.matmul(blocks.weight(f"{block}ffn_gate_inp.weight"), router)
        out = blocks.experts(routed, block, mixer, logits=logits)
        out = blocks.norm(out, f"{block}post_ffw_norm_2")
        return graph.op("add", dense.shape, dense, out)
