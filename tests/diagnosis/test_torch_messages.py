"""PyTorch's out-of-memory messages, release by release; templates are those of its own sources."""

from __future__ import annotations

import json
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.failure_texts import figures, kind_in, observed
from vramledger.diagnosis.messages.torch_reading import TorchOom, torch_oom
from vramledger.ledger import ByteRange
from vramledger.units import GIB, KIB, MIB

V2_5 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.27 GiB. GPU 3 has a total capacity of 79.33 GiB of"
    " which 109.81 MiB is free. Process 2377657 has 11.19 GiB memory in use. Process 8 has 2.00 MiB memory in use. "
    "Including non-PyTorch memory, this process has 67.00 GiB memory in use. 71.00 GiB allowed; "
    "Of the allocated memory 63.68 GiB is allocated by PyTorch, with 76.00 MiB allocated in private pools (e.g., CUDA"
    " Graphs), and 1.47 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
    "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


def read(text: str) -> TorchOom:
    oom = torch_oom(observed(text))
    assert oom is not None
    return oom


def near(size: ByteRange | None, printed: float, unit_bytes: int) -> bool:
    return (
        size is not None
        and size.low <= printed * unit_bytes <= size.high
        and size.high - size.low < unit_bytes
    )


def test_every_number_of_a_whole_message_is_read() -> None:
    oom = read(V2_5)
    assert (oom.backend, oom.device_index) == ("CUDA", 3)
    assert near(oom.requested, 1.27, GIB)
    assert near(oom.total, 79.33, GIB)
    assert near(oom.free, 109.81, MIB)
    assert [item.pid for item in oom.processes] == [2377657, 8]
    assert near(oom.processes[0].used, 11.19, GIB)
    assert near(oom.processes[1].used, 2, MIB)
    assert near(oom.this_process, 67, GIB)
    assert near(oom.allowed, 71, GIB)
    assert near(oom.allocated, 63.68, GIB)
    assert near(oom.private_pools, 76, MIB)
    assert near(oom.reserved_unallocated, 1.47, GIB)


def test_the_arithmetic_is_that_of_one_line() -> None:
    oom = read(V2_5)
    assert near(oom.outside_framework, 67 - 63.68 - 1.47, GIB)
    assert near(oom.other_tenants, 79.33 - 109.81 / 1024 - 67, GIB)
    assert near(oom.headroom_if_contiguous, 1.47 + 109.81 / 1024, GIB)
    assert near(oom.missing, 1.27 - 109.81 / 1024, GIB)


def test_a_limit_of_the_process_counts_before_the_device() -> None:
    oom = read(V2_5.replace("71.00 GiB allowed", "64.00 GiB allowed"))
    assert near(oom.headroom_if_contiguous, 64 - 63.68, GIB)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # 1.0 to 1.3: what is cached and not allocated
            (
                "RuntimeError: CUDA out of memory. Tried to allocate 14.13 MiB (GPU 0; 11.91 GiB total capacity; 10.76 GiB "
                "already allocated; 13.44 MiB free; 51.17 MiB cached)"
            ),
            (14.13, 11.91 * 1024, 13.44, 10.76 * 1024, 51.17),
        ),
        (  # 1.4 to 2.0: reserved includes allocated
            (
                "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 36.00 MiB (GPU 0; 7.93 GiB total "
                "capacity; 130.35 MiB already allocated; 47.06 MiB free; 188.00 MiB reserved in total by PyTorch) If "
                "reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
            ),
            (36, 7.93 * 1024, 47.06, 130.35, 188 - 130.35),
        ),
        (  # 2.1
            (
                "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacty of "
                "15.98 GiB of which 0 bytes is free. Of the allocated memory 971.02 MiB is allocated by PyTorch, and "
                "1008.00 KiB is reserved by PyTorch but unallocated."
            ),
            (112, 15.98 * 1024, 0, 971.02, 1008 / 1024),
        ),
        (  # XPU, 2.6 on
            (
                "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.33 GiB. GPU 0 has a total capacity of 14.25 "
                "GiB of which 1.11 GiB is free. Of the allocated memory 12.10 GiB is allocated by PyTorch, and 37.59 MiB "
                "is reserved by PyTorch but unallocated. Please use empty_cache to release all unoccupied cached memory."
            ),
            (2.33 * 1024, 14.25 * 1024, 1.11 * 1024, 12.10 * 1024, 37.59),
        ),
        (  # the NPU plug-in keeps the old layout
            (
                "RuntimeError: NPU out of memory. Tried to allocate 150.00 MiB (NPU 0; 60.97 GiB total capacity; 57.11 GiB "
                "already allocated; 57.11 GiB current active; 102.98 MiB free; 58.07 GiB reserved in total by PyTorch) If "
                "reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
            ),
            (150, 60.97 * 1024, 102.98, 57.11 * 1024, (58.07 - 57.11) * 1024),
        ),
    ],
)
def test_every_layout_gives_the_same_figures(text: str, expected: tuple[float, ...]) -> None:
    oom = read(text)
    found = (oom.requested, oom.total, oom.free, oom.allocated, oom.reserved_unallocated)
    for size, printed in zip(found, expected, strict=True):
        assert size is not None
        assert size.low <= printed * MIB <= size.high


