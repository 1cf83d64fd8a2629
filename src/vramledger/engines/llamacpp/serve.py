"""llama.cpp's server. Source: llama.cpp common/arg.cpp; buffers are told at verbosity 4."""

from __future__ import annotations

from vramledger.engines.serving import Serving

SERVING = Serving(
    program=("llama-server", "-m", "{model}"),
    listen=("--host", "{host}", "--port", "{port}"),
    always=("--metrics", "--slots", "--props", "-lv", "4"),
    plan_only=frozenset({"gpus", "ftype", "n_outputs_max"}),
    environment={"gpus": "CUDA_VISIBLE_DEVICES={first_devices}"},
    instead={
        "ftype": "the GGUF file has this type (llama-quantize makes one)",
        "n_outputs_max": "follows from what requests ask for",
    },
)
