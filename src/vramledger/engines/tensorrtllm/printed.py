"""What TensorRT-LLM calls its settings where it prints them, beside the names of its flags.

Source: tensorrt_llm/llmapi/llm_args.py, cpp/tensorrt_llm/batch_manager (TrtGptModel...: maxTokensPerSequence and the like).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict

from vramledger.engines.tensorrtllm.flags import TrtLlmFlags

FLAG_OF: Mapping[str, str] = {
    "max_sequence_length": "max_seq_len",
    "maxSequenceLen": "max_seq_len",
    "maxBatchSize": "max_batch_size",
    "maxBeamWidth": "max_beam_width",
    "maxNumTokens": "max_num_tokens",
    "tokensPerBlock": "tokens_per_block",
    "kv_cache_free_gpu_memory_fraction": "free_gpu_memory_fraction",
    "freeGpuMemoryFraction": "free_gpu_memory_fraction",
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "moe_expert_parallel_size": "ep_size",
}
UNSHOWN: Mapping[str, object] = asdict(TrtLlmFlags())
LIMITS = frozenset({"max_tokens", "max_gpu_total_bytes"})
WORDS: Mapping[str, Mapping[str, str]] = {}
EP_IS_SWITCH = False
