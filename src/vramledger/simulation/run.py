"""A workload replayed over a pool: by the compiled simulator where it can, else by the readable one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from vramledger.admission.protocol import AdmissionPolicy
from vramledger.errors import InputError
from vramledger.simulation.outcome import RequestOutcome, Run
from vramledger.simulation.reference.driver import Driver
from vramledger.simulation.settings import Scheduling, SimulationSettings, ToolWait
from vramledger.simulation.time_bounds import within_clock

if TYPE_CHECKING:
    from vramledger.simulation.outcome_columns import OutcomeColumns
    from vramledger.workload.columns import Workload

How = Literal["auto", "compiled", "reference"]


def simulate(
    workload: Workload,
    settings: SimulationSettings,
    *,
    how: How = "auto",
    samples: int = 512,
    sink: Callable[[OutcomeColumns], None] | None = None,
    progress: Callable[[int], None] | None = None,
    policies: Callable[[int], AdmissionPolicy] | None = None,
) -> tuple[Run, OutcomeColumns | None]:
    """Runs a workload. Returns the run and the outcomes of its requests, in order of the workload.

    With `sink` the outcomes are given to it in batches instead, and None is returned in their place. `progress` is called with
    the number of requests that have ended. `policies` makes the admission policy of each replica.

    `how` chooses between the two simulators, whose results are equal bit for bit. "auto" takes the compiled one where it covers the
    settings and the requests, except for workloads so small that making machine code would take longer; where it does not cover
    them the run's notes say why. Raises InputError for settings that contradict themselves, and where the extra is missing.
    """
    check(settings)
    workload = within_clock(workload)
    notes: tuple[str, ...] = ()
    if how != "reference":
        from vramledger.simulation.compiled.choice import simulate_compiled_or_why_not

        answer = simulate_compiled_or_why_not(
            workload,
            settings,
            samples=samples,
            sink=sink,
            progress=progress,
            has_policies=policies is not None,
            must=how == "compiled",
        )
        if not isinstance(answer, str):
            return answer
        notes = (answer,) if answer else ()
    run, outcomes = simulate_by_reference(
        workload, settings, samples=samples, sink=sink, progress=progress, policies=policies
    )
    return replace(run, notes=run.notes + notes), outcomes


def simulate_by_reference(
    workload: Workload,
    settings: SimulationSettings,
    *,
    samples: int = 512,
    sink: Callable[[OutcomeColumns], None] | None = None,
    progress: Callable[[int], None] | None = None,
    policies: Callable[[int], AdmissionPolicy] | None = None,
) -> tuple[Run, OutcomeColumns | None]:
    """The readable simulator: holds the whole workload in memory."""
    from vramledger.simulation.outcome_columns import outcome_columns
    from vramledger.workload.columns import BATCH

    outcomes: list[RequestOutcome] = []

    def ended(outcome: RequestOutcome) -> None:
        outcomes.append(outcome)
        if progress is not None:
            progress(len(outcomes))

    driver = Driver(
        settings,
        block_tokens=workload.header.block_tokens,
        samples=samples,
        policies=policies,
        ended=ended,
    )
    run = driver.run(workload.requests())
    outcomes.sort(key=lambda outcome: outcome.number)
    if sink is None:
        return run, outcome_columns(outcomes)
    for start in range(0, len(outcomes), BATCH):
        sink(outcome_columns(outcomes[start : start + BATCH]))
    return run, None


STEPS_FOR_WHOLE_PROMPTS = (
    Scheduling.SGLANG,
    Scheduling.TRTLLM_NO_EVICT,
    Scheduling.TRTLLM_MAX_UTILIZATION,
    Scheduling.STATIC_BATCH,
)
"""Without chunked prefill SGLang computes a prompt that is longer than a step in one, and TensorRT-LLM refuses it alone; others do
not start where the model allows such prompts."""


def check(settings: SimulationSettings) -> None:
    """Raises InputError where settings contradict themselves."""
    for message in _contradictions(settings):
        raise InputError(message)


def _contradictions(settings: SimulationSettings) -> Iterator[str]:
    scheduler, fleet, layout = settings.scheduler, settings.fleet, settings.layout
    if not layout.groups or layout.usable_blocks < 1:
        yield f"a pool of {layout.num_blocks} blocks, {layout.reserved_blocks} of them reserved, has no block to give out"
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        if getattr(scheduler, name) < 1:
            yield f"{name} is {getattr(scheduler, name)}: at least 1 is needed"
    if not 0 <= scheduler.watermark < 1:
        yield f"watermark is {scheduler.watermark}: a share of the blocks from 0 to below 1 is needed"
    is_whole = not scheduler.chunked_prefill and scheduler.scheduling not in STEPS_FOR_WHOLE_PROMPTS
    if is_whole and scheduler.max_num_batched_tokens < scheduler.max_model_len:
        yield (
            f"max_num_batched_tokens is {scheduler.max_num_batched_tokens} and max_model_len {scheduler.max_model_len}: "
            "without chunked prefill a prompt of the full length must fit one step"
        )
    if scheduler.scheduling is Scheduling.SGLANG and all(group.is_constant for group in layout.groups):
        yield "a pool of states alone: how SGLang admits requests there is not simulated"
    if scheduler.scheduling is Scheduling.LLAMACPP and settings.tool_wait is not ToolWait.RELEASE:
        yield f"tool_wait is {settings.tool_wait.value}: llama.cpp's slots keep what they hold until another request takes them"
    if fleet.prefix_load_percent < 100:
        yield f"prefix_load_percent is {fleet.prefix_load_percent}: at least 100 is needed, or no replica would qualify when all have the same load"
    if fleet.prefill_replicas and settings.tool_wait is not ToolWait.RELEASE:
        yield (
            f"tool_wait is {settings.tool_wait.value} and {fleet.prefill_replicas} replicas only prefill: a later turn's prompt is "
            "computed there, and what is kept of it lies on the others"
        )
    if settings.tool_wait is ToolWait.SWAP and not (
        settings.fleet.kv_bytes_per_token or settings.layout.block_bytes
    ):
        yield "tool_wait is swap and nothing says how many bytes a token's KV has: give kv_bytes_per_token"
    if settings.tool_wait is not ToolWait.RELEASE and not scheduler.prefix_caching:
        yield f"tool_wait is {settings.tool_wait.value} and prefix caching is off: a later turn would find nothing of what is kept"
    if not 0 <= fleet.prefill_replicas < fleet.replicas:
        yield f"{fleet.prefill_replicas} of {fleet.replicas} replicas only prefill: none is left to decode"
    if settings.step.step_ps(tokens=1, decode_seqs=1, kv_tokens=0, pairs=0) < 1:
        yield "a step takes no time: the step model's constants are all 0"
