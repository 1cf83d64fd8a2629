"""SGLang's server. Source: sglang srt/server_args.py."""

from __future__ import annotations

from vramledger.engines.serving import Serving

SERVING = Serving(
    program=("python3", "-m", "sglang.launch_server", "--model-path", "{model}"),
    listen=("--host", "{host}", "--port", "{port}"),
    always=("--enable-metrics",),
    plan_only=frozenset({"pp_layer_partition", "expandable_segments", "draft_layers", "adapter"}),
    negates=False,
    environment={
        "pp_layer_partition": "SGLANG_PP_LAYER_PARTITION={value}",
        "expandable_segments": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:{value}",
    },
    instead={
        "draft_layers": "the draft model's own config.json tells them",
        "adapter": "each is given as --lora-paths NAME=PATH",
    },
    # srt/managers/scheduler.py: each rank's scheduler holds its model.
    rank_processes=("sglang::scheduler",),
)
