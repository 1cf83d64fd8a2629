"""Options that `simulate` and `capacity` share: where the pool comes from, how long a step takes, the fleet, the aims."""

from __future__ import annotations

from typing import Any

import click

from vramledger.cli.load_workload import sampling_options
from vramledger.cli.options import (
    OUTPUT,
    FiniteRange,
    GroupedOption,
    device_option,
    engine_option,
    headers_option,
)
from vramledger.cli.workload_options import workload_options
from vramledger.simulation.settings import Router, Scheduling, ToolWait

POOL = "Pool and steps"
FLEET = "Scheduling and fleet"
AIMS = "Aims"
RUN = "Running"


def pool_options() -> list[click.Option]:
    """Where blocks and step times come from, where not from a plan of MODEL and a roofline."""
    return [
        _option("plan_file", "--plan", POOL, "A plan written by `vramledger plan --json`.", metavar="FILE"),
        _option(
            "manifest_file", "--manifest", POOL, "Take the plan from a release manifest.", metavar="FILE"
        ),
        _option(
            "blocks",
            "--blocks",
            POOL,
            "Blocks of the pool, for example as an engine printed them, instead of the plan's. Without a plan --block-size, "
            "--max-model-len, --max-num-seqs, --max-num-batched-tokens and --step-model are needed too.",
            type=click.IntRange(1, 2**40),
            metavar="N",
        ),
        _option(
            "step_model",
            "--step-model",
            POOL,
            "JSON with a step's costs, fitted or your own. Without it: a roofline of the device, which is assumed.",
            metavar="FILE",
        ),
        _option(
            "watermark",
            "--watermark",
            POOL,
            "Share of the blocks kept free when a request is admitted. Default: the engine's own.",
            type=FiniteRange(0, 1, max_open=True),
            metavar="SHARE",
        ),
    ]


def fleet_options() -> list[click.Option]:
    """Who schedules, over how many replicas."""
    return [
        _option(
            "scheduling",
            "--scheduling",
            FLEET,
            "Scheduler to simulate. Default: that of the planned engine.",
            type=click.Choice([item.value for item in Scheduling]),
        ),
        _option(
            "replicas",
            "--replicas",
            FLEET,
            "Instances of the same plan behind a router.",
            type=click.IntRange(1, 4096),
            default=1,
            show_default=True,
            metavar="N",
        ),
        _option(
            "router",
            "--router",
            FLEET,
            "Which replica a request goes to.",
            type=click.Choice([item.value for item in Router]),
            default=Router.ROUND_ROBIN.value,
            show_default=True,
        ),
        _option(
            "prefill_replicas",
            "--prefill-replicas",
            FLEET,
            "How many of the replicas only prefill and send the KV to the others.",
            type=click.IntRange(0, 4095),
            default=0,
            show_default=True,
            metavar="N",
        ),
        _option(
            "link",
            "--link",
            FLEET,
            "Bandwidth between prefill and decode replicas in bytes a second, such as 50GB.",
            metavar="SIZE",
        ),
        _option(
            "tool_wait",
            "--tool-wait",
            FLEET,
            "What happens to a conversation's KV between its turns: release keeps it until it is evicted (as engines do), preserve pins it, swap moves it to the host, discard drops it, learned pins it while nobody waits for the room or the wait is likely short.",
            type=click.Choice([item.value for item in ToolWait]),
            default=ToolWait.RELEASE.value,
            show_default=True,
        ),
        _option(
            "host_link",
            "--host-link",
            FLEET,
            "Bandwidth between device and host in bytes a second, for --tool-wait swap, such as 25GB.",
            metavar="SIZE",
        ),
        _option(
            "host_swap", "--host-swap", FLEET, "Host memory for swapped KV, such as 64GiB.", metavar="SIZE"
        ),
    ]


def aim_options() -> list[click.Option]:
    """What a request must meet, and how many must."""
    milliseconds: dict[str, Any] = {"type": FiniteRange(0, min_open=True), "metavar": "MS"}
    return [
        _option(
            "slo_ttft_ms",
            "--slo-ttft-ms",
            AIMS,
            "Longest time to the first token that a request may take.",
            **milliseconds,
        ),
        _option(
            "slo_tpot_ms",
            "--slo-tpot-ms",
            AIMS,
            "Longest mean time per output token after the first.",
            **milliseconds,
        ),
        _option(
            "slo_latency_ms", "--slo-latency-ms", AIMS, "Longest time to the last token.", **milliseconds
        ),
        _option(
            "goodput",
            "--goodput",
            AIMS,
            "Share of the offered requests that must meet every aim.",
            type=FiniteRange(0, 1, min_open=True),
            default=0.99,
            show_default=True,
            metavar="SHARE",
        ),
    ]


def load_arguments(requests: int) -> list[click.Parameter]:
    """What both commands begin with: the question, the workload (`requests` of it unless it is said), pool, fleet and aims."""
    return [
        click.Argument(["model"], metavar="[MODEL]", required=False),
        device_option(required=False),
        engine_option(),
        headers_option(),
        *sampling_options(requests),
        *workload_options(),
        *pool_options(),
        *fleet_options(),
        *aim_options(),
    ]


def how_option() -> GroupedOption:
    """Which of the two simulators runs."""
    return GroupedOption(
        ["how", "--how"],
        type=click.Choice(["auto", "compiled", "reference"]),
        default="auto",
        help="Which of the two simulators runs, which give equal results. auto: the compiled one where it covers the settings.",
        group=RUN,
    )


def file_option(name: str, flag: str, text: str, metavar: str = "FILE") -> GroupedOption:
    """One file that is written."""
    return _option(name, flag, OUTPUT, text, metavar=metavar)


def _option(name: str, flag: str, group: str, text: str, **more: Any) -> GroupedOption:
    return GroupedOption([name, *flag.split("/")], help=text, group=group, **more)
