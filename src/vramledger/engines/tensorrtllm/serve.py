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
    plan_only=frozenset({"quantization"}),
    in_file={
        "enable_attention_dp": "enable_attention_dp",
        "capacity_scheduler_policy": "scheduler_config.capacity_scheduler_policy",
        "free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
        "max_tokens": "kv_cache_config.max_tokens",
        "max_gpu_total_bytes": "kv_cache_config.max_gpu_total_bytes",
        "tokens_per_block": "kv_cache_config.tokens_per_block",
        "enable_block_reuse": "kv_cache_config.enable_block_reuse",
        "max_attention_window": "kv_cache_config.max_attention_window",
        "host_cache_size": "kv_cache_config.host_cache_size",
        "use_kv_cache_manager_v2": "kv_cache_config.use_kv_cache_manager_v2",
        "max_util_for_resume": "kv_cache_config.max_util_for_resume",
        "mamba_state_cache_interval": "kv_cache_config.mamba_state_cache_interval",
        "kv_cache_dtype": "kv_cache_config.dtype",
        "mamba_ssm_cache_dtype": "kv_cache_config.mamba_ssm_cache_dtype",
        "dtype": "dtype",
        "attn_backend": "attn_backend",
        "speculative_config": "speculative_config",
        "cuda_graph_max_batch_size": "cuda_graph_config.max_batch_size",
        "cuda_graph_batch_sizes": "cuda_graph_config.batch_sizes",
        "cuda_graph_enable_padding": "cuda_graph_config.enable_padding",
        "cuda_graph": "cuda_graph_config",
        "enable_lora": "enable_lora",
        "lora_device_cache_percent": "peft_cache_config.device_cache_percent",
        "lora_host_cache_size": "peft_cache_config.host_cache_size",
    },
    file_flag="--extra_llm_api_options",
    instead={"quantization": "the checkpoint or the engine is built with it"},
)
