"""What Gemma 3n and Gemma 4 share: layers that read another layer's KV cache, and per-layer embeddings
(`kv_sharing_modes` and the per-layer inputs of transformers models/gemma3n and models/gemma4)."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.models.blocks import Place
from vramledger.models.config import Config
from vramledger.models.tensors import Role, hidden, kv_heads, q_heads, vocab, whole

KINDS = ("sliding_attention", "full_attention")


def layer_types(config: Config, count: int, *, pattern: int) -> tuple[str, ...]:
    """The kind of each layer: `layer_types`, or one full layer in `pattern`; the last one is always full.

    Raises ConfigError for a list shorter than the layers or an unknown kind.
    """
    stated = config.texts("layer_types")
    if stated and len(stated) < count:
        raise config.fail("layer_types", f"has {len(stated)} entries for {count} layers")
    for kind in stated:
        if kind not in KINDS:
            raise config.fail("layer_types", f"holds {kind!r}, which is neither of {', '.join(KINDS)}")
    if not stated:
        config.assume(f"layer_types not stated: the class's one full layer in {pattern} taken")
        stated = tuple(KINDS[(index + 1) % pattern == 0] for index in range(count))
    return (*stated[: count - 1], "full_attention")


def kv_sources(config: Config, types: Sequence[str], shared: int) -> tuple[int | None, ...]:
    """For each layer the layer whose KV it reads, None where it keeps its own.

    The last `shared` layers read the last layer of their kind before them. Raises ConfigError where there is
    none.
    """
    first = len(types) - shared
    if first <= 0:
        raise config.fail("num_kv_shared_layers", f"{shared} leaves no layer of {len(types)} with its own KV")
    last = {kind: index for index, kind in enumerate(types[:first])}
    for kind in types[first:]:
        if kind not in last:
            raise config.fail("num_kv_shared_layers", f"{shared} leaves no {kind} layer to share from")
    return (*(None for _ in range(first)), *(last[kind] for kind in types[first:]))


def shared_kv_attention(
    root: Place,
    layers: Sequence[int],
    sources: Sequence[int | None],
    *,
    width: int,
    heads: int,
    kv: int,
    head_dim: int,
    bias: bool,
    own_values: bool = True,
) -> None:
    """Attention of `layers` with a norm for q and k each; `own_values` False has no value projection.

    Layers that share KV have no use for their own projections, though checkpoints keep them: those are listed
    as stored, not as parameters.
    """
    every = root.at("model.layers.{layer}.self_attn.", layers)
    every.linear("q_proj", Role.Q, q_heads(heads, head_dim), hidden(width), bias=bias)
    every.linear("o_proj", Role.O, hidden(width), q_heads(heads, head_dim), bias=bias)
    every.norm("q_norm", head_dim)
    own = every.at(every.prefix, [index for index in layers if sources[index] is None])
    unused = every.at(every.prefix, [index for index in layers if sources[index] is not None])
    rows = kv_heads(kv, head_dim)
    projections = {"k_proj": Role.K, "v_proj": Role.V} if own_values else {"k_proj": Role.K}
    for name, role in projections.items():
        own.linear(name, role, rows, hidden(width), bias=bias)
        unused.tensor(f"{name}.weight", role, rows, hidden(width), linear=True, parameter=False)
    own.norm("k_norm", head_dim)
    unused.tensor("k_norm.weight", Role.NORM, whole(head_dim), parameter=False)


def per_layer_embeddings(root: Place, *, rows: int, size: int, count: int, width: int) -> None:
    """A table of `size` values a layer for each token, its projection from the hidden state, and each
    layer's gate."""
    root.tensor("embed_tokens_per_layer.weight", Role.EMBEDDING, vocab(rows), hidden(count * size))
    root.linear("per_layer_model_projection", Role.OTHER, hidden(count * size), hidden(width))
    root.norm("per_layer_projection_norm", size)
    layer = root.at("model.layers.{layer}.", range(count))
    layer.linear("per_layer_input_gate", Role.OTHER, hidden(size), hidden(width))
    layer.linear("per_layer_projection", Role.OTHER, hidden(width), hidden(size))
    layer.norm("post_per_layer_input_norm", width)
