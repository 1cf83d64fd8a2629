"""This repository's own load, as `vramledger experiment` sends it, in a process of its own like the others.

python -m tools.load_generators.ours PORT CASE.json TOLD.json
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from tools.load_generators.cases import Case, gaps_s
from tools.load_generators.figures import NS_PER_S, Told, pair_ms

from vramledger.experiment.load import Server, run_load
from vramledger.gateway.settings import Upstream
from vramledger.workload.request import Request, WorkloadHeader

BLOCK_TOKENS = 16
VOCABULARY = 4096


def requests_of(case: Case) -> tuple[Request, ...]:
    """A case as a workload. Turns of a conversation grow by the prompt and the answer before."""
    found: list[Request] = []
    at_s = 0.0
    for session, gap_s in enumerate(gaps_s(case)):
        at_s += gap_s
        prompt, parent = case.prompt_tokens, None
        for turn in range(case.turns):
            blocks = (prompt + case.output_tokens) // BLOCK_TOKENS
            found.append(
                Request(
                    arrival_ns=int(at_s * NS_PER_S),
                    prompt_tokens=prompt,
                    output_tokens=case.output_tokens,
                    blocks=tuple(session * 100_000 + one for one in range(blocks)) if case.turns > 1 else (),
                    conversation=session,
                    parent=parent,
                    pause_ns=case.pause_ms * 1_000_000 if turn else 0,
                )
            )
            parent = len(found) - 1
            prompt += case.output_tokens + case.prompt_tokens
    return tuple(found)


def main(port: int, case: Case) -> Told:
    """Sends it and tells."""
    requests = requests_of(case)
    header = WorkloadHeader(name="case", source="case", block_tokens=BLOCK_TOKENS)
    server = Server(
        upstream=Upstream(host="127.0.0.1", port=port), model="m", engine="vllm", vocab_size=VOCABULARY
    )
    served = run_load(server, header, requests, seed=1, retries=3).served
    return Told(
        first_token_ns=[one.ttft_ns for one in served if one.ttft_ns is not None],
        token_gap_ns=[one.tpot_ns for one in served if one.tpot_ns is not None],
        late_ms=pair_ms([one.sent_ns - one.due_ns for one in served if one.sent_ns >= 0]),
        failed=sum(not one.whole for one in served),
    )


if __name__ == "__main__":
    told = main(int(sys.argv[1]), msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Case))
    Path(sys.argv[3]).write_bytes(msgspec.json.encode(told))
