"""From a command line to the settings of a simulation, with what they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from vramledger.errors import FlagError

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.hardware.catalogue import Device
    from vramledger.kvcache.blocks.layout import PoolLayout
    from vramledger.models.checkpoint import Checkpoint
    from vramledger.simulation.settings import Fleet, SchedulerSettings, SimulationSettings, Slo
    from vramledger.simulation.step_model import StepModel


class Asked(Struct, frozen=True, kw_only=True):
    """What `load_options` read."""

    model: str | None
    device: str | None
    engine: str
    headers: bool
    plan_file: str | None
    manifest_file: str | None
    blocks: int | None
    step_model: str | None
    watermark: float | None
    scheduling: str | None
    replicas: int
    router: str
    prefill_replicas: int
    link: str | None
    tool_wait: str
    host_link: str | None
    host_swap: str | None
    slo_ttft_ms: float | None
    slo_tpot_ms: float | None
    slo_latency_ms: float | None
    flags: Mapping[str, object]

    @property
    def sources(self) -> tuple[str | None, ...]:
        """The files that are read, None for those not given."""
        return (self.model, self.plan_file, self.manifest_file, self.step_model)

    @property
    def slo(self) -> Slo:
        from vramledger.simulation.settings import Slo

        return Slo(ttft_ms=self.slo_ttft_ms, tpot_ms=self.slo_tpot_ms, latency_ms=self.slo_latency_ms)


class Setup(Struct, frozen=True, kw_only=True):
    """Settings, the plan they come from and what told the number of blocks."""

    settings: SimulationSettings
    pool_from: str
    plan: Plan | None = None
    checkpoint: Checkpoint | None = None
    device: Device | None = None


def asked_of(options: Mapping[str, object]) -> Asked:
    """A command's options; what is none of the fields is a flag of the engine."""
    own = {name: options[name] for name in Asked.__struct_fields__ if name != "flags"}
    flags = {name: value for name, value in options.items() if name not in own}
    return Asked(**own, flags=flags)  # type: ignore[arg-type]


def setup_of(asked: Asked, *, follow_parents: bool = True) -> Setup:
    """The settings. Raises FlagError for options that contradict each other or leave something open, and what planning raises."""
    from msgspec.structs import replace

    from vramledger.simulation.settings import Scheduling, SimulationSettings, ToolWait

    plan, checkpoint, device = _planned(asked)
    if plan is None:
        layout, scheduler, pool_from = *_bare(asked), "--blocks"
    else:
        if plan.kv_pool is None or plan.kv_pool.num_blocks.expected < 1:
            raise FlagError(
                f"the plan leaves no KV pool to simulate: {plan.verdict.summary}", flag="blocks", value=None
            )
        from vramledger.simulation.from_plan import layout_of, scheduler_of

        model = None if checkpoint is None else checkpoint.model
        layout, scheduler = layout_of(plan, asked.blocks, model=model), scheduler_of(plan)
        blocks = plan.kv_pool.num_blocks
        pool_from = (
            "--blocks"
            if asked.blocks is not None
            else f"the plan's expected {blocks.expected:,} blocks ({blocks.low:,} to {blocks.high:,})"
        )
    changed: dict[str, object] = {}
    if asked.scheduling is not None:
        changed["scheduling"] = Scheduling(asked.scheduling)
    if asked.watermark is not None:
        changed["watermark"] = asked.watermark
    settings = SimulationSettings(
        layout=layout,
        scheduler=replace(scheduler, **changed),
        step=_step(asked, plan, checkpoint, device),
        fleet=_fleet(asked, plan),
        tool_wait=ToolWait(asked.tool_wait),
        slo=asked.slo,
        host_link_bytes_per_s=_size("host-link", asked.host_link),
        host_swap_bytes=_size("host-swap", asked.host_swap),
        follow_parents=follow_parents,
    )
    if settings.tool_wait is ToolWait.SWAP and not (
        settings.host_link_bytes_per_s and settings.host_swap_bytes
    ):
        raise FlagError("--tool-wait swap needs --host-link and --host-swap", flag="tool_wait", value="swap")
    return Setup(settings=settings, pool_from=pool_from, plan=plan, checkpoint=checkpoint, device=device)


