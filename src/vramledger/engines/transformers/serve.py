"""`transformers serve`. Source: transformers cli/serve.py."""

from __future__ import annotations

from vramledger.engines.serving import Serving

SERVING = Serving(
    program=("transformers", "serve", "{model}"),
    listen=("--host", "{host}", "--port", "{port}"),
    names={
        "block_size": "--cb-block-size",
        "num_blocks": "--cb-num-blocks",
        "max_memory_percent": "--cb-max-memory-percent",
        "max_batch_tokens": "--cb-max-batch-tokens",
        "use_cuda_graph": "--cb-use-cuda-graph",
    },
    plan_only=frozenset({"tp_size", "max_length", "allow_block_sharing"}),
    instead={
        "tp_size": "ranks are started by torchrun --nproc-per-node",
        "max_length": "each request says its own",
        "allow_block_sharing": "the server has no flag for it",
    },
)
