"""What llama.cpp calls its settings where it prints them, beside the names of its flags.

Source: llama.cpp src/llama-context.cpp (llama_context: n_ctx = ...), tools/server (props).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict

from vramledger.engines.llamacpp.flags import LlamaFlags

FLAG_OF: Mapping[str, str] = {
    "n_ctx": "ctx_size",
    "n_seq_max": "parallel",
    "n_parallel": "parallel",
    "total_slots": "parallel",
    "n_batch": "batch_size",
    "n_ubatch": "ubatch_size",
    "type_k": "cache_type_k",
    "type_v": "cache_type_v",
    "n_gpu_layers": "gpu_layers",
}
UNSHOWN: Mapping[str, object] = asdict(LlamaFlags())
LIMITS: frozenset[str] = frozenset()
WORDS: Mapping[str, Mapping[str, str]] = {
    "flash_attn": {"enabled": "on", "disabled": "off", "1": "on", "0": "off", "True": "on", "False": "off", "-1": "auto"}
}  # fmt: skip
EP_IS_SWITCH = False
