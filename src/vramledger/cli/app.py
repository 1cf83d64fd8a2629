"""The group of commands, and what becomes of errors."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import vramledger
from vramledger.cli.output import ReaderGone, abandon, write_error, write_message
from vramledger.errors import InputError, OutputError, VramledgerError, shorter

INTERRUPTED = 130
PIPE_CLOSED = 141
_COMPLETION = "_VRAMLEDGER_COMPLETE"

# Short helps stand here so that the list of commands loads none of them.
_COMMANDS = {
    "ui": "The page in a browser: plan with sliders, compare, fit, capacity, live, diagnose.",
    "plan": "Where every byte goes on each rank, and the KV budget the engine would print.",
    "rollout": "What devices and host hold while an instance is replaced, step by step.",
    "compare": "Engines, or versions of one, side by side.",
    "fit": "What a model holds on, by cost, and by how little the rest misses.",
    "sweep": "A whole grid of plans as a table.",
    "model": "What a model is: layers, parameters, formats, KV bytes a token.",
    "adapters": "What LoRA adapters take: in slots, in host memory, and as merged copies instead.",
    "simulate": "A workload replayed over a plan's KV pool: latencies, goodput, preemptions, what threatens.",
    "capacity": "The largest load that a plan serves well, what binds it, and the room left.",
    "layout": "Ways to hand out the KV cache's memory, side by side for a workload.",
    "kv": "What the KV cache takes in each format, by length.",
    "workload": "What a trace of requests is: rate, bursts, lengths, shared prefixes, conversations.",
    "release": "Plan, start the engine, measure, reconcile, manifest and audit in one go.",
    "experiment": "The largest load that a live engine serves well: measured step by step, beside what was foretold.",
    "gateway": "A proxy before live engines that lets requests in when they have room.",
    "gateway-key": "A new API key for a tenant of the gateway, and the line that the gateway keeps of it.",
    "snapshot": "What an allocator snapshot holds, pins and could still serve.",
    "diagnose": "What a memory failure was: class, numbers, evidence, and what would help by how much.",
    "measure": "One running instance, measured: log, metrics, devices, host, snapshots.",
    "watch": "A running engine and its gateway, look by look: free blocks, queue, decisions with their reasons.",
    "sample": "A time series of a running instance into a file, its phases marked.",
    "reconcile": "A plan confronted with what was measured: owner by owner, and why they differ.",
    "log": "What an engine's log says: version, settings, memory by phase, service, failure messages.",
    "devices": "Devices of the catalogue and their memory.",
    "manifest": "The release artifact: revisions, plan and what was measured, in one file.",
    "diff": "What changed between two releases, with thresholds.",
    "audit": "The release checklist of a manifest.",
    "gate": "Whether a release may go out: a manifest against a policy and the one before it.",
    "schema": "The JSON Schema of what --json writes.",
    "completion": "The script that lets bash, zsh or fish complete commands, flags and names.",
}

_EPILOG = """\b
Examples:
  vramledger plan ./Llama-3.1-8B-Instruct --device H100-80GB --max-model-len 32K
  vramledger plan Qwen/Qwen3-30B-A3B --device H200-141GB --tp 2 --ep --explain
  vramledger plan model.gguf --device custom:24GiB --json
  vramledger compare ./model --device H100-80GB --engine vllm==0.11.0 --engine vllm
  vramledger fit ./model --devices H100-80GB,L40S --context 32K --concurrency 16 --weights all
  vramledger model deepseek-ai/DeepSeek-V3.2

\b
Exit codes:
  0 answered, and a plan holds    10 a plan, or every load of an experiment, does not hold    11 it cannot be told
  12 nothing failed (diagnose)    13 a threshold tripped (diff)    14 an audit does not pass
  15 an aim is missed (simulate, capacity), the engine ended (release, experiment)    16 requests never fit    17 livelock
  18 a release gate stays shut (gate)
  2 wrong input    3 unknown architecture or format    4 unreadable source
  74 the output cannot be written
"""


class _Commands(click.Group):
    """Loads a command's module when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(
            f"vramledger.cli.{cmd_name.replace('-', '_')}_command"
        ).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        named = bool(args) and not args[0].startswith("-")
        if named and args[0] not in _COMMANDS and not ctx.resilient_parsing:
            raise click.UsageError(
                f"No such command {args[0]!r}; commands are {', '.join(_COMMANDS)}.", ctx=ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(vramledger.__version__, prog_name="vramledger")
def cli() -> None:
    """Where every byte of accelerator memory goes when a language model is served."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, print its errors, return its exit code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in args
    try:
        return _run(args, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ReaderGone:
        abandon(sys.stdout)
        return PIPE_CLOSED
    except OutputError as problem:
        abandon(sys.stdout)
        write_message(problem.message)
        return problem.exit_code


def _run(args: list[str], *, as_json: bool) -> int:
    try:
        if _COMPLETION in os.environ:
            import vramledger.cli.completion  # noqa: F401 - tells click of our bash script
        result: Any = cli.main(args, prog_name="vramledger", standalone_mode=False, obj=tuple(args))
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as problem:
        if as_json:
            write_error("usage", problem.format_message(), {}, as_json=True)
        else:
            problem.show()
        return problem.exit_code
    except OutputError:
        raise
    except OSError as problem:
        # Readers turn theirs into SourceError; what is left is a help page that could not be written.
        raise OutputError(problem.strerror or str(problem)) from None
    except VramledgerError as problem:
        write_error(problem.code, problem.message, problem.facts, as_json=as_json)
        return problem.exit_code
    except UnicodeEncodeError as problem:
        # A name as the system has it, in a document: JSON holds no bytes.
        write_error(
            InputError.code,
            f"{shorter(problem.object)}: a name that is no UTF-8 text stands in no document",
            {},
            as_json=as_json,
        )
        return InputError.exit_code
    return result if isinstance(result, int) else 0
