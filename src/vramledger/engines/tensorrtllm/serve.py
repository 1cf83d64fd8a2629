"""TensorRT-LLM's server. Source: tensorrt_llm commands/serve.py: what it does not take as an argument belongs into the file of
--extra_llm_api_options, which a command given with --launch names."""

from __future__ import annotations

from vramledger.engines.serving import Serving

SERVING = Serving(
    program=("trtllm-serve", "{model}"),
    listen=("--host", "{host}", "--port", "{port}"),
    names={
        "tp_size": "--tp_size",
        "pp_size": "--pp_size",
        "ep_size": "--ep_size",
        "max_batch_size": "--max_batch_size",
        "max_num_tokens": "--max_num_tokens",
        "max_seq_len": "--max_seq_len",
        "max_beam_width": "--max_beam_width",
        "free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    },
    negates=False,
)
