"""Files that are dropped on the page: kept beneath one folder under harmless names, bounded, whole or not at all."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.web import uploads as module
from vramledger.web.uploads import Upload, Uploads, safe_name
from web_page import Ui, wait_until

MIB = 1024**2


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def kept(
    held: Uploads, name: str, *parts: bytes, stated_bytes: int | None = None, into: str | None = None
) -> Upload:
    return asyncio.run(held.add(name, chunks(*parts), stated_bytes=stated_bytes, into=into))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


@given(st.text(max_size=200))
@example("../../etc/passwd")
@example("..\\..\\windows\\system32")
@example("\0")
@example("-rf")
@example(".ssh/authorized_keys")
@example("a" * 5000 + ".safetensors")
@example("con.json\n--json")
@example("\u2025/\uff0e\uff0e/x")
def test_a_name_is_a_plain_one_or_refused(name: str) -> None:
    try:
        found = safe_name(name)
    except InputError:
        return
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}|[A-Za-z0-9][A-Za-z0-9._-]{0,119}", found)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "../..", "\\", "---", "...", "./."])
def test_what_has_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no name"):
        kept(Uploads(tmp_path), name, b"x")
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["../../../tmp/planted", "/etc/planted", "..\\planted", "a/../../planted", "~/planted"]
)
def test_a_file_stays_beneath_its_folder_for_its_owner_alone(tmp_path: Path, name: str) -> None:
    root = tmp_path / "held"
    root.mkdir()
    upload = kept(Uploads(root), name, b"one", b"two")
    assert files(tmp_path) == [upload.path]
    assert upload.path.resolve().is_relative_to(root.resolve())
    assert upload.path.read_bytes() == b"onetwo"
    assert stat.S_ISREG(upload.path.lstat().st_mode)
    assert stat.S_IMODE(upload.folder.stat().st_mode) & 0o077 == 0


def test_a_header_of_a_large_file_takes_no_room(tmp_path: Path) -> None:
    upload = kept(Uploads(tmp_path), "m.gguf", b"GGUF", stated_bytes=4 * 1024**4)
    found = upload.path.stat()
    assert found.st_size == 4 * 1024**4
    assert found.st_blocks * 512 < MIB
    for size in (-1, 4 * 1024**4 + 1):
        with pytest.raises(InputError):
            kept(Uploads(tmp_path), "m.gguf", b"GGUF", stated_bytes=size)


def test_what_is_too_large_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_FILE_BYTES", MIB)
    held = Uploads(tmp_path)
    with pytest.raises(InputError, match="give the file to the command"):
        kept(held, "big.log", *[b"x" * 100_000] * 11)
    assert list(tmp_path.iterdir()) == []
    first = kept(held, "config.json", b"{}")
    with pytest.raises(InputError):
        kept(held, "config.json", *[b"x" * 100_000] * 11, into=first.id)
    assert first.path.read_bytes() == b"{}"
    assert files(tmp_path) == [first.path]


def test_all_files_of_one_model_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upload that is the newest is never the one to go."""
    monkeypatch.setattr(module, "LARGEST_TOTAL_BYTES", MIB)
    held = Uploads(tmp_path)
    first = kept(held, "config.json", b"{}")
    for place in range(3):
        kept(held, f"{place}.safetensors", b"x" * 300_000, into=first.id)
    with pytest.raises(InputError, match="in one model"):
        kept(held, "3.safetensors", b"x" * 300_000, into=first.id)
    assert len(files(tmp_path)) == 4
    assert len(held.find(first.id).names) == 4


@pytest.mark.parametrize("name", ["a.log", "a.json", "a.csv", "a.gguf.log", "a"])
def test_of_what_is_read_to_its_end_all_is_sent(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="all is sent"):
        kept(Uploads(tmp_path), name, b"x", stated_bytes=4 * 1024**4)
    assert files(tmp_path) == []


