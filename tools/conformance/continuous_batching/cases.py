"""What is asked of both sides: models, memory, and the settings that the paged cache is sized by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramledger.engines.transformers.version import Rules, parse_version

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
GIB = 2**30
Case = dict[str, Any]

KINDS = (
    "llama-gqa", "llama-mha", "llama-mqa", "qwen2", "qwen3", "qwen3-moe", "mixtral", "mistral-window", "gemma-2",
    "gemma-3", "gemma-3-odd", "cohere2", "olmo-3", "gpt-oss", "phi-3-window",
)  # fmt: skip
PUBLISHED = ("Llama-3.1-8B-Instruct", "Qwen3-30B-A3B", "gemma-3-27b-it", "gpt-oss-120b")
# Settings that every case states, so that nothing depends on what a machine without the device would choose.
STATED = {
    "attn_implementation": "sdpa",
    "max_memory_percent": 0.9,
    "max_blocks_per_request": 0,
    "use_async_batching": False,
}


def cases(version: str) -> list[Case]:
    """The questions for a release; settings that it does not have are left out."""
    rules = parse_version(version).rules
    models = {**{kind: _small(kind) for kind in KINDS}, **{name: _example(name) for name in PUBLISHED}}
    out = []
    for name, config in models.items():
        for label, case in _variants(name):
            if rules is not Rules.PAIRED or not set(case["args"]) & {
                "return_logprobs",
                "max_requests_per_batch",
            }:
                out.append({"name": f"{name}{label}", "kind": name, "config": config, **case})
    return out


def _small(kind: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = json.loads((HERE.parent / "configs.json").read_text(encoding="utf-8"))
    return found[kind]


def _example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "examples" / name / "config.json").read_text(encoding="utf-8"))
    return found


def _variants(name: str) -> Iterator[tuple[str, Case]]:
    total, used = (int(79.10 * GIB), int(15.5 * GIB)) if name in PUBLISHED else (5 * GIB + 12345, GIB + 678)
    yield ", sdpa", _case(total, used)
    yield ", flash", _case(total, used, attn_implementation="flash_attention_2")
    yield ", eager, half of it", _case(total, used, attn_implementation="eager", max_memory_percent=0.5)
    yield (
        ", flash, batches of 1000",
        _case(total, used, attn_implementation="flash_attention_2", max_batch_tokens=1000),
    )
    yield ", 77 blocks", _case(total, used, num_blocks=77)
    yield ", more blocks than fit", _case(total, used, num_blocks=1_000_000, max_batch_tokens=64)
    yield ", nothing free", _case(total, total - 4096)
    if name in ("llama-gqa", "gemma-3", "gpt-oss", "Llama-3.1-8B-Instruct"):
        # The block table is resolved to nothing for models with windows before the cache is sized.
        table = 32 if name.lower().startswith("llama") else 0
        yield (
            ", flash, two sets",
            _case(
                total,
                used,
                attn_implementation="flash_attention_2",
                use_async_batching=True,
                max_blocks_per_request=table,
            ),
        )
        yield ", log probabilities", _case(total, used, return_logprobs=True)
        yield ", 100 requests in float32", _case(total, used, max_requests_per_batch=100, dtype="float32")
        yield ", pages of 16", _case(total, used, block_size=16)
    if name in ("llama-gqa", "qwen3", "Llama-3.1-8B-Instruct"):
        yield ", 2 processes", _case(total, used, tp_size=2)


def _case(total: int, used: int, **args: Any) -> Case:
    """`used_bytes` is what the device holds when the cache is sized; `lengths` are requests to count."""
    return {
        "total_bytes": total,
        "used_bytes": used,
        "lengths": [1, 255, 256, 1000, 8192],
        "args": {**STATED, **args},
    }
