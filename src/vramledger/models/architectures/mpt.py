"""MPT: ALiBi, fused q, k and v, no biases, tied head (transformers models/mpt; llm-foundry's modeling_mpt.py)."""

from __future__ import annotations

from vramledger.models.blocks import plain_mlp
from vramledger.models.config import Config
from vramledger.models.decoder import Heads, even_heads
from vramledger.models.dense import Names, skeleton
from vramledger.models.mixers import DenseMlp
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Role, axis, hidden

NAMES = Names(base="transformer.", embedding="wte", layer="blocks.{layer}.", norm="norm_f")


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("MptConfig", max_seq_len=2048, expansion_ratio=4, tie_word_embeddings=True)
    settings = config.optional_sub("attn_config") or Config({}, "attn_config", config.notes)
    heads = _heads(config, settings)
    bias = not config.flag("no_bias", default=True)
    inner = config.integer("expansion_ratio") * heads.width
    frame = skeleton(
        config,
        "MPTForCausalLM",
        names=NAMES,
        heads=heads,
        count=config.num_layers("n_layers", "num_hidden_layers"),
        positions=config.integer("max_seq_len"),
    )
    if not settings.flag("alibi", default=True):
        rows = axis(AxisKind.POSITION, frame.positions)
        frame.root.tensor("wpe.weight", Role.POSITION_EMBEDDING, rows, hidden(heads.width))
    frame.fused_attention("attn.Wqkv", "attn.out_proj", bias=bias, o_bias=bias)
    if settings.flag("qk_ln", default=False):
        frame.layer.norm("attn.q_ln", heads.width, bias=bias)
        frame.layer.norm("attn.k_ln", heads.kv * heads.head_dim, bias=bias)
    plain_mlp(frame.layer, "ffn.up_proj", "ffn.down_proj", width=heads.width, inner=inner, bias=bias)
    frame.norms("norm_1", "norm_2", bias=bias)
    layers = frame.uniform(DenseMlp(intermediate=inner, gated=False))
    return frame.finish(model_id, layers, norm_bias=bias)


def _heads(config: Config, settings: Config) -> Heads:
    """Heads by `attn_type`: all with their own keys and values, in groups of kv_n_heads, or one for all."""
    even = even_heads(config, config.integer("d_model"), config.integer("n_heads"))
    kind = settings.text("attn_type", default="multihead_attention")
    if kind == "multihead_attention":
        return even
    if kind not in ("multiquery_attention", "grouped_query_attention"):
        raise settings.fail("attn_type", f"is {kind!r}, which MPT does not have")
    kv = 1 if kind == "multiquery_attention" else settings.integer("kv_n_heads")
    if even.heads % kv:
        raise settings.fail("kv_n_heads", f"{kv} does not divide n_heads {even.heads}")
    return Heads(width=even.width, heads=even.heads, kv=kv, head_dim=even.head_dim)
