"""An engine's log module as its folder would have it, for readers that must not know any engine."""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.engines.log_pattern import line_pattern
from vramledger.measurement import Measurement
from vramledger.observation import Event, Observation

SIGNS = ("EngineCore", 'served by "spoken"')
PATTERNS = (
    line_pattern(
        Event.VERSION, "LLM engine (v", r"LLM engine \(v(?P<engine_version>[0-9.]+)\)", source="test"
    ),
    line_pattern(
        Event.WEIGHTS, "Model loading took", r"Model loading took (?P<weights_gib>NUM) GiB", source="test"
    ),
    line_pattern(Event.KV_POOL, "KV cache size:", r"KV cache size: (?P<kv_tokens>NUM) tokens", source="test"),
    line_pattern(
        Event.STEP,
        "KV cache usage:",
        r"Running: (?P<running_requests>NUM) reqs.*KV cache usage: (?P<kv_usage_percent>NUM)%",
        source="test",
    ),
    line_pattern(Event.READY, "Application startup complete", r"startup complete", source="test"),
)


def measured(observations: Iterable[Observation]) -> Measurement:
    found = {observation.event: observation for observation in observations}
    version = found.get(Event.VERSION)
    return Measurement(
        sources=(),
        engine="spoken",
        engine_version=None if version is None else str(version.values["engine_version"]),
    )
