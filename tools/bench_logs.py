"""Time the reading of logs against `for line in file`, with ahocorasick_rs and without, and its memory.

    python -m tools.bench_logs [--mb 256] [--check] [--keep FOLDER]

Four logs are made: `service`, an engine that serves (access lines, a stats line every ten seconds, now and then a
traceback); `steps`, one that tells of every batch, four times as long, since what steps say is sampled past the first
8 MiB; `prompts`, where four lines in ten hold a prompt and no two are alike; `hits`, where every line says
something. Each is read in a process of its own, with the patterns of the engine and the whole failure catalogue.
Figures are of processor time, which other work on the machine changes less than the wall. `--check` exits with 1 where
`service` or `steps` is read at less than 100 MB/s or a twelfth of the plain loop, or a process takes more than 160 MiB.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
START = ROOT / "tests" / "engines" / "recorded" / "logs"
BUDGET_MB_PER_S = 100.0
BUDGET_SHARE = 1 / 12
BUDGET_MIB = 160.0
WORDS = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split()

READ_CODE = """
import resource, sys, time
path, how = sys.argv[1:]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if how == "plain":
    begin, before, found = time.process_time(), peak(), 0
    with open(path, "rb") as stream:
        for line in stream:
            found += 1
else:
    from vramledger.diagnosis.messages import FAILURES
    from vramledger.engines import find_log
    from vramledger.telemetry.log_reading import read_log
    if how == "alone":
        sys.modules["ahocorasick_rs"] = None  # as if it were not installed
    find_log("vllm")
    begin, before = time.process_time(), peak()
    found = sum(1 for _ in read_log(path, patterns=FAILURES))
