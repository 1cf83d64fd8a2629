"""A page for each published document: its fields, their types and what they mean, from the JSON Schema that is committed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tools.reference.markdown import anchor, code, generated, plain, table

from vramledger.report.schema import schema_file, schema_names, schema_of

SHARED = "values.md"
_REF = "#/$defs/"
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "like `{}`",
}


def pages() -> Iterator[tuple[str, str]]:
    """Names under docs/reference and texts."""
    schemas = {name: schema_of(name) for name in schema_names()}
    shared = _shared(schemas)
    yield "documents.md", _text(_overview(schemas))
    for name, schema in schemas.items():
        yield f"documents/{name}.md", _text(_document(name, schema, shared))
    yield f"documents/{SHARED}", _text(_values(shared))


def _text(lines: Iterator[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def _shared(schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Definitions that several documents have, alike in all of them, by their names."""
    found: dict[str, list[Any]] = {}
    for schema in schemas.values():
        for name, value in schema["$defs"].items():
            found.setdefault(name, []).append(value)
    roots = {_root(schema) for schema in schemas.values()}
    alike = {
        name: values[0]
        for name, values in sorted(found.items())
        if len(values) > 1 and name not in roots and all(value == values[0] for value in values)
    }
    # One that refers to what stands on a document's own page stands there too.
    while own := [name for name, value in alike.items() if not _named(value) <= alike.keys()]:
        for name in own:
            del alike[name]
    return alike


def _named(value: Any) -> set[str]:
    """Names of the definitions that a piece of a schema refers to."""
    if isinstance(value, Mapping):
        own = {str(value["$ref"]).removeprefix(_REF)} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(_named, value.values()))
    return set().union(*map(_named, value)) if isinstance(value, list) else set()


def _root(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).removeprefix(_REF)


def _overview(schemas: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    yield from generated("Documents")
    yield "What `--json` writes and what files hold. Every document says its `schema_version`; a later minor version adds fields, which an older"
    yield "reader leaves alone. `vramledger schema NAME` prints a schema; the folder `schema/` of the repository has them all."
    yield ""
    rows = []
    for name, schema in schemas.items():
        said = schema["$defs"][_root(schema)].get("description", "")
        rows.append((f"[{name}](documents/{name}.md)", code(schema_file(name)), plain(said)))
    yield from table(("document", "schema", "what it holds"), rows)
    yield ""
    yield from ("```{toctree}", ":hidden:", ":glob:", "", "documents/*", "```")


def _document(name: str, schema: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[str]:
    root = _root(schema)
    yield from generated(f"Document: {name}")
    yield f"Schema: `{schema_file(name)}` (`vramledger schema {name}`)."
    yield ""
    others = sorted(key for key in schema["$defs"] if key != root and key not in shared)
    for key in (root, *others):
        yield from _definition(key, schema["$defs"][key], shared)


def _values(shared: Mapping[str, Any]) -> Iterator[str]:
    yield from generated("Values in several documents")
    for key, value in shared.items():
        yield from _definition(key, value, {})


def _definition(key: str, value: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {key}"
    yield ""
    if said := value.get("description"):
        yield plain(said)
        yield ""
    if "properties" not in value:
        yield f"{_type(value, shared)}."
        yield ""
        return
    needed = set(value.get("required", ()))
    rows = [
        (
            code(name),
            _type(field, shared),
            "yes" if name in needed else _default(field),
            plain(field.get("description", "")),
        )
        for name, field in value["properties"].items()
    ]
    yield from table(("field", "type", "always there", "meaning"), rows)
    yield ""


def _default(field: Mapping[str, Any]) -> str:
    return f"else {code(json.dumps(field['default']))}" if "default" in field else "no"


def _type(field: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = str(field["$ref"]).removeprefix(_REF)
        return f"[{name}]({SHARED if name in shared else ''}#{anchor(name)})"
    if "anyOf" in field:
        return " or ".join(_type(item, shared) for item in field["anyOf"])
    if "enum" in field:
        return " or ".join(code(json.dumps(item)) for item in field["enum"])
    match field.get("type"):
        case "array":
            items = [_type(item, shared) for item in field.get("prefixItems", ())]
            inner = f"({', '.join(items)})" if items else _type(field.get("items") or {}, shared)
            return f"list of {inner}{'' if items else _bounds(field)}"
        case "object":
            more = field.get("additionalProperties")
            return f"object of {_type(more, shared)} by name" if isinstance(more, Mapping) else "object"
        case None:
            return "any value"
        case name:
            return f"{name}{_bounds(field)}"


def _bounds(field: Mapping[str, Any]) -> str:
    said = [text.format(field[key]) for key, text in _BOUNDS.items() if key in field]
    return f" ({', '.join(said)})".replace("|", "\\|") if said else ""
