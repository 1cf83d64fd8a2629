"""What the page offers to choose from: models, devices, engines with their versions and flags."""

from __future__ import annotations

from functools import cache

import msgspec

import vramledger
from vramledger.engines import engine_names, find_engine
from vramledger.hardware.catalogue import devices
from vramledger.models.builtin import names
from vramledger.search.terms import KV_LOSS, terms_of
from vramledger.search.weights import FORMATS
from vramledger.simulation.admission import Choice
from vramledger.simulation.settings import Router, Scheduling, ToolWait
from vramledger.workload.builtin import workloads


@cache
def catalogue() -> bytes:
    """As JSON."""
    return msgspec.json.encode(
        {
            "version": vramledger.__version__,
            "models": names(),
            "workloads": [
                {"name": each.name, "about": each.about, "is_trace": each.is_trace} for each in workloads()
            ],
            "simulation": {
                "admission": [each.value for each in Choice],
                "tool_wait": [each.value for each in ToolWait],
                "scheduling": [each.value for each in Scheduling],
                "router": [each.value for each in Router],
            },
            "devices": [{"name": each.name, "total_bytes": each.total_bytes} for each in devices()],
            "engines": [_engine(name) for name in engine_names()],
            "weights": [{"name": name, "help": each.help} for name, each in FORMATS.items()],
            "kv": [{"name": name} for name in KV_LOSS],
        }
    )


def _engine(name: str) -> dict[str, object]:
    """`terms` are the engine's flags for the questions that every engine is asked."""
    rules, _ = find_engine(name)
    options = [
        {
            "name": each.name,
            "flag": each.flag,
            "kind": each.kind,
            "group": each.group,
            "help": each.help,
            "choices": each.choices,
        }
        for each in rules.OPTIONS
    ]
    terms = terms_of(name)
    common = {
        "tp": terms.tp,
        "pp": terms.pp,
        "ep": terms.ep,
        "context": terms.context,
        "sequences": terms.sequences,
        "kv": terms.kv,
        "kv_formats": tuple(terms.kv_names.values()),
    }
    return {"name": name, "options": options, "terms": common}
