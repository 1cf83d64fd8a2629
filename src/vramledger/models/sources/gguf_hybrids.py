"""GGUF metadata of recurrent, hybrid and newer models as the config.json of the same model.

Keys: llama.cpp gguf-py/gguf/constants.py; their meaning: the model classes under conversion/, read backwards.
"""

from __future__ import annotations

from typing import Any

from vramledger.models.sources.bounded_file import quote
from vramledger.models.sources.gguf_keys import Keys, common, decoder, put


def mamba(keys: Keys) -> dict[str, Any]:
    inner = keys.integer("ssm.inner_size")
    return put(
        _plain(keys),
        intermediate_size=inner,
        state_size=keys.integer("ssm.state_size"),
        conv_kernel=keys.integer("ssm.conv_kernel"),
        time_step_rank=keys.integer("ssm.time_step_rank"),
    )


def mamba2(keys: Keys) -> dict[str, Any]:
    inner, heads = keys.integer("ssm.inner_size"), keys.integer("ssm.time_step_rank")
    width = keys.integer("embedding_length")
    if inner % heads or inner % width:
        raise keys.fail(
            f"{keys.info.architecture}.ssm.inner_size", f"is {inner}, for {heads} heads and {width}"
        )
    return put(
        _plain(keys),
        num_heads=heads,
        head_dim=inner // heads,
        n_groups=keys.integer("ssm.group_count"),
        state_size=keys.integer("ssm.state_size"),
        conv_kernel=keys.integer("ssm.conv_kernel"),
        expand=inner // width,
    )


def _plain(keys: Keys) -> dict[str, Any]:
    """What a model without attention states."""
    return put(
        {},
        hidden_size=keys.integer("embedding_length"),
        num_hidden_layers=keys.blocks,
        vocab_size=keys.vocab_size(),
        max_position_embeddings=keys.optional("context_length"),
        tie_word_embeddings=not keys.has("output.weight"),
        torch_dtype="float16",
    )


def _attention_layers(keys: Keys) -> tuple[tuple[bool, ...], int]:
    """Which layers attend, and their one count of KV heads."""
    heads = keys.per_layer("attention.head_count_kv")
    counts = sorted({count for count in heads if count})
    if len(counts) != 1:
        raise keys.fail(
            f"{keys.info.architecture}.attention.head_count_kv", f"holds {quote(counts)}, not one count"
        )
    return tuple(bool(count) for count in heads), counts[0]


