"""`vramledger layout`."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from vramledger.engines import find_engine
from vramledger.errors import FlagError

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.kvcache.lengths import Lengths
    from vramledger.models.model import Model
    from vramledger.report.layout_document import Layout


_HELP = """Ways to hand out the KV cache of MODEL, side by side for the lengths of a workload: the engine's blocks, pages of
virtual memory (vAttention, kvcached), whole contexts.

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, a hub id
(org/name[@revision]), or builtin:NAME (`vramledger model --list`)."""

_EPILOG = """\b
Examples:
  vramledger layout ./model --device H100-80GB --prompt 1K,8K,16K --output 200,800,1500
  vramledger layout ./model --device H100-80GB --lengths trace.csv --concurrency 64 --max-model-len 32K

\b
Exit codes: 0 some layout holds the requests, 10 none does, 11 it cannot be told whether there is a pool (0 for all three with
--exit-zero); 2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_layout(
    model: str,
    *,
    device: str,
    engine: str,
    prompt: str | None,
    output: str | None,
    lengths: str | None,
    concurrency: int | None,
    page_sizes: tuple[str, ...],
    headers: bool,
    as_json: bool,
    exit_zero: bool,
    **flags: object,
) -> int:
    """Plan, lay out, print, and turn the answer into an exit code."""
    from vramledger.cli.exit_codes import verdict_code
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.hardware.catalogue import find_device
    from vramledger.planning import plan

    target = find_device(device)
    find_engine(engine)
    asked, pages = _lengths(prompt, output, lengths), _page_sizes(page_sizes)
    checkpoint = load(model, headers=headers)
    planned = plan(checkpoint, target, engine=engine, **flags)  # type: ignore[arg-type]
    found = _layout(planned, checkpoint.model, asked, pages, concurrency)
    if as_json:
        from vramledger.report.layout_document import layout_document

        write_document(layout_document(found))
    else:
        from vramledger.report.layout_text import layout_lines

        write_page(layout_lines(found, width=page_width()))
    holds = None if found.refusal and planned.verdict.holds is None else found.holds
    return verdict_code((holds,), exit_zero=exit_zero)


def _layout(
    plan: Plan, model: Model, asked: Lengths, pages: tuple[int, ...], concurrency: int | None
) -> Layout:
    """The schemes for `concurrency` requests, or for as many as the engine's own blocks hold while they run."""
    from vramledger.kvcache.schemes import DEFAULT_PAGES, allocations, paged
    from vramledger.kvcache.shape import cache_shape
    from vramledger.report.layout_document import Layout

    pool = plan.kv_pool
    if pool is None or not pool.groups or pool.bytes.expected <= 0:
        return Layout(
            plan=plan,
            requests=concurrency or 0,
            lengths=asked,
            refusal=f"the plan leaves no KV pool to lay out: {plan.verdict.summary}",
        )
    shape = cache_shape(pool, model)
    lengths, cut = asked.cut(shape.max_len)
    requests = concurrency or max(paged(shape, lengths, 1).fit_running, 1)
    return Layout(
        plan=plan,
        pool_bytes=shape.pool_bytes,
        max_len=shape.max_len,
        requests=requests,
        lengths=lengths,
        cut=cut,
        outside_bytes=0 if shape.constant else pool.state_bytes_per_sequence,
        allocations=allocations(shape, lengths, requests, pages or DEFAULT_PAGES),
    )


def _page_sizes(texts: tuple[str, ...]) -> tuple[int, ...]:
    from vramledger.units import parse_bytes

    try:
        return tuple(parse_bytes(text) for text in texts)
    except ValueError as problem:
        raise FlagError(f"--vmm-page {problem}", flag="vmm_page") from None


def _lengths(prompt: str | None, output: str | None, lengths: str | None) -> Lengths:
    from vramledger.cli.token_counts import token_counts
    from vramledger.kvcache.lengths import from_pairs, from_quantiles

    if lengths is not None:
        if prompt is not None or output is not None:
            raise FlagError(
                "--lengths gives prompts and outputs; leave --prompt and --output out", flag="lengths"
            )
        from vramledger.cli.lengths_file import read_lengths
        from vramledger.models.sources.bounded_file import path_of

        return from_pairs(read_lengths(path_of(lengths)))
    if prompt is None or output is None:
        raise FlagError("give --prompt and --output, or --lengths FILE", flag="lengths")
    return from_quantiles(token_counts("prompt", prompt), token_counts("output", output))


command = EngineCommand(
    "layout",
    callback=run_layout,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL"),
        device_option(),
        engine_option(),
        GroupedOption(
            ["prompt", "--prompt"],
            metavar="P50,P95,P99",
            help="Tokens of prompt: quantiles, or one length for all.",
            group=GENERAL,
        ),
        GroupedOption(
            ["output", "--output"],
            metavar="P50,P95,P99",
            help="Tokens of output: quantiles, or one length for all.",
            group=GENERAL,
        ),
        GroupedOption(
            ["lengths", "--lengths"],
            metavar="FILE",
            help="Requests instead: CSV or JSON lines with prompt and output tokens.",
            group=GENERAL,
        ),
        GroupedOption(
            ["concurrency", "--concurrency"],
            type=click.IntRange(1, 2**24),
            metavar="N",
            help="Requests that run at once; as many as the engine's blocks hold without it.",
            group=GENERAL,
        ),
        GroupedOption(
            ["page_sizes", "--vmm-page"],
            multiple=True,
            metavar="SIZE",
            help="Pages of virtual memory; may be given several times. 64KiB and 2MiB without it.",
            group=GENERAL,
        ),
        headers_option(),
        json_option(),
        exit_zero_option(),
    ],
)