print(time.process_time() - begin, found, peak(), before)
"""

Line = Callable[[random.Random, int], str]


def _access(chance: random.Random, number: int) -> str:
    path, status = chance.choice(
        [("POST /v1/chat/completions", "200 OK")] * 16
        + [("GET /health", "200 OK"), ("GET /metrics", "200 OK"), ("POST /v1/completions", "400 Bad Request")]
    )
    address = f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(256)}:{chance.randrange(65536)}"
    return f'(APIServer pid=6399) INFO:     {address} - "{path} HTTP/1.1" {status}\n'


def _stats(chance: random.Random, number: int) -> str:
    return (
        f"(APIServer pid=6399) INFO 11-{1 + number // 2_073_600 % 28:02} {number // 86_400 % 24:02}:"
        f"{number // 1440 % 60:02}:{number // 24 % 60:02} [loggers.py:257] Engine 000: "
        f"Avg prompt throughput: {chance.random() * 9000:.1f} tokens/s, Avg generation throughput: "
        f"{chance.random() * 3000:.1f} tokens/s, Running: {chance.randrange(200)} reqs, Waiting: "
        f"{chance.randrange(50)} reqs, GPU KV cache usage: {chance.random() * 100:.1f}%, "
        f"Prefix cache hit rate: {chance.random() * 100:.1f}%\n"
    )


def _prompt(chance: random.Random, number: int) -> str:
    text = " ".join(chance.choice(WORDS) for _ in range(60))
    return (
        f"INFO 11-29 16:12:50 [logger.py:39] Received request chatcmpl-{chance.getrandbits(128):032x}: prompt: "
        f"{text!r}, params: SamplingParams(n=1, temperature={chance.random():.2f}), prompt_token_ids: None\n"
    )


def _traceback(chance: random.Random, number: int) -> str:
    head = "(APIServer pid=6399) ERROR 11-29 16:12:50 [serving.py:500] "
    frames = [f'  File "/opt/vllm/engine/part_{depth}.py", line {depth * 37}, in step' for depth in range(20)]
    return "".join(
        f"{head}{text}\n"
        for text in ("Traceback (most recent call last):", *frames, "ValueError: prompt too long")
    )


def _service(chance: random.Random, number: int) -> str:
    """Forty requests a second."""
    if number % 40_000 == 0:
        return _traceback(chance, number)
    return (_stats if number % 400 == 0 else _access)(chance, number)


def _prompts(chance: random.Random, number: int) -> str:
    return (_prompt if chance.random() < 0.4 else _service)(chance, number)


def _steps(chance: random.Random, number: int) -> str:
    """SGLang in service tells of every batch."""
    time = f"2026-11-{1 + number // 2_073_600 % 28:02} {number // 86_400 % 24:02}:{number // 1440 % 60:02}:{number // 24 % 60:02}"
    running, usage, queue = chance.randrange(90), chance.random(), chance.randrange(9)
    if number % 5 == 0:
        return (
            f"[{time} TP0] Prefill batch, #new-seq: {chance.randrange(4)}, #new-token: {chance.randrange(8000)}, "
            f"#cached-token: {chance.randrange(900)}, token usage: {usage:.2f}, #running-req: {running}, "
            f"#queue-req: {queue}, \n"
        )
    return (
        f"[{time} TP0] Decode batch, #running-req: {running}, #token: {chance.randrange(400_000)}, token usage: "
        f"{usage:.2f}, cuda graph: True, gen throughput (token/s): {chance.random() * 5000:.2f}, #queue-req: {queue}, \n"
    )


LOGS: dict[str, tuple[Line, float, str]] = {
    "service": (_service, 1.0, "vllm*.log"),
    "steps": (_steps, 4.0, "sglang*.log"),
    "prompts": (_prompts, 0.25, "vllm*.log"),
    "hits": (_stats, 0.1, "vllm*.log"),
}
FAST = ("service", "steps")


def write_log(path: Path, line: Line, size_bytes: int, recorded_as: str) -> None:
    """A start-up as recorded, then lines until there are so many bytes."""
    chance = random.Random(4)
    with path.open("wb") as stream:
        for recorded in sorted(START.glob(recorded_as))[:1]:
            stream.write(recorded.read_bytes())
        number = 0
        while stream.tell() < size_bytes:
            stream.write("".join(line(chance, number + one) for one in range(1000)).encode())
            number += 1000


def read_in_process(path: Path, how: str) -> tuple[float, int, float, float]:
    """Seconds of processor time, what was found, peak MiB, and of these before reading."""
    done = subprocess.run(
        [sys.executable, "-c", READ_CODE, str(path), how], check=True, capture_output=True, text=True
    )
    seconds, found, peak, before = done.stdout.split()
    return float(seconds), int(found), int(peak) / 1024, int(before) / 1024


def ways() -> Sequence[str]:
    """The reader without the library, and with it where it is installed."""
    try:
        import ahocorasick_rs  # noqa: F401
    except ImportError:
        return ("alone",)
    return ("alone", "library")


def results(folder: Path, megabytes: int) -> Iterator[dict[str, object]]:
    for name, (line, share, recorded_as) in LOGS.items():
        path = folder / f"{name}.log"
        write_log(path, line, int(megabytes * share * 1e6), recorded_as)
        size = path.stat().st_size
        plain_s = min(read_in_process(path, "plain")[0] for _ in range(3))
        for way in ways():
            seconds, found, peak, before = min(read_in_process(path, way) for _ in range(2))
            yield {
                "log": name,
                "way": way,
                "mb": round(size / 1e6),
                "mb_per_s": round(size / seconds / 1e6),
                "share_of_plain_loop": round(plain_s / seconds, 3),
                "observations": found,
                "peak_mib": round(peak, 1),
                "before_mib": round(before, 1),
            }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}, processor time")
    print(
        f"{'log':<10}{'way':<10}{'MB':>6}{'MB/s':>8}{'of plain loop':>15}{'observations':>14}{'peak MiB':>10}"
    )
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for row in results(folder, options.mb):
            found.append(row)
            print(
                f"{row['log']:<10}{row['way']:<10}{row['mb']:>6}{row['mb_per_s']:>8}"
                f"{row['share_of_plain_loop']:>15}{row['observations']:>14}{row['peak_mib']:>10}",
                flush=True,
            )
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")
    over = [
        row
        for row in found
        if float(str(row["peak_mib"])) > BUDGET_MIB
        or (
            row["log"] in FAST
            and (
                float(str(row["mb_per_s"])) < BUDGET_MB_PER_S
                or float(str(row["share_of_plain_loop"])) < BUDGET_SHARE
            )
        )
    ]
    return 1 if options.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
