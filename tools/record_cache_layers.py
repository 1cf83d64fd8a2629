"""What ExLlamaV3's and LMDeploy's own cache classes allocate, written for tests/formats/test_kv_stores.py.

    python tools/record_cache_layers.py EXLLAMAV3 LMDEPLOY > tests/formats/recorded/cache_layers.json

The arguments are folders of the two unpacked wheels. Needs torch (CPU is enough) and what these modules import; the
packages themselves are not imported, since that wants a GPU: only their cache modules are, under empty parents.
"""

from __future__ import annotations

import enum
import importlib
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SHAPES = ((8, 128), (1, 64), (4, 256), (2, 96))
PAGES = 3
LATENTS = ((512, 64), (256, 32))


def exllamav3(folder: Path) -> Iterator[dict[str, Any]]:
    """Bytes of the tensors that alloc() makes, for keys and for values."""
    parent("exllamav3", folder / "exllamav3")
    parent("exllamav3.cache", folder / "exllamav3" / "cache")
    for name in ("exllamav3.ext", "exllamav3.model", "exllamav3.models", "exllamav3.modules"):
        stand_in = ModuleType(name)
        vars(stand_in).update(exllamav3_ext=None, Config=object, Model=object, Attention=object)
        sys.modules[name] = stand_in
    quant = importlib.import_module("exllamav3.cache.quant")
    mla = importlib.import_module("exllamav3.cache.mla")
    tokens = PAGES * importlib.import_module("exllamav3.constants").PAGE_SIZE
    for (heads, width), key_bits, value_bits in itertools.product(SHAPES, (2, 3, 4, 6, 8), (2, 4, 8)):
        attention = SimpleNamespace(num_kv_heads=heads, head_dim=width)
        layer = quant.CacheLayer_quant(None, attention, 0, tokens, k_bits=key_bits, v_bits=value_bits)
        layer.alloc("cpu")
        yield {
            "engine": "exllamav3", "kv_heads": heads, "head_dim": width, "key_bits": key_bits,
            "value_bits": value_bits, "tokens": tokens, "key": held(layer.qk, layer.sk), "value": held(layer.qv, layer.sv),
        }  # fmt: skip
    for (rank, rope), bits in itertools.product(LATENTS, (2, 4, 6, 8)):
        attention = SimpleNamespace(kv_lora_rank=rank, qk_rope_head_dim=rope)
        layer = mla.CacheLayer_MLA_quant(None, attention, 0, tokens, k_bits=bits)
        layer.alloc("cpu")
        yield {
            "engine": "exllamav3", "kv_lora_rank": rank, "rope_dim": rope, "key_bits": bits, "value_bits": bits,
            "tokens": tokens, "key": held(layer.qk, layer.sk, layer.v), "value": 0,
        }  # fmt: skip


def lmdeploy(folder: Path) -> Iterator[dict[str, Any]]:
    """Bytes of one layer's blocks as the packed pool lays them out, for keys and for values."""
    root = folder / "lmdeploy"
    for name in (
        "lmdeploy",
        "lmdeploy.pytorch",
        "lmdeploy.pytorch.engine",
        "lmdeploy.pytorch.engine.cache_engine",
    ):
        parent(name, folder.joinpath(*name.split(".")))
    policies = dict(
        re.findall(
            r"^    (\w+) = (\d+)",
            (root / "messages.py").read_text(encoding="utf-8").split("class QuantPolicy")[1][:900],
            re.M,
        )
    )
    stand_ins: dict[str, dict[str, Any]] = {
        "lmdeploy.messages": {
            "QuantPolicy": enum.IntEnum("QuantPolicy", {k: int(v) for k, v in policies.items()})
        },
        "lmdeploy.pytorch.config": dict.fromkeys(("CacheConfig", "ModelConfig", "StateCacheSpec"), object),
        "lmdeploy.pytorch.backends": {"get_backend": lambda: block_shapes(root)},
    }
    for name, content in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module
    schema = importlib.import_module("lmdeploy.pytorch.engine.cache_engine.schema")
    policy = stand_ins["lmdeploy.messages"]["QuantPolicy"]
    torch: Any = importlib.import_module("torch")
    for (heads, width), kind, block in itertools.product(SHAPES, policy, (32, 64)):
        model = SimpleNamespace(
            k_head_dim=None, v_head_dim=None, head_dim=width, num_key_value_heads=heads, dtype=torch.bfloat16,
            use_mla_fp8_cache=False, mla_kv_cache_dtype=None,
        )  # fmt: skip
        cache = SimpleNamespace(kernel_block_size=block, quant_policy=kind)
        key, value = schema.build_k_cache_desc(model, cache), schema.build_v_cache_desc(model, cache)
        extra = schema.build_quant_cache_descs(key, value, model, cache)
        sizes = [part.aligned_size for part in (key, value, *extra)]
        yield {
            "engine": "lmdeploy", "policy": kind.name, "kv_heads": heads, "head_dim": width, "tokens": block,
            "key": sum(sizes[0::2]), "value": sum(sizes[1::2]),
        }  # fmt: skip


def block_shapes(root: Path) -> Any:
    """The two functions of the CUDA back end that give a block's shape, cut out of its source."""
    text = (root / "pytorch" / "backends" / "cuda" / "op_backend.py").read_text(encoding="utf-8")
    found = re.findall(r"    @staticmethod\n    def get_[kv]_block_shape\(.*?\n        \)\n", text, re.S)
    space: dict[str, Any] = {}
    exec("from __future__ import annotations\nclass Shapes:\n" + "\n".join(found), space)
    return space["Shapes"]


def parent(name: str, folder: Path) -> None:
    """An empty package whose modules are found in `folder`."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


def held(*tensors: Any) -> int:
    """Bytes of the tensors together."""
    return sum(int(tensor.numel() * tensor.element_size()) for tensor in tensors)


def main() -> None:
    """Print every case on a line."""
    folders = [Path(text) for text in sys.argv[1:3]]
    rows = [json.dumps(row) for row in (*exllamav3(folders[0]), *lmdeploy(folders[1]))]
    versions = {
        name: version(folder, name) for name, folder in zip(("exllamav3", "lmdeploy"), folders, strict=True)
    }
    print(f'{{"versions": {json.dumps(versions)}, "cases": [\n' + ",\n".join(rows) + "\n]}")


def version(folder: Path, name: str) -> str:
    """The version of the wheel, from its metadata's folder or the package's version module."""
    for path in folder.glob(f"{name}-*.dist-info"):
        return path.name.removeprefix(f"{name}-").removesuffix(".dist-info")
    text = (folder / name / "version.py").read_text(encoding="utf-8")
    found: list[str] = re.findall(r"__version__ = ['\"]([^'\"]+)", text)
    return found[0]


if __name__ == "__main__":
    main()
