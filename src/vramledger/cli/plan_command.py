"""`vramledger plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vramledger.cli.html_page import html_option, write_answer
from vramledger.cli.options import (
    OUTPUT,
    EngineCommand,
    GroupedOption,
    concurrency_option,
    device_option,
    engine_option,
    exit_zero_option,
    headers_option,
    json_option,
)
from vramledger.engines import find_engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramledger.documents.plan import PlanDocument
    from vramledger.report.text import Line

_HELP = """Where every byte of accelerator memory goes when MODEL is served, and what that leaves for KV.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`)."""

_EPILOG = """\b
Examples:
  vramledger plan ./model --device H100-80GB --tp 8 --max-model-len 32K
  vramledger plan ./model --device L40S --engine vllm==0.11.0 --kv-cache-dtype fp8 --explain
  vramledger plan ./model --device H100 --engine sglang --tp 8 --mem-fraction-static 0.88
  vramledger plan ./model.gguf --device L4 --engine llamacpp -c 32768 -np 4 -ctk q8_0 -ctv q8_0
  vramledger plan org/name --device custom:79.19GiB --max-model-len 8K --concurrency 64 --json
  vramledger plan ./model --device B200 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'

\b
Flags of another engine: vramledger plan --help --engine sglang

\b
Exit codes: 0 holds, 10 does not hold, 11 cannot be told (0 for all three with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_plan(
    model: str,
    *,
    device: str,
    engine: str,
    headers: bool,
    as_json: bool,
    explain: bool,
    exit_zero: bool,
    html_file: str | None,
    concurrency: int,
    **flags: object,
) -> int:
    """Plan, print, and turn the verdict into an exit code."""
    from vramledger.cli.exit_codes import verdict_code
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width
    from vramledger.hardware.catalogue import find_device
    from vramledger.planning import plan

    target = find_device(device)
    find_engine(engine)
    checkpoint = load(model, headers=headers)
    answer = plan(checkpoint, target, engine=engine, concurrency=concurrency, remedies=True, **flags)  # type: ignore[arg-type]

    def document() -> PlanDocument:
        from vramledger.cli.engine_start import start_document
        from vramledger.documents.plan import plan_document

        start = start_document(model, model_id=answer.inputs.model, engine=engine, flags=flags)
        return plan_document(answer, start=start)

    def lines() -> Iterable[Line]:
        from vramledger.report.plan_text import plan_lines

        counts = checkpoint.model.parameter_counts()
        return plan_lines(answer, width=page_width(), explain=explain, parameters=counts)

    write_answer("plan", html_file=html_file, as_json=as_json, document=document, lines=lines)
    return verdict_code((answer.verdict.holds,), exit_zero=exit_zero)


command = EngineCommand(
    "plan",
    callback=run_plan,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL"),
        device_option(),
        engine_option(),
        concurrency_option(),
        headers_option(),
        GroupedOption(
            ["explain", "--explain"], is_flag=True, help="Formula and source under each entry.", group=OUTPUT
        ),
        json_option(),
        html_option(),
        exit_zero_option("Exit with 0 whatever the verdict."),
    ],
)
