"""`vramledger rollout`."""

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

_HELP = """What lies on devices and host while OLD is replaced by NEW, step by step, for every way to do it.

OLD and NEW are models as `vramledger plan` takes them; without NEW the same one is started anew. Engine flags are those
of both instances, or of the old one alone where --new-engine names another engine; --new sets those of the new one."""

_EPILOG = """\b
Examples:
  vramledger rollout ./model --device H100-80GB --max-model-len 32K
  vramledger rollout ./model-v1 ./model-v2 --device H200-141GB --tp 2 --replicas 4 --host-memory 512GiB
  vramledger rollout ./model --device H100-80GB --gpu-memory-utilization 0.45 --engine vllm==0.32.0 --new-engine vllm==0.33.0
  vramledger rollout ./model --device H100-80GB --new gpu_memory_utilization=0.4 --json
  vramledger rollout ./model --device H100-80GB --max-model-len 32K --new-engine sglang --new context_length=32K

\b
Exit codes: 0 some way holds, 10 none does, 11 none surely does and some cannot be told (0 with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_rollout(
    old: str,
    new: str | None,
    *,
    device: str,
    engine: str,
    new_engine: str | None,
    changes: tuple[str, ...],
    replicas: int,
    host_memory: str | None,
    headers: bool,
    as_json: bool,
    exit_zero: bool,
    **flags: object,
) -> int:
    """Plan both instances, lay every way out, and tell whether one holds."""
    from vramledger.cli.exit_codes import verdict_code
    from vramledger.cli.loading import load
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.engines import engine_name, find_lifecycle
    from vramledger.hardware.catalogue import find_device
    from vramledger.lifecycle.rollout import rollouts
    from vramledger.planning import plan

    host_total_bytes = None if host_memory is None else _size(host_memory)
    changed = _changes(changes, new_engine or engine)
    kept = flags if engine_name(new_engine or engine) == engine_name(engine) else {}
    target = find_device(device)
    checkpoint = load(old, headers=headers)
    successor = checkpoint if new is None else load(new, headers=headers)
    before = plan(checkpoint, target, engine=engine, **flags)  # type: ignore[arg-type]
    after = plan(successor, target, engine=new_engine or engine, **{**kept, **changed})  # type: ignore[arg-type]
    sleeper, starter = find_lifecycle(before.inputs.engine), find_lifecycle(after.inputs.engine)
    found = rollouts(
        before,
        after,
        levels=() if sleeper is None else sleeper.sleep_levels(before.inputs.engine_version),
        free_bytes_required=0 if starter is None else starter.free_bytes_required(after),
        host_total_bytes=host_total_bytes,
        replicas=replicas,
    )
    if as_json:
        from vramledger.report.rollout_document import rollouts_document

        write_document(rollouts_document(before, after, found, replicas=replicas))
    else:
        from vramledger.report.rollout_text import rollout_lines

        write_page(rollout_lines(before, after, found, replicas=replicas, width=page_width()))
    return verdict_code((item.holds for item in found), exit_zero=exit_zero)


def _size(text: str) -> int:
    from vramledger.errors import FlagError
    from vramledger.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as problem:
        raise FlagError(f"--host-memory: {problem}", flag="host_memory", value=text) from None


def _changes(texts: tuple[str, ...], engine: str) -> dict[str, object]:
    """NAME=VALUE pairs by the name of the flag that NAME or an alias means. Raises FlagError for a text without an
    equals sign and for an engine or a flag that is unknown."""
    from vramledger.engines import engine_name, find_engine
    from vramledger.engines.option import known_names, plain_name, unknown_flag
    from vramledger.errors import FlagError

    known = known_names(find_engine(engine)[0].OPTIONS)
    found: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise FlagError(
                f"--new {text!r} is not NAME=VALUE, such as max_model_len=32K", flag="new", value=text
            )
        option = known.get(plain_name(name))
        if option is None:
            raise unknown_flag(plain_name(name), known, engine_name(engine))
        found[option.name] = value
    return found


command = EngineCommand(
    "rollout",
    callback=run_rollout,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["old"], metavar="OLD"),
        click.Argument(["new"], metavar="[NEW]", required=False),
        device_option(),
        engine_option("Engine of the old instance; its newest version unless one is named."),
        GroupedOption(
            ["new_engine", "--new-engine"],
            metavar="NAME[==VERSION]",
            help="Engine of the new instance, where it is another; with its own flags by --new.",
            group=GENERAL,
        ),
        GroupedOption(
            ["changes", "--new"],
            multiple=True,
            metavar="NAME=VALUE",
            help="A flag of the new instance that differs; may be given again.",
            group=GENERAL,
        ),
        GroupedOption(
            ["replicas", "--replicas"],
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
            help="Instances in service, replaced one after another.",
            group=GENERAL,
        ),
        GroupedOption(
            ["host_memory", "--host-memory"],
            metavar="SIZE",
            help="Host memory for both instances, such as 512GiB.",
            group=GENERAL,
        ),
        headers_option(),
        json_option(),
        exit_zero_option(),
    ],
)
