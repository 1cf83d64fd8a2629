"""Records what PEFT itself makes of adapter configs on small models, for the tests of the adapter reader.

    python tools/record_peft.py

Needs torch, transformers and peft; writes tests/models/recorded/peft.json: for each case the base model's
config.json, the adapter_config.json as PEFT writes it, the names, types and shapes of the tensors it saves, and
how many parameters it trains.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "tests/models/recorded/peft.json"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]

_SMALL: dict[str, Any] = {
    "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 3,
    "intermediate_size": 80, "vocab_size": 136, "max_position_embeddings": 64, "head_dim": 8, "dtype": "bfloat16",
    "tie_word_embeddings": False,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **_SMALL},
    "qwen2": {"model_type": "qwen2", **_SMALL, "tie_word_embeddings": True},
    "phi3": {"model_type": "phi3", **_SMALL, "pad_token_id": 0},
    "qwen3_moe": {
        "model_type": "qwen3_moe", **_SMALL, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
}  # fmt: skip
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("attention", "llama", {"r": 4, "target_modules": ["q_proj", "v_proj"]}),
    ("every linear", "llama", {"r": 8, "target_modules": "all-linear"}),
    ("a pattern", "llama", {"r": 2, "target_modules": r".*\.layers\.[12]\.self_attn\.(q_proj|o_proj)"}),
    ("excluded", "llama", {"r": 3, "target_modules": ATTENTION + MLP, "exclude_modules": ["k_proj"]}),
    (
        "ranks by pattern", "llama",
        {"r": 4, "target_modules": ATTENTION, "rank_pattern": {"o_proj": 16, r"layers.1.self_attn.q_proj": 2}},
    ),
    ("some layers", "llama", {"r": 4, "target_modules": MLP, "layers_to_transform": [0, 2]}),
    ("embedding and head", "llama", {"r": 4, "target_modules": ["embed_tokens", "lm_head", "q_proj"]}),
    ("weight-decomposed", "llama", {"r": 4, "target_modules": ["q_proj", "down_proj"], "use_dora": True}),
    ("whole head", "llama", {"r": 4, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    ("biases of B", "llama", {"r": 4, "target_modules": ["q_proj"], "lora_bias": True}),
    ("biases", "qwen2", {"r": 4, "target_modules": ["q_proj", "v_proj"], "bias": "lora_only"}),
    ("tied embedding", "qwen2", {"r": 4, "target_modules": ["embed_tokens", "up_proj"]}),
    ("trained tokens", "qwen2", {"r": 4, "target_modules": ["q_proj"], "trainable_token_indices": [1, 5, 9]}),
    ("fused projections", "phi3", {"r": 4, "target_modules": ["qkv_proj", "gate_up_proj", "down_proj"]}),
    (
        "stacked experts", "qwen3_moe",
        {"r": 4, "target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]},
    ),
]  # fmt: skip


def main() -> None:
    import torch  # type: ignore[import-not-found]
    from peft import LoraConfig, get_peft_model  # type: ignore[import-not-found]
    from safetensors import safe_open  # type: ignore[import-not-found]
    from transformers import AutoConfig, AutoModelForCausalLM  # type: ignore[import-not-found]

    cases = []
    for name, base, options in CASES:
        config = AutoConfig.for_model(**MODELS[base])
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        stored = {"architectures": [type(model).__name__], **MODELS[base]}
        adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", lora_alpha=16, **options))
        trained, _ = adapted.get_nb_trainable_parameters()
        with tempfile.TemporaryDirectory() as folder:
            adapted.save_pretrained(folder)
            with safe_open(Path(folder) / "adapter_model.safetensors", framework="pt") as file:
                tensors = {
                    key: [file.get_slice(key).get_dtype(), file.get_slice(key).get_shape()]
                    for key in file.keys()  # noqa: SIM118
                }
            written = json.loads((Path(folder) / "adapter_config.json").read_text(encoding="utf-8"))
        cases.append(
            {"name": name, "base": stored, "adapter_config": written, "tensors": tensors, "trained": trained}
        )
        print(f"{name}: {trained} parameters, {len(tensors)} tensors")
    import peft

    document = {"peft": peft.__version__, "cases": cases}
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
