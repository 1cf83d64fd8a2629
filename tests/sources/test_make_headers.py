"""The maker of test files: what it writes is the model it was told to write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vramledger.models.architectures import describe
from vramledger.models.sources.load import Source, load_source

TOOL = Path(__file__).resolve().parents[2] / "tools" / "make_headers.py"

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "torch_dtype": "bfloat16",
    "hidden_size": 256, "intermediate_size": 384, "moe_intermediate_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 96, "kv_lora_rank": 64,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1, "topk_group": 1,
    "vocab_size": 1009, "max_position_embeddings": 4096, "num_nextn_predict_layers": 0,
    "tie_word_embeddings": False,
}  # fmt: skip


def made(tmp_path: Path, *options: str) -> Source:
    config = tmp_path / "in" / "config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps(CONFIG))
    out = tmp_path / ("out" + "".join(options))
    subprocess.run(
        [sys.executable, str(TOOL), str(config), str(out), "--shard-bytes", "1000000", *options],
        check=True,
        timeout=120,
        capture_output=True,
    )
    return load_source(str(out))


def test_files_hold_the_models_parameters(tmp_path: Path) -> None:
    source = made(tmp_path)
    assert source.table is not None and source.index is not None and source.notes == ()
    expected = sum(tensor.total_elements for tensor in describe(source.config_view(), "small").tensors)
    assert source.table.total_elements == expected
    assert len(source.table.files) == len(source.index.shards) > 2
    row = next(row for row in source.table.rows if row.template.endswith("experts.{}.down_proj.weight"))
    assert (row.count, row.shape, row.layers) == (2 * 8, (256, 128), (range(1, 3),))


@pytest.mark.parametrize("times", [1, 4])
def test_block_scales_and_split_experts(tmp_path: Path, times: int) -> None:
    source = made(tmp_path, "--fp8", "--split-experts", str(times))
    assert source.table is not None and source.notes == ()
    rows = {row.template: row for row in source.table.rows}
    down = rows["model.layers.{}.mlp.experts.{}.down_proj.weight"]
    assert (down.dtype, down.count, down.total_bytes) == ("F8_E4M3", 2 * 8 * times, 2 * 8 * 256 * 128)
    scale = rows["model.layers.{}.mlp.experts.{}.down_proj.weight_scale_inv"]
    assert (scale.dtype, scale.shape, scale.count) == ("F32", (2, 1), 2 * 8 * times)
    assert rows["lm_head.weight"].dtype == "BF16"
