"""What a proxy adds to a request: this gateway beside SGLang's router and LiteLLM, in one run, before an upstream that does nothing.

    python -m tools.gateway_overhead [--others VENV] [--seconds 2] [--rounds 3] [--streams 5000] [--json FILE]

VENV is an environment with sglang-router and litellm[proxy] installed (`python -m venv VENV; VENV/bin/pip install sglang-router
'litellm[proxy]'`). The proxy has one core for itself, the upstream and the clients share another. Rounds alternate between asking the
upstream directly and through the proxy; what is added is the difference of the medians and of the 99th percentiles. Requests a second and core are
requests over the processor time that the proxy spent on them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tools.gateway_overhead.load import held, timed
from tools.gateway_overhead.proxies import litellm, ours, running, sglang_router
from tools.ranks import nearest_rank

from vramledger.telemetry.engine_process import free_port
from vramledger.telemetry.probes.proc import process_tree, tree_memory

HEADINGS = (
    "proxy", "added p50 / p99 ms, 1 at once", "added p50 / p99 ms, 64 at once", "requests/s, 64 at once",
    "requests/s and core", "a streamed event later by p50 / p99 ms", "MB idle", "MB with {streams:,} streams",
)  # fmt: skip


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--others", type=Path, help="a virtual environment with the other proxies")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    needed = 3 * options.streams + 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, needed), hard), hard))
    cores = sorted(os.sched_getaffinity(0))
    ours_alone, others_share = {cores[-1]}, set(cores[:-1]) or {cores[0]}
    os.sched_setaffinity(0, others_share)
    rows = []
    print(f"load {os.getloadavg()[0]:.1f} on {len(cores)} cores before the run\n")
    print("| " + " | ".join(HEADINGS).format(streams=options.streams) + " |")
    print("| " + " | ".join("---" for _ in HEADINGS) + " |")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = free_port()
        command = [sys.executable, "-m", "tools.gateway_overhead.upstream", str(upstream)]
        stack.enter_context(running(command, upstream, folder / "upstream.log", others_share))
        for name, start in contenders(options.others, folder).items():
            port = free_port()
            with running(start(port, upstream), port, folder / f"{name}.log", ours_alone) as pid:
                figures = asyncio.run(measured(port, upstream, pid, options))
            rows.append({"proxy": name, **figures})
            print(row(rows[-1]), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def contenders(venv: Path | None, folder: Path) -> dict[str, Callable[[int, int], list[str]]]:
    """How each proxy is started, given its port and the upstream's."""
    found: dict[str, Callable[[int, int], list[str]]] = {
        "vramledger gateway": lambda port, upstream: ours(port, upstream, folder)
    }
    if venv is not None:
        found["sglang-router"] = lambda port, upstream: sglang_router(venv, port, upstream)
        found["LiteLLM"] = lambda port, upstream: litellm(venv, port, upstream, folder)
    return found


async def measured(port: int, upstream: int, pid: int, options: argparse.Namespace) -> dict[str, Any]:
    """One proxy's figures. Times are milliseconds."""
    idle_bytes = rss_bytes(pid)
    figures: dict[str, Any] = {"idle_mb": idle_bytes / 1e6}
    for concurrency in (1, 64):
        direct_ns: list[int] = []
        through_ns: list[int] = []
        lasted_s, spent_s = 0.0, 0.0
        for _ in range(options.rounds):
            direct_ns += (await timed(upstream, concurrency=concurrency, seconds=options.seconds))[0]
            before_s = processor_s(pid)
            took_ns, _, some_s = await timed(port, concurrency=concurrency, seconds=options.seconds)
            spent_s += processor_s(pid) - before_s
            through_ns += took_ns
            lasted_s += some_s
        for percent in (50, 99):
            added_ns = nearest_rank(through_ns, percent) - nearest_rank(direct_ns, percent)
            figures[f"added_p{percent}_ms_{concurrency}"] = added_ns / 1e6
        figures[f"requests_per_s_{concurrency}"] = len(through_ns) / lasted_s
        figures[f"requests_per_core_s_{concurrency}"] = len(through_ns) / max(spent_s, 1e-9)
    direct_ns, through_ns = [], []
    for _ in range(options.rounds):
        direct_ns += (await timed(upstream, concurrency=8, seconds=options.seconds, stream=True))[1]
        through_ns += (await timed(port, concurrency=8, seconds=options.seconds, stream=True))[1]
    for percent in (50, 99):
        figures[f"event_p{percent}_ms"] = (
            nearest_rank(through_ns, percent) - nearest_rank(direct_ns, percent)
        ) / 1e6
    try:
        clients = await held(port, options.streams)
        figures["held_mb"] = rss_bytes(pid) / 1e6
        for client in clients:
            client.transport.abort()
    except (OSError, RuntimeError, TimeoutError) as problem:
        figures["held_problem"] = f"{type(problem).__name__}: {problem}"
    return figures


def row(figures: dict[str, Any]) -> str:
    """A line of the table."""
    cells = [
        figures["proxy"],
        f"{figures['added_p50_ms_1']:.2f} / {figures['added_p99_ms_1']:.2f}",
        f"{figures['added_p50_ms_64']:.2f} / {figures['added_p99_ms_64']:.2f}",
        f"{figures['requests_per_s_64']:,.0f}",
        f"{figures['requests_per_core_s_64']:,.0f}",
        f"{figures['event_p50_ms']:.3f} / {figures['event_p99_ms']:.3f}",
        f"{figures['idle_mb']:.0f}",
        f"{figures['held_mb']:.0f}" if "held_mb" in figures else figures["held_problem"],
    ]
    return "| " + " | ".join(cells) + " |"


def rss_bytes(pid: int) -> int:
    """Resident memory of a process and its children; what they share counts in each."""
    return sum(process.rss_bytes or 0 for process in tree_memory(pid))


def processor_s(pid: int) -> float:
    """Processor time that a process and its children have had (proc(5): utime and stime)."""
    ticks = 0
    for one in process_tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