def _planned(asked: Asked) -> tuple[Plan | None, Checkpoint | None, Device | None]:
    """A plan that is read or made, the model where one is named, and the device."""
    from vramledger.cli.document_files import manifest_from, plan_from
    from vramledger.cli.loading import load
    from vramledger.hardware.catalogue import find_device

    files = [name for name in (asked.plan_file, asked.manifest_file) if name is not None]
    if len(files) > 1:
        raise FlagError("give one of --plan and --manifest", flag="plan")
    checkpoint = None if asked.model is None else load(asked.model, headers=asked.headers)
    if files:
        _refuse_flags(asked)
        if asked.plan_file is not None:
            plan, _ = plan_from(asked.plan_file)
        else:
            from vramledger.documents.plan_reader import plan_of

            plan = plan_of(manifest_from(files[0]).document.plan)
        if checkpoint is not None and checkpoint.model.architecture != plan.inputs.architecture:
            raise FlagError(
                f"MODEL is a {checkpoint.model.architecture}, the plan is of {plan.inputs.model}, a {plan.inputs.architecture}",
                flag="model",
                value=asked.model,
            )
        device = _named_device(plan)
        _refuse_another_instance(asked, plan, device)
        return plan, checkpoint, device or (None if asked.device is None else find_device(asked.device))
    if checkpoint is None:
        if asked.blocks is None:
            raise FlagError("give MODEL and --device, --plan, --manifest, or --blocks", flag="model")
        return None, None, None
    if asked.device is None:
        raise FlagError("a plan of MODEL needs --device", flag="device")
    from vramledger.planning import plan as make_plan

    target = find_device(asked.device)
    made = make_plan(checkpoint, target, engine=asked.engine, **asked.flags)  # type: ignore[arg-type]
    return made, checkpoint, target


def _refuse_another_instance(asked: Asked, plan: Plan, device: Device | None) -> None:
    """A plan that is read is of one engine and device: others beside it are contradictions.

    An engine that is the default cannot be told from one that was not given, so it is let pass.
    """
    from vramledger.cli.options import DEFAULT_ENGINE
    from vramledger.engines import engine_name, find_engine
    from vramledger.hardware.catalogue import find_device

    if asked.engine != DEFAULT_ENGINE:
        _, version = find_engine(asked.engine)
        if engine_name(asked.engine) != plan.inputs.engine or version not in (
            None,
            plan.inputs.engine_version,
        ):
            raise FlagError(
                f"--engine {asked.engine} beside a plan of {plan.inputs.engine} {plan.inputs.engine_version}",
                flag="engine",
                value=asked.engine,
            )
    if asked.device is not None and device is not None and find_device(asked.device) != device:
        raise FlagError(
            f"--device {asked.device} beside a plan of {plan.inputs.device}; leave it out, or plan again for it",
            flag="device",
            value=asked.device,
        )


def _named_device(plan: Plan) -> Device | None:
    """The device that a plan was made for, where the catalogue has it."""
    from vramledger.errors import DeviceError
    from vramledger.hardware.catalogue import find_device

    try:
        return find_device(plan.inputs.device)
    except DeviceError:
        return None


def _refuse_flags(asked: Asked) -> None:
    given = [name for name, value in asked.flags.items() if value is not None]
    if given:
        raise FlagError(
            f"--{given[0].replace('_', '-')} belongs to a plan that is made here; --plan and --manifest bring their own",
            flag=given[0],
        )


