"""The bills of materials: valid CycloneDX, equal to the locks, every licence told, the same from the same sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from tools.sbom import locks
from tools.sbom.bill import SUBJECTS, VENDOR, bill, needed_by
from tools.sbom.page import licences_page

import vramledger

ROOT = Path(__file__).parents[2]


def read(subject: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bill(subject))
    return found


def pypi(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        item["name"].lower().replace("_", "-"): item
        for item in document["components"]
        if item["purl"].startswith("pkg:pypi/")
    }


@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_follows_the_standards_own_schema(subject: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill(subject)) is None


@pytest.mark.parametrize("image", ["gateway", "ui"])
def test_an_image_has_what_its_lock_pins_by_version_and_hash(image: str) -> None:
    found, locked = pypi(read(image)), locks.lock(image)
    assert found.keys() == locked.keys()
    for name, item in found.items():
        assert item["version"] == locked[name].version
        assert sorted(entry["content"] for entry in item["hashes"]) == list(locked[name].sha256)
    assert any(item["purl"].startswith("pkg:docker/library/python@3.") for item in read(image)["components"])


def test_the_package_has_what_every_install_brings_and_what_each_extra_does() -> None:
    found, tested = pypi(read("package")), locks.lock("dev")
    assert found.keys() == needed_by().keys()
    required = {name for name, item in found.items() if item["scope"] == "required"}
    assert required == {"click", "msgspec", "ahocorasick-rs"}
    extras = {entry["value"] for item in found.values() for entry in item.get("properties", ())}
    assert extras == set(locks.project()["optional-dependencies"])
    for name, item in found.items():
        if name == "ray":  # installed in an environment of its own, by `make test-ray`
            assert "version" not in item
        else:
            assert item["version"] == tested[name].version


@pytest.mark.parametrize("subject", SUBJECTS)
def test_libraries_of_the_page_are_those_in_the_package(subject: str) -> None:
    found = {
        item["name"]: item for item in read(subject)["components"] if item["purl"].startswith("pkg:npm/")
    }
    hashes = {entry["content"] for item in found.values() for entry in item["hashes"]}
    listed = json.loads((VENDOR / "vendored.json").read_text(encoding="utf-8"))
    assert {entry["package"] for entry in listed} == found.keys()
    assert hashes == {entry["sha256"] for entry in listed if entry["file"].endswith(".js")}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_licence_is_told_and_none_binds_who_uses_it(subject: str) -> None:
    for item in read(subject)["components"]:
        if item["name"] == "ray" or item["type"] == "container":
            continue
        (stated,) = item["licenses"]
        words = stated.get("expression") or stated["license"].get("id") or stated["license"]["name"]
        assert not any(name in words for name in ("GPL", "SSPL", "BUSL", "Proprietary")), item["name"]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_tree_of_what_asks_for_what_reaches_every_distribution(subject: str) -> None:
    document = read(subject)
    asks = {item["ref"]: set(item.get("dependsOn", ())) for item in document["dependencies"]}
    reached, todo = set(), [document["metadata"]["component"]["bom-ref"]]
    while todo:
        ref = todo.pop()
        if ref not in reached:
            reached.add(ref)
            todo += asks[ref]
    everything = {item["bom-ref"] for item in document["components"] if item["type"] == "library"}
    assert everything <= reached
    assert document["metadata"]["component"]["version"] == vramledger.__version__


def test_the_same_sources_give_the_same_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert bill("gateway") == bill("gateway")
    assert '"timestamp": "2026-01-01T00:00:00+00:00"' in bill("gateway")


def test_the_page_of_licences_is_up_to_date() -> None:
    assert (ROOT / "docs" / "licences.md").read_text(encoding="utf-8") == licences_page(), "run `make docs`"
