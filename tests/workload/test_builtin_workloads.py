"""Workloads that come with the package: found by name, and what their sources say."""

from __future__ import annotations

import gzip

import pytest

from vramledger.errors import SourceError
from vramledger.workload import builtin
from vramledger.workload.cohort_file import read_cohorts
from vramledger.workload.columnar.reading import read_workload


def test_each_file_is_what_its_source_gives() -> None:
    from tools.builtin_workloads import contents

    for each in builtin.workloads():
        data = builtin.path_of(each.shown).read_bytes()
        assert (gzip.decompress(data) if each.file.endswith(".gz") else data) == contents()[each.file]


def test_each_can_be_read() -> None:
    for each in builtin.workloads():
        path = builtin.path_of(each.shown)
        if each.is_trace:
            assert read_workload(path).table().rows == 3_000
        else:
            assert len(read_cohorts(path)) == 1


def test_a_wrong_name_is_told_the_nearest() -> None:
    with pytest.raises(SourceError, match="did you mean azure-chat"):
        builtin.path_of("builtin:azure-chats")
    with pytest.raises(SourceError, match="there are azure-chat, short-qa"):
        builtin.path_of("builtin:../../etc/passwd")
