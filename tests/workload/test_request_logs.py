"""Request logs of engines. vLLM 0.32.0's lines are what its own RequestLogger printed, SGLang's what its own formatters made."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramledger.errors import InputError
from vramledger.workload.columnar.formats.request_log import LineTimes
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.request import Request

RECORDED = Path(__file__).parent / "recorded"


def lengths(request: Request) -> tuple[int, int, int | None, int]:
    return request.prompt_tokens, request.output_tokens, request.max_output_tokens, request.branches


def test_vllm_tells_prompts_at_debug_and_outputs_in_deltas() -> None:
    workload = read_workload(RECORDED / "vllm-0.32.0.log")
    first, second = workload.requests()
    assert lengths(first) == (40, 3, 64, 2)
    assert lengths(second) == (35, 3, 16, 1)
    # Both begin with the same 32 tokens, but one is an adapter's.
    assert first.blocks == second.blocks == (0, 1)
    assert [workload.header.boundaries[one.boundary].adapter for one in (first, second)] == ["", "sql"]


def test_an_older_vllm_tells_all_in_one_line_and_the_year_may_end() -> None:
    workload = read_workload(RECORDED / "vllm-0.10.0.log")
    first, second = workload.requests()
    assert (lengths(first), lengths(second)) == ((17, 20, 20, 1), (18, 30, 30, 1))
    assert (first.arrival_ns, second.arrival_ns) == (0, 3 * 10**9)
    assert second.cancel_ns == 3 * 10**9
    assert first.blocks == second.blocks == (0,)
    assert any("max_tokens stands for it" in note for note in workload.header.notes)


def test_a_vllm_that_tells_no_lengths_is_told_of(tmp_path: Path) -> None:
    text = (RECORDED / "vllm-0.32.0.log").read_text()
    path = tmp_path / "engine.log"
    path.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("DEBUG")))
    with pytest.raises(InputError, match="at level DEBUG alone"):
        read_workload(path)


@pytest.mark.parametrize(("name", "second_ns"), [("text", 4_750_000_000), ("json", 3_000_000_000)])
def test_sglang_tells_lengths_at_the_end(name: str, second_ns: int) -> None:
    workload = read_workload(RECORDED / f"sglang-{name}.log")
    first, second = workload.requests()
    assert (lengths(first), lengths(second)) == ((40, 3, 32, 1), (7, 2, 8, 1))
    # The second one's coming was not logged: its end less its latency.
    assert (first.arrival_ns, second.arrival_ns) == (0, second_ns)
    assert (first.blocks, second.blocks) == ((0, 1), ())
    assert workload.header.block_tokens == 16


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (b"INFO 03-01 00:00:00 [x.py:1] a", 59 * 86_400),
        (b"[2000-03-01 00:00:00] a", 951_868_800),
        (b"2024-02-29T12:00:00,500 INFO", 1_709_208_000.5),
        (b"[2100-03-01 00:00:01 TP0] a", 4_107_542_401),
    ],
)
def test_times_of_lines_are_the_calendars(line: bytes, seconds: float) -> None:
    assert LineTimes().of(line) == round(seconds * 10**9)


@pytest.mark.parametrize(
    "line", [b"no time", b"INFO 13-01 00:00:00 a", b"99-99 99:99:99", b"INFO 00-10 00:00:00"]
)
def test_other_lines_have_none(line: bytes) -> None:
    assert LineTimes().of(line) is None
