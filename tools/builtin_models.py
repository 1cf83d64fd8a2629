"""Write the built-in models from the packed configs of data/: `python -m tools.builtin_models`.

A model is chosen here by its folder there, with the hub id it is offered as. Where a config had to be written from
published dimensions, the parameters that it gives are the published ones to the unit.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKED = ROOT / "data" / "models.json.gz"
TARGET = ROOT / "src" / "vramledger" / "models" / "builtin" / "models.json"

CHOSEN = (
    "meta-llama/Llama-3.2-1B-Instruct",
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct",
    "nvidia/Llama-3.1-70B-Instruct-FP8",
    "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-8B-AWQ",
    "Qwen/Qwen3-32B-FP8",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B-FP8",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "Qwen/Qwen3.5-27B",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen3-Embedding-0.6B",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/DeepSeek-V3.2",
    "moonshotai/Kimi-K2-Instruct",
    "openai/gpt-oss-20b",
    "openai/gpt-oss-120b",
    "google/gemma-3-4b-it",
    "google/gemma-3-27b-it",
    "google/gemma-4-31B-it",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
)
# Offered under the id of the model whose dimensions and class it has.
SAME_AS = {"openai/gpt-oss-20b": "huihui-ai/Huihui-gpt-oss-20b-mxfp4-abliterated-v2"}


def main() -> None:
    TARGET.write_text(text_of(json.loads(gzip.decompress(PACKED.read_bytes()))), encoding="utf-8")


def text_of(packed: dict[str, Any]) -> str:
    """The file: one model a line."""
    rows = [json.dumps(row(packed, hub_id), ensure_ascii=False, separators=(",", ":")) for hub_id in CHOSEN]
    return '{"models":[\n' + ",\n".join(rows) + "\n]}\n"


def row(packed: dict[str, Any], hub_id: str) -> dict[str, Any]:
    folder = SAME_AS.get(hub_id, hub_id).replace("/", "__")
    files, known = packed["models"][folder], packed["params"][folder]
    found = {
        "name": hub_id.rpartition("/")[2],
        "id": hub_id,
        "source": known["source"],
        "reconstructed": folder in packed["reconstructed"],
        "published_parameters": known.get("published"),
        "published_note": known.get("note", ""),
        "total_size_bytes": known.get("total_size"),
        "config": files["config.json"],
    }
    if "hf_quant_config.json" in files:
        found["hf_quant_config"] = files["hf_quant_config.json"]
    return found


if __name__ == "__main__":
    main()
