"""Write deploy/grafana/vramledger.json: the gateway's dashboard, from the panels of tools/gateway_panels.py.

python -m tools.gateway_dashboard
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.gateway_panels import ROWS, Panel

PAGE = Path(__file__).parents[1] / "deploy" / "grafana" / "vramledger.json"
WIDTH, HEIGHT = 24, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}
OF_JOB = 'job=~"$job"'
OF_UPSTREAM = 'job=~"$job", upstream=~"$upstream"'
RATE = "$__rate_interval"


def filled(expression: str) -> str:
    return expression.replace("[job]", OF_JOB).replace("[upstream]", OF_UPSTREAM).replace("[rate]", RATE)


def dashboard() -> dict[str, Any]:
    return {
        "title": "vramledger gateway",
        "uid": "vramledger-gateway",
        "description": "Admission before LLM engines: what is let in, what the pool holds, and what users see.",
        "tags": ["vramledger", "llm"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "source",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    for name, label, query in (
        ("job", "Job", "label_values(vramledger_build_info, job)"),
        ("upstream", "Engine", 'label_values(vramledger_upstream_info{job=~"$job"}, upstream)'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        top, left, height = top + 1, 0, HEIGHT if panels[0].kind != "stat" else 4
        for panel in panels:
            if left + panel.width > WIDTH:
                top, left = top + height, 0
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": height})
            left += panel.width
        top += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place_),
                "datasource": SOURCE,
                "editorMode": "code",
                "expr": filled(expression),
                "legendFormat": legend,
                "range": True,
            }
            for place_, (expression, legend) in enumerate(panel.queries)
        ],
    }
    if panel.kind == "stat":
        shown["options"] = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    else:
        shown["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return shown


def page() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
