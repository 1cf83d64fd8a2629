"""Packs what releases of vLLM list: model classes, quantisation methods, flags and their names.

    python tools/pack_vllm_support.py SOURCES

SOURCES has one folder a release, named after it, with the python files of its wheel
(`pip download --no-deps vllm==X`, then unzip the `.py` files). Reads, without importing, the dictionaries of
model_executor/models/registry.py, the methods of layers/quantization and their least capability, the calls of `add_argument` in
engine/arg_utils.py, the enumeration of attention backends, and the literals of KV cache types, block sizes and
expert backends. Writes src/vramledger/engines/vllm/support.json.

A name's value is the runs of releases that list it: "0.10.1.1-" since that one, "0.6.6-0.23.0" from the first
release read to 0.23.0. Releases between two that were read are not known.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/vramledger/engines/vllm/support.json"
_NOT_LISTED = ("_VLLM_MODELS", "_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS")
_BACKEND_ENUMS = ("_Backend", "AttentionBackendEnum")
_BACKEND_FILES = (
    "v1/attention/backends/registry.py",
    "attention/backends/registry.py",
    "platforms/interface.py",
)
_CONFIG_FILES = (
    "config.py",
    "config/__init__.py",
    "config/cache.py",
    "config/kernel.py",
    "engine/arg_utils.py",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path)
    sources = parser.parse_args().sources
    releases = sorted(
        (path.name for path in sources.iterdir() if (path / "vllm/version.py").is_file()), key=_ordered
    )
    seen: dict[str, dict[str, set[int]]] = {}
    removed: dict[str, str] = {}
    plugins: set[str] = set()
    for index, release in enumerate(releases):
        package = sources / release / "vllm"
        for section, name in _listed(package):
            seen.setdefault(section, {}).setdefault(name, set()).add(index)
        registry = _parsed(package / "model_executor/models/registry.py")
        removed.update(_table(registry, "_PREVIOUSLY_SUPPORTED_MODELS"))
        plugins.update(_table(registry, "_OOT_SUPPORTED_MODELS"))
    packed: dict[str, object] = {"releases": releases}
    for section, names in sorted(seen.items()):
        packed[section] = {name: _runs(indices, releases) for name, indices in sorted(names.items())}
    packed["removed"] = dict(sorted(removed.items()))
    packed["plugins"] = sorted(plugins)
    TARGET.write_text(json.dumps(packed, indent=0, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: {len(releases)} releases, {TARGET.stat().st_size} bytes")
    for section, names in seen.items():
        print(f"  {section}: {len(names)}")


def _ordered(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _runs(indices: set[int], releases: list[str]) -> str:
    """ "0.6.6-0.11.2 0.16.0-": runs of neighbouring releases, open where the newest one is in it."""
    out: list[str] = []
    start: int | None = None
    for index in range(len(releases) + 1):
        if index in indices:
            start = index if start is None else start
        elif start is not None:
            out.append(f"{releases[start]}-" + (releases[index - 1] if index < len(releases) else ""))
            start = None
    return " ".join(out)


def _listed(package: Path) -> Iterator[tuple[str, str]]:
    """Section and name of everything that a release lists."""
    for name, module in _architectures(_parsed(package / "model_executor/models/registry.py")):
        yield ("transformers" if module == "transformers" else "architectures"), name
    for name in _literal(
        _parsed(package / "model_executor/layers/quantization/__init__.py"),
        ("QUANTIZATION_METHODS", "QuantizationMethods"),
    ):
        yield "quantization", name
    for method, capability in _capabilities(package / "model_executor/layers/quantization"):
        yield "min_capability", f"{method} {capability}"
    for flag in _flags(_parsed(package / "engine/arg_utils.py")):
        yield "flags", flag
    for path in _BACKEND_FILES:
        for name in _members(package / path):
            yield "attention_backends", name
    trees = [_parsed(package / path) for path in _CONFIG_FILES if (package / path).is_file()]
    for section, name, flag in (
        ("kv_cache_dtypes", "CacheDType", "--kv-cache-dtype"),
        ("block_sizes", "BlockSize", "--block-size"),
        ("moe_backends", "MoEBackend", ""),
    ):
        found = [value for tree in trees for value in _literal(tree, (name,))]
        for value in found or [value for tree in trees for value in _choices(tree, flag)]:
            yield section, value


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _architectures(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Class names with the module that implements them."""
    for target, value in _assigned(tree):
        if not target.endswith("_MODELS") or target in _NOT_LISTED or not isinstance(value, ast.Dict):
            continue
        for key, entry in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(entry, ast.Tuple):
                module = entry.elts[0]
                assert isinstance(module, ast.Constant)
                yield str(key.value), str(module.value)


def _table(tree: ast.Module, name: str) -> dict[str, str]:
    """One of the registry's own tables: classes with the release that had them last, or with their plugin."""
    for target, value in _assigned(tree):
        if target == name:
            found: dict[str, str] = ast.literal_eval(value)
            return found
    return {}


def _literal(tree: ast.Module, names: tuple[str, ...]) -> list[str]:
    """Texts of a list or of a Literal[...]; of the first of `names` that has some."""
    for target, value in _assigned(tree):
        if target in names:
            found = [
                str(node.value)
                for node in ast.walk(value)
                if isinstance(node, ast.Constant) and isinstance(node.value, str | int)
            ]
            if found:
                return found
    return []


def _capabilities(folder: Path) -> Iterator[tuple[str, int]]:
    """Each quantisation method with the compute capability (80 for 8.0) below which it is refused."""
    for path in sorted(folder.rglob("*.py")):
        for node in _parsed(path).body:
            if isinstance(node, ast.ClassDef):
                name, least = _returned(node, "get_name"), _returned(node, "get_min_capability")
                if isinstance(name, str) and isinstance(least, int) and least > 0:
                    yield name, least


def _returned(owner: ast.ClassDef, method: str) -> object:
    """The constant that a method returns; None where it returns something else or is inherited."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == method:
            last = node.body[-1]
            if isinstance(last, ast.Return) and isinstance(last.value, ast.Constant):
                return last.value.value
    return None


def _calls(tree: ast.AST) -> Iterator[tuple[list[str], ast.Call]]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            yield [str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)], node


def _flags(tree: ast.AST) -> Iterable[str]:
    return {name for names, _ in _calls(tree) for name in names if re.fullmatch(r"--[a-z0-9-]+", name)}


def _choices(tree: ast.AST, flag: str) -> list[str]:
    for names, call in _calls(tree):
        if flag in names:
            for keyword in call.keywords:
                if keyword.arg == "choices" and isinstance(keyword.value, ast.List):
                    return [str(item.value) for item in keyword.value.elts if isinstance(item, ast.Constant)]
    return []


def _members(path: Path) -> Iterator[str]:
    """Members of the enumeration of attention backends, without the ones under its names for other kinds."""
    if not path.is_file():
        return
    for node in _parsed(path).body:
        if isinstance(node, ast.ClassDef) and node.name in _BACKEND_ENUMS:
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                    yield item.targets[0].id


if __name__ == "__main__":
    main()
