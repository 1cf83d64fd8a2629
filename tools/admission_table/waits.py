"""Ways to spend the waits between a coding agent's turns, by what they waste."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace
from tools.admission_table.scenes import BY_NAME, TRACES

from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.tool_waits import ToolWaitRow, compare_tool_waits
from vramledger.workload.columnar.reading import read_workload

LINK_BYTES_PER_S = 25_000_000_000
SLOWER = 10
SHOWN = (0.5, 0.75, 0.9)
KEPT = SimulationSettings(
    layout=PoolLayout(num_blocks=12_000, groups=(BlockGroup(block_tokens=64),), block_bytes=64 * 131_072),
    scheduler=SchedulerSettings(max_num_seqs=32, max_num_batched_tokens=8192, max_model_len=300_000),
    step=StepModel(
        overhead_ps=2_000_000_000,
        floor_ps=8_000_000_000,
        token_ps=16_000_000,
        decode_seq_ps=0,
        kv_token_ps=40_000,
        evidence=assumed("an 8B model on one card"),
    ),
)


def wait_lines() -> Iterator[str]:
    """The section of the page."""
    workload = read_workload(TRACES / BY_NAME["agentic"].file)
    slow = replace(KEPT, step=replace(KEPT.step, token_ps=SLOWER * KEPT.step.token_ps))
    instances = {
        "8B, no link": KEPT,
        f"prefill {SLOWER} times as slow, no link": slow,
        "8B, 25 GB/s to the host": replace(KEPT, host_link_bytes_per_s=LINK_BYTES_PER_S),
    }
    found = {
        name: {_name(row): row for row in compare_tool_waits(workload, one, quantiles=SHOWN)}
        for name, one in instances.items()
    }
    yield from _TEXT
    yield ""
    yield f"| what is done while a tool runs | {' | '.join(instances)} |"
    yield f"| --- | {' | '.join('---' for _ in instances)} |"
    policies = list(dict.fromkeys(name for rows in found.values() for name in rows))
    for policy in sorted(policies, key=_order):
        cells = [f"{rows[policy].waste_token_s:.2e}" if policy in rows else "-" for rows in found.values()]
        yield f"| {policy} | {' | '.join(cells)} |"
    yield ""
    yield from _RUNS


def _name(row: ToolWaitRow) -> str:
    return row.policy if row.wait_quantile is None else f"{row.policy}, up to p{100 * row.wait_quantile:g}"


def _order(name: str) -> tuple[bool, bool, str]:
    return name == "least in hindsight", name == "learned", name


_TEXT = (
    "## Tool waits",
    "",
    "While a tool runs a conversation's KV is held for nobody. `admission.tool_wait` learns how long such waits last and holds a context as",
    "long as that wastes less on average than giving it up, at the price of what others wait for. Wasted token-seconds over all waits of the agentic",
    "trace, in a full pool (InferCept's accounting, `--compare-tool-waits`): no fixed way is good on every instance, and the learned one is near the",
    "best fixed one on each without being told which that is.",
)
_RUNS = (
    "As a policy of the simulated pool (`--tool-wait learned`) a context is held while nobody waits for room, and judged anew each second while",
    "somebody does; without a link it is then released, not dropped. On the same trace and the first instance, which has room for most",
    "contexts, later turns have a mean time to the first token of 0.141 s released as engines do, 0.136 s learned (0.127 s with the link), 0.346 s",
    "when every context is pinned until its next turn, 0.660 s when each goes to the host and back, and 2.010 s when each is dropped.",
)
