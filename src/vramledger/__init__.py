"""Where every byte of accelerator memory goes when a language model is served, and what that leaves for KV.

    from vramledger import plan

    answer = plan("path/to/model", "H100-80GB", tp=2, max_model_len="32k")
    answer.verdict.holds, answer.kv_pool.tokens.expected

What a workload does to that pool (needs `vramledger[simulation]`):

    from vramledger import (
        SimulationSettings, Slo, find_device, layout_of, load_model, read_workload, roofline_step, scheduler_of, simulate, summary_of,
    )

    slo = Slo(ttft_ms=1000)
    settings = SimulationSettings(
        layout=layout_of(answer),
        scheduler=scheduler_of(answer),
        step=roofline_step(answer, load_model("path/to/model"), find_device("H100-80GB")),
        slo=slo,
    )
    run, outcomes = simulate(read_workload("trace.csv"), settings)
    summary_of(outcomes, slo).all.goodput

Importing the package loads nothing else; each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramledger.answer import Plan, PlanInputs
    from vramledger.errors import (
        ConfigError,
        DeviceError,
        FlagError,
        HeaderError,
        InputError,
        SourceError,
        UnknownArchitecture,
        UnknownFormat,
        VramledgerError,
    )
    from vramledger.evidence import Evidence, EvidenceKind
    from vramledger.hardware.catalogue import Device, devices, find_device
    from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
    from vramledger.kvcache.blocks.pool import BlockPool
    from vramledger.ledger import ByteRange, Entry, Lifetime, Owner, Peak, Phase, RankLedger, WeightFigures
    from vramledger.models.checkpoint import Checkpoint
    from vramledger.models.model import Model
    from vramledger.planning import load_model, plan
    from vramledger.pool import FloatRange, IntRange, KvGroup, KvPool
    from vramledger.search.ask import compare, fit, sweep
    from vramledger.simulation.from_plan import layout_of, scheduler_of
    from vramledger.simulation.measures import summary_of
    from vramledger.simulation.roofline import roofline_step
    from vramledger.simulation.run import simulate
    from vramledger.simulation.settings import SchedulerSettings, Scheduling, SimulationSettings, Slo
    from vramledger.simulation.step_model import StepModel
    from vramledger.verdict import Verdict
    from vramledger.workload.cohort import Cohort
    from vramledger.workload.cohort_file import read_cohorts
    from vramledger.workload.columnar.reading import read_workload
    from vramledger.workload.columnar.sampling import sample_workload
    from vramledger.workload.request import Request

__version__ = "0.1.0"

_HOMES = {
    "vramledger.answer": ("Plan", "PlanInputs"),
    "vramledger.errors": (
        "ConfigError",
        "DeviceError",
        "FlagError",
        "HeaderError",
        "InputError",
        "SourceError",
        "UnknownArchitecture",
        "UnknownFormat",
        "VramledgerError",
    ),
    "vramledger.evidence": ("Evidence", "EvidenceKind"),
    "vramledger.hardware.catalogue": ("Device", "devices", "find_device"),
    "vramledger.ledger": (
        "ByteRange",
        "Entry",
        "Lifetime",
        "Owner",
        "Peak",
        "Phase",
        "RankLedger",
        "WeightFigures",
    ),
    "vramledger.models.checkpoint": ("Checkpoint",),
    "vramledger.models.model": ("Model",),
    "vramledger.planning": ("load_model", "plan"),
    "vramledger.pool": ("FloatRange", "IntRange", "KvGroup", "KvPool"),
    "vramledger.search.ask": ("compare", "fit", "sweep"),
    "vramledger.kvcache.blocks.layout": ("BlockGroup", "GroupKind", "PoolLayout"),
    "vramledger.kvcache.blocks.pool": ("BlockPool",),
    "vramledger.simulation.from_plan": ("layout_of", "scheduler_of"),
    "vramledger.simulation.measures": ("summary_of",),
    "vramledger.simulation.roofline": ("roofline_step",),
    "vramledger.simulation.run": ("simulate",),
    "vramledger.simulation.settings": ("SchedulerSettings", "Scheduling", "SimulationSettings", "Slo"),
    "vramledger.simulation.step_model": ("StepModel",),
    "vramledger.workload.cohort": ("Cohort",),
    "vramledger.workload.cohort_file": ("read_cohorts",),
    "vramledger.workload.columnar.reading": ("read_workload",),
    "vramledger.workload.columnar.sampling": ("sample_workload",),
    "vramledger.workload.request": ("Request",),
    "vramledger.verdict": ("Verdict",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BlockGroup",
    "BlockPool",
    "ByteRange",
    "Checkpoint",
    "Cohort",
    "ConfigError",
    "Device",
    "DeviceError",
    "Entry",
    "Evidence",
    "EvidenceKind",
    "FlagError",
    "FloatRange",
    "GroupKind",
    "HeaderError",
    "InputError",
    "IntRange",
    "KvGroup",
    "KvPool",
    "Lifetime",
    "Model",
    "Owner",
    "Peak",
    "Phase",
    "Plan",
    "PlanInputs",
    "PoolLayout",
    "RankLedger",
    "Request",
    "SchedulerSettings",
    "Scheduling",
    "SimulationSettings",
    "Slo",
    "SourceError",
    "StepModel",
    "UnknownArchitecture",
    "UnknownFormat",
    "Verdict",
    "VramledgerError",
    "WeightFigures",
    "__version__",
    "compare",
    "devices",
    "find_device",
    "fit",
    "layout_of",
    "load_model",
    "plan",
    "read_cohorts",
    "read_workload",
    "roofline_step",
    "sample_workload",
    "scheduler_of",
    "simulate",
    "summary_of",
    "sweep",
]


def __getattr__(name: str) -> object:
    """Load a public name from where it lives (PEP 562). Raises ImportError naming the extra that it needs and is not installed."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value: object = getattr(import_module(home), name)
    except ModuleNotFoundError as problem:
        raise ImportError(
            f"vramledger.{name} needs {problem.name}, which is not installed: pip install 'vramledger[simulation]'",
            name=problem.name,
        ) from problem
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
