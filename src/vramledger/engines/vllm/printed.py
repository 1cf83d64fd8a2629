"""What vLLM calls its settings where it prints them, beside the names of its flags.

Source: vllm config/vllm.py (VllmConfig.__str__, "Initializing ... with config:"), entrypoints/utils.py ("non-default args").
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict

from vramledger.engines.vllm.flags import VllmFlags

FLAG_OF: Mapping[str, str] = {
    "max_seq_len": "max_model_len",
    "model_dtype": "dtype",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "scheduler_config.max_num_seqs": "max_num_seqs",
}
UNSHOWN: Mapping[str, object] = asdict(VllmFlags())
LIMITS = frozenset({"kv_cache_memory_bytes", "num_gpu_blocks_override", "cpu_offload_gb"})
WORDS: Mapping[str, Mapping[str, str]] = {}
EP_IS_SWITCH = True
