"""Asks llama.cpp for its own no-allocation measure of one file; runs in the environment that has the library.

    python dry_run.py MODEL.gguf '{"n_ctx": 8192, "n_seq_max": 4, "flash_attn": 1}'

Prints one JSON object: bytes of model, context and compute on the host, and the lines logged. Needs only the
standard library and the `xllamacpp` package, whose shared library exports llama.cpp's C and C++ symbols.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import struct
import sys
from pathlib import Path

_ROOM = 1024
_ERROR = 4
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
# llama_context_params, include/llama.h: offsets of what is set here, and of what is checked before.
_OFFSETS = {
    "n_ctx": 0,
    "n_batch": 4,
    "n_ubatch": 8,
    "n_seq_max": 12,
    "n_outputs_max": 20,
    "flash_attn": 52,
    "type_k": 104,
    "type_v": 108,
}
_MODEL_SWITCHES = 72
"""vocab_only, check_tensors, use_extra_bufts, ...: repacked weights are left out, which the measure does not count."""
_SWITCHES = bytes([0, 1, 1, 1, 1, 0])
"""embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified by default: where they lie tells the layout."""
_MEASURE = "_Z29common_get_device_memory_dataPKcPK18llama_model_paramsPK20llama_context_paramsRSt6vectorIP19ggml_backend_deviceSaIS9_EERjSD_SD_14ggml_log_level"


def library() -> Path:
    """The shared library of the installed package. Raises RuntimeError where there is none."""
    found = importlib.util.find_spec("xllamacpp")
    files = sorted(Path(found.origin).parent.glob("xllamacpp*.so")) if found and found.origin else []
    if not files:
        raise RuntimeError("xllamacpp is not installed")
    return files[0]


def measure(model: str, settings: dict[str, int]) -> dict[str, object]:
    """Model, context and compute bytes under the context parameters named in `settings`."""
    engine = ctypes.CDLL(str(library()))
    lines: list[str] = []
    pieces: list[str] = []

    def log(level: int, text: bytes, _data: object) -> None:
        if level == _ERROR:
            # An error ends the process, and what was logged is lost with it.
            sys.stderr.write(text.decode("utf-8", "replace"))
        pieces.append(text.decode("utf-8", "replace"))
        if pieces[-1].endswith("\n"):
            lines.append("".join(pieces).rstrip())
            pieces.clear()

    callback = _LOG(log)
    engine.llama_log_set(callback, None)
    engine.llama_backend_init()
    model_params, context_params = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
    engine.llama_model_default_params.restype = None
    engine.llama_context_default_params.restype = None
    engine.llama_model_default_params(model_params)
    engine.llama_context_default_params(context_params)
    if model_params.raw[_MODEL_SWITCHES : _MODEL_SWITCHES + 6] != bytes([0, 0, 1, 0, 0, 0]):
        raise RuntimeError("llama_model_params has another layout than the one known here")
    model_params[_MODEL_SWITCHES + 2] = b"\0"
    _set(context_params, settings)
    result, devices = ctypes.create_string_buffer(24), ctypes.create_string_buffer(24)
    counts = [ctypes.byref(ctypes.c_uint32()) for _ in range(3)]
    ask = getattr(engine, _MEASURE)
    ask.restype = None
    ask(result, model.encode(), model_params, context_params, devices, *counts, 1)
    begin, end, _ = struct.unpack("<QQQ", result.raw)
    figures = struct.unpack(f"<{(end - begin) // 8}q", ctypes.string_at(begin, end - begin))
    if not figures or len(figures) % 5:
        raise RuntimeError(f"the measure has {len(figures)} figures, not five a device")
    _, _, weights, context, compute = figures[-5:]
    kept = [
        line for line in lines if any(word in line for word in ("size =", "n_ctx", "flash_attn", "KV cache"))
    ]
    return {"model_bytes": weights, "context_bytes": context, "compute_bytes": compute, "lines": kept}


def _set(buffer: ctypes.Array[ctypes.c_char], settings: dict[str, int]) -> None:
    raw = buffer.raw
    if (
        struct.unpack_from("<ii", raw, _OFFSETS["type_k"]) != (1, 1)
        or struct.unpack_from("<i", raw, _OFFSETS["flash_attn"])[0] != -1
    ):
        raise RuntimeError("llama_context_params has another layout than the one known here")
    switches = raw.find(_SWITCHES, _OFFSETS["type_v"] + 4)
    if not 0 < switches < 200:
        raise RuntimeError("the switches of llama_context_params were not found")
    struct.pack_into(
        "<??", buffer, switches + 4, bool(settings.get("swa_full", 0)), bool(settings.get("kv_unified", 0))
    )
    for name, value in settings.items():
        if name in _OFFSETS:
            struct.pack_into("<i", buffer, _OFFSETS[name], value)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], json.loads(sys.argv[2]))))
