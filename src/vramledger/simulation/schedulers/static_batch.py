"""Static batching: nobody joins a batch that runs.

TensorRT-LLM's STATIC_BATCH: whoever can be completed within the pool starts together, by arrival, as far as one step's tokens go
(`max_num_batched_tokens`); the rest of a prompt that was cut waits as well. A request that ends gives its blocks back, but its
place stays empty until the last of the batch has ended.
"""

from __future__ import annotations

from vramledger.simulation.schedulers.trtllm import TrtllmScheduler


class StaticBatchScheduler(TrtllmScheduler):
    """Without eviction, and new requests only when none generates."""

    joins_a_running_batch = False
