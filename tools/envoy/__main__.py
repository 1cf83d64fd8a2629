"""What the external processor adds to Envoy, on loopback and in one run: Envoy alone and with it, before an upstream that does nothing.

    python -m tools.envoy [--seconds 2] [--rounds 3] [--requests 12]

Rounds alternate between asking the upstream directly, through Envoy alone, and through Envoy with a processor; what is added is the
difference of the medians and of the 99th percentiles. The processor has one core for itself. With llama.cpp and a small model in the
environment, so many requests then go through Envoy to that engine, three at once, and some of them leave.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tools.envoy.proxy import as_it_is, configured, duplex, running, without_processor
from tools.envoy.running import Processor, processor
from tools.envoy.smollm2 import through_llamacpp
from tools.gateway_overhead.__main__ import processor_s
from tools.gateway_overhead.load import timed
from tools.gateway_overhead.proxies import running as program
from tools.ranks import nearest_rank

from vramledger.telemetry.engine_process import free_port

UNWATCHED = "Envoy, processor, streams not watched"
WAYS = {
    "Envoy alone": without_processor,
    "Envoy, processor, buffered": as_it_is,
    "Envoy, processor, full duplex": duplex,
    UNWATCHED: as_it_is,
}
HEADINGS = (
    "way", "added p50 / p99 ms, 1 at once", "added p50 / p99 ms, 64 at once", "requests/s, 64 at once",
    "processor time a request, µs", "a streamed event later by p50 / p99 ms", "processor time an event, µs",
)  # fmt: skip


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=12)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    rest = set(cores[:-1]) or {cores[0]}
    os.sched_setaffinity(0, rest)
    print(f"load {os.getloadavg()[0]:.1f} on {len(cores)} cores before the run\n")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = free_port()
        command = [sys.executable, "-m", "tools.gateway_overhead.upstream", str(upstream)]
        stack.enter_context(program(command, upstream, folder / "upstream.log", rest))
        ours = stack.enter_context(processor())
        blind = stack.enter_context(processor(watch=False))
        for one in (ours, blind):
            os.sched_setaffinity(one.process.pid, {cores[-1]})
        ports = {"direct": upstream}
        asks = {way: blind if way == UNWATCHED else ours for way in WAYS}
        for way, edit in WAYS.items():
            ports[way] = stack.enter_context(running(configured(asks[way].port, [upstream], edit))).port
        table(asyncio.run(measured(ports, {"direct": ours, **asks}, options)))
        held = ours.held()
        print(f"\nheld at the end: {held['admitted']} admitted, {held['waiting']} waiting; {held['endings']}")
    through_llamacpp(options.requests)
    return 0


async def measured(
    ports: Mapping[str, int], asked: Mapping[str, Processor], options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Each way's figures."""
    figures: dict[str, dict[str, float]] = {way: {} for way in ports}
    for concurrency, stream in ((1, False), (64, False), (8, True)):
        taken: dict[str, list[int]] = {way: [] for way in ports}
        spent_s = dict.fromkeys(ports, 0.0)
        lasted_s = dict.fromkeys(ports, 0.0)
        for _ in range(options.rounds):
            for way, port in ports.items():
                before_s = processor_s(asked[way].process.pid)
                took_ns, events_ns, some_s = await timed(
                    port, concurrency=concurrency, seconds=options.seconds, stream=stream
                )
                spent_s[way] += processor_s(asked[way].process.pid) - before_s
                lasted_s[way] += some_s
                taken[way] += events_ns if stream else took_ns
        for way, took in taken.items():
            for percent in (50, 99):
                added_ns = nearest_rank(took, percent) - nearest_rank(taken["direct"], percent)
                figures[way][f"{concurrency} p{percent}"] = added_ns / 1e6
            figures[way][f"{concurrency} rate"] = len(took) / lasted_s[way]
            figures[way][f"{concurrency} spent"] = spent_s[way] / len(took) * 1e6
    return figures


def table(figures: Mapping[str, Mapping[str, float]]) -> None:
    """Markdown."""
    print("| " + " | ".join(HEADINGS) + " |")
    print("| " + " | ".join("---" for _ in HEADINGS) + " |")
    for way, of in figures.items():
        if way == "direct":
            continue
        cells = [
            way,
            f"{of['1 p50']:.2f} / {of['1 p99']:.2f}",
            f"{of['64 p50']:.2f} / {of['64 p99']:.2f}",
            f"{of['64 rate']:,.0f}",
            f"{of['64 spent']:,.0f}",
            f"{of['8 p50']:.3f} / {of['8 p99']:.3f}",
            f"{of['8 spent']:,.0f}",
        ]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
