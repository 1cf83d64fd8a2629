"""Parts of one instance joined: nothing averaged, nothing chosen silently."""

from __future__ import annotations

import pytest

from vramledger.errors import InputError
from vramledger.evidence import measured
from vramledger.ledger import ByteRange
from vramledger.measurement import AllocatorState, HostMemory, MeasuredPool, Measurement, MeasurementSource
from vramledger.telemetry.merging import merged
from vramledger.units import GIB, MIB


def part(name: str, **values: object) -> Measurement:
    return Measurement(sources=(MeasurementSource(name=name, kind="log"),), **values)  # type: ignore[arg-type]


def test_one_part_is_itself() -> None:
    one = part("a", engine="vllm", tp=2, settings=(("x", 1),), notes=("said",))
    assert merged([one]) == one


def test_what_one_does_not_tell_comes_from_the_other() -> None:
    whole = merged([part("a", engine="vllm", tp=2), part("b", model="m", engine_version="0.32.0", tp=2)])
    assert (whole.engine, whole.engine_version, whole.model, whole.tp) == ("vllm", "0.32.0", "m", 2)
    assert [source.name for source in whole.sources] == ["a", "b"]
    assert whole.notes == ()


def test_two_engines_are_two_instances() -> None:
    with pytest.raises(InputError, match="a is of the engine vllm, b of sglang"):
        merged([part("a", engine="vllm"), part("b", engine="sglang")])
    with pytest.raises(InputError, match="nothing to merge"):
        merged([])


@pytest.mark.parametrize(
    ("field", "kept", "other"),
    [
        ("engine_version", "0.32.0", "0.31.0"),
        ("model", "llama", "qwen"),
        ("tp", 2, 4),
        ("device", "H100", "L4"),
    ],
)
def test_a_contradiction_is_told_and_the_earlier_kept(field: str, kept: object, other: object) -> None:
    whole = merged([part("a", **{field: kept}), part("b", **{field: other}), part("c", **{field: other})])
    assert getattr(whole, field) == kept
    (note,) = whole.notes
    assert note == f"contradiction: {field.replace('_', ' ')} is {kept} by a (kept), {other} by b"


def test_one_release_and_one_model_written_in_two_ways_is_no_contradiction() -> None:
    whole = merged(
        [
            part("a", engine_version="v0.32.0", model="tiny"),
            part("b", engine_version="0.32.0+cpu", model="/models/tiny/"),
        ]
    )
    assert whole.notes == ()
    assert (whole.engine_version, whole.model) == ("0.32.0+cpu", "/models/tiny/")


def test_settings_are_joined_and_differences_told() -> None:
    whole = merged(
        [part("a", settings=(("x", 1), ("y", "auto"))), part("b", settings=(("y", "fp8"), ("x", "1")))]
    )
    assert whole.settings == (("x", 1), ("y", "auto"))
    assert merged([part("a", settings=(("x", "['m']"),)), part("b", settings=(("x", "m"),))]).notes == ()
    assert whole.notes == ("contradiction: setting y is auto by a (kept), fp8 by b",)


def test_totals_of_one_device_by_two_counts_are_one() -> None:
    by_nvml, by_torch = ByteRange.exact(81559 * MIB), ByteRange(79 * GIB, 79 * GIB + 5, 80 * GIB)
    whole = merged([part("a", device_total_bytes=by_torch), part("b", device_total_bytes=by_nvml)])
    assert whole.device_total_bytes == by_nvml
    assert whole.notes == ()
    whole = merged(
        [part("a", device_total_bytes=by_torch), part("b", device_total_bytes=ByteRange.exact(24 * GIB))]
    )
    assert len(whole.notes) == 1


def test_the_four_values_are_never_joined_across_sources() -> None:
    torch = AllocatorState(
        evidence=measured("torch"), allocated_bytes=ByteRange.exact(3), reserved_bytes=ByteRange.exact(5)
    )
    driver = AllocatorState(evidence=measured("nvml"), device_free_bytes=ByteRange.exact(7))
    pool = MeasuredPool(evidence=measured("log"), block_size=16)
    whole = merged(
        [part("a", allocator=(torch,), pools=(pool,)), part("b", allocator=(driver, torch), pools=(pool,))]
    )
    assert whole.allocator == (torch, driver)
    assert whole.pools == (pool,)


def test_a_source_named_twice_is_one_with_all_that_is_known_of_it() -> None:
    bare = MeasurementSource(name="m", kind="metrics")
    digest = MeasurementSource(name="m", kind="metrics", sha256="ab", size_bytes=3)
    whole = merged([Measurement(sources=(bare,)), Measurement(sources=(digest,))])
    assert whole.sources == (digest,)


def test_a_process_without_an_id_is_one_of_those_with_theirs() -> None:
    served = HostMemory(process="frontend", evidence=measured("metrics"), rss_bytes=5)
    listed = HostMemory(process="python", pid=7, evidence=measured("/proc"), rss_bytes=5)
    assert merged([part("a", host=(served,))]).host == (served,)
    whole = merged([part("a", host=(served,)), part("b", host=(listed,))])
    assert whole.host == (listed,)
    assert "frontend has an RSS of 5 bytes" in whole.notes[0]