def _bare(asked: Asked) -> tuple[PoolLayout, SchedulerSettings]:
    """A pool and a scheduler from --blocks and the flags alone."""
    from vramledger.cli.search_options import one_count
    from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
    from vramledger.simulation.settings import SchedulerSettings, Scheduling

    needed = ("block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
    taken = (*needed, "enable_chunked_prefill", "enable_prefix_caching", "async_scheduling")
    for name, value in asked.flags.items():
        if value is not None and name not in taken:
            raise FlagError(f"--{name.replace('_', '-')} belongs to a plan; --blocks has none", flag=name)
    missing = [name for name in needed if asked.flags.get(name) is None]
    if asked.step_model is None:
        missing.append("step_model")
    if missing:
        raise FlagError(
            f"--blocks without a plan needs {', '.join('--' + name.replace('_', '-') for name in missing)} too",
            flag=missing[0],
        )
    found = {name: one_count(name.replace("_", "-"), str(asked.flags[name])) for name in needed}
    # vLLM counts its null block among those it prints.
    reserved = int(asked.scheduling in (None, Scheduling.VLLM))
    blocks = asked.blocks or 0
    if blocks <= reserved:
        raise FlagError(
            f"--blocks {blocks} leaves none to give out: vLLM's null block is one of them",
            flag="blocks",
            value=blocks,
        )
    groups = (BlockGroup(block_tokens=found.pop("block_size")),)
    layout = PoolLayout(num_blocks=blocks, groups=groups, reserved_blocks=reserved)
    chunked, prefix = asked.flags.get("enable_chunked_prefill"), asked.flags.get("enable_prefix_caching")
    return layout, SchedulerSettings(
        max_num_seqs=found["max_num_seqs"],
        max_num_batched_tokens=found["max_num_batched_tokens"],
        max_model_len=found["max_model_len"],
        chunked_prefill=chunked is not False,
        prefix_caching=prefix is not False,
        async_scheduling=asked.flags.get("async_scheduling") is True,
    )


def _step(asked: Asked, plan: Plan | None, checkpoint: Checkpoint | None, device: Device | None) -> StepModel:
    if asked.step_model is not None:
        from vramledger.cli.document_files import read_file
        from vramledger.models.sources.bounded_file import shown
        from vramledger.simulation.step_file import read_step

        data, path = read_file(asked.step_model)
        return read_step(data, shown(path))
    if plan is None or checkpoint is None or device is None:
        raise FlagError(
            "a roofline needs MODEL and a device of the catalogue beside the plan; or give --step-model FILE",
            flag="step_model",
        )
    from vramledger.simulation.roofline import roofline_step

    return roofline_step(plan, checkpoint, device)


def _fleet(asked: Asked, plan: Plan | None) -> Fleet:
    from vramledger.simulation.settings import Fleet, Router

    link = _size("link", asked.link)
    if asked.prefill_replicas and not link:
        raise FlagError("--prefill-replicas needs --link: the KV goes over it", flag="link")
    if link and not asked.prefill_replicas:
        raise FlagError("--link is between prefill and decode replicas; give --prefill-replicas", flag="link")
    if link and plan is None:
        raise FlagError(
            "--prefill-replicas needs a plan, which says a token's bytes: give MODEL, --plan or --manifest",
            flag="prefill_replicas",
        )
    pool = None if plan is None else plan.kv_pool
    ranks = 1 if plan is None else plan.inputs.tp * plan.inputs.pp
    return Fleet(
        replicas=asked.replicas,
        router=Router(asked.router),
        prefill_replicas=asked.prefill_replicas,
        link_bytes_per_s=link,
        kv_bytes_per_token=0 if pool is None else pool.bytes_per_token * ranks,
    )


def _size(flag: str, text: str | None) -> int:
    from vramledger.units import parse_bytes

    try:
        return 0 if text is None else parse_bytes(text)
    except ValueError as problem:
        raise FlagError(f"--{flag}: {problem}", flag=flag, value=text) from None
