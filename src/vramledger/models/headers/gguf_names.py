"""Described tensors under llama.cpp's names.

Source: llama.cpp gguf-py/gguf/constants.py (names) and tensor_mapping.py (which model's tensor each one is).
"""

from __future__ import annotations

from collections.abc import Collection

from vramledger.models.tensors import Role, Tensor

Choices = tuple[tuple[str, ...], ...]
"""Ways a tensor may be stored, the likeliest first; each is the modules that hold it together."""


def _one(*names: str) -> Choices:
    return tuple((name,) for name in names)


_OUTSIDE: dict[Role, Choices] = {
    Role.EMBEDDING: _one("token_embd"),
    Role.POSITION_EMBEDDING: _one("position_embd"),
    Role.LM_HEAD: _one("output"),
    Role.NORM: _one("output_norm", "token_embd_norm"),
}

_INSIDE: dict[Role, Choices] = {
    Role.Q: _one("attn_q"),
    Role.K: _one("attn_k"),
    Role.V: _one("attn_v"),
    Role.QKV: (("attn_qkv",), ("attn_q", "attn_k", "attn_v")),
    Role.O: _one("attn_output"),
    Role.Q_A: _one("attn_q_a"),
    Role.Q_B: _one("attn_q_b"),
    Role.KV_A: _one("attn_kv_a_mqa"),
    Role.KV_B: (("attn_kv_b",), ("attn_k_b", "attn_v_b")),
    Role.SINKS: _one("attn_sinks"),
    Role.GATE: _one("ffn_gate"),
    Role.UP: _one("ffn_up"),
    Role.GATE_UP: (("ffn_gate", "ffn_up"), ("ffn_up",)),
    Role.DOWN: _one("ffn_down"),
    Role.EXPERT_GATE: _one("ffn_gate_exps", "ffn_gate.{}"),
    Role.EXPERT_UP: _one("ffn_up_exps", "ffn_up.{}"),
    Role.EXPERT_GATE_UP: (("ffn_gate_exps", "ffn_up_exps"), ("ffn_gate_up_exps",)),
    Role.EXPERT_DOWN: _one("ffn_down_exps", "ffn_down.{}"),
    Role.SHARED_GATE: _one("ffn_gate_shexp"),
    Role.SHARED_UP: _one("ffn_up_shexp"),
    Role.SHARED_GATE_UP: (("ffn_gate_shexp", "ffn_up_shexp"),),
    Role.SHARED_DOWN: _one("ffn_down_shexp"),
    Role.SSM_IN: _one("shortconv.in_proj", "ssm_in"),
    Role.SSM_CONV: _one("shortconv.conv", "ssm_conv1d"),
    Role.SSM_OUT: _one("shortconv.out_proj", "ssm_out"),
    Role.ROUTER: _one("ffn_gate_inp"),
}

