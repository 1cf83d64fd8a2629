"""Packs what releases of vLLM list: model classes, quantisation methods, flags and their names.

    python tools/pack_vllm_support.py SOURCES

SOURCES has one folder a release, named after it, with the python files of its wheel
(`pip download --no-deps vllm==X`, then unzip the `.py` files). Reads, without importing, the dictionaries of
model_executor/models/registry.py and what their classes say of LoRA, the methods of layers/quantization and their least capability, the calls of `add_argument` in
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
    yield from _adaptable(package / "model_executor/models")
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


_ENDS = {"lora_embedding": ("embed_tokens", "wte"), "lora_head": ("lm_head",)}


def _adaptable(folder: Path) -> Iterator[tuple[str, str]]:
    """Model classes that take LoRA adapters, those whose embedding or head takes them too, and those whose
    adapters have gate and up projection of all experts in one stack (`lora_stacks`).

    A class takes them that has SupportsLoRA among its bases; its own or its bases' `embedding_modules` name the ends.
    """
    classes: dict[str, ast.ClassDef] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in _parsed(path).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, node)
    targets = list(_implementations(_parsed(folder / "registry.py")))
    for name, target in targets:
        line = _lineage(target, classes)
        if "SupportsLoRA" not in line:
            continue
        yield "lora", name
        if any(_value(base, "is_3d_moe_weight", classes) == "True" for base in line):
            yield "lora_stacks", name
        ends = next((found for base in line if (found := _ends_of(base, classes)) is not None), set())
        for section, names in _ENDS.items():
            if ends & set(names):
                yield section, name


def _implementations(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Architectures with the class that implements them; a class that runs others' code is one itself."""
    for target, value in _assigned(tree):
        if not target.endswith("_MODELS") or target in _NOT_LISTED or not isinstance(value, ast.Dict):
            continue
        for key, entry in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(entry, ast.Tuple):
                implementation = entry.elts[1]
                assert isinstance(implementation, ast.Constant)
                yield str(key.value), str(implementation.value)


def _lineage(name: str, classes: dict[str, ast.ClassDef]) -> list[str]:
    """A class and its bases by name, nearest first."""
    out = [name]
    for current in out:
        node = classes.get(current)
        for base in node.bases if node is not None else ():
            plain = base.value if isinstance(base, ast.Subscript) else base
            called = plain.id if isinstance(plain, ast.Name) else getattr(plain, "attr", "")
            if called and called not in out:
                out.append(called)
    return out


def _value(name: str, attribute: str, classes: dict[str, ast.ClassDef]) -> str:
    """The source of what a class sets an attribute to; "" where it does not."""
    node = classes.get(name)
    for item in node.body if node is not None else ():
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        value = getattr(item, "value", None)
        if isinstance(target, ast.Name) and target.id == attribute and value is not None:
            return ast.unparse(value)
    return ""


def _ends_of(name: str, classes: dict[str, ast.ClassDef]) -> set[str] | None:
    """The keys of a class's own `embedding_modules`, or of those it takes from another; None where it has none."""
    node = classes.get(name)
    for item in node.body if node is not None else ():
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        if not (isinstance(target, ast.Name) and target.id == "embedding_modules"):
            continue
        value = getattr(item, "value", None)
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            return _ends_of(value.value.id, classes)
        return set(ast.literal_eval(value)) if value is not None else None
    return None


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