def _mamba_parts(keys: Keys) -> dict[str, Any]:
    inner, heads = keys.integer("ssm.inner_size"), keys.integer("ssm.time_step_rank")
    if inner % heads:
        raise keys.fail(f"{keys.info.architecture}.ssm.inner_size", f"is {inner}, for {heads} heads")
    return {
        "mamba_d_conv": keys.integer("ssm.conv_kernel"),
        "mamba_d_state": keys.integer("ssm.state_size"),
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_n_groups": keys.integer("ssm.group_count"),
        "mamba_expand": max(inner // keys.integer("embedding_length"), 1),
    }


def jamba(keys: Keys) -> dict[str, Any]:
    attends, kv_heads = _attention_layers(keys)
    routed = [keys.has(f"blk.{layer}.ffn_gate_inp.weight") for layer in range(keys.blocks)]
    period, offset = _period(attends)
    expert_period, expert_offset = _period(tuple(routed)) if any(routed) else (1, 0)
    return put(
        common(keys),
        num_key_value_heads=kv_heads,
        attn_layer_period=period,
        attn_layer_offset=offset,
        expert_layer_period=expert_period,
        expert_layer_offset=expert_offset,
        num_experts=keys.optional("expert_count") or 1,
        num_experts_per_tok=keys.optional("expert_used_count") or 1,
        intermediate_size=keys.integer("feed_forward_length"),
        mamba_d_conv=keys.integer("ssm.conv_kernel"),
        mamba_d_state=keys.integer("ssm.state_size"),
        mamba_dt_rank=keys.integer("ssm.time_step_rank"),
        mamba_expand=max(keys.integer("ssm.inner_size") // keys.integer("embedding_length"), 1),
    )


def _period(layers: tuple[bool, ...]) -> tuple[int, int]:
    """The distance of the layers that are True, and the first one."""
    at = [index for index, value in enumerate(layers) if value]
    return (at[1] - at[0] if len(at) > 1 else len(layers), at[0])


def granite_hybrid(keys: Keys) -> dict[str, Any]:
    """Bamba is the same architecture with rotary positions, which its file says with one flag."""
    attends, kv_heads = _attention_layers(keys)
    if keys.info.metadata.get("granitehybrid.rope.scaling.finetuned") is True:
        return put(
            common(keys),
            model_type="bamba",
            architectures=["BambaForCausalLM"],
            num_key_value_heads=kv_heads,
            attn_layer_indices=[layer for layer, value in enumerate(attends) if value],
            intermediate_size=keys.integer("feed_forward_length"),
            **_mamba_parts(keys),
        )
    experts = keys.optional("expert_count") or 0
    dense = keys.optional("feed_forward_length", least=1)
    return put(
        common(keys),
        num_key_value_heads=kv_heads,
        layer_types=["attention" if value else "mamba" for value in attends],
        num_local_experts=experts,
        num_experts_per_tok=keys.optional("expert_used_count", least=1),
        intermediate_size=(keys.optional("expert_feed_forward_length", least=1) or dense)
        if experts
        else dense,
        shared_intermediate_size=keys.optional("expert_shared_feed_forward_length", least=1)
        if experts
        else dense,
        position_embedding_type="nope",
        **_mamba_parts(keys),
    )


def falcon_h1(keys: Keys) -> dict[str, Any]:
    return put(
        decoder(keys),
        mamba_d_ssm=keys.integer("ssm.inner_size"),
        mamba_rms_norm=keys.has("blk.0.ssm_norm.weight"),
        **_mamba_parts(keys),
    )


def nemotron_h(keys: Keys) -> dict[str, Any]:
    heads = keys.per_layer("attention.head_count_kv")
    counts = sorted({count for count in heads if count})
    widths = keys.per_layer("feed_forward_length")
    marks = []
    for layer, (count, width) in enumerate(zip(heads, widths, strict=True)):
        routed = keys.has(f"blk.{layer}.ffn_gate_inp.weight")
        marks.append("*" if count else "E" if routed else "-" if width else "M")
    inner, ssm_heads = keys.integer("ssm.inner_size"), keys.integer("ssm.time_step_rank")
    return put(
        common(keys),
        num_key_value_heads=counts[0] if counts else 1,
        hybrid_override_pattern="".join(marks),
        intermediate_size=max(
            (width for width, mark in zip(widths, marks, strict=True) if mark == "-"), default=1
        ),
        mamba_num_heads=ssm_heads,
        mamba_head_dim=max(inner // ssm_heads, 1),
        n_groups=keys.integer("ssm.group_count"),
        ssm_state_size=keys.integer("ssm.state_size"),
        conv_kernel=keys.integer("ssm.conv_kernel"),
        n_routed_experts=keys.optional("expert_count", least=1),
        num_experts_per_tok=keys.optional("expert_used_count", least=1),
        moe_intermediate_size=keys.optional("expert_feed_forward_length", least=1),
        moe_shared_expert_intermediate_size=keys.optional("expert_shared_feed_forward_length", least=1),
    )


def _delta_net(keys: Keys) -> dict[str, Any]:
    value_heads = keys.integer("ssm.time_step_rank")
    inner = keys.integer("ssm.inner_size")
    interval = keys.optional("full_attention_interval", least=1) or 4
    config = decoder(keys)
    blocks = keys.blocks - (keys.optional("nextn_predict_layers", most=16) or 0)
    return put(
        config,
        num_hidden_layers=blocks,
        full_attention_interval=interval,
        layer_types=[
            "full_attention" if (layer + 1) % interval == 0 else "linear_attention" for layer in range(blocks)
        ],
        linear_conv_kernel_dim=keys.integer("ssm.conv_kernel"),
        linear_key_head_dim=keys.integer("ssm.state_size"),
        linear_num_key_heads=keys.integer("ssm.group_count"),
        linear_num_value_heads=value_heads,
        linear_value_head_dim=max(inner // value_heads, 1),
        num_nextn_predict_layers=0,
        mtp_num_hidden_layers=0,
    )


def delta_net(keys: Keys) -> dict[str, Any]:
    return _delta_net(keys)


def delta_net_moe(keys: Keys) -> dict[str, Any]:
    return put(
        _delta_net(keys),
        num_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        shared_expert_intermediate_size=keys.optional("expert_shared_feed_forward_length"),
        decoder_sparse_step=1,
        mlp_only_layers=[],
    )


def _window_types(keys: Keys) -> list[str]:
    """One word a layer, from the pattern of the file."""
    value = keys.info.metadata.get(f"{keys.info.architecture}.attention.sliding_window_pattern")
    if not isinstance(value, tuple) or len(value) != keys.blocks:
        raise keys.fail(
            f"{keys.info.architecture}.attention.sliding_window_pattern",
            f"is not one entry for each of {keys.blocks} layers",
        )
    return ["sliding_attention" if item else "full_attention" for item in value]


def gemma3n(keys: Keys) -> dict[str, Any]:
    return put(
        decoder(keys),
        layer_types=_window_types(keys),
        sliding_window=keys.integer("attention.sliding_window"),
        num_kv_shared_layers=keys.optional("attention.shared_kv_layers") or 0,
        hidden_size_per_layer_input=keys.integer("embedding_length_per_layer_input"),
        vocab_size_per_layer_input=keys.vocab_size(),
    )


def gemma4(keys: Keys) -> dict[str, Any]:
    types = _window_types(keys)
    kv_heads = keys.per_layer("attention.head_count_kv")
    local = [count for count, kind in zip(kv_heads, types, strict=True) if kind == "sliding_attention"]
    wide = [count for count, kind in zip(kv_heads, types, strict=True) if kind == "full_attention"]
    routed = keys.optional("expert_count") or 0
    first_full = next((layer for layer, kind in enumerate(types) if kind == "full_attention"), 0)
    return put(
        common(keys),
        layer_types=types,
        sliding_window=keys.integer("attention.sliding_window"),
        head_dim=keys.integer("attention.key_length_swa"),
        global_head_dim=keys.integer("attention.key_length"),
        num_key_value_heads=local[0] if local else kv_heads[0],
        num_global_key_value_heads=wide[0] if wide else None,
        attention_k_eq_v=not keys.has(f"blk.{first_full}.attn_v.weight"),
        num_kv_shared_layers=keys.optional("attention.shared_kv_layers") or 0,
        hidden_size_per_layer_input=keys.optional("embedding_length_per_layer_input") or 0,
        vocab_size_per_layer_input=keys.vocab_size(),
        intermediate_size=max(keys.per_layer("feed_forward_length")),
        enable_moe_block=bool(routed),
        num_experts=routed or None,
        top_k_experts=keys.optional("expert_used_count", least=1),
        moe_intermediate_size=keys.optional("expert_feed_forward_length", least=1),
    )


def llama4(keys: Keys) -> dict[str, Any]:
    return put(
        decoder(keys),
        intermediate_size=keys.integer("expert_feed_forward_length"),
        intermediate_size_mlp=keys.integer("feed_forward_length"),
        num_local_experts=keys.integer("expert_count"),
        num_experts_per_tok=keys.integer("expert_used_count"),
        interleave_moe_layer_step=keys.optional("interleave_moe_layer_step", least=1) or 1,
        attention_chunk_size=8192,
    )


def glm4_moe(keys: Keys) -> dict[str, Any]:
    draft = keys.optional("nextn_predict_layers", most=16) or 0
    return put(
        decoder(keys),
        num_hidden_layers=keys.blocks - draft,
        num_nextn_predict_layers=0,
        attention_bias=keys.has("blk.0.attn_q.bias"),
        use_qk_norm=keys.has("blk.0.attn_q_norm.weight"),
        n_routed_experts=keys.integer("expert_count"),
        n_shared_experts=keys.optional("expert_shared_count") or 0,
        num_experts_per_tok=keys.integer("expert_used_count"),
        moe_intermediate_size=keys.integer("expert_feed_forward_length"),
        first_k_dense_replace=keys.optional("leading_dense_block_count") or 0,
    )


def biased(keys: Keys) -> dict[str, Any]:
    """A decoder whose biases the file shows."""
    return put(
        decoder(keys), attention_bias=keys.has("blk.0.attn_q.bias"), mlp_bias=keys.has("blk.0.ffn_up.bias")
    )
