"""Our cache of a case beside the library's, figure by figure."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tools.conformance.compare import Field

from vramledger import load_model
from vramledger.engines.transformers.cache import cache_rules, size
from vramledger.engines.transformers.geometry import geometry
from vramledger.engines.transformers.options import flags_from
from vramledger.engines.transformers.settings import resolve
from vramledger.engines.transformers.sizing import requests_within
from vramledger.engines.transformers.tp_plan import kv_heads_held
from vramledger.engines.transformers.version import Rules, parse_version
from vramledger.engines.transformers.weights import rank_weights
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import ByteRange
from vramledger.models.checkpoint import Checkpoint

DEVICE = "H100-80GB"


@cache
def _checkpoint(text: str) -> Checkpoint:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "config.json"
        path.write_text(text, encoding="utf-8")
        return load_model(path, headers=False)


def compare(case: dict[str, Any], theirs: dict[str, Any], version: str) -> list[Field]:
    """Every figure both sides give. Raises VramledgerError where our rules refuse the case."""
    config = {key: value for key, value in case["config"].items() if key != "quantization_config"}
    checkpoint = _checkpoint(json.dumps(config))
    flags = flags_from(case["args"])
    shape = geometry(checkpoint.model)
    settings = resolve(checkpoint.model, shape, find_device(DEVICE), parse_version(version), flags)
    held = kv_heads_held(checkpoint.model, shape.kv_heads, flags.tp_size)
    rules = cache_rules(settings, shape, held)
    found = size(rules, settings, ByteRange.exact(case["total_bytes"] - case["used_bytes"])).expected
    # Up to 5.12 the library starts with no block at all.
    within = found.footprint_bytes <= found.available_bytes
    starts = within if settings.version.rules in (Rules.PAIRED, Rules.CAPPED) else found.fits
    out = []
    # Older releases tie no weights on the meta device.
    weighs = settings.version.rules is Rules.SECTORS and flags.tp_size == 1 and flags.dtype == "auto"
    if weighs and "weights" in theirs:
        out.append(_field("weight bytes", rank_weights(checkpoint, settings).total_bytes, theirs["weights"]))
    if "refused" in theirs:
        return [*out, Field(name="refused", ours=str(not starts), theirs="True")]
    if not starts:
        return [*out, Field(name="refused", ours="True", theirs="False")]
    out += [
        _field("batch tokens", found.batch_tokens, theirs["batch_tokens"]),
        _field("sectors or blocks", found.units, theirs["units"]),
        _field("footprint", found.footprint_bytes, theirs["footprint"]),
        _field("cache bytes", (found.units + rules.extra_units) * rules.unit_bytes, theirs["cache_bytes"]),
    ]
    if "unit_bytes" in theirs:
        out += [
            _field("sector bytes", rules.unit_bytes, theirs["unit_bytes"]),
            _field("sector tokens", rules.unit_tokens, theirs["unit_tokens"]),
            _field(
                "whole blocks",
                found.units * rules.unit_bytes // rules.whole_block_bytes,
                theirs["whole_blocks"],
            ),
            Field(
                name="requests of each length",
                ours=str(
                    [requests_within(rules.groups, tokens, found.units, 1024) for tokens in case["lengths"]]
                ),
                theirs=str(theirs["requests"]),
            ),
        ]
    return out


def _field(name: str, ours: int, theirs: int) -> Field:
    return Field(name=name, ours=f"{ours:,}", theirs=f"{int(theirs):,}")
