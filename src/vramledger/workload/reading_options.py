"""Trace formats by name, and how a trace is to be read. Light: command lines import it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

TimeUnit = Literal["s", "ms", "us", "ns"]
OnBadRow = Literal["error", "skip"]
UNIT_NS: Mapping[str, int] = MappingProxyType({"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1})

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "vramledger": "a workload that vramledger wrote (CSV, JSON lines or Parquet)",
        "azure": "Azure LLM inference traces 2023 and 2024 (CSV)",
        "mooncake": "Mooncake traces, ids of 512-token blocks (JSON lines)",
        "bailian": "Qwen-Bailian usage traces, ids of 16-token blocks (JSON lines)",
        "burstgpt": "BurstGPT (CSV)",
        "agentic": "coding agents' conversations of kv-cache-tester (JSON lines)",
        "lmcache-agents": "agent runs of LMCache, counted (JSON lines)",
        "measured-run": "what was sent in a measured vLLM run, ids of full 16-token blocks (JSON lines)",
        "vllm-log": "vLLM's log with --enable-log-requests",
        "sglang-log": "SGLang's log with --log-requests (text or JSON)",
        "columns": "CSV, Parquet or JSON lines with named columns; access logs of OpenAI-like gateways",
    }
)


class Starts(Struct, frozen=True, kw_only=True):
    """When conversations start whose trace has no common clock: the experimenter's choice.

    "poisson" has exponential gaps of the mean `gap_ns`, "even" gaps of just that, "together" none.
    """

    kind: Literal["poisson", "even", "together"] = "poisson"
    gap_ns: int = 60 * 10**9
    seed: int = 0


class ReadingOptions(Struct, frozen=True, kw_only=True):
    """How to read a trace.

    `format` is one of FORMATS, None finds it in the content. `columns` names the trace's columns for fields of ours.
    `time_unit` is the unit of numbers that stand for times, where the trace does not say it or says it wrong.
    `on_bad_row` "skip" leaves out rows that cannot be read and counts them in the notes. `link_turns` names a turn's
    last blocks as its next turn does (see `linking`). Without `follow_parents` requests are sent when the trace saw
    them, not after their parents' ends. `max_model_len` only counts what is longer.
    """

    format: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    time_unit: TimeUnit | None = None
    on_bad_row: OnBadRow = "error"
    link_turns: bool = True
    follow_parents: bool = True
    starts: Starts = Starts()
    max_model_len: int | None = None
