"""`vramledger adapters`."""

from __future__ import annotations

import click

from vramledger.cli.options import (
    GENERAL,
    EngineCommand,
    GroupedOption,
    device_option,
    engine_option,
    exit_zero_option,
    headers_option,
    json_option,
)
from vramledger.engines import engine_name, find_adapter_rules, find_engine
from vramledger.errors import FlagError

_HELP = """What LoRA adapters of MODEL take: on disk, in the slots of an engine, in host memory, and as merged copies instead.

An ADAPTER is a folder with an adapter_config.json, one of its files, a *.gguf adapter, or a hub id; only headers are
read. Without --device the adapters alone are shown."""

_EPILOG = """\b
Examples:
  vramledger adapters ./Llama-3.1-8B-Instruct ./sql ./support
  vramledger adapters ./model ./a ./b ./c --device L40S --hot 2 --tp 2
  vramledger adapters ./model org/adapter --device H100-80GB --engine vllm==0.11.0 --json

\b
Exit codes: 0 answered, and with --device the plan holds with the adapters; 10 it does not, or an adapter is refused or
does not belong to the model; 11 it cannot be told (0 for all three with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_adapters(
    model: str,
    *,
    adapters: tuple[str, ...],
    device: str | None,
    engine: str,
    hot: int | None,
    headers: bool,
    as_json: bool,
    exit_zero: bool,
    **flags: object,
) -> int:
    """Read, place, ask the engine, print."""
    from vramledger.cli.exit_codes import verdict_code
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.hardware.catalogue import find_device
    from vramledger.models.adapters.load import load_adapter
    from vramledger.report.adapters_document import Planner, adapters_document

    _, version = find_engine(engine)
    rules = find_adapter_rules(engine_name(engine))
    if device is not None and rules is None:
        raise FlagError(
            f"how {engine_name(engine)} serves adapters is not described; leave --device out, or name another engine",
            flag="engine",
            value=engine,
        )
    given = {name: value for name, value in flags.items() if value is not None}
    if device is None and (given or hot is not None):
        raise FlagError(
            "flags of an engine and --hot need --device, which they are about", flag="device", value=None
        )
    target = find_device(device) if device is not None else None
    checkpoint = load(model, headers=headers)
    document = adapters_document(
        checkpoint,
        [load_adapter(text) for text in adapters],
        device=target,
        rules=rules,
        version=version,
        values=given,
        hot=hot,
        planned=None if target is None else Planner(checkpoint, target, engine),
    )
    if as_json:
        write_document(document)
    else:
        from vramledger.report.adapters_text import adapters_lines

        write_page(adapters_lines(document, width=page_width()))
    wrong = any(item.served.refusals if item.served else item.mismatches for item in document.adapters)
    holds = document.cost.holds if document.cost is not None else True
    return verdict_code((False if wrong else holds,), exit_zero=exit_zero)


command = EngineCommand(
    "adapters",
    callback=run_adapters,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL"),
        click.Argument(["adapters"], metavar="ADAPTER...", nargs=-1, required=True),
        device_option(required=False),
        engine_option(),
        GroupedOption(
            ["hot", "--hot"],
            type=click.IntRange(min=1),
            metavar="N",
            help="Adapters that the device holds at once, the first ones; all of them without it.",
            group=GENERAL,
        ),
        headers_option(),
        json_option(),
        exit_zero_option(),
    ],
)
