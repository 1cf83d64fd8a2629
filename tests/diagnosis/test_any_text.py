"""Whatever stands in a log, a diagnosis is an answer and never an error."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.diagnosed import told
from vramledger.diagnosis.diagnosis import with_remedies
from vramledger.diagnosis.evidence_lines import MOST, evidence_lines
from vramledger.report.diagnosis_document import diagnosis_document
from vramledger.report.diagnosis_text import diagnosis_lines
from vramledger.report.text import render

PIECES = st.sampled_from(
    (
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.27 GiB. GPU 0 has a total capacity of 0 bytes of which "
        "109.81 MiB is free."),
        "Process 1 has 17179869184.00 GiB memory in use.",
        "Of the allocated memory 67.68 GiB is allocated by PyTorch, and 1.47 GiB is reserved by PyTorch but unallocated.",
        "INFO 11-30 00:00:01 [gpu_worker.py:298] Available KV cache memory: -2.97 GiB",
        "(EngineCore pid=11) INFO 11-29 16:08:01 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m'",
        "Free memory on device cuda:0 (22.76/0.0 GiB) on startup is less than desired GPU memory utilization (0.97, 23.28 GiB).",
        ("To serve at least one request with the model's max seq len (0), (0.00 GiB KV cache is needed, which is larger than the "
        "available KV cache memory (-1.00 GiB)."),
        "Decode out of memory. Try to lower your batch size.",
        "Try to allocate 0 tokens.\nAvailable tokens: -1 (available_size=-1 + evictable_size=0)",
        "max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead.",
        "[2026-11-29 17:00:05 TP0] Load weight begin. avail mem=0.00 GB",
        "0.00.511.162 E ggml_aligned_malloc: insufficient memory (attempted to allocate 1440.00 MB)",
        "0.01.1 I slot launch_slot_: id  3 | task 0 | processing task, is_child = 0",
        "decode: failed to find a memory slot for batch of size 0",
        "oom_kill 3",
        "exit code: 137",
        "  File \"x.py\", line 3, in profile_run",
        "memory grows with each request until out of memory",
        "Application startup complete.",
        "EngineCore encountered a fatal error.",
    )
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(PIECES, st.text(max_size=80)), max_size=12))
def test_any_text_is_answered(lines: list[str]) -> None:
    found = [with_remedies(item, None) for item in told("\n".join(lines))]
    for item in found:
        assert len(item.remedies) <= 3
        assert 1 <= len(evidence_lines(item)) <= MOST
        missing = item.arithmetic.missing_bytes
        assert missing is None or missing.low >= 0
    diagnosis_document(found, sources=[("log", "log")])
    page = render(diagnosis_lines(found, sources=[("log", "log")], explain=True), colour=True)
    assert all(char.isprintable() or char in "\n\x1b" for char in page)
