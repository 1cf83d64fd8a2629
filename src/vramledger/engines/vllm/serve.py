"""`vllm serve`. Source: vllm entrypoints/cli/serve.py, engine/arg_utils.py."""

from __future__ import annotations

from vramledger.engines.serving import Serving

SERVING = Serving(
    program=("vllm", "serve", "{model}"),
    listen=("--host", "{host}", "--port", "{port}"),
    # v1/executor/multiproc_executor.py, v1/engine/core.py: without worker processes the engine core holds the one rank.
    rank_processes=("VLLM::Worker", "VLLM::EngineCor"),
    # Environment variables and facts of a plan, no arguments of the server.
    plan_only=frozenset(
        {
            "pp_layer_partition", "allow_long_max_model_len", "use_flashinfer_sampler", "offline", "use_v1", "adapter",
            "eplb_window_size",
        }
    ),
    environment={
        "pp_layer_partition": "VLLM_PP_LAYER_PARTITION={value}",
        "allow_long_max_model_len": "VLLM_ALLOW_LONG_MAX_MODEL_LEN={value}",
        "use_flashinfer_sampler": "VLLM_USE_FLASHINFER_SAMPLER={value}",
        "use_v1": "VLLM_USE_V1={value}",
    },
    instead={
        "offline": "the LLM class is no server",
        "adapter": "each is given as --lora-modules NAME=PATH",
        "eplb_window_size": 'stands in --eplb-config as "window_size"',
    },
)  # fmt: skip
