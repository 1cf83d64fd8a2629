"""The JSON Schemas of what is published, made from the documents' own types.

`python -m vramledger.report.schema FOLDER` writes them; `schema/` of the repository holds the result.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

_DOCUMENTS = {
    "plan": ("vramledger.documents.plan", "PlanDocument"),
    "measurement": ("vramledger.documents.measurement", "MeasurementDocument"),
    "reconciliation": ("vramledger.reconciliation.document", "ReconciliationDocument"),
    "model": ("vramledger.report.model_document", "ModelDocument"),
    "builtin_models": ("vramledger.report.builtin_models_document", "BuiltinModelsDocument"),
    "comparison": ("vramledger.report.comparison_document", "ComparisonDocument"),
    "fit": ("vramledger.report.fit_document", "FitDocument"),
    "sweep": ("vramledger.report.fit_document", "SweepDocument"),
    "devices": ("vramledger.report.devices_document", "DevicesDocument"),
    "rollout": ("vramledger.report.rollout_document", "RolloutsDocument"),
    "adapters": ("vramledger.report.adapters_document", "AdaptersDocument"),
    "layout": ("vramledger.report.layout_document", "LayoutDocument"),
    "kv": ("vramledger.report.kv_document", "KvDocument"),
    "workload": ("vramledger.report.workload_document", "WorkloadDocument"),
    "snapshot": ("vramledger.report.snapshot_document", "SnapshotDocument"),
    "diagnosis": ("vramledger.report.diagnosis_document", "DiagnosisDocument"),
    "manifest": ("vramledger.manifest.document", "ManifestDocument"),
    "facts": ("vramledger.manifest.declared", "Facts"),
    "diff": ("vramledger.report.diff_document", "DiffDocument"),
    "audit": ("vramledger.report.audit_document", "AuditDocument"),
    "gate": ("vramledger.report.gate_document", "GateDocument"),
    "series": ("vramledger.report.series_document", "SeriesDocument"),
    "moment": ("vramledger.report.moment_document", "MomentDocument"),
    "simulation": ("vramledger.report.simulation_document", "SimulationDocument"),
    "capacity": ("vramledger.report.capacity_document", "CapacityDocument"),
    "experiment": ("vramledger.experiment.result", "Experiment"),
    "log": ("vramledger.report.log_document", "LogDocument"),
    "error": ("vramledger.report.error_document", "ErrorDocument"),
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_names() -> tuple[str, ...]:
    """Documents that have a schema."""
    return tuple(_DOCUMENTS)


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of one document. Raises KeyError for a name that is not of `schema_names`."""
    import msgspec

    module, type_name = _DOCUMENTS[name]
    document = getattr(importlib.import_module(module), type_name)
    # Defaults that are tuples become the lists they are in JSON.
    schema = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(document)))
    return {"$schema": _DIALECT, "title": f"vramledger {name}, version 1", **schema}


def schema_text(name: str) -> str:
    """The schema as it is committed and printed."""
    import json

    return json.dumps(schema_of(name), indent=2, sort_keys=False) + "\n"


def schema_file(name: str) -> str:
    """The name of its file in `schema/`."""
    return f"{name}-v1.schema.json"


def write_schemas(folder: Path) -> None:
    """Write every schema into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in schema_names():
        (folder / schema_file(name)).write_text(schema_text(name), encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "schema"))