def test_a_process_part_of_other_processes_only_is_not_the_own_one() -> None:
    text = V2_5.replace("Including non-PyTorch memory, this process has 67.00 GiB memory in use. ", "")
    assert read(text).own_process is None
    assert near(read(text.replace("11.19", "67.19")).own_process, 67.19, GIB)


def test_two_to_the_64_bytes_are_unknown() -> None:
    oom = read(V2_5.replace("this process has 67.00 GiB", "this process has 17179869184.00 GiB"))
    assert oom.this_process is None
    assert oom.outside_framework is None


def test_the_retry_warning_has_exact_bytes_and_is_no_failure() -> None:
    text = (
        "[W923 10:00:00.1 CUDACachingAllocator.cpp:3933] memory allocation failed with OOM on device 5 while trying to "
        "allocate 671088640 bytes (free: 513736704, total: 85095874560)."
    )
    assert kind_in(text) == "torch-oom-retry"
    oom = read(text)
    assert oom.requested == ByteRange.exact(671088640)
    assert oom.missing == ByteRange.exact(671088640 - 513736704)


def test_metal_and_the_asynchronous_backend_have_layouts_of_their_own() -> None:
    metal = read(
        "RuntimeError: MPS backend out of memory (MPS allocated: 42.28 GiB, other allocations: 720.00 KiB, max allowed: "
        "42.43 GiB). Tried to allocate 384.00 MiB on shared pool."
    )
    assert near(metal.requested, 384, MIB)
    assert near(metal.allowed, 42.43, GIB)
    later = read(
        "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 21.43 GiB\nRequested               : 32.00 KiB\nDevice limit            : 22.00 GiB\n"
        "Free (according to CUDA): 19.12 MiB\nPyTorch limit (set by user-supplied memory fraction)\n"
        "                        : 22.00 GiB"
    )
    assert near(later.requested, 32, KIB)
    assert near(later.total, 22, GIB)
    assert near(later.free, 19.12, MIB)
    assert near(later.allowed, 22, GIB)


def test_an_allocator_that_could_not_ask_the_driver_is_an_oom_without_numbers() -> None:
    text = (
        'RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "../c10/cuda/'
        'CUDACachingAllocator.cpp":1102, please report a bug to PyTorch.'
    )
    assert kind_in(text) == "torch-nvml-assert"


@given(cut=st.integers(0, len(V2_5)))
def test_a_message_cut_anywhere_gives_what_stands_before_the_cut(cut: int) -> None:
    whole, text = figures(V2_5), V2_5[:cut] + "..."
    if "OutOfMemoryError" not in text:
        return
    found = figures(text)
    assert found["message"] == "torch-oom"
    for name, value in found.items():
        if name != "processes":
            assert value == whole[name]
    for number, name in (("1.27 GiB.", "requested_bytes"), ("109.81 MiB is free", "free_bytes")):
        assert (name in found) == (number in text) or V2_5.index(number) + len(number) > cut > V2_5.index(
            number
        )


@pytest.mark.parametrize("width", [57, 79, 80, 100, 132])
def test_a_wrapped_message_is_the_same_message(width: int) -> None:
    whole = figures(V2_5)
    hard = "\n".join(V2_5[start : start + width].rstrip() for start in range(0, len(V2_5), width))
    soft = "\n".join(textwrap.wrap(V2_5, width, break_long_words=False))
    for text in (hard, soft):
        found = figures(text)
        assert {name: found.get(name) for name in whole if name != "processes"} == {
            name: value for name, value in whole.items() if name != "processes"
        }
        assert len(read(text).processes) == 2


def test_a_message_inside_json_or_another_message_is_read() -> None:
    whole = figures(V2_5)
    quoted = json.dumps({"error": f"Traceback:\n  File x\n{V2_5}\n", "code": 500})
    assert figures(quoted) == whole
    wrapped = figures(f"Failed to load model - not enough GPU memory. Try ... (original error: {V2_5})")
    assert wrapped == {**whole, "stage": "weight-load"}


def test_the_next_message_is_not_read_into_this_one() -> None:
    first = V2_5.partition(" with 76.00")[0]
    second = V2_5.replace("76.00 MiB", "99.00 MiB")
    assert "private_pools_bytes" not in figures(f"{first}\n{second}")
