"""Options that `simulate` and `capacity` share: where the pool comes from, how long a step takes, the fleet, the aims."""

from __future__ import annotations

from typing import Any

import click

from vramledger.cli.options import OUTPUT, FiniteRange, GroupedOption
from vramledger.simulation.settings import Router, Scheduling, ToolWait

POOL = "Pool and steps"
FLEET = "Scheduling and fleet"
AIMS = "Aims"
RUN = "Running"


def pool_options() -> list[click.Option]:
    """Where blocks and step times come from, where not from a plan of MODEL and a roofline."""
    return [
        _option(
            "plan_file", "--plan", POOL, "The plan in a file of `vramledger plan --json`.", metavar="FILE"
        ),
        _option("manifest_file", "--manifest", POOL, "The plan of a release manifest.", metavar="FILE"),
        _option(
            "blocks",
            "--blocks",
            POOL,
            "Blocks of the pool, such as an engine printed, instead of the plan's; without a plan give --block-size, "
            "--max-model-len, --max-num-seqs, --max-num-batched-tokens and --step-model too.",
            type=click.IntRange(1, 2**40),
            metavar="N",
        ),
        _option(
            "step_model",
            "--step-model",
            POOL,
            "JSON of a step's time, fitted or your own; else a roofline of the device, which is assumed.",
            metavar="FILE",
        ),
        _option(
            "watermark",
            "--watermark",
            POOL,
            "Share of blocks kept free when a request is admitted; the engine's own unless given.",
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
            "Whose rules decide what runs in a step; the planned engine's unless given.",
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
            "So many of the replicas only prefill, and hand the KV over.",
            type=click.IntRange(0, 4095),
            default=0,
            show_default=True,
            metavar="N",
        ),
        _option(
            "link",
            "--link",
            FLEET,
            "Bytes a second between prefill and decode replicas, such as 50GB.",
            metavar="SIZE",
        ),
        _option(
            "tool_wait",
            "--tool-wait",
            FLEET,
            "What becomes of a conversation's KV between its turns.",
            type=click.Choice([item.value for item in ToolWait]),
            default=ToolWait.RELEASE.value,
            show_default=True,
        ),
        _option(
            "host_link",
            "--host-link",
            FLEET,
            "Bytes a second between device and host, for --tool-wait swap, such as 25GB.",
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
        _option("slo_ttft_ms", "--slo-ttft-ms", AIMS, "Longest time to the first token.", **milliseconds),
        _option(
            "slo_tpot_ms",
            "--slo-tpot-ms",
            AIMS,
            "Longest mean time an output token after the first.",
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


def file_option(name: str, flag: str, text: str, metavar: str = "FILE") -> GroupedOption:
    """One file that is written."""
    return _option(name, flag, OUTPUT, text, metavar=metavar)


def _option(name: str, flag: str, group: str, text: str, **more: Any) -> GroupedOption:
    return GroupedOption([name, *flag.split("/")], help=text, group=group, **more)
