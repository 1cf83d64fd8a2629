"""The gateway before real engines: overload, clients that leave, and parts that are killed.

    python -m tools.gateway_shown load [--engine llamacpp|vllm] [--venv VENV] [--factor 3] [--seconds 120] [--first-token 10]
    python -m tools.gateway_shown cancels [--count 10000]
    python -m tools.gateway_shown kills

`load` finds what the engine serves in a second (a burst through the gateway, which is let in as it fits), then sends requests at
`--factor` times that rate, whatever is answered, straight to a fresh engine and through a gateway before a fresh one. Each client wants its first
token within `--first-token` seconds and stays until its answer ends; through the gateway it says so.
VENV holds a vLLM (its CPU build will do).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tools.gateway_shown.engines import engine, gateway, preemptions
from tools.gateway_shown.load import asked, figures, poisson, question
from tools.gateway_shown.storms import ROOM, cancelled, killed

from vramledger.experiment.open_loop import NS_PER_S

BURST = 24


def main() -> int:
    """Runs one of them and prints what happened."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("load", "cancels", "kills"))
    parser.add_argument("--engine", choices=("llamacpp", "vllm"), default="llamacpp")
    parser.add_argument("--venv", type=Path)
    parser.add_argument("--factor", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--first-token", type=float, default=10.0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.what == "load":
            found = overloaded(options, folder)
        elif options.what == "cancels":
            found = {"cancels": cancelled(options.engine, folder, options.venv, options.count)}
        else:
            found = {
                f"kill -9 of the {part}": killed(part, options.engine, folder, options.venv)
                for part in ("engine", "gateway")
            }
    for name, figures_of in found.items():
        print(f"{name}: {json.dumps(figures_of, default=str)}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def overloaded(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Figures straight and through the gateway at the same arrivals."""
    name, venv = options.engine, options.venv
    with engine(name, folder, venv) as (port, _), gateway(name, port, folder, settings=ROOM) as front:
        random = Random(7)
        answers = asked(front.port, [question(name, number, 0, random) for number in range(BURST)])
    whole = [one for one in answers if one.whole]
    per_s = len(whole) * NS_PER_S / max(one.end_ns for one in whole)
    print(f"capacity: {len(whole)} of {BURST} requests, {per_s:.2f} a second", flush=True)
    rate = options.factor * per_s
    found: dict[str, Any] = {"capacity_per_s": per_s, "offered_per_s": rate}
    deadline = ((b"x-first-token-deadline-ms", b"%d" % int(options.first_token * 1000)),)
    with engine(name, folder, venv) as (port, _):
        answers = asked(port, poisson(name, per_s=rate, seconds=options.seconds, seed=3))
        found["straight"] = figures(answers, options.first_token) | {"preemptions": preemptions(port)}
    print(row("straight", found["straight"]), flush=True)
    with engine(name, folder, venv) as (port, _), gateway(name, port, folder) as front:
        answers = asked(
            front.port,
            poisson(name, per_s=rate, seconds=options.seconds, seed=3, headers=deadline),
        )
        found["through the gateway"] = figures(answers, options.first_token) | {
            "preemptions": preemptions(port),
            "nothing held after s": front.empty_after_s(),
        }
    print(row("through the gateway", found["through the gateway"]), flush=True)
    return found


def row(name: str, found: dict[str, Any]) -> str:
    """A line for people."""
    first = ", ".join(
        "-" if found[key] is None else f"{found[key]:.1f}"
        for key in ("first_token_p50_s", "first_token_p99_s")
    )
    return (
        f"{name}: {found['good']} of {found['offered']} good ({found['good'] / found['offered']:.0%}), {found['whole']} whole, "
        f"{found['failed in a stream']} failed in their stream, {found['refused']} refused, {found['failed otherwise']} otherwise; first token p50, p99 "
        f"{first} s; {found['preemptions']} preemptions; {found['output_tokens']:,} tokens in {found['lasted_s']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
