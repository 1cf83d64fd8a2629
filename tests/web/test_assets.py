"""What the page is made of: whole, its own or published by others, in two languages."""

from __future__ import annotations

import json
import re
from hashlib import sha256

import pytest

from vramledger.web import assets

OWN = tuple(name for name in assets.modules() if name.startswith("vl/"))
_ASKED = re.compile(r"""^(?:import|export)\b[^"'\n]*?\s["']([^"'\n]+)["'];""", re.MULTILINE)
_WORDS = re.compile(r"""\bt\(\s*["']([\w.-]+)["']""")
_EXPORTED = re.compile(r"^export (?:async )?(?:const|class|function\*?) (\w+)", re.MULTILINE)
_NAMES_IMPORTED = re.compile(r"""^import \{([^}]*)\} from ["']([^"'\n]+)["'];""", re.MULTILINE)
_KEY = re.compile(r"""["']([\w.-]+)["']""")
_MADE_KEY = re.compile(r"`([\w.]+\.(?:[\w.]|\$\{[^{}]*\})+)`")


@pytest.mark.parametrize("name", OWN)
def test_a_module_names_only_modules_that_are_there(name: str) -> None:
    asked = set(_ASKED.findall(assets.text(assets.modules()[name])))
    assert asked - set(assets.modules()) == set()


def test_a_view_asks_nothing_of_a_server() -> None:
    for name in OWN:
        if name.startswith("vl/views/"):
            needed = assets._needed((name,))
            assert not [each for each in needed if each.startswith("vl/tabs/")], name


def test_what_was_vendored_is_what_the_list_says() -> None:
    folder = assets.STATIC / "vendor"
    rows = json.loads((folder / "vendored.json").read_text())
    assert {row["file"]: row["sha256"] for row in rows} == {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "vendored.json"
    }


def test_nothing_is_loaded_from_elsewhere() -> None:
    for name in (*(assets.modules()[each] for each in OWN), "app.css"):
        # The names of XML's own vocabularies are no addresses that are asked.
        found = [
            each
            for each in re.findall(r"https?://[^\s\"'`)]+", assets.text(name))
            if "www.w3.org" not in each
        ]
        assert [each for each in found if "127.0.0.1" not in each and "localhost" not in each] == [], name


def books() -> dict[str, dict[str, dict[str, str]]]:
    """Words by module and language, read from the literal that each module exports."""
    found = {}
    for name in OWN:
        if name.startswith("vl/words/"):
            text = assets.text(assets.modules()[name])
            found[name] = {
                language: dict(re.findall(r'"([\w.-]+)": "((?:[^"\\]|\\.)*)"', body))
                for language, body in re.findall(
                    r"^  (en|ko): \{(.*?)\},?\n(?=  (?:en|ko):|\};)", text, flags=re.MULTILINE | re.DOTALL
                )
            }
    return found


def test_both_languages_have_the_same_words_and_places_in_them() -> None:
    assert books()
    for name, book in books().items():
        assert set(book) == {"en", "ko"}, name
        assert set(book["en"]) == set(book["ko"]), name
        for key, text in book["en"].items():
            assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", book["ko"][key])), (
                f"{name} {key}"
            )


def test_every_word_that_is_asked_for_is_there() -> None:
    known = {key for book in books().values() for key in book["en"]}
    asked = {(name, key) for name in OWN for key in _WORDS.findall(assets.text(assets.modules()[name]))}
    assert {(name, key) for name, key in asked if key not in known} == set()


def test_every_word_is_said_somewhere() -> None:
    texts = "".join(assets.text(assets.modules()[name]) for name in OWN if not name.startswith("vl/words/"))
    said = set(_KEY.findall(texts))
    made = [re.sub(r"\\\$\\\{.*?\\\}", ".+", re.escape(pattern)) for pattern in set(_MADE_KEY.findall(texts))]
    is_made = re.compile("|".join(made))
    known = {(name, key) for name, book in books().items() for key in book["en"]}
    assert {(name, key) for name, key in known if key not in said and not is_made.fullmatch(key)} == set()


def test_every_export_is_imported() -> None:
    texts = {name: assets.text(assets.modules()[name]) for name in OWN}
    taken = {
        (module, each.split(" as ")[0].strip())
        for text in texts.values()
        for names, module in _NAMES_IMPORTED.findall(text)
        for each in names.split(",")
    }
    # A file of its own, which Python writes, starts its view by these.
    taken |= {("vl/lib/alone", "start"), *((name, "View") for name in OWN if name.startswith("vl/views/"))}
    offered = {(name, each) for name, text in texts.items() for each in _EXPORTED.findall(text)}
    assert offered - taken == set()


def test_a_file_of_its_own_needs_no_module_that_is_not_in_it() -> None:
    inlined = json.loads(assets.inlined_import_map("vl/lib/alone", "vl/views/plan"))["imports"]
    assert all(address.startswith("data:text/javascript;base64,") for address in inlined.values())
    for name in inlined:
        assert set(assets.imports_of(name)) <= set(inlined)
    assert "vl/lib/main" not in inlined
