"""Every command that the documentation shows is run, was made with its output, or says why not; and those that are not run exist as written."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from tools.documented.blocks import ROOT, Block, Kind, UnclearBlock, blocks, pages
from tools.documented.sandbox import furnish, run
from tools.documented.spelling import commands, wrong

from tools import readme

BLOCKS = [block for page in pages() for block in blocks(page)]
TO_RUN = [block for block in BLOCKS if block.kind is Kind.RUN]
LIMIT_S = 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone's files and a reader's."""
    return furnish(tmp_path_factory.mktemp("reader"))


@pytest.mark.parametrize("block", TO_RUN, ids=lambda block: block.place)
def test_what_a_page_tells_to_run_runs(folder: Path, block: Block) -> None:
    done = run(block, folder, timeout_s=LIMIT_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_what_is_not_run_exists_as_it_is_written() -> None:
    left = [
        block for block in BLOCKS if block.kind in {Kind.NOT_RUN, Kind.ELSEWHERE} and block.language == "sh"
    ]
    assert [f"{block.place}: {problem}" for block in left for problem in wrong(block.text)] == []


def test_output_that_a_page_shows_is_compared_with_what_its_command_prints() -> None:
    shown = {block.page for block in BLOCKS if block.kind is Kind.MADE}
    # The Korean README's output is held against the English one's.
    assert [page.name for page in shown - set(readme.pages()) if page.name != "README.ko.md"] == []


def test_data_on_a_page_is_of_the_kind_that_it_says() -> None:
    read = {"toml": tomllib.loads, "json": json.loads}
    for block in BLOCKS:
        if block.language in read and block.kind is Kind.DATA:
            read[block.language](block.text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("    vramledger plan ./model\n", "says `sh`"),
        ("```\n$ vramledger plan ./model\n```\n", "says `sh`"),
        ("<!-- not run: too lazy -->\n```sh\nls\n```\n", "'too lazy' is no reason"),
        ("```console\n$ vramledger devices\nH100\n```\n", "COMMAND"),
        ("<!-- run by tests/test_gone.py -->\n```python\npass\n```\n", "no test that reads page.md"),
    ],
)
def test_a_block_that_does_not_say_what_becomes_of_it_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UnclearBlock, match=said):
        list(blocks(tmp_path / "page.md", text))


def test_words_of_commands_are_those_that_a_shell_sees() -> None:
    script = "vramledger plan 'a b' \\\n  --json > plan.json  # kept\n\nmake x | head -3\n"
    assert list(commands(script)) == [["vramledger", "plan", "a b", "--json"], ["make", "x"], ["head", "-3"]]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("vramledger plna ./model", "No such command"),
        ("vramledger plan ./model --device H100 --max-modle-len 8K", "No such option"),
        ("vramledger plan --device H100", "Missing argument"),
        ("vramledger plan ./model --device H100 --engine sglang --gpu-memory-utilization 0.9", "a flag of"),
        ("vramledger simulate ./model --workload t.csv --requests many", "not a valid integer"),
        ("make demon", "no demon"),
        ("python -m tools.gone", "no tools.gone"),
        ("pip install 'vramledger[hub,cloud]'", "no extra cloud"),
    ],
)
def test_a_command_that_does_not_exist_is_found(script: str, said: str) -> None:
    assert [said in problem for problem in wrong(script)] == [True]


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    text = "```sh\nfalse\ntrue\n```\n"
    block = next(blocks(ROOT / "README.md", text))
    assert block.kind is Kind.RUN
    assert run(block, furnish(tmp_path / "reader"), timeout_s=LIMIT_S).returncode != 0
