"""Traces, and the instance that each is served on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.settings import SchedulerSettings, Scheduling, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.request import Request

TRACES = Path(__file__).parents[2] / "data" / "traces"
NS_PER_S = 1_000_000_000
STEP_TOKENS = 2048
MAX_RUNNING = 128
LLAMACPP_SLOTS = 32
LONGEST_PAUSE_NS = 60 * NS_PER_S
STEP = StepModel(
    overhead_ps=1_500_000_000,
    floor_ps=5_000_000_000,
    token_ps=20_000_000,
    decode_seq_ps=1_000_000,
    kv_token_ps=40_000,
    pair_ps_per_1024=20_000,
    evidence=assumed("of the order of an 8B model on an H100"),
)


class Part(Struct, frozen=True, kw_only=True):
    """Requests of a trace: rows from `first` on, or of an agents' trace the sessions from `first` on."""

    first: int
    count: int


class Scene(Struct, frozen=True, kw_only=True):
    """A trace, the pool it is served from, and what clients want.

    A client names `bound_tokens` as the bound of its output (or what it really generates, if that is more), wants its first token within
    `first_token_s` and then one every `token_ms` on average. Settings were chosen on `chosen_on`; `shown` is what the page shows.
    """

    name: str
    title: str
    file: str
    blocks: int
    block_tokens: int
    max_model_len: int
    bound_tokens: int
    first_token_s: int
    token_ms: int
    chosen_on: Part
    shown: Part
    is_of_sessions: bool = False

    @property
    def first_token_ns(self) -> int:
        return self.first_token_s * NS_PER_S

    def settings(self, scheduling: Scheduling) -> SimulationSettings:
        """The instance under an engine's rules."""
        slots = LLAMACPP_SLOTS if scheduling is Scheduling.LLAMACPP else MAX_RUNNING
        return SimulationSettings(
            layout=PoolLayout(
                num_blocks=self.blocks + 1,
                groups=(BlockGroup(block_tokens=self.block_tokens),),
                reserved_blocks=1,
            ),
            scheduler=SchedulerSettings(
                scheduling=scheduling,
                max_num_seqs=slots,
                max_num_batched_tokens=STEP_TOKENS,
                max_model_len=self.max_model_len,
            ),
            step=STEP,
            follow_parents=False,
        )


SCENES = (
    Scene(
        name="azure",
        title="Conversation (Azure 2023)",
        file="azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz",
        blocks=1_500,
        block_tokens=16,
        max_model_len=16_384,
        bound_tokens=1_024,
        first_token_s=3,
        token_ms=50,
        chosen_on=Part(first=0, count=300),
        shown=Part(first=4_000, count=300),
    ),
    Scene(
        name="mooncake",
        title="Long conversations (Mooncake)",
        file="mooncake-fast25/conversation_trace.first-300000ms.jsonl.gz",
        blocks=10_000,
        block_tokens=16,
        max_model_len=131_072,
        bound_tokens=2_048,
        first_token_s=10,
        token_ms=100,
        chosen_on=Part(first=0, count=120),
        shown=Part(first=500, count=120),
    ),
    Scene(
        name="agentic",
        title="Coding agents (Claude Code)",
        file="agentic-coding-claude-code/sessions.first-30-small.jsonl.gz",
        blocks=9_400,
        block_tokens=64,
        max_model_len=524_288,
        bound_tokens=8_192,
        first_token_s=10,
        token_ms=100,
        chosen_on=Part(first=0, count=4),
        shown=Part(first=10, count=4),
        is_of_sessions=True,
    ),
)
BY_NAME = {scene.name: scene for scene in SCENES}


class Asked(Struct, frozen=True):
    """A part's requests in order of arrival, and the tokens of one of their block identities."""

    requests: tuple[Request, ...]
    block_tokens: int | None


@lru_cache(maxsize=4)
def asked(scene: Scene, part: Part) -> Asked:
    """The requests of a part, with the clients' bounds. Turns come at their recorded times, whatever became of those before."""
    workload = read_workload(TRACES / scene.file)
    requests: Iterable[Request] = workload.requests()
    if scene.is_of_sessions:
        requests = without_long_pauses(requests, part)
    else:
        requests = islice(requests, part.first, part.first + part.count)
    return Asked(
        tuple(
            replace(
                one,
                max_output_tokens=max(scene.bound_tokens, one.output_tokens),
                parent=None,
                pause_ns=0,
            )
            for one in requests
        ),
        workload.header.block_tokens,
    )


def without_long_pauses(requests: Iterable[Request], part: Part) -> list[Request]:
    """Sessions `part` of the trace, pauses between turns cut at a minute, their starts evenly over the longest of them."""
    sessions: dict[int, list[Request]] = {}
    for one in requests:
        sessions.setdefault(one.conversation or 0, []).append(one)
    chosen = [sessions[name] for name in sorted(sessions)][part.first : part.first + part.count]
    times: list[list[int]] = []
    for turns in chosen:
        at_ns = [0]
        for before, after in pairwise(turns):
            at_ns.append(at_ns[-1] + min(after.arrival_ns - before.arrival_ns, LONGEST_PAUSE_NS))
        times.append(at_ns)
    longest_ns = max(at_ns[-1] for at_ns in times)
    moved = [
        replace(turn, arrival_ns=number * longest_ns // len(chosen) + at)
        for number, (turns, at_ns) in enumerate(zip(chosen, times, strict=True))
        for turn, at in zip(turns, at_ns, strict=True)
    ]
    return sorted(moved, key=lambda one: one.arrival_ns)


def at_load(requests: tuple[Request, ...], requests_per_s: float, deadline_ns: int | None) -> list[Request]:
    """The same requests in the same rhythm, so many a second on average; with a deadline clients leave when it has passed."""
    first_ns = requests[0].arrival_ns
    factor = len(requests) / requests_per_s * NS_PER_S / (requests[-1].arrival_ns - first_ns)
    return [
        replace(
            one, arrival_ns=round((one.arrival_ns - first_ns) * factor), first_token_deadline_ns=deadline_ns
        )
        for one in requests
    ]
