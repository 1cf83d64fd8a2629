"""`vramledger fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vramledger.cli.html_page import html_option, write_answer
from vramledger.cli.options import OUTPUT, GroupedCommand, exit_zero_option, headers_option, json_option
from vramledger.cli.search_options import (
    LIMITS,
    axis_options,
    engines_option,
    exit_code,
    flags_option,
    option,
    run_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramledger.report.fit_document import FitDocument
    from vramledger.report.text import Line

_HELP = """What MODEL holds on: devices x tp x pp x ep x weight format x KV format x engine, by what it costs.

Plans that hold come first, ordered by devices, price or tokens, with the Pareto front marked; then near misses, each
with the owner it fails by and the bytes it lacks.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`)."""

_EPILOG = """\b
Examples:
  vramledger fit ./model --context 32K --concurrency 16
  vramledger fit ./model --devices H100-80GB,L40S,A100-80GB --weights all --kv auto,fp8 --context 8K
  vramledger fit org/name --devices H200,B200 --max-nodes 2 --ep off,on --order tokens
  vramledger fit ./model --devices H100-80GB,L4 --price H100-80GB=2.5 --price L4=0.7 --order price
  vramledger fit ./model --devices all --weights stored,fp8 --kv auto,fp8 --limit 2000 --html fit.html

\b
Exit codes: 0 some plan holds, 10 none holds, 11 none holds and some cannot be told (0 with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_fit(
    model: str,
    *,
    devices: tuple[str, ...],
    engine: tuple[str, ...],
    headers: bool,
    context: str | None,
    concurrency: int,
    tp: str | None,
    pp: str | None,
    ep: str,
    weights: str,
    kv: str,
    max_devices: int | None,
    max_nodes: int,
    devices_per_node: int,
    order: str,
    price: tuple[str, ...],
    prices: str | None,
    flags: tuple[str, ...],
    limit: int,
    front: bool,
    jobs: int | None,
    ray: str | None,
    as_json: bool,
    html_file: str | None,
    exit_zero: bool,
) -> int:
    """Search, print, and turn what was found into an exit code."""
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width
    from vramledger.cli.search_options import (
        counts,
        device_names,
        engine_list,
        kv_list,
        one_count,
        runner,
        switches,
        weight_list,
    )
    from vramledger.search.ask import fit
    from vramledger.search.cost import read_prices
    from vramledger.search.fit import Limits
    from vramledger.search.terms import read_engine_flags

    asked = engine_list(engine, ("vllm",))
    length = one_count("context", context) if context is not None else None
    names = device_names(devices or ("all",))
    costs = _price_file(prices) | read_prices(price)
    own = read_engine_flags(flags, asked)
    found = fit(
        load(model, headers=headers),
        names,
        asked,
        tp=counts("tp", tp) if tp is not None else (),
        pp=counts("pp", pp) if pp is not None else (),
        ep=switches("ep", ep),
        weights=weight_list(weights),
        kv=kv_list(kv),
        context_tokens=length,
        concurrency=concurrency,
        limits=Limits(max_devices=max_devices, max_nodes=max_nodes, devices_per_node=devices_per_node),
        order=order,
        prices=costs,
        flags=own,
        run=runner(jobs, ray),
    )

    def document() -> FitDocument:
        from vramledger.report.fit_document import fit_document

        return fit_document(found, limit=limit, front=front)

    def lines() -> Iterable[Line]:
        from vramledger.report.fit_text import fit_lines

        return fit_lines(found, width=page_width(), limit=limit, front=front)

    write_answer("fit", html_file=html_file, as_json=as_json, document=document, lines=lines)
    statuses = ["holds"] * bool(found.holding) + ["untold"] * bool(found.untold)
    return exit_code(statuses, exit_zero=exit_zero)


LARGEST_PRICE_FILE = 1_000_000


def _price_file(path: str | None) -> dict[str, float]:
    """Prices of a file with lines "DEVICE=PRICE" or "DEVICE,PRICE"; empty ones and those after # do not count.

    Raises SourceError for a file that cannot be read, FlagError for one that is too large or not text, and for a line that
    is no price, with its number.
    """
    if path is None:
        return {}
    from vramledger.errors import DeviceError, FlagError, SourceError
    from vramledger.models.sources.bounded_file import path_of
    from vramledger.search.cost import read_prices

    try:
        with path_of(path).open("rb") as file:
            data = file.read(LARGEST_PRICE_FILE + 1)
    except OSError as problem:
        raise SourceError(f"{path}: {problem.strerror or problem}", file=path) from None
    if len(data) > LARGEST_PRICE_FILE:
        raise FlagError(f"--prices {path}: more than {LARGEST_PRICE_FILE:,} bytes", flag="prices", value=path)
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise FlagError(f"--prices {path} is not text in UTF-8", flag="prices", value=path) from None
    prices: dict[str, float] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            prices |= read_prices([line if "=" in line else "=".join(line.rsplit(",", 1))])
        except (FlagError, DeviceError) as problem:
            raise FlagError(
                f"--prices {path}, line {number}: {problem.message}", flag="prices", value=line
            ) from None
    return prices


command = GroupedCommand(
    "fit",
    callback=run_fit,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL"),
        option(
            "devices",
            "--devices/--device/-d",
            "Devices of the catalogue or sizes such as custom:79.19GiB; all of the catalogue unless given.",
            multiple=True,
            metavar="NAME,...|all",
        ),
        engines_option("An engine, or a version of one; may be repeated. vLLM unless given."),
        option("context", "--context", "Tokens of a request, 32768 or 32K; the model's limit unless given.", metavar="N"),
        option(
            "concurrency",
            "--concurrency",
            "Requests of that context that must be held at once.",
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
        ),
        flags_option(),
        headers_option(),
        *axis_options(tp=None, pp=None, ep="off"),
        option("max_devices", "--max-devices", "Devices of a plan at most.", group=LIMITS, type=click.IntRange(min=1), metavar="N"),
        option("max_nodes", "--max-nodes", "Nodes of a plan at most.", group=LIMITS, type=click.IntRange(min=1), default=1, metavar="N", show_default=True),
        option("devices_per_node", "--devices-per-node", "Devices of a node; no layer is cut over more.", group=LIMITS, type=click.IntRange(min=1), default=8, metavar="N", show_default=True),
        option(
            "order", "--order", "What comes first.", group=LIMITS,
            type=click.Choice(["devices", "price", "tokens", "tokens-per-price"]), default="devices", show_default=True,
        ),
        option("price", "--price", "What one device costs, in any unit; may be repeated.", group=LIMITS, multiple=True, metavar="DEVICE=PRICE"),
        option("prices", "--prices", "A file with a line DEVICE=PRICE (or DEVICE,PRICE) for each.", group=LIMITS, metavar="FILE"),
        *run_options(),
        option("limit", "--limit", "Plans shown of each list at most.", group=OUTPUT, type=click.IntRange(min=1), default=20, metavar="N", show_default=True),
        option("front", "--front", "Show only plans of the Pareto front.", group=OUTPUT, is_flag=True),
        json_option(),
        html_option(),
        exit_zero_option(),
    ],
)  # fmt: skip
