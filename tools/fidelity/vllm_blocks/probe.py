"""Runs in vLLM's Python: the cases over its KVCacheManager. Prints {"ready": version}, then a JSON line a case.

One thing is taken out. Since 0.27 a state also counts as computed in this step, so that nobody else may start from it, when a request
merely continues from it at the last boundary of its own prompt; others then wait one step. Here only states that are new
count, as up to 0.26.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch  # type: ignore[import-not-found,unused-ignore]
import vllm  # type: ignore[import-not-found,unused-ignore]
from tools.fidelity.vllm_blocks.cases import IN_FLIGHT_TOKENS, MAX_MODEL_LEN
from tools.fidelity.vllm_blocks.script import Asked, Run
from vllm.sampling_params import SamplingParams  # type: ignore[import-not-found,unused-ignore]
from vllm.utils.hashing import sha256  # type: ignore[import-not-found,unused-ignore]
from vllm.v1.core.kv_cache_manager import (  # type: ignore[import-not-found,unused-ignore]
    KVCacheManager,
)
from vllm.v1.core.kv_cache_utils import (  # type: ignore[import-not-found,unused-ignore]
    get_request_block_hasher,
    init_none_hash,
)
from vllm.v1.kv_cache_interface import (  # type: ignore[import-not-found,unused-ignore]
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request, RequestStatus  # type: ignore[import-not-found,unused-ignore]

init_none_hash(sha256)


class TheirCache:
    """A KVCacheManager and the requests in it."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        sizes = [size for _, size, _ in case["groups"]]
        hash_size = math.gcd(*sizes)
        config = _called(
            KVCacheConfig,
            num_blocks=case["blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec(layer_names=[f"layer {number}"], kv_cache_spec=_spec(*group))
                for number, group in enumerate(case["groups"])
            ],
            prefix_cache_retention_interval=case["retention"],
        )
        self.manager = _called(
            KVCacheManager,
            kv_cache_config=config,
            max_model_len=MAX_MODEL_LEN,
            scheduler_block_size=math.lcm(*sizes),
            hash_block_size=hash_size,
            max_in_flight_tokens=IN_FLIGHT_TOKENS,
            max_num_batched_tokens=IN_FLIGHT_TOKENS,
            enable_caching=True,
        )
        self._hasher = get_request_block_hasher(hash_size, sha256)
        self._requests: dict[int, Request] = {}
        self._hits: dict[int, Any] = {}

    def start_step(self) -> None:
        self.manager.new_step_starts()

    def look_up(self, request: Asked) -> tuple[int, int]:
        params = SamplingParams(max_tokens=len(request.outputs))
        known = Request(str(request.number), list(request.prompt), params, None, block_hasher=self._hasher)
        blocks, hit, *rest = self.manager.get_computed_blocks(known)
        junction = rest[0] if rest else 0
        known.shared_prefix_boundary = junction
        self._requests[request.number], self._hits[request.number] = known, blocks
        return hit, junction

    def open(self, request: Asked, hit: int, junction: int, tokens: int) -> bool:
        known = self._requests[request.number]
        blocks = self._hits.pop(request.number)
        if hasattr(self.manager, "can_fit_full_sequence"):
            if not self.manager.can_fit_full_sequence(known, hit, blocks):
                return False
            allocated = self.manager.allocate_slots(known, tokens, hit, blocks)
        else:
            allocated = self.manager.allocate_slots(known, tokens, hit, blocks, full_sequence_must_fit=True)
        if allocated is None:
            return False
        known.num_computed_tokens = hit + tokens
        known.status = RequestStatus.RUNNING
        return True

    def grow(self, request: Asked, tokens: int) -> bool:
        known = self._requests[request.number]
        if self.manager.allocate_slots(known, tokens) is None:
            return False
        known.num_computed_tokens += tokens
        return True

    def append(self, request: Asked, token: int) -> None:
        self._requests[request.number].append_output_token_ids(token)

    def free(self, request: Asked) -> None:
        self.manager.free(self._requests.pop(request.number))

    def state(self, running: list[Asked]) -> tuple[list[tuple[tuple[int, ...], ...]], list[int]]:
        tables = [
            tuple(tuple(ids) for ids in self.manager.get_block_ids(str(request.number)))
            for request in running
        ]
        free = self.manager.block_pool.free_block_queue.get_all_free_blocks()
        return tables, [block.block_id for block in free]


def _called(kind: Any, **values: Any) -> Any:
    """The class made of those values that its release knows."""
    known = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in values.items() if name in known})


def _spec(kind: str, block_tokens: int, window: int) -> Any:
    if kind == "state":
        return MambaSpec(
            block_size=block_tokens, shapes=((1,),), dtypes=(torch.float16,), mamba_cache_mode="align"
        )
    shape = {"block_size": block_tokens, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float16}
    if kind == "window":
        return SlidingWindowSpec(**shape, sliding_window=window)
    if kind == "chunk":
        return ChunkedLocalAttentionSpec(**shape, attention_chunk_size=window)
    return FullAttentionSpec(**shape)


def main() -> None:
    print(json.dumps({"ready": vllm.__version__}), flush=True)
    retains = "prefix_cache_retention_interval" in inspect.signature(KVCacheConfig).parameters
    for case in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        if case["retention"] is not None and not retains:
            print(json.dumps({"lines": None}), flush=True)
            continue
        print(json.dumps({"lines": Run(case, TheirCache(case)).play()}, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
