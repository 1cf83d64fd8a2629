"""The reference of the gateway's configuration in docs/gateway.md, from the settings themselves.

python -m tools.gateway_reference          writes it anew
python -m tools.gateway_reference --check  fails if it is not as it would be written
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.config_sections import (
    AdminSection,
    EnvoySection,
    SaltSection,
    SharedSection,
    TelemetrySection,
    TokensSection,
    UpstreamSection,
)
from vramledger.gateway.policy_section import PolicySection
from vramledger.gateway.settings import Limits, Timeouts
from vramledger.gateway.tenants.tenant import Tenant

PAGE = Path(__file__).parents[1] / "docs" / "gateway.md"
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"
SECTIONS: tuple[tuple[str, type[msgspec.Struct], str], ...] = (
    ("Before the first section", GatewayConfig, ""),
    ("`[[upstream]]`", UpstreamSection, "One for each engine."),
    ("`[tenants.NAME]`", Tenant, ""),
    ("`[policy]`", PolicySection, ""),
    ("`[tokens]`", TokensSection, ""),
    ("`[salt]`", SaltSection, ""),
    ("`[limits]`", Limits, "Bounds on what clients may make the gateway hold."),
    ("`[timeouts]`", Timeouts, "In milliseconds."),
    ("`[admin]`", AdminSection, ""),
    ("`[telemetry]`", TelemetrySection, ""),
    ("`[shared]`", SharedSection, ""),
    ("`[envoy]`", EnvoySection, ""),
)


def reference() -> str:
    """The sections with a table each."""
    return "\n".join(line for section in SECTIONS for line in _section(*section))


def written(page: str) -> str:
    """The page with the reference between its marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{reference()}\n{END}{tail}"


def _section(title: str, kind: type[msgspec.Struct], more: str) -> Iterator[str]:
    said = docstrings(kind)
    yield f"### {title}\n"
    if more:
        yield f"{more}\n"
    yield "| setting | default | |"
    yield "| --- | --- | --- |"
    for field in msgspec.structs.fields(kind):
        if (
            isinstance(field.default, msgspec.Struct)
            or field.name == "tenants"
            or field.encode_name == "upstream"
        ):
            continue  # a section of its own
        yield f"| `{field.encode_name}` | {_default(field)} | {said[field.name]} |"
    yield ""


def _default(field: Any) -> str:
    if field.default is msgspec.NODEFAULT:
        return "(needed)" if field.default_factory is msgspec.NODEFAULT else "none"
    value = field.default.value if isinstance(field.default, Enum) else field.default
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 10_000:
        return f"`{value:_}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def docstrings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What stands beneath each field in the source; a field without is a KeyError where it is asked for."""
    module = ast.parse(inspect.getsource(kind))
    body = module.body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[before.target.id] = " ".join(after.value.value.split()).replace("|", "\\|")
    return found


def main(arguments: list[str]) -> int:
    page = PAGE.read_text(encoding="utf-8")
    if arguments == ["--check"]:
        return 0 if written(page) == page else 1
    PAGE.write_text(written(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
