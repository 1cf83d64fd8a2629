"""The reference is what the code says: every command, flag, public name and document, and what stands on its pages is made anew."""

from __future__ import annotations

import pytest
from tools.reference.__main__ import FOLDER, pages, stale
from tools.reference.markdown import plain

import vramledger
from vramledger.cli.app import cli
from vramledger.engines import engine_names, find_engine
from vramledger.report.schema import schema_names, schema_of


def test_the_committed_reference_is_what_is_made_of_the_code() -> None:
    assert stale(pages()) == [], "run `make docs`"


def test_every_command_flag_name_and_field_has_its_place() -> None:
    made = pages()
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        text = made[FOLDER / "commands" / f"{name}.md"]
        for param in command.params:
            assert any(spelled in text for spelled in (param.opts if param.opts[0][0] == "-" else [name])), (
                param
            )
    for engine in engine_names():
        text = made[FOLDER / "flags" / f"{engine}.md"]
        assert [option.flag for option in find_engine(engine)[0].OPTIONS if option.flag not in text] == []
    python = made[FOLDER / "python.md"]
    assert [
        name for name in vramledger.__all__ if name != "__version__" and f"\n### {name}\n" not in python
    ] == []
    values = made[FOLDER / "documents" / "values.md"]
    for name in schema_names():
        text = made[FOLDER / "documents" / f"{name}.md"] + values
        for key, definition in schema_of(name)["$defs"].items():
            assert f"\n## {key}\n" in text
            assert [field for field in definition.get("properties", ()) if f"| `{field}` |" not in text] == []


def test_a_page_that_nothing_makes_and_one_that_is_changed_are_found() -> None:
    made = pages()
    gone = dict(made)
    del gone[FOLDER / "errors.md"]
    changed = made | {FOLDER / "python.md": "else"}
    assert stale(gone) == [FOLDER / "errors.md"]
    assert stale(changed) == [FOLDER / "python.md"]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a *.gguf file", "a \\*.gguf file"),
        ("NAME|custom", "NAME\\|custom"),
        ("`a*|b` and <c>", "`a*\\|b` and \\<c\\>"),
        ("two\n  lines", "two lines"),
        ("org/name[@revision](x)", "org/name\\[@revision\\](x)"),
    ],
)
def test_text_from_the_code_is_no_markup(text: str, made: str) -> None:
    assert plain(text) == made
