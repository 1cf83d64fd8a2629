"""What a layer is made of: token mixers, which decide the KV cache, and channel mixers.

Head counts and widths are those of the whole model; an engine divides them.
"""

from __future__ import annotations

from msgspec import Struct


class FullAttention(Struct, frozen=True, kw_only=True):
    """Causal attention over the whole context. MHA, GQA and MQA are one thing with three head counts."""

    q_heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int

    @property
    def kv_elements_per_token(self) -> int:
        return self.kv_heads * (self.head_dim + self.v_head_dim)


class SlidingWindowAttention(FullAttention, frozen=True, kw_only=True):
    """Attention over the last `window` tokens, the current one included."""

    window: int


class ChunkedAttention(FullAttention, frozen=True, kw_only=True):
    """Attention within fixed chunks of `chunk` tokens (Llama 4's local layers)."""

    chunk: int


class CrossAttention(FullAttention, frozen=True, kw_only=True):
    """Attention of a decoder over an encoder's output of at most `max_encoder_tokens` tokens (0: unknown)."""

    max_encoder_tokens: int


class EncoderAttention(FullAttention, frozen=True, kw_only=True):
    """Bidirectional attention; nothing is kept between steps."""


class SharedKvAttention(FullAttention, frozen=True, kw_only=True):
    """Attention that reads the KV cache of layer `source_layer` and keeps none of its own."""

    source_layer: int


class SparseIndexer(Struct, frozen=True, kw_only=True):
    """The scorer of DeepSeek sparse attention: one key of `head_dim` a token beside the latent.

    `keeps_keys` is False for layers that reuse another layer's selection; `tokens_per_key` is above 1 where a
    group of tokens is pooled into one key.
    """

    heads: int
    head_dim: int
    top_k: int
    keeps_keys: bool = True
    tokens_per_key: int = 1


class IndexedAttention(FullAttention, frozen=True, kw_only=True):
    """Attention over the tokens or blocks that an indexer selects (MiniMax-M3, Qwen4).

    Keys and values of the whole context stay; each token also keeps one index key of `indexer.head_dim`.
    """

    indexer: SparseIndexer


class LatentAttention(Struct, frozen=True, kw_only=True):
    """Multi-head latent attention: one vector of kv_lora_rank + rope_dim a token for all heads."""

    q_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    v_head_dim: int
    indexer: SparseIndexer | None = None

    @property
    def kv_elements_per_token(self) -> int:
        return self.kv_lora_rank + self.rope_dim


class CompressedAttention(Struct, frozen=True, kw_only=True):
    """DeepSeek-V4: a sliding window of single-vector KV beside a compressed history.

    One state of `head_dim` for every `compress_ratio` tokens (0: no history, window only); layers with an
    indexer keep a key of `indexer.head_dim` for each state too.
    """

    q_heads: int
    head_dim: int
    rope_dim: int
    window: int
    compress_ratio: int
    indexer: SparseIndexer | None = None

    @property
    def kv_elements_per_token(self) -> int:
        return self.head_dim


class Mamba1(Struct, frozen=True, kw_only=True):
    """Selective state space with a state of `inner` x `state` a sequence."""

    inner: int
    state: int
    conv_kernel: int


class Mamba2(Struct, frozen=True, kw_only=True):
    """State space duality: `heads` of `head_dim` with `state`, B and C shared by `groups`."""

    heads: int
    head_dim: int
    groups: int
    state: int
    conv_kernel: int

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim


class GatedDeltaNet(Struct, frozen=True, kw_only=True):
    """Gated delta rule (Qwen3-Next, Qwen3.5): a v_heads x v_dim x k_dim state a sequence."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    conv_kernel: int


class KimiDeltaAttention(Struct, frozen=True, kw_only=True):
    """Kimi Linear's delta attention: a heads x head_dim x head_dim state, three convolutions."""

    heads: int
    head_dim: int
    conv_kernel: int


class LinearAttention(Struct, frozen=True, kw_only=True):
    """Lightning attention (MiniMax-Text-01): a heads x head_dim x head_dim state a sequence."""

    heads: int
    head_dim: int


class ShortConvolution(Struct, frozen=True, kw_only=True):
    """A causal convolution over `channels` with a state of kernel - 1 steps (LFM2)."""

    channels: int
    kernel: int


class RwkvMixer(Struct, frozen=True, kw_only=True):
    """RWKV time mixing: a constant state of `state_elements` fp32 values a sequence."""

    state_elements: int


TokenMixer = (
    FullAttention
    | LatentAttention
    | CompressedAttention
    | Mamba1
    | Mamba2
    | GatedDeltaNet
    | KimiDeltaAttention
    | LinearAttention
    | ShortConvolution
    | RwkvMixer
)

RECURRENT = (
    Mamba1,
    Mamba2,
    GatedDeltaNet,
    KimiDeltaAttention,
    LinearAttention,
    ShortConvolution,
    RwkvMixer,
)


class DenseMlp(Struct, frozen=True, kw_only=True):
    """`gated` has gate and up of `intermediate` each; otherwise one matrix up and one down."""

    intermediate: int
    gated: bool


class MixtureOfExperts(Struct, frozen=True, kw_only=True):
    """Routed experts of which `top_k` run for a token, beside shared ones that always run.

    `dense_intermediate` is a dense MLP that runs beside the experts in the same layer (0: none).
    """

    num_experts: int
    top_k: int
    intermediate: int
    shared_intermediate: int = 0
    gated: bool = True
    dense_intermediate: int = 0


ChannelMixer = DenseMlp | MixtureOfExperts


class Layer(Struct, frozen=True, kw_only=True):
    """One decoder layer. Parallel hybrids (Falcon-H1) have two token mixers; some layers have none."""

    index: int
    token_mixers: tuple[TokenMixer, ...]
    channel_mixer: ChannelMixer | None
