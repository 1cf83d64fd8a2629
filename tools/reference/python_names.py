"""The page on Python's public names: signatures, fields and docstrings of what `vramledger.__all__` has."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec
from tools.gateway_reference import docstrings
from tools.reference.markdown import code, generated, plain, table

import vramledger

# Subjects in the order of the page, by the first part of the module that a name lives in.
_SUBJECTS = {
    "planning": "Plan",
    "search": "Compare, fit, sweep",
    "answer": "The answer",
    "ledger": "The ledger",
    "pool": "The KV pool",
    "verdict": "The verdict",
    "evidence": "Evidence",
    "hardware": "Devices",
    "models": "Models and checkpoints",
    "workload": "Workloads",
    "kvcache": "Blocks",
    "simulation": "Simulation",
    "errors": "Errors",
}


def pages() -> Iterator[tuple[str, str]]:
    """The page's name under docs/reference and its text."""
    yield "python.md", "\n".join(_page()).rstrip() + "\n"


def _page() -> Iterator[str]:
    yield from generated("Python")
    yield "What `import vramledger` gives. A name is loaded when it is first used. The names of the simulation need `vramledger[simulation]`."
    yield "Everything else in the package may change with any release."
    yield ""
    homes: dict[str, list[str]] = {subject: [] for subject in _SUBJECTS}
    for name in vramledger.__all__:
        if name != "__version__":
            homes[_home(name).split(".")[1]].append(name)
    for subject, names in homes.items():
        yield f"## {_SUBJECTS[subject]}"
        yield ""
        for name in names:
            yield from _name(name, getattr(vramledger, name))


def _home(name: str) -> str:
    return next(module for module, names in vramledger._HOMES.items() if name in names)


def _name(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if not inspect.isclass(value):
        yield from _signature(name, value)
        yield from _docstring(value)
        return
    if issubclass(value, Enum):
        yield from _docstring(value)
        yield f"An enumeration: {', '.join(code(str(member.value)) for member in value)}."
        yield ""
    elif issubclass(value, BaseException):
        bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
        yield f"An error, a kind of {bases}. Its code is `{value.code}`, its exit code {value.exit_code}."  # type: ignore[attr-defined]
        yield ""
        yield from _docstring(value)
    elif issubclass(value, msgspec.Struct):
        yield from _docstring(value)
        yield from _fields(value)
        yield from _members(value)
    else:
        yield from _signature(name, value)
        yield from _docstring(value)
        yield from _members(value)


def _docstring(value: Any) -> Iterator[str]:
    own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    for paragraph in inspect.cleandoc(own or "").split("\n\n"):
        lines = paragraph.splitlines()
        if not lines:
            continue
        if all(line.startswith("    ") for line in lines):
            yield from ("```text", *(line[4:] for line in lines), "```")
        elif lines[0].startswith("- "):
            yield from (
                f"- {plain(line[2:])}" if line.startswith("- ") else f"  {plain(line)}" for line in lines
            )
        else:
            yield plain(paragraph)
        yield ""


def _signature(name: str, value: Any) -> Iterator[str]:
    node = _source(value.__init__ if inspect.isclass(value) else value)
    parameters = _parameters(node)[inspect.isclass(value) :]
    result = "" if inspect.isclass(value) or node.returns is None else f" -> {ast.unparse(node.returns)}"
    text = f"{name}({', '.join(parameters)}){result}"
    if len(text) > 100:
        text = "\n".join([f"{name}(", *(f"    {item}," for item in parameters), f"){result}"])
    yield from ("```text", text, "```", "")


def _source(function: Any) -> ast.FunctionDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def _parameters(node: ast.FunctionDef) -> list[str]:
    """Parameters as the source spells them."""
    args = node.args
    named = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(named) - len(args.defaults)) + list(args.defaults)
    found = [_parameter(arg, default) for arg, default in zip(named, defaults, strict=True)]
    if args.vararg is not None:
        found.append(f"*{_parameter(args.vararg, None)}")
    elif args.kwonlyargs:
        found.append("*")
    found.extend(_parameter(arg, value) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True))
    if args.kwarg is not None:
        found.append(f"**{_parameter(args.kwarg, None)}")
    return found


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(arg) + (f" = {ast.unparse(default)}" if default is not None else "")


def _fields(kind: type[msgspec.Struct]) -> Iterator[str]:
    said, annotations = docstrings(kind), _annotations(kind)
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    defaults = (msgspec.NODEFAULT,) * (len(names) - len(defaults)) + defaults
    rows = [
        (
            code(name),
            code(annotations[name]),
            _default(default),
            plain(said.get(name, "").replace("\\|", "|")),
        )
        for name, default in zip(names, defaults, strict=True)
    ]
    if rows:
        yield from table(("field", "type", "default", "meaning"), rows)
        yield ""


def _annotations(kind: type) -> dict[str, str]:
    """Types as the sources of the class and of its bases spell them."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("vramledger"):
            body = ast.parse(inspect.getsource(base)).body[0]
            assert isinstance(body, ast.ClassDef)
            for item in body.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    found[item.target.id] = ast.unparse(item.annotation)
    return found


def _default(default: Any) -> str:
    if default is msgspec.NODEFAULT:
        return "(needed)"
    value = default.factory() if type(default).__name__ == "Factory" else default
    text = repr(value.value if isinstance(value, Enum) else value)
    return (
        code(text)
        if len(text) <= 60 and not isinstance(value, msgspec.Struct)
        else f"a `{type(value).__name__}`"
    )


def _members(kind: type) -> Iterator[str]:
    rows = []
    for name, value in vars(kind).items():
        function = (
            value.fget if isinstance(value, property) else inspect.unwrap(getattr(value, "__func__", value))
        )
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        node = _source(function)
        own = 0 if isinstance(value, staticmethod) else 1
        called = "" if isinstance(value, property) else f"({', '.join(_parameters(node)[own:])})"
        result = "" if node.returns is None else ast.unparse(node.returns)
        rows.append((code(f"{name}{called}"), code(result), plain(inspect.getdoc(function) or "")))
    if rows:
        yield from table(("member", "gives", "meaning"), rows)
        yield ""
