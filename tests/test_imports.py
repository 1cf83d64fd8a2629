"""The house rule that arrows point down, read from the source without importing it.

Only static imports are seen; the one dynamic import, of an architecture by its model_type, stays within
`models`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vramledger

ROOT = Path(vramledger.__file__).parent

FLOORS: dict[str, int] = {
    "errors": 0, "units": 0, "evidence": 0, "ledger": 0, "verdict": 0, "pool": 0, "answer": 0,
    "observation": 0, "measurement": 0, "whole_file": 0,
    "formats": 1, "hardware": 1, "documents": 1,
    "models": 2,
    "engines": 3,
    "kvcache": 4, "workload": 4, "lifecycle": 4,
    "admission": 5, "simulation": 5,
    "telemetry": 6, "diagnosis": 6, "gateway": 6, "experiment": 6,
    "reconciliation": 7, "manifest": 7, "planning": 7, "api": 7,
    "search": 8, "release": 8, "": 8,
    "report": 9, "web": 9, "cli": 9, "__main__": 9,
}  # fmt: skip

HEAVY = frozenset(
    {
        "torch",
        "numpy",
        "numba",
        "huggingface_hub",
        "pyarrow",
        "ray",
        "xllamacpp",
        "pynvml",
        "valkey",
        "tokenizers",
        "jinja2",
        "prometheus_client",
        "opentelemetry",
        "grpc",
        "google",
    }
)
# These may load a heavy library at their top; everyone else loads these late.
HEAVY_HOMES = (
    "gateway/tracing/otlp.py",
    "workload/columns.py",
    "simulation/outcome_columns.py",
    "simulation/measures.py",
    "workload/columnar/",
    "simulation/compiled/",
    "experiment/prompts.py",
    "experiment/text_prompts.py",
    # Loaded by gateway/envoy/ext_proc alone, when a processor is started.
    "gateway/envoy/wire.py",
    "gateway/envoy/request_body.py",
    "gateway/envoy/dialogue.py",
    "gateway/envoy/server.py",
)
HUB_READER = "models/sources/hub.py"


def test_the_packages_arrows_point_down() -> None:
    assert list(arrows_up(ROOT)) == []


def test_every_part_has_a_floor() -> None:
    assert parts_without_a_floor(ROOT) == []


def test_no_engine_imports_another() -> None:
    assert list(arrows_between_engines(ROOT)) == []


def test_heavy_libraries_are_imported_late_and_the_hub_in_one_place() -> None:
    assert list(heavy_imports(ROOT)) == []


def test_the_page_shows_these_floors() -> None:
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", page, flags=re.MULTILINE)
    shown = {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown == {part: floor for part, floor in FLOORS.items() if part not in ("", "__main__")}


def test_the_graph_was_read() -> None:
    edges = {(source, target) for source, target in edges_of(ROOT)}
    assert ("vramledger.ledger", "vramledger.evidence") in edges
    assert len(edges) > 100


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("units.py", "from vramledger.models.model import Model"),
        ("units.py", "from vramledger.models import model"),
        ("units.py", "import vramledger.models.model"),
        ("units.py", "from vramledger import models"),
        ("units.py", "from .models import model"),
        ("units.py", "from . import models"),
        ("units.py", "from vramledger import __version__"),
        ("units.py", "def late():\n    import vramledger.models"),
        ("models/model.py", "from ..engines import vllm"),
        ("models/__init__.py", "from ..engines import vllm"),
        ("models/__init__.py", "from .. import engines"),
        ("engines/vllm/weights.py", "from vramledger.cli import main"),
    ],
)
def test_a_planted_arrow_up_is_caught(tmp_path: Path, path: str, line: str) -> None:
    root = small_house(tmp_path)
    assert list(arrows_up(root)) == []
    (root / path).write_text(line + "\n", encoding="utf-8")
    assert [source for source, _ in arrows_up(root)] == [module_name(root / path, root)]


def test_a_planted_arrow_between_engines_is_caught(tmp_path: Path) -> None:
    root = small_house(tmp_path)
    (root / "engines" / "sglang" / "pool.py").write_text(
        "from ..vllm.weights import rule\n", encoding="utf-8"
    )
    assert list(arrows_between_engines(root)) == [
        ("vramledger.engines.sglang.pool", "vramledger.engines.vllm.weights")
    ]
    (root / "engines" / "sglang" / "pool.py").write_text(
        "from vramledger.engines import vllm\n", encoding="utf-8"
    )
    assert list(arrows_between_engines(root)) == [
        ("vramledger.engines.sglang.pool", "vramledger.engines.vllm")
    ]


def test_a_planted_part_without_a_floor_is_caught(tmp_path: Path) -> None:
    root = small_house(tmp_path)
    (root / "utils.py").touch()
    (root / "helpers").mkdir()
    (root / "helpers" / "text.py").touch()
    assert parts_without_a_floor(root) == ["helpers", "utils"]


@pytest.mark.parametrize(
    ("path", "line", "caught"),
    [
        ("units.py", "import torch", True),
        ("units.py", "import numpy.linalg as la", True),
        ("units.py", "if True:\n    from torch import cuda", True),
        ("units.py", "class Late:\n    import numpy", True),
        ("units.py", "def late():\n    import torch", False),
        ("units.py", "if TYPE_CHECKING:\n    import numpy", False),
        ("workload/columns.py", "import numpy", False),
        ("units.py", "import vramledger.workload.columns", True),
        ("units.py", "def late():\n    import vramledger.workload.columns", False),
        ("units.py", "def late():\n    import huggingface_hub", True),
        (HUB_READER, "import huggingface_hub", True),
        (HUB_READER, "def late():\n    from huggingface_hub import hf_hub_download", False),
    ],
)
def test_a_planted_heavy_import_is_caught(tmp_path: Path, path: str, line: str, caught: bool) -> None:
    root = small_house(tmp_path)
    (root / path).write_text(line + "\n", encoding="utf-8")
    assert bool(list(heavy_imports(root))) is caught


def small_house(folder: Path) -> Path:
    root = folder / "vramledger"
    for path in (
        "__init__.py", "units.py", "models/__init__.py", "models/model.py", "models/sources/hub.py",
        "engines/__init__.py", "engines/vllm/__init__.py", "engines/vllm/weights.py",
        "engines/sglang/__init__.py", "engines/sglang/pool.py", "cli/__init__.py",
        "workload/__init__.py", "workload/columns.py",
    ):  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "models" / "model.py").write_text("from vramledger import units\n", encoding="utf-8")
    return root


def arrows_up(root: Path) -> Iterator[tuple[str, str]]:
    for source, target in edges_of(root):
        if FLOORS[part_of(target)] > FLOORS[part_of(source)]:
            yield source, target


def arrows_between_engines(root: Path) -> Iterator[tuple[str, str]]:
    """Arrows from one engine's folder into another's. Files directly in `engines` may reach any."""
    folders = {path.name for path in (root / "engines").iterdir() if path.is_dir()}
    for source, target in edges_of(root):
        ends = [
            words[2]
            for words in (source.split("."), target.split("."))
            if words[1:2] == ["engines"] and len(words) > 2
        ]
        if len(ends) == 2 and ends[0] != ends[1] and folders.issuperset(ends):
            yield source, target


def parts_without_a_floor(root: Path) -> list[str]:
    return sorted({part_of(module_name(path, root)) for path in root.rglob("*.py")} - FLOORS.keys())


def heavy_imports(root: Path) -> Iterator[tuple[str, str]]:
    paths = sorted(root.rglob("*.py"))
    modules = {module_name(path, root) for path in paths}
    homes = {module_name(path, root) for path in paths if is_heavy_home(path, root)}
    for path in paths:
        if is_heavy_home(path, root):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        source = module_name(path, root)
        package = source if path.name == "__init__.py" else source.rpartition(".")[0]
        is_hub_reader = path.relative_to(root).as_posix() == HUB_READER
        early = {id(node) for node in outside_functions(tree)}
        for node in ast.walk(tree):
            for name in outside_names(node):
                library = name.partition(".")[0]
                if library in HEAVY and (
                    id(node) in early or (library == "huggingface_hub" and not is_hub_reader)
                ):
                    yield source, library
            if id(node) in early:
                for target in inside_names(node, package, modules):
                    if target in homes:
                        yield source, target


def is_heavy_home(path: Path, root: Path) -> bool:
    place = path.relative_to(root).as_posix()
    return any(place == home or (home.endswith("/") and place.startswith(home)) for home in HEAVY_HOMES)


def edges_of(root: Path) -> Iterator[tuple[str, str]]:
    """(module, imported module) for every import within the package, wherever in the file it stands."""
    paths = sorted(root.rglob("*.py"))
    modules = {module_name(path, root) for path in paths}
    modules |= {name.rpartition(".")[0] for name in modules if "." in name}
    for path in paths:
        source = module_name(path, root)
        package = source if path.name == "__init__.py" else source.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for target in inside_names(node, package, modules):
                if target != source:
                    yield source, target


def inside_names(node: ast.AST, package: str, modules: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "vramledger")
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            anchor = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            base = f"{anchor}.{base}".rstrip(".")
        if base.partition(".")[0] == "vramledger":
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                yield deeper if deeper in modules else base


def outside_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield node.module or ""


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        for_types_alone = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not for_types_alone and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from outside_functions(child)


def module_name(path: Path, root: Path) -> str:
    words = path.relative_to(root).with_suffix("").parts
    return ".".join(("vramledger", *(words[:-1] if words[-1] == "__init__" else words)))


def part_of(module: str) -> str:
    """The room a module is in: "models" for vramledger.models.sources.hub, "" for the package itself."""
    return module.split(".")[1] if "." in module else ""
