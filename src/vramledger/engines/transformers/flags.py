"""Flags of `transformers serve` and fields of `ContinuousBatchingConfig`; None is "not given"."""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.option import against_rule as _bad
from vramledger.errors import FlagError

SMALLEST_PAGE = 4
_MOST = 2**31 - 1
QUANTIZATIONS = ("bnb-4bit", "bnb-8bit")


class TransformersFlags(Struct, frozen=True, kw_only=True):
    """`tp_size` is the number of processes that a model loaded with `tp_plan="auto"` runs on; `max_length` is the
    generation config's: prompt and answer of one request."""

    continuous_batching: bool = True
    attn_implementation: str | None = None
    dtype: str = "auto"
    quantization: str | None = None
    tp_size: int = 1
    max_length: int | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    max_batch_tokens: int | None = None
    max_memory_percent: float | None = None
    max_requests_per_batch: int | None = None
    max_blocks_per_request: int | None = None
    use_async_batching: bool | None = None
    use_cuda_graph: bool | None = None
    allow_block_sharing: bool = True
    return_logprobs: bool = False
    logits_processors: bool = False
    cpu_offload_space: float = 0.0

    def __post_init__(self) -> None:
        if not self.continuous_batching:
            raise FlagError(
                "without --continuous-batching every request has a cache of its own that grows as it runs; "
                "the rules here are those of continuous batching",
                flag="continuous_batching",
                value=False,
            )
        for name in ("num_blocks", "max_batch_tokens", "max_requests_per_batch", "max_length", "tp_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _bad(name, value, "must be at least 1")
            if value is not None and value > _MOST:
                raise _bad(name, value, f"must be at most {_MOST}: the library counts in int32")
        if self.tp_size > 4096:
            raise _bad("tp_size", self.tp_size, "must be at most 4096")
        if self.block_size is not None and self.block_size < SMALLEST_PAGE:
            raise _bad("block_size", self.block_size, f"must be at least {SMALLEST_PAGE} tokens")
        if self.max_blocks_per_request is not None and self.max_blocks_per_request < 0:
            raise _bad("max_blocks_per_request", self.max_blocks_per_request, "must not be negative")
        share = self.max_memory_percent
        if share is not None and not 0 < share <= 1:
            raise _bad("max_memory_percent", share, "must be above 0 and at most 1")
        if not 0 <= self.cpu_offload_space <= 1 << 20:
            raise _bad("cpu_offload_space", self.cpu_offload_space, "must be a size in GiB")
        if self.quantization is not None and self.quantization not in QUANTIZATIONS:
            raise _bad("quantization", self.quantization, f"must be one of {', '.join(QUANTIZATIONS)}")