def test_what_comes_at_once_is_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is small enough; all that are on their way are not, before any of them is whole."""
    monkeypatch.setattr(module, "LARGEST_TOTAL_BYTES", MIB)
    held = Uploads(tmp_path)

    async def story() -> list[Upload | BaseException]:
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * 300_000
            await go_on.wait()

        async with asyncio.timeout(60):
            coming = [asyncio.ensure_future(held.add(f"{place}.json", slow())) for place in range(6)]
            while not any(each.done() for each in coming):
                await asyncio.sleep(0.01)
            go_on.set()
            return await asyncio.gather(*coming, return_exceptions=True)

    found = asyncio.run(story())
    assert [type(each) for each in found] == [Upload] * 3 + [InputError] * 3
    assert len(files(tmp_path)) == 3
    assert kept(held, "later.json", b"x").size_bytes == 1


def test_the_oldest_goes_where_there_would_be_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_UPLOADS", 3)
    held = Uploads(tmp_path)
    first = kept(held, "0.json", b"x")
    later = [kept(held, f"{place}.json", b"x") for place in range(1, 4)]
    assert sorted(path.name for path in files(tmp_path)) == ["1.json", "2.json", "3.json"]
    with pytest.raises(InputError, match="drop it again"):
        held.find(first.id)
    with pytest.raises(InputError, match="drop it again"):
        kept(held, "more.json", b"x", into=first.id)
    assert held.find(later[0].id) == later[0]


def test_files_of_one_model_that_come_together_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Uploads(tmp_path)
    first = kept(held, "config.json", b"{}")

    async def together() -> None:
        await asyncio.gather(
            *[held.add(f"{place}.safetensors", chunks(b"x"), into=first.id) for place in range(5)]
        )

    asyncio.run(together())
    whole = held.find(first.id)
    assert len(whole.names) == 6
    assert sorted(path.name for path in whole.path.iterdir()) == sorted(whole.names)
    monkeypatch.setattr(module, "MOST_FILES", 6)
    with pytest.raises(InputError, match="more than 6 files"):
        kept(held, "x.safetensors", b"x", into=first.id)


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    async def full() -> AsyncIterator[bytes]:
        yield b"x"
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left"):
        asyncio.run(Uploads(tmp_path).add("a.json", full()))
    assert list(tmp_path.iterdir()) == []


def put(ui: Ui, query: str, body: bytes = b"x") -> tuple[int, dict[str, object]]:
    asked = urllib.request.Request(
        f"{ui.address}/api/uploads?{query}", data=body, headers={"x-vramledger-token": ui.token}
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


@pytest.mark.parametrize(
    "query",
    ["", "name=", "name=..", "name=a&size=-1", "name=a&size=1e9", "name=a&size=%D9%A1", "name=a&size=99999999999999999999", "name=a&size=", "name=a&into=",
     "name=a&into=..", "name=a&into=../../etc", "name=a&into=%00", "name=a&into=" + "x" * 5000],
)  # fmt: skip
def test_what_is_no_upload_is_refused_in_a_sentence(ui: Ui, query: str) -> None:
    code, said = put(ui, query)
    assert code == 400
    assert 5 < len(str(said["error"])) < 300


@pytest.mark.parametrize(
    "name",
    ["../../../../etc/passwd", "/etc/passwd", "\\\\host\\share", "\x1b[31mred", "</script><img src=x>.json"],
)
def test_a_hostile_name_is_answered_with_the_one_that_was_kept(ui: Ui, name: str) -> None:
    code, said = put(ui, f"name={quote(name, safe='')}")
    assert code == 200
    names = said["names"]
    assert isinstance(names, list)
    kept_as = str(names[0])
    assert kept_as == safe_name(name)
    assert not set(kept_as) & set("/\\<>\x1b")


def test_a_command_reads_what_was_dropped_and_says_a_name_not_a_place(ui: Ui) -> None:
    _, said = put(ui, "name=broken.json", b"{")
    found = ui.run({"command": "plan", "sources": [f"upload:{said['id']}"], "options": {"device": "L40S"}})
    assert found["exit_code"] == 2
    assert found["command"] == "vramledger plan ./broken.json --device L40S"
    assert "vramledger-ui-" not in json.dumps(found)
    _, said = put(ui, "name=model.safetensors", b"x" * 100)
    found = ui.run({"command": "plan", "sources": [f"upload:{said['id']}"], "options": {"device": "L40S"}})
    assert found["message"] == ". has no config.json beside model.safetensors"


def test_an_upload_that_is_cut_off_is_not_held(ui: Ui) -> None:
    before = files(folder_of(ui))
    with socket.create_connection(("127.0.0.1", urlsplit(ui.address).port or 0), timeout=60) as connection:
        head = f"POST /api/uploads?name=cut.json HTTP/1.1\r\nHost: {urlsplit(ui.address).netloc}\r\nx-vramledger-token: {ui.token}\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode() + b"x" * 500)
        wait_until(lambda: len(files(folder_of(ui))) > len(before), "nothing is kept of it")
    wait_until(lambda: files(folder_of(ui)) == before, "it is held")


def folder_of(ui: Ui) -> Path:
    """Where the server keeps what it is given: its worker is told."""
    return Path(ui.workers()[0][-1])
