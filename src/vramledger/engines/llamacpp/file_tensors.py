"""A model's tensors under llama.cpp's names, as its conversion script would write them.

Source: llama.cpp conversion/ (what is split, fused, stacked or squeezed), gguf-py/gguf/tensor_mapping.py and
constants.py (names). `dims` are in GGML's order, the contiguous one first.
"""

from __future__ import annotations

from functools import cached_property
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.llamacpp.architectures import Architecture
from vramledger.formats.ggml import ggml_type
from vramledger.models.mixers import FullAttention, LatentAttention, Mamba2
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Component, Role, Tensor


class FileTensor(Struct, frozen=True, kw_only=True, dict=True):
    """One tensor of a GGUF file. `type` is GGML's name, "" where a file type has yet to decide it."""

    name: str
    dims: tuple[int, ...]
    type: str = ""

    @property
    def elements(self) -> int:
        return prod(self.dims)

    @cached_property
    def size_bytes(self) -> int:
        return ggml_type(self.type).bytes_for(self.dims[0], prod(self.dims[1:]))

    @cached_property
    def layer(self) -> int | None:
        """The block it belongs to, None outside."""
        head, _, rest = self.name.partition(".")
        number = rest.partition(".")[0]
        return int(number) if head == "blk" and number.isdigit() else None


_OUTSIDE = {
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "altup_projections": "altup_proj",
    "altup_unembed_projections": "altup_unembd_proj",
}

_BY_ROLE = {
    Role.Q: ("attn_q",), Role.K: ("attn_k",), Role.V: ("attn_v",), Role.QKV: ("attn_qkv",),
    Role.O: ("attn_output",), Role.Q_A: ("attn_q_a",), Role.Q_B: ("attn_q_b",), Role.KV_A: ("attn_kv_a_mqa",),
    Role.SINKS: ("attn_sinks",), Role.GATE: ("ffn_gate",), Role.UP: ("ffn_up",), Role.DOWN: ("ffn_down",),
    Role.GATE_UP: ("ffn_up",), Role.EXPERT_GATE: ("ffn_gate_exps",), Role.EXPERT_UP: ("ffn_up_exps",),
    Role.EXPERT_GATE_UP: ("ffn_gate_exps", "ffn_up_exps"), Role.EXPERT_DOWN: ("ffn_down_exps",),
    Role.SHARED_GATE: ("ffn_gate_shexp",), Role.SHARED_UP: ("ffn_up_shexp",),
    Role.SHARED_GATE_UP: ("ffn_gate_shexp", "ffn_up_shexp"), Role.SHARED_DOWN: ("ffn_down_shexp",),
    Role.ROUTER: ("ffn_gate_inp",), Role.SSM_OUT: ("ssm_out",), Role.SSM_IN: ("ssm_in",),
    Role.SSM_CONV: ("ssm_conv1d",), Role.KV_B: ("attn_kv_b",),
}  # fmt: skip

# By the last part of the module's path, where the role does not tell.
_BY_TAIL = {
    "input_layernorm": "attn_norm", "operator_norm": "attn_norm", "attention_norm": "attn_norm", "ln_1": "attn_norm",
    "ffn_norm": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm", "pre_ff_layernorm": "ffn_norm",
    "ln_2": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm", "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "q_layernorm": "attn_q_norm",
    "query_layernorm": "attn_q_norm",
    "key_layernorm": "attn_k_norm",
    "norm_1": "attn_norm",
    "norm_2": "ffn_norm",
    "ln_attn": "attn_norm_2",
    "ln_mlp": "attn_norm", "k_layernorm": "attn_k_norm",
    "q_a_layernorm": "attn_q_a_norm", "kv_a_layernorm": "attn_kv_a_norm", "shared_expert_gate": "ffn_gate_inp_shexp",
    "dt_layernorm": "ssm_dt_norm", "b_layernorm": "ssm_b_norm", "c_layernorm": "ssm_c_norm", "x_proj": "ssm_x",
    "dt_proj": "ssm_dt", "in_proj_qkv": "attn_qkv", "in_proj_z": "attn_gate", "in_proj_b": "ssm_beta",
    "in_proj_a": "ssm_alpha", "in_proj_ba": "ssm_ba", "f_a_proj": "ssm_f_a", "f_b_proj": "ssm_f_b",
    "g_a_proj": "ssm_g_a", "g_b_proj": "ssm_g_b", "b_proj": "ssm_beta", "o_norm": "ssm_norm",
    "q_conv1d": "ssm_conv1d_q", "k_conv1d": "ssm_conv1d_k", "v_conv1d": "ssm_conv1d_v",
    "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
    "linear_left": "laurel_l", "linear_right": "laurel_r", "post_laurel_norm": "laurel_post_norm",
    "correction_coefs": "altup_correct_coef", "prediction_coefs": "altup_predict_coef",
    "modality_router": "altup_router", "router_norm": "altup_router_norm", "correct_output_scale": "altup_correct_scale",
    "layer_scalar": "layer_output_scale", "per_expert_scale": "ffn_down_exps", "fc1_latent_proj": "ffn_latent_down",
    "fc2_latent_proj": "ffn_latent_up",
}  # fmt: skip

