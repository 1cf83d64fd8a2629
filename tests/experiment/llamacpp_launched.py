"""llama.cpp's server as a command that an experiment starts, and a plain load on it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from vramledger.experiment.load import LoadRun, Server, run_load
from vramledger.experiment.served import Served
from vramledger.gateway.settings import upstream_from_url
from vramledger.workload.request import Request, WorkloadHeader

CELLS = 512
SLOTS = 4
VOCAB = 49_152
COMMAND = (
    f"{sys.executable} -m vramledger.release.xllamacpp_server -m {{model}} --host {{host}} --port {{port}} -c {CELLS} "
    f"-np {SLOTS} -kvu -t 1 -cram 0 -lv 4 --metrics --slots --props"
)
HEADER = WorkloadHeader(name="short", source="even", block_tokens=16)
EVERY_NS = 300_000_000
LONGEST_NS = 600_000_000_000


def short_requests(url: str, stop: threading.Event, told: Callable[[Served], None] | None = None) -> LoadRun:
    """Short requests at an even rate until the event is set; what is under way then is waited for."""
    requests = [
        Request(arrival_ns=at_ns, prompt_tokens=8, output_tokens=4)
        for at_ns in range(0, LONGEST_NS, EVERY_NS)
    ]
    return run_load(server_at(url), HEADER, requests, seed=1, retries=0, told=told, stop_sending=stop.is_set)


def answers(url: str) -> bool:
    """Whether a short request is answered whole."""
    request = Request(arrival_ns=0, prompt_tokens=8, output_tokens=2)
    return run_load(server_at(url), HEADER, [request], seed=2, retries=0).served[0].whole


def server_at(url: str) -> Server:
    return Server(
        upstream=upstream_from_url(url), model="m", engine="llamacpp", vocab_size=VOCAB, context_len=CELLS
    )
