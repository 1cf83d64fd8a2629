"""Write the built-in workloads from the traces of data/ and the cohorts of examples/: `python -m tools.builtin_workloads`."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "src" / "vramledger" / "workload" / "builtin"
TRACE = ROOT / "data" / "traces" / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv.gz"
REQUESTS = 3_000
COHORTS = ("short-qa", "ten-second-tools")


def contents() -> dict[str, bytes]:
    """What each file holds by its name, before it is packed."""
    with gzip.open(TRACE, "rb") as trace:
        lines = tuple(islice(trace, REQUESTS + 1))
    cohorts = {
        f"{name}.toml": (ROOT / "examples" / "workloads" / f"{name}.toml").read_bytes() for name in COHORTS
    }
    return {"azure-chat.csv.gz": b"".join(lines), **cohorts}


def main() -> None:
    for name, data in contents().items():
        (TARGET / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)


if __name__ == "__main__":
    main()