_POST_ATTENTION = {
    "gpt-oss",
    "qwen3next",
    "qwen35",
    "qwen35moe",
    "glm4moe",
    "seed_oss",
    "gemma2",
    "gemma3",
    "gemma3n",
    "gemma4",
    "olmo2",
    "exaone4",
}
"""Architectures in which the norm after attention is not the one before the MLP."""

_INPUT_IS_HIDDEN = {
    Role.Q, Role.K, Role.V, Role.QKV, Role.GATE, Role.UP, Role.GATE_UP, Role.EXPERT_GATE, Role.EXPERT_UP,
    Role.EXPERT_GATE_UP, Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_GATE_UP, Role.ROUTER,
}  # fmt: skip
_OUTPUT_IS_HIDDEN = {Role.O, Role.DOWN, Role.EXPERT_DOWN, Role.SHARED_DOWN}
_FUSED_GATES = {"phi3", "phimoe", "glm4", "chatglm"}
"""Architectures that keep gate and up in one matrix."""
_SPLIT_QKV = {"llama", "internlm2"}
_SHARED_KEYS = ("k_proj", "v_proj", "k_norm")


def file_tensors(
    model: Model, architecture: Architecture, *, absorbed: bool = True
) -> tuple[FileTensor, ...]:
    """Every tensor of the language model, those outside the blocks first. Norms and vectors are F32; matrices
    have no type yet. Towers, draft heads and encoders of other modalities go to files of their own. Without
    `absorbed` latents are widened by one matrix, as conversions did before April 2025."""
    out: list[FileTensor] = []
    latents = [mixer for mixer in model.token_mixers if isinstance(mixer, LatentAttention)]
    latent = latents[0] if latents and absorbed else None
    for tensor in model.tensors:
        if tensor.component not in (Component.DECODER, Component.ENCODER):
            continue
        tail = tensor.module.rpartition(".")[2]
        if tail == "inv_freq":
            continue
        for dims, name in _shapes(tensor, tail, model, architecture, latent):
            where = [f"blk.{layer}.{name}" for layer in tensor.layers] or [name]
            plain = len([size for size in dims if size > 1]) < 2 or _is_vector(name)
            out.extend(FileTensor(name=item, dims=dims, type="F32" if plain else "") for item in where)
    if any(rope.scaling == "llama3" for rope in model.rope) and architecture.name in ("llama", "llama4"):
        width = next(mixer.head_dim for mixer in model.token_mixers if isinstance(mixer, FullAttention))
        out.append(FileTensor(name="rope_freqs.weight", dims=(width // 2,), type="F32"))
    if architecture.name == "gemma4":
        full = next(mixer.head_dim for mixer in model.token_mixers if type(mixer) is FullAttention)
        out.append(FileTensor(name="rope_freqs.weight", dims=(full // 2,), type="F32"))
    return tuple(sorted(_distinct(out), key=lambda item: -1 if item.layer is None else item.layer))


def _distinct(tensors: list[FileTensor]) -> list[FileTensor]:
    """Names once; a second tensor under a name that is taken gets a number, so that its bytes are not lost."""
    seen: dict[str, int] = {}
    out = []
    for tensor in tensors:
        count = seen[tensor.name] = seen.get(tensor.name, 0) + 1
        out.append(tensor if count == 1 else replace(tensor, name=f"{tensor.name}.{count}"))
    return out


def _is_vector(name: str) -> bool:
    return name.endswith(
        ("_norm.weight", "ssm_a", "ssm_d", ".bias", "ssm_conv1d.weight", "shortconv.conv.weight")
    )


def _shapes(
    tensor: Tensor, tail: str, model: Model, architecture: Architecture, latent: LatentAttention | None
) -> list[tuple[tuple[int, ...], str]]:
    """(dims, name without the block) of each tensor that the described one becomes."""
    suffix = ".bias" if tensor.name.endswith(("bias", "bias_proj")) else ".weight"
    shape = tensor.shape
    if not tensor.layers:
        name = _outside(tensor, tail)
        if name == "output_norm" and architecture.name.startswith("lfm2"):
            name = "token_embd_norm"
        return [(_outside_dims(tensor, shape, model, name), name + suffix)]
    if not tensor.parameter and tail in _SHARED_KEYS and architecture.name != "gemma3n":
        return []
    if tail in ("A_log", "D", "dt_bias"):
        return [_recurrent_vector(tail, shape, architecture)]
    if tail == "norm" and len(shape) == 1 and tensor.layers and shape[0] != model.hidden_size:
        return [(_group_norm(shape, model), "ssm_norm.weight")]
    if (
        (tail == "norm" and ".mixer." in tensor.name)
        or ".linear_attn.norm" in tensor.name
        or ".mamba.norm" in tensor.name
    ):
        return [(_group_norm(shape, model), "ssm_norm.weight")]
    if tensor.role is Role.NORM or tail in _BY_TAIL:
        name = _norm(tail, architecture)
        dims = _dims(tensor, shape, model)
        if tail == "per_expert_scale":
            return [(dims, "ffn_down_exps.scale")]
        if name == "ffn_norm" and architecture.name == "falcon-h1":
            return [(dims, name)]
        return [(dims, name + suffix)]
    if tensor.role is Role.KV_B and latent is not None and suffix == ".weight":
        heads, rank = latent.q_heads, latent.kv_lora_rank
        return [
            ((latent.nope_dim, rank, heads), "attn_k_b.weight"),
            ((rank, latent.v_head_dim, heads), "attn_v_b.weight"),
        ]
    if tensor.role is Role.ROUTER:
        return [(shape[::-1], _router(tensor, tail) + ("" if "scale" in tail else suffix))]
    if tensor.role is Role.SSM_IN and tail == "in_proj_qkvz":
        return _qkvz(model)
    if tensor.role in (Role.SSM_IN, Role.SSM_OUT, Role.SSM_CONV):
        name = _BY_TAIL.get(tail) or _recurrent(tensor.role, tail, architecture)
        return [(tuple(size for size in shape[::-1] if size > 1), name + suffix)]
    names = _BY_ROLE.get(tensor.role, (f"{tail}",))
    if tensor.role is Role.GATE_UP and architecture.name not in _FUSED_GATES:
        names = ("ffn_gate", "ffn_up")
    if not model.is_moe:
        # An MLP that is shared by no experts is the layer's own.
        names = tuple(name.removesuffix("_shexp") for name in names)
    if tensor.role is Role.QKV and architecture.name in _SPLIT_QKV:
        return _split_qkv(tensor, suffix)
    dims = _dims(tensor, shape, model)
    if len(names) == 2:
        cut = 1 if len(dims) > 1 and suffix == ".weight" else 0
        dims = tuple(size // 2 if axis == cut else size for axis, size in enumerate(dims))
    return [(dims, name + suffix) for name in names]


def _dims(tensor: Tensor, shape: tuple[int, ...], model: Model) -> tuple[int, ...]:
    """GGML's order of dimensions; matrices stored input first (Conv1D, some experts) are turned."""
    if tensor.copies > 1:
        shape = (tensor.copies, *shape)
    if len(shape) < 2 or tensor.name.endswith("bias"):
        return shape[::-1]
    kinds = [axis[0].kind for axis in tensor.axes]
    flipped = (
        tensor.role in _INPUT_IS_HIDDEN and kinds[-1] is not AxisKind.HIDDEN and kinds[-2] is AxisKind.HIDDEN
    ) or (
        tensor.role in _OUTPUT_IS_HIDDEN and kinds[-2] is not AxisKind.HIDDEN and kinds[-1] is AxisKind.HIDDEN
    )
    dims = shape[::-1]
    return (dims[1], dims[0], *dims[2:]) if flipped else dims


def _outside_dims(tensor: Tensor, shape: tuple[int, ...], model: Model, name: str) -> tuple[int, ...]:
    """Embeddings of each layer have as many rows as the vocabulary in GGUF, also where the checkpoint has fewer."""
    dims = _dims(tensor, shape, model)
    return (dims[0], model.vocab_size) if name == "per_layer_token_embd" else dims


def _outside(tensor: Tensor, tail: str) -> str:
    if tail in _OUTSIDE:
        return _OUTSIDE[tail]
    for key, name in _OUTSIDE.items():
        if f".{key}." in tensor.name:
            return name
    if tensor.role is Role.EMBEDDING:
        return "token_types" if "token_type" in tensor.name else "token_embd"
    if tensor.role is Role.POSITION_EMBEDDING:
        return "position_embd"
    if tensor.role is Role.LM_HEAD:
        return "output"
    if tensor.role is Role.NORM:
        return (
            "token_embd_norm"
            if "embeddings" in tensor.name and "norm_f" not in tensor.name
            else "output_norm"
        )
    return tail


def _norm(tail: str, architecture: Architecture) -> str:
    if tail == "post_attention_layernorm":
        return "post_attention_norm" if architecture.name in _POST_ATTENTION else "ffn_norm"
    if tail in _BY_TAIL:
        return _BY_TAIL[tail]
    return "attn_norm"


def _router(tensor: Tensor, tail: str) -> str:
    if "correction_bias" in tensor.name or tail == "expert_bias":
        return "exp_probs_b"
    if tail == "scale":
        return "ffn_gate_inp.scale"
    return "ffn_gate_inp"


def _recurrent(role: Role, tail: str, architecture: Architecture) -> str:
    if architecture.name.startswith("lfm2"):
        return {
            "in_proj": "shortconv.in_proj",
            "out_proj": "shortconv.out_proj",
            "conv": "shortconv.conv",
        }.get(tail, "shortconv." + tail)
    if architecture.name == "kimi-linear":
        return {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}.get(
            tail, _BY_ROLE[role][0]
        )
    return _BY_ROLE[role][0]


def _recurrent_vector(
    tail: str, shape: tuple[int, ...], architecture: Architecture
) -> tuple[tuple[int, ...], str]:
    name = {"A_log": "ssm_a", "D": "ssm_d", "dt_bias": "ssm_dt.bias"}[tail]
    dims = tuple(size for size in shape[::-1] if size > 1) or (1,)
    delta = architecture.name.startswith(("qwen3", "kimi"))
    if len(dims) == 1 and tail != "dt_bias" and not delta and architecture.name not in ("mamba", "jamba"):
        dims = (1, *dims)
    return dims, name


def _group_norm(shape: tuple[int, ...], model: Model) -> tuple[int, ...]:
    mixer = next((item for item in model.token_mixers if isinstance(item, Mamba2)), None)
    if mixer is None or shape[0] != mixer.inner:
        return shape
    return (shape[0] // mixer.groups, mixer.groups)


def _qkvz(model: Model) -> list[tuple[tuple[int, ...], str]]:
    """Qwen3-Next's joint projection, split into query, key, value and gate."""
    from vramledger.models.mixers import GatedDeltaNet

    mixer = next(item for item in model.token_mixers if isinstance(item, GatedDeltaNet))
    inner = mixer.v_heads * mixer.v_dim
    return [
        ((model.hidden_size, 2 * mixer.k_heads * mixer.k_dim + inner), "attn_qkv.weight"),
        ((model.hidden_size, inner), "attn_gate.weight"),
    ]


def _split_qkv(tensor: Tensor, suffix: str) -> list[tuple[tuple[int, ...], str]]:
    axis = next(item for item in tensor.axes if len(item) > 1)
    names = ("attn_q", "attn_k", "attn_v")
    inner = tensor.shape[-1]
    return [
        ((inner, part.size) if suffix == ".weight" else (part.size,), name + suffix)
        for part, name in zip(axis, names, strict=True)
    ]
