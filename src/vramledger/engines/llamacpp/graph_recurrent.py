"""The parts of layers that keep a state, as llama.cpp builds them.

Source: llama.cpp src/llama-graph.cpp (build_rs), src/models/mamba-base.cpp, lfm2.cpp, delta-net-base.cpp, qwen3next.cpp.
"""

from __future__ import annotations

from vramledger.engines.llamacpp.graph_blocks import Blocks, elements_of
from vramledger.engines.llamacpp.tensor_graph import GraphTensor
from vramledger.models.mixers import GatedDeltaNet, Mamba1, Mamba2, ShortConvolution


class RecurrentBlocks(Blocks):
    """Builds layers of attention and of states into one graph."""

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
        target = graph.cache(elements_of(value), device=self.cache_device)
        graph.expand(graph.write(graph.view(target, (elements_of(value),)), value))

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
