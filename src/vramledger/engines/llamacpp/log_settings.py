"""Settings that llama.cpp and Ollama print, under llama.cpp's own names."""

from __future__ import annotations

import re

from vramledger.engines.llamacpp.log_state import State
from vramledger.engines.log_facts import StartUp, text_of
from vramledger.engines.printed_arguments import scalar
from vramledger.observation import Event

Settings = tuple[tuple[str, str | int | float | bool], ...]

_FLAG = re.compile(r"--([a-z][a-z0-9-]{1,40})(?: ([^- ][^ ]{0,200}))?")
_PAIR = re.compile(r"([A-Za-z]{2,30}):(\[[^\]]{0,400}\]|[^ }]{0,100})")
_COMMAND = {
    "ctx-size": "n_ctx", "batch-size": "n_batch", "ubatch-size": "n_ubatch", "n-gpu-layers": "n_gpu_layers",
    "parallel": "n_parallel", "flash-attn": "flash_attn", "kv-cache-type": "cache_type", "mmproj": "mmproj", "lora": "lora",
    "tensor-split": "tensor_split", "no-mmap": "no_mmap", "model": "model",
}  # fmt: skip
_REQUEST = {
    "Parallel": "n_parallel", "BatchSize": "n_batch", "FlashAttention": "flash_attn", "KvSize": "n_ctx",
    "KvCacheType": "cache_type", "UseMmap": "mmap",
}  # fmt: skip


def settings_of(start: StartUp, state: State) -> Settings:
    """What was printed, in this order where several say it: the context, the command of Ollama's runner, caches."""
    found: dict[str, str | int | float | bool] = {}
    for item in start.of(Event.SETTINGS):
        command, request = text_of(item, "command"), text_of(item, "request")
        pairs = _FLAG.findall(command) if command else _PAIR.findall(request) if request else []
        names = _COMMAND if command else _REQUEST
        for name, raw in pairs:
            if name in names and not (request and not raw):
                found[names[name]] = _value(raw) if raw else True
        offloaded, layers = item.values.get("offloaded_count"), item.values.get("layers_count")
        if isinstance(offloaded, int) and isinstance(layers, int):
            found["offloaded_layers"] = f"{offloaded}/{layers}"
    found |= {name: _value(raw) for name, raw in state.settings.items()}
    for item in start.of(Event.KV_POOL):
        for printed, name in (("key_type", "cache_type_k"), ("value_type", "cache_type_v")):
            kind = text_of(item, printed)
            if kind is not None:
                found[name] = kind
    quantization = text_of(start.first("quantization", Event.MODEL), "quantization")
    if quantization is not None:
        found["file_type"] = quantization.strip()
    return tuple(found.items())


def _value(raw: str) -> str | int | float | bool:
    if raw in ("true", "false"):
        return raw == "true"
    value = scalar(raw)
    return raw if value is None else value
