"""The files of an experiment's folder, by name."""

from __future__ import annotations

JOURNAL = "experiment.json"
RECORDS = "records"
"""A folder with a Parquet file for each stage."""
SERIES = "series.jsonl"
ENGINE_LOG = "engine.log"
STEP = "step.json"
MEASUREMENT = "measurement.json"
RECONCILIATION = "reconciliation.json"
MANIFEST = "manifest.json"
AUDIT = "audit.json"
REPORT = "report.html"
