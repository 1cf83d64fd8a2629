"""How aiperf and guidellm are told the same cases, and where they write what they found.

Both need a tokenizer for the prompts they make: one of 256 bytes is made for them, so that nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.load_generators.cases import Case, gaps_s
from tools.load_generators.figures import NS_PER_MS, NS_PER_S, Told, pair_ms

TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = ["[UNK]", "[BOS]", "[EOS]", *sorted(pre_tokenizers.ByteLevel.alphabet())]
made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=made, bos_token="[BOS]", eos_token="[EOS]").save_pretrained(sys.argv[1])
"""
ONE_PROCESS = {"GUIDELLM__MAX_WORKER_PROCESSES": "1", "GUIDELLM__MAX_CONCURRENCY": "2000"}
"""More than one process on one core only made it slower."""


def write_trace(case: Case, path: Path) -> None:
    """The schedule of a fixed case, as both read it."""
    at_s, lines = 0.0, []
    for session, gap_s in enumerate(gaps_s(case)):
        at_s += gap_s
        for turn in range(case.turns):
            when = {"delay": case.pause_ms} if turn else {"timestamp": round(at_s * 1000, 3)}
            whose = {"session_id": f"s{session}"} if case.turns > 1 else {}
            lengths = {"input_length": case.prompt_tokens, "output_length": case.output_tokens}
            lines.append(json.dumps({**whose, **when, **lengths}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def aiperf_command(venv: Path, case: Case, port: int, folder: Path) -> list[str]:
    """One worker and one process for records: it has one core."""
    write_trace(case, folder / "trace.jsonl")
    scheduled = [
        "--input-file",
        str(folder / "trace.jsonl"),
        "--custom-dataset-type",
        "mooncake_trace",
        "--fixed-schedule",
    ]
    drawn = [
        "--request-rate", f"{case.per_s}", "--arrival-pattern", case.arrivals, "--benchmark-duration", f"{case.seconds}",
        "--synthetic-input-tokens-mean", str(case.prompt_tokens), "--synthetic-input-tokens-stddev", "0",
        "--output-tokens-mean", str(case.output_tokens),
    ]  # fmt: skip
    if case.arrivals == "gamma":
        drawn += ["--arrival-smoothness", f"{case.shape}"]
    return [
        str(venv / "bin" / "aiperf"), "profile", "--model", "m", "--url", f"http://127.0.0.1:{port}", "--endpoint-type", "chat", "--streaming",
        "--tokenizer", str(folder / "tokenizer"), "--use-server-token-count", *(scheduled if case.is_fixed else drawn), "--workers-max", "1",
        "--record-processors", "1", "--ui", "none", "--artifact-dir", str(folder / "aiperf"), "--random-seed", "1",
    ]  # fmt: skip


def aiperf_told(case: Case, folder: Path) -> Told:
    """From its records and, of a schedule, from its summary: at other times it keeps no instant that a request was due at."""
    found = folder / "aiperf"
    lines = (found / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    summary = json.loads((found / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    lags = [summary.get(f"replay_sched_lag_p{percent}") for percent in (50, 99)]
    return Told(
        first_token_ns=_ns(one["metrics"].get("time_to_first_token") for one in records),
        token_gap_ns=_ns(one["metrics"].get("inter_token_latency") for one in records),
        late_ms=(round(lags[0]["avg"], 2), round(lags[1]["avg"], 2)) if all(lags) else None,
        failed=sum(one.get("error") is not None for one in records),
    )


def guidellm_command(venv: Path, case: Case, port: int, folder: Path) -> list[str]:
    """Always at a rate of its own: its replay of a trace, on one core, sent a request in seven seconds (it makes prompts without end beside)."""
    data = f"kind=synthetic_text,prompt_tokens={case.prompt_tokens},output_tokens={case.output_tokens}"
    if case.turns > 1:
        data += f",turns={case.turns},delay={case.pause_ms / 1000}"
    prompts = int(case.per_s * case.seconds * 1.5)
    return [
        str(venv / "bin" / "guidellm"), "run", "--backend", f"kind=openai_http,target=http://127.0.0.1:{port},model=m",
        "--profile", f"kind=poisson,rate={case.per_s * case.turns}", "--constraint", f"kind=max_duration,seconds={case.seconds}",
        "--tokenizer", f"kind=huggingface_auto,model={folder / 'tokenizer'}", "--data", data,
        "--data-loader", f"kind=pytorch,samples={prompts}",
        "--output", f"kind=json,path={folder / 'guidellm.json'}", "--disable-console-interactive",
    ]  # fmt: skip


def guidellm_told(case: Case, folder: Path) -> Told:
    """From its requests that ended."""
    found = json.loads((folder / "guidellm.json").read_text(encoding="utf-8"))["benchmarks"][0]["requests"]
    ended = found["successful"]
    return Told(
        first_token_ns=[int(one["time_to_first_token_ms"] * NS_PER_MS) for one in ended if one["time_to_first_token_ms"]],
        token_gap_ns=[int(one["inter_token_latency_ms"] * NS_PER_MS) for one in ended if one["inter_token_latency_ms"]],
        late_ms=pair_ms([int(one["request_dispatch_delay"] * NS_PER_S) for one in ended]),
        failed=len(found["errored"]),
    )  # fmt: skip


def _ns(values: Iterable[Mapping[str, Any] | None]) -> list[int]:
    return [int(one["value"] * NS_PER_MS) for one in values if one is not None]
