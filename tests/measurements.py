"""Measurements of every shape, for properties."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from vramledger.evidence import Evidence, EvidenceKind
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import (
    AllocatorState,
    Figure,
    GraphCapture,
    HostMemory,
    MeasuredPool,
    Measurement,
    MeasurementSource,
)
from vramledger.pool import FloatRange, IntRange

WORDS = st.text(max_size=12)
BYTES = st.integers(min_value=0, max_value=2**50)
RANKS = st.lists(st.integers(0, 63), max_size=3).map(tuple)
TIMES = st.none() | st.floats(min_value=0, max_value=4e9)
PHASES = st.none() | st.sampled_from(Phase)
EVIDENCE = st.builds(Evidence, kind=st.sampled_from(EvidenceKind), source=WORDS, formula=WORDS)


def _ordered(kind: type, numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(numbers, numbers, numbers).map(lambda three: kind(*sorted(three)))


SIZES = _ordered(ByteRange, st.integers(min_value=-(2**40), max_value=2**50))
COUNTS = _ordered(IntRange, st.integers(min_value=0, max_value=2**40))
RATIOS = _ordered(FloatRange, st.floats(min_value=0, max_value=1e9))


def _some(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(part, max_size=2).map(tuple)


NAMES = _some(WORDS)
MAYBE_SIZE = st.none() | SIZES
MAYBE_BYTES = st.none() | BYTES
MAYBE_COUNT = st.none() | st.integers(1, 2**20)

MEASUREMENTS = st.builds(
    Measurement,
    sources=_some(
        st.builds(
            MeasurementSource,
            name=WORDS,
            kind=WORDS,
            sha256=st.none() | WORDS,
            size_bytes=MAYBE_BYTES,
            from_s=TIMES,
            until_s=TIMES,
        )
    ),
    engine=st.none() | WORDS,
    engine_version=st.none() | WORDS,
    model=st.none() | WORDS,
    model_revision=st.none() | WORDS,
    architecture=st.none() | WORDS,
    device=st.none() | WORDS,
    device_total_bytes=MAYBE_SIZE,
    tp=MAYBE_COUNT,
    pp=MAYBE_COUNT,
    dp=MAYBE_COUNT,
    ep=MAYBE_COUNT,
    settings=st.dictionaries(
        WORDS, WORDS | st.integers(-(2**53), 2**53) | st.booleans() | st.floats(-1e9, 1e9), max_size=3
    ).map(lambda found: tuple(found.items())),
    figures=_some(
        st.builds(
            Figure,
            owners=_some(st.sampled_from(Owner)),
            name=WORDS,
            bytes=SIZES,
            evidence=EVIDENCE,
            entries=NAMES,
            without=NAMES,
            phase=PHASES,
            ranks=RANKS,
            inside_budget_only=st.booleans(),
        )
    ),
    pools=_some(
        st.builds(
            MeasuredPool,
            evidence=EVIDENCE,
            bytes=MAYBE_SIZE,
            num_blocks=st.none() | COUNTS,
            block_size=MAYBE_COUNT,
            tokens=st.none() | COUNTS,
            max_concurrency=st.none() | RATIOS,
            context_len=MAYBE_COUNT,
            kind=WORDS,
        )
    ),
    allocator=_some(
        st.builds(
            AllocatorState,
            evidence=EVIDENCE,
            phase=PHASES,
            point=WORDS,
            ranks=RANKS,
            at_s=TIMES,
            allocated_bytes=MAYBE_SIZE,
            reserved_bytes=MAYBE_SIZE,
            pool_free_bytes=MAYBE_SIZE,
            device_free_bytes=MAYBE_SIZE,
            device_total_bytes=MAYBE_SIZE,
            outside_bytes=MAYBE_SIZE,
            largest_free_run_bytes=MAYBE_SIZE,
        )
    ),
    graphs=_some(
        st.builds(
            GraphCapture,
            shape=WORDS,
            increment_bytes=SIZES,
            evidence=EVIDENCE,
            shared_pool=st.none() | st.booleans(),
        )
    ),
    host=_some(
        st.builds(
            HostMemory,
            process=WORDS,
            evidence=EVIDENCE,
            pid=MAYBE_COUNT,
            phase=PHASES,
            at_s=TIMES,
            rss_bytes=MAYBE_BYTES,
            pss_bytes=MAYBE_BYTES,
            shared_bytes=MAYBE_BYTES,
            private_bytes=MAYBE_BYTES,
        )
    ),
    notes=NAMES,
)
