"""A release's answer against the rules here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.conformance.sglang.pools import rules_answer

from vramledger.engines.sglang.defaults import (
    Memory,
    chunk_defaults,
    decode_sizes,
    prefill_max,
    prefill_sizes,
    static_fraction,
)
from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.version import parse_version


def differences(line: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Figures by name, (the release's, ours), that are not equal; what a release does not state is left out."""
    ours = _defaults(line) if line["kind"] == "defaults" else rules_answer(line["version"], line["question"])
    return {
        name: (value, ours[name])
        for name, value in line["answer"].items()
        if value is not None and value != ours[name]
    }


def _defaults(line: Mapping[str, Any]) -> dict[str, Any]:
    question, version = line["question"], parse_version(line["version"])
    flags = SglangFlags(**question["flags"])
    memory = Memory(
        version=version,
        gpu_mem=question["gpu_mem"],
        flags=flags,
        is_mla=question["is_mla"],
        is_multimodal=False,
        prefill_graphs=question["prefill_graphs"],
    )
    chunk = chunk_defaults(memory)
    speculative = flags.speculative_algorithm is not None
    decode = decode_sizes(chunk.decode_max_bs, speculative=speculative, version=version)
    return {
        "chunked_prefill_size": chunk.chunked_prefill_size,
        "decode_max_bs": chunk.decode_max_bs,
        "decode_sizes": list(summary(decode)),
        "prefill_sizes": list(summary(prefill_sizes(prefill_max(memory, chunk)))),
        "mem_fraction_static": static_fraction(memory, chunk),
    }


def summary(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    """How many sizes, their sum and the largest: enough to tell two lists apart."""
    return len(sizes), sum(sizes), max(sizes, default=0)
