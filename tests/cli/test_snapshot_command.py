"""`vramledger snapshot`: pages, documents, pictures and refusals."""

from __future__ import annotations

import json
import pickle
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest

from telemetry.caching_allocator import CachingAllocator
from vramledger.cli.app import run
from vramledger.report.schema import schema_of
from vramledger.units import MIB


@pytest.fixture
def file(tmp_path: Path) -> str:
    allocator = CachingAllocator()
    held = [allocator.malloc(30 * MIB, frame="<b>&\x1b[31m.py") for _ in range(4)]
    allocator.malloc(8 * MIB, pool=(0, 1))
    for address in held[:2]:
        allocator.free(address)
    allocator.malloc(2 * MIB, frame="cache.py")
    allocator.fail(512 * MIB, device_free=7 * MIB)
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    return str(path)


def test_a_page_says_who_holds_what_and_what_failed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", file]) == 0
    page = capsys.readouterr().out
    assert "private pools" in page
    assert "failed: a request of 512.0 MiB, the driver had 7.0 MiB free" in page
    assert "\x1b" not in page
    assert all(len(line) <= 80 for line in page.splitlines() if file not in line)


def test_the_document_is_valid_and_adds_up(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", file, "--json", "--request", "20MiB"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("snapshot")).validate(found)
    (device,) = found["devices"]
    assert device["request"]["how"] == "free block"
    for pool in device["pools"]:
        assert pool["reserved_bytes"] == pool["allocated_bytes"] + pool["pending_bytes"] + pool["free_bytes"]


def test_with_blocks_every_segment_is_listed_and_adds_up(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["snapshot", file, "--json", "--blocks"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("snapshot")).validate(found)
    (device,) = found["devices"]
    written = {f"{item['address']:#x}": item for item in pickle.loads(Path(file).read_bytes())["segments"]}
    assert {item["address"] for item in device["map"]["segments"]} == set(written)
    for item in device["map"]["segments"]:
        assert [(offset, size) for offset, size, _, _ in item["blocks"]] == [
            (block["address"] - written[item["address"]]["address"], block["size"])
            for block in written[item["address"]]["blocks"]
        ]
    by_pool = {tuple(pool["pool_id"]): 0 for pool in device["pools"]}
    for item in device["map"]["segments"]:
        by_pool[tuple(item["pool_id"])] += sum(
            size for _, size, state, _ in item["blocks"] if state == "free"
        )
    assert by_pool == {tuple(pool["pool_id"]): pool["free_bytes"] for pool in device["pools"]}
    assert device["map"]["num_segments_left_out"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--request", "10GiB"], 10, "no, "),
        (["--request", "10GiB", "--device-free", "20GiB"], 0, "new segment"),
        (["--request", "50MiB", "--device-free", "30MiB"], 0, "given back"),
    ],
)
def test_whether_a_request_would_be_served(
    file: str, arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["snapshot", file, *arguments]) == code
    assert says in " ".join(capsys.readouterr().out.split())


def test_the_picture_has_every_block_in_its_place(file: str, tmp_path: Path) -> None:
    picture = tmp_path / "s.svg"
    assert run(["snapshot", file, "--svg", str(picture)]) == 0
    root = ET.fromstring(picture.read_text(encoding="utf-8"))
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == sum(
        len(item["blocks"]) for item in pickle.loads(Path(file).read_bytes())["segments"]
    )
    assert any("<b>&" in title for title in titles)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nothing.pickle"], 4, "cannot be read"),
        (["{file}", "--request", "many"], 2, "is not a size"),
        (["{file}", "--device-free", "1GiB"], 2, "give that too"),
        (["{file}", "--svg", "/nowhere/s.svg"], 74, "cannot be written"),
    ],
)
def test_refusals(
    file: str, arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["snapshot", *(part.format(file=file) for part in arguments)]) == code
    assert says in capsys.readouterr().err
