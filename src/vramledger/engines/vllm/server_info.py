"""What vLLM answers of itself: /version, /v1/models, /server_info.

/server_info is served where VLLM_SERVER_DEV_MODE=1 (0.9 on); up to 0.10 it answers with the text that the log has as
well, later also as JSON. Source: entrypoints/openai/api_server.py, entrypoints/serve/dev/server_info/api_router.py,
entrypoints/openai/models/protocol.py, config/*.py for the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import msgspec

from vramledger.engines.metrics_table import InfoEndpoint
from vramledger.engines.vllm.log_settings import LONGEST_VALUE, Setting, is_secret, printed_settings
from vramledger.engines.vllm.pool_facts import budgeted_pool_bytes
from vramledger.errors import InputError
from vramledger.evidence import measured
from vramledger.ledger import ByteRange
from vramledger.measurement import MeasuredPool, Measurement, MeasurementSource
from vramledger.pool import FloatRange, IntRange

LONGEST_ANSWER = 4 * 2**20

# Whose plain fields are settings, in the order in which a name is taken.
_PARTS = (
    "model_config", "cache_config", "parallel_config", "scheduler_config", "load_config", "lora_config",
    "speculative_config", "attention_config", "offload_config", "kv_transfer_config",
)  # fmt: skip
_LISTS = ("cudagraph_capture_sizes", "served_model_name", "target_modules", "kv_cache_dtype_skip_layers")
_DEVICE = re.compile(r"GPU 0: ([^\n(]{1,100})")


def version(body: bytes, source: str) -> Measurement:
    """/version: the release."""
    answer = _answer(body, source, "/version")
    found = answer.get("version")
    if not isinstance(found, str) or not 0 < len(found) <= 100:
        raise InputError(f"{source}: /version answers without a version", source=source)
    return _measurement(source, engine_version=found)


def models(body: bytes, source: str) -> Measurement:
    """/v1/models: the model that is served first (adapters follow it) and the longest request it takes."""
    answer = _answer(body, source, "/v1/models")
    cards = answer.get("data")
    first = next(
        (card for card in cards if isinstance(card, dict) and not card.get("parent"))
        if isinstance(cards, list)
        else iter(()),
        None,
    )
    if first is None or first.get("owned_by") != "vllm":
        raise InputError(f"{source}: /v1/models is not that of a vLLM server", source=source)
    length = _count(first.get("max_model_len"))
    return _measurement(
        source,
        model=_short(first.get("root")) or _short(first.get("id")),
        settings=() if length is None else (("max_model_len", length),),
    )


def server_info(body: bytes, source: str) -> Measurement:
    """/server_info: the whole configuration."""
    answer = _answer(body, source, "/server_info")
    config = answer.get("vllm_config")
    if isinstance(config, str):
        settings = printed_settings(config)
        if "max_seq_len" in settings:
            settings["max_model_len"] = settings.pop("max_seq_len")
    elif isinstance(config, dict):
        settings = _settings(config)
    else:
        raise InputError(f"{source}: /server_info answers without a vllm_config", source=source)
    architecture = None
    if isinstance(config, dict):
        architecture = _first_text(_part(_part(config, "model_config"), "hf_config").get("architectures"))
    return _measurement(
        source,
        model=_text(settings, "model"),
        model_revision=_text(settings, "revision"),
        architecture=architecture,
        device=_device(answer, settings),
        tp=_count(settings.get("tensor_parallel_size")),
        pp=_count(settings.get("pipeline_parallel_size")),
        dp=_count(settings.get("data_parallel_size")),
        settings=tuple(sorted(settings.items())),
        pools=_pools(settings, source),
    )


def _settings(config: Mapping[str, Any]) -> dict[str, Setting]:
    out: dict[str, Setting] = {}
    for name in _PARTS:
        prefix = "speculative_" if name == "speculative_config" else ""
        _take(out, _part(config, name), prefix)
    compilation = _part(config, "compilation_config")
    for name in ("cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size", "mode", "level"):
        _take(out, {name if "cudagraph" in name else f"compilation_{name}": compilation.get(name)}, "")
    device = _part(config, "device_config")
    _take(out, {"device_config": device.get("device_type") or device.get("device")}, "")
    if "cache_dtype" in out:
        out["kv_cache_dtype"] = out["cache_dtype"]
    return out


def _take(out: dict[str, Setting], part: Mapping[str, Any], prefix: str) -> None:
    for field, value in part.items():
        name = prefix + field
        if name.startswith("_") or name in out or is_secret(name) or len(name) > 100:
            continue
        plain = _plain(value, name)
        if plain is not None:
            out[name] = plain


def _plain(value: object, name: str) -> Setting | None:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, str):
        return value if 0 < len(value) <= LONGEST_VALUE else None
    if isinstance(value, list) and name in _LISTS:
        return str(value)[:LONGEST_VALUE]
    return None


def _pools(settings: Mapping[str, Setting], source: str) -> tuple[MeasuredPool, ...]:
    blocks = _count(settings.get("num_gpu_blocks"))
    if not blocks:
        return ()
    tokens, asked = (
        _count(settings.get("kv_cache_size_tokens")),
        _count(settings.get("kv_cache_memory_bytes")),
    )
    concurrency = settings.get("kv_cache_max_concurrency")
    whole = asked and "num_gpu_blocks_override" not in settings
    return (
        MeasuredPool(
            evidence=measured(f"{source} /server_info cache_config"),
            bytes=budgeted_pool_bytes(ByteRange.exact(asked), blocks) if asked and whole else None,
            num_blocks=IntRange(blocks, blocks, blocks),
            block_size=_count(settings.get("block_size")),
            tokens=IntRange(tokens, tokens, tokens) if tokens else None,
            max_concurrency=(
                FloatRange(concurrency, concurrency, concurrency) if isinstance(concurrency, float) else None
            ),
            context_len=_count(settings.get("max_model_len")),
        ),
    )


def _device(answer: Mapping[str, Any], settings: Mapping[str, Setting]) -> str | None:
    """The first device as its driver names it (system_env, 0.11 on)."""
    environment = _part(answer, "system_env")
    for name in ("nvidia_gpu_models", "gpu_models"):
        found = _DEVICE.search(str(environment.get(name) or "")[:2_000])
        if found is not None:
            return found.group(1).strip()
    return "cpu" if settings.get("device_config") == "cpu" else None


def _measurement(source: str, **facts: Any) -> Measurement:
    return Measurement(sources=(MeasurementSource(name=source, kind="server-info"),), engine="vllm", **facts)


def _answer(body: bytes, source: str, path: str) -> dict[str, Any]:
    if len(body) > LONGEST_ANSWER:
        raise InputError(f"{source}: {path} answers with more than {LONGEST_ANSWER} bytes", source=source)
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as problem:
        raise InputError(f"{source}: {path} does not answer in JSON: {problem}", source=source) from None
    if not isinstance(found, dict):
        raise InputError(f"{source}: {path} answers with no object", source=source)
    return found


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _short(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_VALUE else None


def _text(settings: Mapping[str, Setting], name: str) -> str | None:
    return _short(settings.get(name))


def _first_text(values: object) -> str | None:
    items: Iterable[object] = values if isinstance(values, list) else ()
    return next((found for item in items if (found := _short(item))), None)


ENDPOINTS: tuple[InfoEndpoint, ...] = (
    InfoEndpoint(path="/version", read=version, source="vllm entrypoints/openai/api_server.py, all"),
    InfoEndpoint(
        path="/v1/models",
        read=models,
        source="vllm entrypoints/openai/models/protocol.py, all",
        signs=('"owned_by"', '"vllm"', '"max_model_len"'),
    ),
    InfoEndpoint(
        path="/server_info?config_format=json",
        read=server_info,
        source="vllm entrypoints/serve/dev/server_info/api_router.py, 0.9 on, with VLLM_SERVER_DEV_MODE=1",
        signs=('"vllm_config"',),
    ),
)
