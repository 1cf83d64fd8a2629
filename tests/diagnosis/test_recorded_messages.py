"""The messages of every reported failure in the repository, number by number."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.accuracy.messages import FILES, MessageFile, measure, read_reports, stated_numbers, text

GROUND = Path(__file__).resolve().parents[2] / "data/groundtruth"


@pytest.fixture(scope="module", params=FILES)
def collection(request: pytest.FixtureRequest) -> MessageFile:
    return measure(request.param, read_reports(GROUND / request.param))


def test_every_number_that_a_collection_names_is_read(collection: MessageFile) -> None:
    assert collection.named > 100
    assert collection.named_misses == ()


def test_what_known_programs_state_beside_those_is_read_too(collection: MessageFile) -> None:
    missed = [miss for miss in collection.stated_misses if miss.is_known]
    assert len(missed) <= 0.05 * collection.known_stated, text([collection], worst=99)


def test_most_messages_are_of_a_known_program(collection: MessageFile) -> None:
    assert collection.unread < 0.3 * collection.messages


def test_what_a_text_states_is_found_without_the_catalogue() -> None:
    found = stated_numbers(
        0,
        "f.cu:12 a_size=64, 1900,00 MiB and 2 KiB of 5,120 tokens (0.95), pid=7, buffer of size 1518... cut",
    )
    assert sorted(item.value for item in found) == [0.95, 64, 2048, 5120, 1900 * 2**20]