# Roles do not tell norms and router tensors apart; the checkpoint's own names do.
_BY_TAIL: dict[str, Choices] = {
    "input_layernorm": _one("attn_norm"),
    "attention_norm": _one("attn_norm"),
    "norm": _one("attn_norm"),
    "ln_1": _one("attn_norm"),
    "ln_2": _one("ffn_norm"),
    "pre_ff_layernorm": _one("ffn_norm"),
    "operator_norm": _one("attn_norm"),
    "ffn_norm": _one("ffn_norm"),
    "pre_feedforward_layernorm": _one("ffn_norm"),
    "post_attention_layernorm": _one("post_attention_norm", "ffn_norm"),
    "post_feedforward_layernorm": _one("post_ffw_norm"),
    "post_mlp_layernorm": _one("post_ffw_norm"),
    # GLM-4 has a norm on both sides of the addition, of one shape: which is which decides no byte.
    "post_self_attn_layernorm": _one("ffn_norm"),
    "q_norm": _one("attn_q_norm"),
    "k_norm": _one("attn_k_norm"),
    "q_layernorm": _one("attn_q_norm"),
    "k_layernorm": _one("attn_k_norm"),
    "query_layernorm": _one("attn_q_norm"),
    "key_layernorm": _one("attn_k_norm"),
    "q_a_layernorm": _one("attn_q_a_norm"),
    "kv_a_layernorm": _one("attn_kv_a_norm"),
    "shared_expert_gate": _one("ffn_gate_inp_shexp"),
    "e_score_correction_bias": _one("exp_probs_b"),
    "expert_bias": _one("exp_probs_b"),
    "eh_proj": _one("nextn.eh_proj"),
    "enorm": _one("nextn.enorm"),
    "hnorm": _one("nextn.hnorm"),
    "embed_tokens": _one("nextn.embed_tokens"),
    "shared_head.norm": _one("nextn.shared_head_norm"),
    "shared_head.head": _one("nextn.shared_head_head"),
    "mamba.norm": _one("ssm_norm"),
    "mixer.norm": _one("ssm_norm"),
    "linear_attn.norm": _one("ssm_norm"),
    "x_proj": _one("ssm_x"),
    "dt_proj": _one("ssm_dt"),
    "dt_bias": _one("ssm_dt"),
    "A_log": _one("ssm_a"),
    "D": _one("ssm_d"),
    "b_layernorm": _one("ssm_b_norm"),
    "c_layernorm": _one("ssm_c_norm"),
    "dt_layernorm": _one("ssm_dt_norm"),
    "in_proj_qkvz": (("attn_qkv", "attn_gate"), ("ssm_in",)),
    "in_proj_qkv": _one("attn_qkv"),
    "in_proj_z": _one("attn_gate"),
    "in_proj_ba": _one("ssm_ba"),
    "in_proj_a": _one("ssm_alpha"),
    "in_proj_b": _one("ssm_beta"),
    "pre_feedforward_layernorm_2": _one("pre_ffw_norm_2"),
    "post_feedforward_layernorm_1": _one("post_ffw_norm_1"),
    "post_feedforward_layernorm_2": _one("post_ffw_norm_2"),
    "layer_scalar": _one("layer_output_scale"),
    "per_layer_input_gate": _one("inp_gate"),
    "per_layer_projection": _one("proj"),
    "post_per_layer_input_norm": _one("post_norm"),
    "linear_left": _one("laurel_l"),
    "linear_right": _one("laurel_r"),
    "post_laurel_norm": _one("laurel_post_norm"),
    "correction_coefs": _one("altup_correct_coef"),
    "prediction_coefs": _one("altup_predict_coef"),
    "modality_router": _one("altup_router"),
    "router_norm": _one("altup_router_norm"),
    "correct_output_scale": _one("altup_correct_scale"),
}

_OUTSIDE_BY_TAIL: dict[str, Choices] = {
    "embed_tokens_per_layer": _one("per_layer_token_embd"),
    "per_layer_model_projection": _one("per_layer_model_proj"),
    "per_layer_projection_norm": _one("per_layer_proj_norm"),
    "altup_projections": _one("altup_proj"),
    "altup_unembed_projections": _one("altup_unembd_proj"),
}


def gguf_stems(tensor: Tensor, theirs: Collection[str]) -> tuple[str, ...]:
    """The modules of a GGUF file that hold a described tensor, templates as in a header table; empty where none does."""
    in_layers = bool(tensor.layers)
    by_tail, by_role = (_BY_TAIL, _INSIDE) if in_layers else (_OUTSIDE_BY_TAIL, _OUTSIDE)
    choices = by_tail.get(_tail(tensor)) or by_role.get(tensor.role, ())
    head = "blk.{}." if in_layers else ""
    for names in choices:
        stems = tuple(head + name for name in names)
        if all(stem in theirs for stem in stems):
            return stems
    return ()


def is_bias(tensor: Tensor) -> bool:
    """Whether llama.cpp stores the tensor as the `.bias` of its module."""
    return tensor.name.endswith((".bias", "_proj_bias", ".dt_bias")) or _BY_TAIL.get(_tail(tensor)) == _one(
        "exp_probs_b"
    )


def _tail(tensor: Tensor) -> str:
    name = tensor.name
    for suffix in (".weight", ".bias"):
        name = name.removesuffix(suffix)
    parts = name.replace(".{block}", "").split(".")
    pair = ".".join(parts[-2:])
    return pair if pair in _BY_TAIL else parts[-1]
