"""Where every byte of accelerator memory goes when a language model is served, and what that leaves for KV.

    from vramledger import plan

    answer = plan("path/to/model", "H100-80GB", tp=2, max_model_len="32k")
    answer.verdict.holds, answer.kv_pool.tokens.expected

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
    from vramledger.ledger import ByteRange, Entry, Lifetime, Owner, Peak, Phase, RankLedger, WeightFigures
    from vramledger.models.checkpoint import Checkpoint
    from vramledger.models.model import Model
    from vramledger.planning import load_model, plan
    from vramledger.pool import FloatRange, IntRange, KvGroup, KvPool
    from vramledger.search.ask import compare, fit, sweep
    from vramledger.verdict import Verdict

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
    "vramledger.verdict": ("Verdict",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ByteRange",
    "Checkpoint",
    "ConfigError",
    "Device",
    "DeviceError",
    "Entry",
    "Evidence",
    "EvidenceKind",
    "FlagError",
    "FloatRange",
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
    "RankLedger",
    "SourceError",
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
    "load_model",
    "plan",
    "sweep",
]


def __getattr__(name: str) -> object:
    """Load a public name from where it lives (PEP 562)."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
