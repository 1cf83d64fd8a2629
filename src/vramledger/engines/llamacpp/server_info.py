"""What llama.cpp's server states of itself, and KV in use as its slots tell it.

Source: llama.cpp tools/server (server-context.cpp: /props, /slots; /v1/models).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramledger.engines.json_answer import count, json_answer, scalars, text
from vramledger.engines.metrics_table import InfoEndpoint, SampleEndpoint
from vramledger.measurement import Measurement, MeasurementSource
from vramledger.observation import Sample

MOST_SLOTS = 4096


def props(body: bytes, source: str) -> Measurement:
    """Model file, build, slots and the tokens of each. Raises InputError for a body that is no such answer."""
    answer = json_answer(body, source, kind=dict, engine="llama.cpp's server")
    generation = answer.get("default_generation_settings")
    generation = generation if isinstance(generation, dict) else {}
    found: dict[str, str | int | float | bool] = {}
    for name, value in (
        ("total_slots", count(answer.get("total_slots"))),
        ("n_ctx_slot", count(generation.get("n_ctx"))),
        ("file_type", text(answer.get("model_ftype"))),
    ):
        if value is not None:
            found[name] = value
    return Measurement(
        sources=(MeasurementSource(name=source, kind="endpoint"),),
        engine="llamacpp",
        engine_version=_build(text(answer.get("build_info"))),
        model=text(answer.get("model_path")),
        settings=tuple(found.items()),
    )


def models(body: bytes, source: str) -> Measurement:
    """Shape and size of the served file as `meta_...` settings: `meta_size` is the bytes of its tensors, each once."""
    answer = json_answer(body, source, kind=dict, engine="llama.cpp's server")
    data = answer.get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    meta = first.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    return Measurement(
        sources=(MeasurementSource(name=source, kind="endpoint"),),
        engine="llamacpp",
        model=text(first.get("id")),
        settings=scalars({f"meta_{name}": value for name, value in meta.items()}),
    )


def slots(body: bytes, source: str) -> Measurement:
    """How many slots there are and the tokens that each may hold."""
    found = _slots(body, source)
    lengths = [length for slot in found if (length := count(slot.get("n_ctx"))) is not None]
    settings: list[tuple[str, str | int | float | bool]] = [("total_slots", len(found))]
    if lengths:
        settings.append(("n_ctx_slot", min(lengths)))
    return Measurement(
        sources=(MeasurementSource(name=source, kind="endpoint"),),
        engine="llamacpp",
        settings=tuple(settings),
    )


def slot_samples(body: bytes, at_s: float, source: str) -> tuple[Sample, ...]:
    """Requests in work, and tokens in the KV cache: those of slots at work are in use, those that idle slots keep for the
    next prompt can be given up. Nothing of tokens where a slot at work does not tell them (builds before 2026).

    The pool's size is not in the answer: slots that share one pool each name all of it.
    """
    found = _slots(body, source)
    busy = [slot for slot in found if slot.get("is_processing") is True]
    values: list[tuple[str, int]] = [("running_requests", len(busy))]
    used = [count(slot.get("n_prompt_tokens")) for slot in busy]
    if all(tokens is not None for tokens in used):
        kept = [
            count(slot.get("n_prompt_tokens")) or 0 for slot in found if slot.get("is_processing") is not True
        ]
        values += [
            ("kv_used_tokens", sum(tokens or 0 for tokens in used)),
            ("kv_evictable_tokens", sum(kept)),
        ]
    return tuple(Sample(at_s=at_s, source=source, name=name, value=value) for name, value in values)


def _slots(body: bytes, source: str) -> list[Mapping[str, Any]]:
    answer = json_answer(body, source, kind=list, engine="llama.cpp's server")
    return [slot for slot in answer[:MOST_SLOTS] if isinstance(slot, dict)]


def _build(info: str | None) -> str | None:
    """ "b11549-abc" names build 11549; a build that does not know its number says 0."""
    number = (info or "").partition("-")[0].lstrip("b")
    return f"b{number}" if number.isascii() and number.isdigit() and int(number) and len(number) < 8 else None


_SOURCE = "llama.cpp tools/server"
ENDPOINTS: tuple[InfoEndpoint, ...] = (
    InfoEndpoint(
        path="/props", read=props, source=f"{_SOURCE}, 2024 on", signs=('"default_generation_settings"',)
    ),
    InfoEndpoint(
        path="/slots",
        read=slots,
        source=f"{_SOURCE}, where --slots is on",
        signs=('"n_ctx"', '"is_processing"'),
    ),
    InfoEndpoint(path="/v1/models", read=models, source=f"{_SOURCE}, 2025 on", signs=('"n_ctx_train"',)),
)
SAMPLE_ENDPOINTS: tuple[SampleEndpoint, ...] = (
    SampleEndpoint(path="/slots", read=slot_samples, source=f"{_SOURCE}, where --slots is on"),
)
