"""Code of one unpacked release of SGLang, run without torch, a device or the engine's other modules.

Functions are taken out of their files by name and executed as they are; whatever they import from the engine is a
stand-in, and only what a question sets on it is real.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class StandIn:
    """Anything: any attribute, called it answers with itself, false."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return args[0] if len(args) == 1 and isinstance(args[0], type) else StandIn()

    def __bool__(self) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)


class _Stub(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


class _Finder(MetaPathFinder, Loader):
    """Modules of the engine and of torch as stubs, with the names that `given` defines for them."""

    def __init__(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        self._given = given

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return (
            ModuleSpec(name, self, is_package=True)
            if name.split(".", maxsplit=1)[0] in ("sglang", "torch", "numpy")
            else None
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _Stub(spec.name)
        module.__dict__.update(self._given.get(spec.name, {}))
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def stubbed(given: Mapping[str, Mapping[str, Any]]) -> Any:
    """Imports of the engine answer with stubs inside the block."""
    finder = _Finder(given)
    before = set(sys.modules)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.split(".")[0] in ("sglang", "torch", "numpy"):
                del sys.modules[name]


class Release:
    """One release in a folder that its wheel was unpacked into."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "sglang" / "srt"
        self._parsed: dict[str, list[ast.FunctionDef]] = {}

    @property
    def old_pieces(self) -> bool:
        """Whether the largest prefill captured is a constant of the class (up to 0.5.6)."""
        text = (self._root / "server_args.py").read_text(encoding="utf-8")
        return "piecewise_cuda_graph_max_tokens: int = 4096" in text

    def has(self, path: str) -> bool:
        return (self._root / path).is_file()

    def functions(self, path: str, names: Iterable[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """Functions and methods of a file by name, with `given` as their globals; absent ones are left out."""
        wanted = set(names)
        found = [node for node in self._defined(path) if node.name in wanted]
        for node in found:
            node.decorator_list = []
        return self._run(found, path, given)

    def statements(self, path: str, owner: str, mentioning: Iterable[str], given: Mapping[str, Any]) -> Any:
        """A function `run(self)` of those statements of the method `owner` that read or set a named attribute."""
        words = set(mentioning)
        method = next(node for node in self._defined(path) if node.name == owner)
        body: list[ast.stmt] = [
            node
            for node in method.body
            if isinstance(node, ast.If | ast.Assign)
            and words
            & {n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in _heads(node)}
        ]
        function = ast.FunctionDef(
            name="run",
            args=ast.arguments(
                posonlyargs=[], args=[ast.arg("self")], kwonlyargs=[], kw_defaults=[], defaults=[]
            ),
            body=body,
            decorator_list=[],
            lineno=1,
            col_offset=0,
        )
        return self._run([function], path, given)["run"]

    def until(self, path: str, name: str, words: str, kept: Iterable[str], given: Mapping[str, Any]) -> Any:
        """A method up to the statement that has `words` in a text; local names in `kept` become attributes
        `kept_NAME` of its self."""
        method = next(node for node in self._defined(path) if node.name == name)
        body = []
        for node in method.body:
            body.append(node)
            texts = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
            if any(isinstance(text, str) and words in text for text in texts):
                break
        for local in kept:
            body += ast.parse(f"self.kept_{local} = {local}").body
        cut = ast.FunctionDef(
            name=name, args=method.args, body=body, decorator_list=[], lineno=1, col_offset=0
        )  # fmt: skip
        return self._run([cut], path, given)[name]

    def module(self, path: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A whole file; `given` replaces names it imports."""
        space: dict[str, Any] = {
            "__name__": path.removesuffix(".py").replace("/", "."),
            "__builtins__": builtins,
        }
        holder = ModuleType(space["__name__"])
        sys.modules[space["__name__"]] = holder
        holder.__dict__.update(space)
        exec(compile((self._root / path).read_text(encoding="utf-8"), path, "exec"), holder.__dict__)
        holder.__dict__.update(given)
        return holder.__dict__

    def _defined(self, path: str) -> list[ast.FunctionDef]:
        """Functions and methods of a file, parsed once."""
        if path not in self._parsed:
            tree = ast.parse((self._root / path).read_text(encoding="utf-8"))
            self._parsed[path] = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        return self._parsed[path]

    def _run(self, nodes: Sequence[Any], path: str, given: Mapping[str, Any]) -> dict[str, Any]:
        space: dict[str, Any] = {"__builtins__": builtins, "logger": StandIn(), "logging": StandIn(), **given}
        future = ast.parse("from __future__ import annotations").body
        tree = ast.Module(body=[*future, *nodes], type_ignores=[])
        ast.fix_missing_locations(tree)
        exec(compile(tree, path, "exec"), space)
        return {node.name: space[node.name] for node in nodes}


def _heads(node: ast.stmt) -> Iterable[ast.AST]:
    """The condition of an if, the targets of an assignment."""
    if isinstance(node, ast.If):
        return ast.walk(node.test)
    return [inner for target in getattr(node, "targets", []) for inner in ast.walk(target)]


def named(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**values)
