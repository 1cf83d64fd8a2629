"""`vramledger sweep`."""

from __future__ import annotations

import click

from vramledger.cli.options import OUTPUT, GroupedCommand, exit_zero_option, headers_option, json_option
from vramledger.cli.search_options import (
    AXES,
    axis_options,
    engines_option,
    exit_code,
    flags_option,
    option,
    run_options,
)

_HELP = """A whole grid as a table: models x weights x devices x engines x tp x pp x ep x KV x context x concurrency.

Each MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`)."""

_EPILOG = """\b
Examples:
  vramledger sweep ./model --device H100-80GB,L40S --tp 1,2,4,8 --context 8K,32K,128K --out plans.csv
  vramledger sweep ./a ./b --device all --weights all --kv auto,fp8 --concurrency 1,8,64 --out plans.parquet
  vramledger sweep ./model --device H200 --engine vllm==0.11.0 --engine vllm --jobs 2 --json
  vramledger sweep ./model --device all --tp 1,2,4,8 --ray local --out plans.jsonl
  vramledger sweep --columns

\b
The table is CSV on stdout unless --out or --json says otherwise; a file appears whole or not at all.
Exit codes: 0 some plan holds, 10 none holds, 11 none holds and some cannot be told (0 with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_sweep(
    model: tuple[str, ...],
    *,
    device: tuple[str, ...],
    engine: tuple[str, ...],
    headers: bool,
    tp: str,
    pp: str,
    ep: str,
    weights: str,
    kv: str,
    context: str | None,
    concurrency: str,
    flags: tuple[str, ...],
    price: tuple[str, ...],
    jobs: int | None,
    ray: str | None,
    out: str | None,
    columns: bool,
    as_json: bool,
    exit_zero: bool,
) -> int:
    """Plan every point, write the table, and turn it into an exit code."""
    from collections.abc import Iterable, Iterator

    from vramledger.cli.loading import load
    from vramledger.cli.output import write_text
    from vramledger.cli.search_options import (
        counts,
        device_names,
        engine_list,
        kv_list,
        runner,
        switches,
        weight_list,
    )
    from vramledger.cli.termination import ends_when_told
    from vramledger.errors import OutputError
    from vramledger.models.sources.bounded_file import path_of
    from vramledger.report.table_file import (
        TableFormat,
        check_format,
        format_of,
        table_text,
        write_table,
    )
    from vramledger.search.cost import read_prices
    from vramledger.search.grid import Grid
    from vramledger.search.rows import Row
    from vramledger.search.sweep import Work, chunks
    from vramledger.search.terms import read_engine_flags

    if columns:
        return _show_columns()
    for given, name in ((model, "MODEL"), (device, "--device")):
        if not given:
            raise click.UsageError(f"Missing {name}.")
    path = path_of(out) if out is not None else None
    if path is not None:
        if as_json:
            raise click.UsageError("--json prints; --out FILE.json writes the same document.")
        check_format(format_of(path))
    asked = engine_list(engine, ("vllm",))
    grid = Grid(
        models=len(model),
        weights=weight_list(weights),
        devices=device_names(device),
        engines=asked,
        tp=counts("tp", tp),
        pp=counts("pp", pp),
        ep=switches("ep", ep),
        kv=kv_list(kv),
        contexts=counts("context", context) if context is not None else (None,),
        concurrency=counts("concurrency", concurrency),
    )
    own = read_engine_flags(flags, asked)
    work = Work(
        grid=grid,
        checkpoints=tuple(load(text, headers=headers) for text in model),
        flags=own,
        prices=read_prices(price),
    )
    seen: set[str] = set()

    def noted(parts: Iterable[list[Row]]) -> Iterator[list[Row]]:
        for rows in parts:
            seen.update(row.status for row in rows)
            yield rows

    parts = noted(runner(jobs, ray)(work, chunks(range(len(grid)))))
    with ends_when_told():
        if path is not None:
            try:
                write_table(path, parts)
            except OSError as problem:
                raise OutputError(f"{path}: {problem.strerror or problem}") from None
        else:
            for text in table_text(TableFormat.JSON if as_json else TableFormat.CSV, parts):
                write_text(text)
    return exit_code(seen, exit_zero=exit_zero)


def _show_columns() -> int:
    from vramledger.cli.output import page_width, write_page
    from vramledger.report.table_file import column_facts
    from vramledger.report.text import columns

    rows = [("column", "type", "what it holds"), *column_facts()]
    write_page(columns(rows, styles=("dim",), width=page_width(), wrap_column=2))
    return 0


command = GroupedCommand(
    "sweep",
    callback=run_sweep,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL...", nargs=-1),
        option(
            "device",
            "--device/--devices/-d",
            "Devices of the catalogue or sizes such as custom:79.19GiB, or all of the catalogue.",
            multiple=True,
            metavar="NAME,...|all",
        ),
        engines_option("An engine, or a version of one; may be repeated. vLLM unless given."),
        flags_option(),
        headers_option(),
        *axis_options(tp="1", pp="1", ep="off"),
        option(
            "context",
            "--context",
            "Tokens of a request, 32768 or 32K; the model's limit unless given.",
            group=AXES,
            metavar="N,...",
        ),
        option(
            "concurrency",
            "--concurrency",
            "Requests of that context that must be held at once.",
            group=AXES,
            default="1",
            metavar="N,...",
            show_default=True,
        ),
        option(
            "price",
            "--price",
            "What one device costs, for the price column; may be repeated.",
            multiple=True,
            metavar="DEVICE=PRICE",
        ),
        *run_options(),
        option(
            "out",
            "--out/-o",
            "Where the table goes; Parquet needs vramledger[parquet].",
            group=OUTPUT,
            metavar="FILE.{csv,json,jsonl,parquet}",
        ),
        option(
            "columns",
            "--columns",
            "Say what each column holds, and plan nothing.",
            group=OUTPUT,
            is_flag=True,
        ),
        json_option(),
        exit_zero_option(),
    ],
)
