"""What transformers' QuantizedCache really holds, written for tests/formats/test_kv_stores.py.

    python tools/record_quantized_cache.py > tests/formats/recorded/quantized_cache.json

Needs torch (CPU is enough), transformers, optimum-quanto and hqq, none of them a dependency of the project.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import json
from collections.abc import Iterator
from typing import Any

QUANTO_SHAPES = ((2, 64), (1, 64), (8, 128), (3, 96))
HQQ_SHAPES = ((2, 64), (8, 128))
RUNS = ((70, 5, 128), (1, 130, 64), (33, 200, 64), (128, 128, 128), (7, 0, 128), (5, 9, 1), (5, 9, 2))


def cases() -> Iterator[dict[str, int | str]]:
    """Backend, width and group, heads, and how far a sequence has come: prompt, single steps, window."""
    names = (
        "backend",
        "width",
        "axis",
        "group",
        "kv_heads",
        "head_dim",
        "prompt",
        "steps",
        "residual",
        "sequences",
    )
    for width, group, shape, run in itertools.product((2, 4), (32, 64), QUANTO_SHAPES, RUNS):
        yield dict(zip(names, ("quanto", width, 0, group, *shape, *run, 1), strict=True))
    for width, axis, shape, run in itertools.product((1, 2, 3, 4, 8), (0, 1), HQQ_SHAPES, RUNS[:3]):
        yield dict(zip(names, ("hqq", width, axis, 64, *shape, *run, 1), strict=True))
    for backend in ("quanto", "hqq"):
        yield dict(zip(names, (backend, 4, 0, 64, 2, 64, 71, 10, 128, 3), strict=True))


def held(case: dict[str, Any]) -> dict[str, int | str]:
    """Bytes of the keys' packed values, of their scales and zero points, and of their window."""
    torch: Any = importlib.import_module("torch")
    cache_utils: Any = importlib.import_module("transformers.cache_utils")
    layers = {"quanto": cache_utils.QuantoQuantizedLayer, "hqq": cache_utils.HQQQuantizedLayer}
    layer = layers[case["backend"]](
        nbits=case["width"],
        axis_key=case["axis"],
        axis_value=case["axis"],
        q_group_size=case["group"],
        residual_length=case["residual"],
    )

    def states(tokens: int) -> Any:
        return torch.randn(
            case["sequences"], case["kv_heads"], tokens, case["head_dim"], dtype=torch.bfloat16
        )

    try:
        layer.update(states(case["prompt"]), states(case["prompt"]))
        for _ in range(case["steps"]):
            layer.update(states(1), states(1))
    except (ValueError, RuntimeError) as problem:
        return {"refused": type(problem).__name__}
    packed, *scales = tensor_bytes(layer._quantized_keys)
    return {"packed": packed, "scales": sum(scales), "window": layer.keys.numel() * layer.keys.element_size()}


def tensor_bytes(quantized: Any) -> list[int]:
    """Bytes of the packed tensor, then of its scales and zero points."""
    if isinstance(quantized, tuple):
        tensor, meta = quantized
        return [size(tensor), size(meta["scale"]), size(meta["zero"])]
    if not hasattr(quantized, "__tensor_flatten__"):
        return [size(quantized)]
    names = quantized.__tensor_flatten__()[0]
    return [part for name in names for part in tensor_bytes(getattr(quantized, name))]


def size(tensor: Any) -> int:
    """Bytes of a plain tensor."""
    return int(tensor.numel() * tensor.element_size())


def main() -> None:
    """Print all cases, a line each, with what was held or how it was refused."""
    packages = ("transformers", "optimum-quanto", "hqq", "torch")
    versions = {name: importlib.metadata.version(name) for name in packages}
    rows = [json.dumps(case | held(case)) for case in cases()]
    print(f'{{"versions": {json.dumps(versions)}, "cases": [\n' + ",\n".join(rows) + "\n]}")


if __name__ == "__main__":
    main()
