"""What Gemma-3n and Gemma-4 add to a transformer: inputs of each layer's own, and alternating updates.

Source: llama.cpp src/models/gemma3n.cpp, gemma4.cpp.
"""

from __future__ import annotations

from collections.abc import Callable

from vramledger.engines.llamacpp.graph_blocks import Blocks
from vramledger.engines.llamacpp.tensor_graph import HOST, GraphTensor
from vramledger.models.mixers import FullAttention, Layer
from vramledger.models.model import Model

Attention = Callable[[GraphTensor, FullAttention, int, str], GraphTensor]


class EffectiveGemma:
    """Builds the parts around a layer; one for each graph."""

    def __init__(self, blocks: Blocks, model: Model) -> None:
        self.blocks = blocks
        self.graph = blocks.graph
        self.model = model
        self.tokens = blocks.batch.tokens
        self.inputs: GraphTensor | None = None
        self.width = 0
        self.rows: GraphTensor | None = None
        projection = blocks.tensors.get("altup_proj.weight")
        self.updates = projection.dims[2] + 1 if projection is not None else 0

    def gather(self) -> None:
        """The rows of all layers' inputs, which Gemma-4 asks for before anything else."""
        if self.blocks.has("per_layer_token_embd.weight"):
            self.rows = self._rows()
            self.graph.expand(self.rows)

    def _rows(self) -> GraphTensor:
        graph = self.graph
        table = self.blocks.stored("per_layer_token_embd.weight")
        self.width = table.dims[0] // self.model.num_layers
        graph.device = HOST
        stored = graph.weight(*table.dims, device=HOST)
        return graph.op("get_rows", (table.dims[0], self.tokens), stored, graph.input(self.tokens))

    def start(self, x: GraphTensor) -> GraphTensor:
        """The inputs of all layers, and the stream copied for the alternating updates."""
        if self.blocks.has("per_layer_token_embd.weight"):
            self._per_layer(x)
        if not self.updates:
            return x
        graph, width, count = self.graph, self.model.hidden_size, self.updates - 1
        target = self._magnitude(x)
        repeated = graph.op("repeat", (width, self.tokens, count), x)
        added = graph.op(
            "mul_mat", (width, self.tokens, count), self.blocks.weight("altup_proj.weight"), repeated
        )
        size = self._magnitude(added)
        added = graph.like("div", graph.like("mul", added, target), size)
        return graph.op("concat", (width, self.tokens, self.updates), x, added)

    def _per_layer(self, x: GraphTensor) -> None:
        graph, blocks, tokens = self.graph, self.blocks, self.tokens
        layers = self.model.num_layers
        device = graph.device
        rows = self.rows if self.rows is not None else self._rows()
        graph.device = HOST
        selected = graph.like("scale", graph.reshape(rows, self.width, layers, tokens))
        if self.rows is None:
            graph.expand(selected)
        made = graph.matmul(blocks.weight("per_layer_model_proj.weight"), x)
        made = graph.reshape(graph.like("scale", made), self.width, layers, tokens)
        made = blocks.norm(made, "per_layer_proj_norm")
        total = graph.like("scale", graph.like("add", made, selected))
        self.inputs = graph.cont(graph.permute(total, 0, 2, 1, 3))
        graph.device = device

    def _own(self, like: GraphTensor) -> GraphTensor:
        assert self.inputs is not None
        return self.graph.view(self.inputs, like.shape[:2])

    def after(self, x: GraphTensor, layer: Layer, outputs: GraphTensor | None) -> GraphTensor:
        """Gemma-4: the layer's own input through its gate, and the layer's scale."""
        graph, blocks, block = self.graph, self.blocks, f"blk.{layer.index}."
        if self.inputs is not None:
            before = x
            gate = graph.like("unary", blocks.project(f"{block}inp_gate", x))
            own = graph.view(self.inputs, (self.width, self.tokens))
            if outputs is not None:
                own = graph.op("get_rows", (self.width, blocks.batch.outputs), own, outputs)
            x = blocks.project(f"{block}proj", graph.like("mul", gate, own))
            x = graph.like("add", before, blocks.norm(x, f"{block}post_norm"))
        if blocks.has(f"{block}layer_output_scale.weight"):
            x = graph.like("mul", x, blocks.weight(f"{block}layer_output_scale.weight"))
        return x

    def layer(
        self, x: GraphTensor, layer: Layer, attention: Attention, outputs: GraphTensor | None
    ) -> GraphTensor:
        """A whole layer of Gemma-3n."""
        graph, blocks, block = self.graph, self.blocks, f"blk.{layer.index}."
        predictions = self._predict(x, block)
        active = self._slice(predictions)
        normed = blocks.norm(active, f"{block}attn_norm")
        low = blocks.project(f"{block}laurel_r", blocks.project(f"{block}laurel_l", normed))
        laurel = graph.like("add", blocks.norm(low, f"{block}laurel_post_norm"), normed)
        mixer = layer.token_mixers[0]
        assert isinstance(mixer, FullAttention)
        cur = attention(normed, mixer, layer.index, block)
        cur = blocks.norm(cur, f"{block}post_attention_norm")
        cur = graph.like("add", cur, active)
        joined = graph.like("scale", graph.like("add", cur, laurel))
        cur = blocks.norm(joined, f"{block}ffn_norm")
        up = blocks.project(f"{block}ffn_up", cur)
        gate = blocks.project(f"{block}ffn_gate", cur)
        if layer.index < 10:
            gate = self._sparse(gate)
        cur = blocks.project(f"{block}ffn_down", graph.like("mul", up, graph.like("unary", gate)))
        cur = blocks.norm(cur, f"{block}post_ffw_norm")
        cur = graph.like("add", cur, joined)
        corrected = self._correct(predictions, cur, block)
        first = self._slice(corrected)
        first = graph.op("mul", first.shape, first, blocks.weight(f"{block}altup_correct_scale.weight"))
        first = graph.like("unary", blocks.project(f"{block}inp_gate", first))
        first = graph.like("mul", first, self._own(first))
        first = blocks.norm(blocks.project(f"{block}proj", first), f"{block}post_norm")
        width, count = self.model.hidden_size, self.updates
        rest = graph.view(corrected, (width, self.tokens, count - 1), corrected.strides[1:3])
        rest = graph.op("add", rest.shape, rest, first)
        return graph.op("concat", (width, self.tokens, count), self._slice(corrected), rest)

    def finish(self, x: GraphTensor, outputs: GraphTensor) -> GraphTensor:
        """The streams of Gemma-3n merged into one."""
        graph, width, count = self.graph, self.model.hidden_size, self.updates
        target = self._magnitude(self._slice(x))
        rest = graph.view(x, (width, self.tokens, count - 1), x.strides[1:3])
        merged = graph.op("mul_mat", rest.shape, self.blocks.weight("altup_unembd_proj.weight"), rest)
        size = self._magnitude(merged)
        merged = graph.like("div", graph.like("mul", merged, target), size)
        cur = self._slice(x)
        for _ in range(count - 1):
            cur = graph.op("add", cur.shape, cur, self._slice(merged))
        cur = graph.like("scale", cur)
        return graph.op("get_rows", (width, self.blocks.batch.outputs), cur, outputs)

    def _slice(self, x: GraphTensor) -> GraphTensor:
        return self.graph.view(x, x.shape[:2], (x.strides[1],))

    def _magnitude(self, x: GraphTensor) -> GraphTensor:
        squared = self.graph.op("sqr", x.shape, x)
        return self.graph.like("unary", self.graph.op("sum_rows", (1, *x.shape[1:]), squared))

    def _modalities(self, x: GraphTensor, block: str) -> GraphTensor:
        scaled = self.graph.like("scale", self.blocks.norm(x, f"{block}altup_router_norm"))
        return self.graph.like("unary", self.blocks.project(f"{block}altup_router", scaled))

    def _predict(self, x: GraphTensor, block: str) -> GraphTensor:
        graph, count, tokens, width = self.graph, self.updates, self.tokens, self.model.hidden_size
        modalities = self._modalities(self._slice(x), block)
        factors = graph.reshape(
            self.blocks.project(f"{block}altup_predict_coef", modalities), count, count, tokens
        )
        turned = graph.cont(graph.permute(x, 1, 2, 0, 3))
        made = graph.op("mul_mat", (width, count, tokens), turned, factors)
        made = graph.cont(graph.permute(made, 0, 2, 1, 3))
        return graph.like("add", made, x)

    def _correct(self, predictions: GraphTensor, activated: GraphTensor, block: str) -> GraphTensor:
        graph, count, tokens, width = self.graph, self.updates, self.tokens, self.model.hidden_size
        modalities = self._modalities(activated, block)
        change = graph.op("sub", activated.shape, activated, self._slice(predictions))
        factors = graph.like("scale", self.blocks.project(f"{block}altup_correct_coef", modalities))
        factors = graph.cont(graph.transpose(factors), 1, tokens, count)
        change = graph.op("repeat", (width, tokens, count), change)
        return graph.like("add", graph.like("mul", change, factors), predictions)

    def _sparse(self, x: GraphTensor) -> GraphTensor:
        graph = self.graph
        rows = (1, *x.shape[1:])
        mean = graph.op("mean", rows, x)
        spread = graph.op("sum_rows", rows, graph.like("sqr", graph.like("sub", x, mean)))
        spread = graph.like("unary", graph.like("scale", spread))
        cutoff = graph.like("add", mean, graph.like("scale", spread))
        return graph.like("unary", graph.like("sub", x, cutoff))
