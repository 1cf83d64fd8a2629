"""Records what SGLang's own scheduler does on random requests, step by step: tests/simulation/data/sglang_steps.json.

    PYTHONPATH=. python tools/fidelity/sglang_scheduler.py tests/simulation/data/sglang_steps.json

Needs what `sglang_admission.py` needs. The scheduler's loop, the prefill adder, retraction, the radix cache, the allocator and the
table of requests are SGLang's, on the CPU; there is no model, so a request's tokens are made up and it ends where the case says. What is
left out of a batch are the tensors of its sampling. A step is recorded as (request, tokens) of its batch.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from tools.fidelity.sglang_admission import Missing, sglang_modules

CASES = 90
OVERLAPPED = 50
"""From this case on a step is planned while the one before it runs, as SGLang does unless told otherwise."""
VERSION = "0.5.23"
OUTPUT_IDS = 1_000_000
"""Token ids of outputs start here, 5000 a request, so that no two requests ever have the same."""


class Settings:
    """A part of SGLang's settings: what is not named is None."""

    def __init__(self, **values: object) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


KERNELS = Settings(
    prefill_attention_backend="torch_native",
    decode_attention_backend="torch_native",
    attention_backend="torch_native",
)
PARALLEL = Settings(pp_max_micro_batch_size=1, pp_size=1, dcp_enabled=False, tp_size=1, dcp_size=1)
SETTINGS: dict[str, object] = {
    "get_schedule": Settings(
        schedule_policy="fcfs", retraction_policy="length", schedule_conservativeness=1.0
    ),
    "get_exec": Settings(
        kernel=KERNELS, features=Settings(enable_encoder_swa_bounded_replay=False), mamba=Settings()
    ),
    "get_memory": Settings(radix_eviction_policy="lru"),
    "get_disagg": Settings(disaggregation_mode="null"),
    "get_parallel": PARALLEL,
    **{f"get_{name}": Settings() for name in ("spec", "serving", "lora", "mm", "model", "observability")},
}


def loaded_scheduler() -> Any:
    """`managers.scheduler`; what its imports lack stands empty."""
    sglang_modules()
    missing = next(finder for finder in sys.meta_path if isinstance(finder, Missing))
    while True:
        try:
            return import_module("sglang.srt.managers.scheduler")
        except ModuleNotFoundError as error:
            name = (error.name or "").split(".")[0]
            if not name or name == "sglang" or name in missing.names:
                raise
            missing.names.add(name)
            for loaded in [loaded for loaded in sys.modules if loaded.startswith("sglang")]:
                del sys.modules[loaded]


def publish_settings() -> None:
    """Every look-up of a setting, in whatever module, is answered by `SETTINGS`."""

    def answer(value: object) -> Callable[[], object]:
        return lambda: value

    for name, module in list(sys.modules.items()):
        if name.startswith("sglang"):
            for getter, value in SETTINGS.items():
                if getter in vars(module):
                    setattr(module, getter, answer(value))


def without_sampling(batches: Any, allocation: Any) -> None:
    """Batches that allocate and keep their requests and lengths, without tensors of sampling."""
    torch = import_module("torch")
    mode = batches.ForwardMode
    kept = ("seq_lens", "seq_lens_cpu", "req_pool_indices", "req_pool_indices_cpu")

    def init_new(reqs: Any, *parts: Any, chunked_req: Any = None) -> Any:
        names = ("req_to_token_pool", "token_to_kv_pool_allocator", "tree_cache", "model_config")
        batch = batches.ScheduleBatch(
            reqs=reqs,
            **dict(zip(names, parts, strict=False)),
            spec_algorithm=parts[5],
            chunked_req=chunked_req,
        )
        batch.device = "cpu"
        return batch

    def prepare_for_extend(self: Any) -> None:
        self.forward_mode = mode.EXTEND
        self.prefix_lens = [req.prefix_len for req in self.reqs]
        self.extend_lens = [req.extend_len for req in self.reqs]
        self.seq_lens = torch.tensor([req.extend_end for req in self.reqs], dtype=torch.int64)
        self.seq_lens_cpu = self.seq_lens.clone()
        self.extend_num_tokens = sum(self.extend_lens)
        _, self.req_pool_indices, self.req_pool_indices_cpu = allocation.alloc_for_extend(self)
        for req in self.reqs:
            req.is_retracted = False

    def prepare_for_decode(self: Any) -> None:
        self.forward_mode = mode.DECODE
        allocation.alloc_for_decode(self, 1)
        self.seq_lens = self.seq_lens + 1
        self.seq_lens_cpu = self.seq_lens_cpu + 1

    def filter_batch(self: Any, reqs_to_exclude: Any = None, keep_indices: Any = None) -> None:
        if keep_indices is None:
            excluded = reqs_to_exclude or []
            keep_indices = [
                place for place, req in enumerate(self.reqs) if not req.finished() and req not in excluded
            ]
        self.reqs = [self.reqs[place] for place in keep_indices]
        for name in kept if self.reqs else ():
            setattr(self, name, getattr(self, name)[torch.tensor(keep_indices)])

    def merge_batch(self: Any, other: Any) -> None:
        for name in kept:
            setattr(self, name, torch.cat([getattr(self, name), getattr(other, name)]))
        self.reqs.extend(other.reqs)

    batch = batches.ScheduleBatch
    batch.init_new = staticmethod(init_new)
    batch.maybe_evict_swa = lambda _: None
    for method in (prepare_for_extend, prepare_for_decode, filter_batch, merge_batch):
        setattr(batch, method.__name__, method)


class Served:
    """SGLang's scheduler over its own cache and allocator: methods are the engine's, parts that a run does not need are None."""

    def __init__(self, scheduler: Any, case: dict[str, Any]) -> None:
        self.engine = scheduler.Scheduler
        PARALLEL.pp_max_micro_batch_size = case["max_running"]  # type: ignore[attr-defined]
        torch = import_module("torch")
        memory = "sglang.srt.mem_cache"
        page = case["page"]
        self.req_to_token_pool = import_module(f"{memory}.memory_pool").ReqToTokenPool(
            case["max_running"], 4096, "cpu", False
        )
        rest = (torch.float16, "cpu", MagicMock(), False)
        self.token_to_kv_pool_allocator = (
            import_module(f"{memory}.allocator.token").TokenToKVPoolAllocator(case["size"], *rest)
            if page == 1
            else import_module(f"{memory}.allocator.paged").PagedTokenToKVPoolAllocator(
                case["size"], page, *rest
            )
        )
        self.tree_cache = import_module(f"{memory}.radix_cache").RadixCache(
            import_module(f"{memory}.cache_init_params").CacheInitParams(
                disable=not case["radix"],
                req_to_token_pool=self.req_to_token_pool,
                token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
                page_size=page,
            )
        )
        self.page_size = page
        self.max_prefill_tokens = case["max_prefill"]
        self.chunked_prefill_size = case["chunk"]
        self.max_running_requests = case["max_running"]
        self.waiting_queue: list[Any] = []
        self.result_queue: list[Any] = []
        self.model_config = SimpleNamespace(is_encoder_decoder=False)
        self.spec_algorithm = SimpleNamespace(is_none=lambda: True)
        self.disaggregation_mode = scheduler.DisaggregationMode.NULL
        self.policy = import_module("sglang.srt.managers.schedule_policy").SchedulePolicy(
            "fcfs", self.tree_cache, False, False, False
        )
        tracker = scheduler.NewTokenRatioTracker.from_config()
        tracker.init = tracker.current = case["ratio"][0]
        tracker.min = case["ratio"][1]
        tracker.decay = (tracker.init - tracker.min) / 600
        self.new_token_ratio_tracker = tracker
        for name in (
            "is_mixed_chunk", "enable_priority_preemption", "enable_priority_scheduling", "is_hybrid_swa", "enable_hisparse",
            "enable_lora", "enable_hicache_storage", "enable_lmcache", "enable_hierarchical_cache", "require_mlp_sync",
            "enable_unified_cache_external_linker",
            "abort_on_priority_when_disabled",
        ):  # fmt: skip
            setattr(self, name, False)
        self.enable_overlap = self.enable_skip_finishing_decode = case["overlap"]
        for name in (
            "priority_scheduling_preemption_threshold", "max_prefill_bs", "processed_tokens_counter", "forward_ct",
            "prefill_decode_interval", "_prefill_decode_interval_remaining",
        ):  # fmt: skip
            setattr(self, name, 0)
        self.grammar_manager = SimpleNamespace(has_waiting_grammars=lambda: False)
        self.dp_attn_adapter = SimpleNamespace(
            maybe_prepare_mlp_sync_batch=lambda batch, **_: batch,
            maybe_convert_decode_to_extend=lambda batch: batch,
        )
        self.ngram_embedding_manager = SimpleNamespace(prepare_for_forward=lambda batch, **_: batch)
        self.beam_coordinator = SimpleNamespace(pending_member_rows=lambda _: 0)
        self.metrics_reporter = MagicMock(enable_metrics=False)
        self.load_inquirer = MagicMock()
        self.tp_worker = SimpleNamespace(
            model_runner=SimpleNamespace(attn_backend=SimpleNamespace(), prefill_aware_swa=False)
        )
        self._process_hicache_events = self._abort_on_queued_limit = self._prefetch_kvcache = lambda *_: None
        batches = import_module("sglang.srt.managers.schedule_batch")
        self.running_batch = batches.ScheduleBatch.init_new(
            [],
            self.req_to_token_pool,
            self.token_to_kv_pool_allocator,
            self.tree_cache,
            self.model_config,
            False,
            self.spec_algorithm,
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(self.engine, name, None)
        return getattr(method, "__wrapped__", method).__get__(self) if callable(method) else None


def steps_of(scheduler: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Runs a case to its end: its steps, how often each request was retracted, and the step before which something was evicted."""
    batches = import_module("sglang.srt.managers.schedule_batch")
    common = import_module("sglang.srt.mem_cache.common")
    sampling = import_module("sglang.srt.sampling.sampling_params").SamplingParams
    engine = Served(scheduler, case)
    requests = []
    for number, (prompt, output, most) in enumerate(case["requests"]):
        request = batches.Req(
            rid=str(number),
            origin_input_text="",
            origin_input_ids=array("q", prompt),
            sampling_params=sampling(max_new_tokens=most),
            vocab_size=10**9,
            eos_token_ids=set(),
        )
        request.time_stats = MagicMock()
        request.ends_at = output
        requests.append(request)
    steps: list[list[int]] = []
    evicted_at: list[int] = []
    evict = engine.tree_cache.evict

    def noted(asked: Any) -> Any:
        done = evict(asked)
        if done.num_tokens_evicted and not evicted_at:
            evicted_at.append(len(steps))
        return done

    engine.tree_cache.evict = noted

    def process() -> None:
        """The tokens of the oldest batch that was not looked at yet arrive."""
        batch, is_prefill = engine.result_queue.pop(0)
        for req in batch.reqs:
            if is_prefill and req.inflight_middle_chunks > 0:
                req.inflight_middle_chunks -= 1
                continue
            if req.finished() or req.is_retracted:
                continue
            req.output_ids.append(OUTPUT_IDS + 5000 * int(req.rid) + len(req.output_ids))
            if len(req.output_ids) == req.ends_at:
                req.finished_reason = batches.FINISH_LENGTH(length=req.ends_at)
                req.finished_len = req.ends_at
                common.release_kv_cache(req, engine.tree_cache, checkpoint=True)
            elif is_prefill:
                common.checkpoint_kv_cache(req, engine.tree_cache)

    last, sent = None, 0
    while not (sent == len(requests) and all(request.finished() for request in requests)):
        while sent < len(requests) and len(steps) >= case["gap"] * sent:
            engine._add_request_to_queue(requests[sent])
            sent += 1
        plan = engine.get_next_batch_to_run(engine.running_batch, last)
        engine.running_batch, last = plan.running_batch, plan.batch_to_run
        if last is None:
            steps.append([])
            if engine.result_queue:
                process()
            else:
                engine.new_token_ratio_tracker.reset()
            continue
        is_prefill = last.forward_mode.is_extend()
        steps.append([n for req in last.reqs for n in (int(req.rid), req.extend_len if is_prefill else 1)])
        engine.result_queue.append((SimpleNamespace(reqs=list(last.reqs)), is_prefill))
        if not case["overlap"] or len(engine.result_queue) > 1:
            process()
    return {
        "steps": steps,
        "retractions": [request.retraction_count for request in requests],
        "evicted_at": evicted_at[0] if evicted_at else None,
    }


def random_case(seed: int) -> dict[str, Any]:
    """Requests that share beginnings, in a pool that is short."""
    choice = random.Random(seed)
    page = choice.choice([1, 1, 16])
    size = choice.randrange(150, 600) // page * page
    heads = [[choice.randrange(1000) for _ in range(60)] for _ in range(2)]
    requests = []
    for number in range(choice.randrange(2, 10)):
        length = choice.randrange(1, max(2, size // 4))
        head = choice.choice([[], *heads])[: choice.randrange(0, 61)]
        prompt = (head + [2000 + 1000 * number + place for place in range(length)])[:length]
        most = choice.randrange(1, size // 5) + choice.choice([0, 0, choice.randrange(0, 60)])
        most = min(most, size - -(-length // page) * page - page - 1)
        requests.append([prompt, choice.randrange(max(1, most // 2), most + 1), most])
    ratio = choice.choice([0.7, 0.05, 0.01])
    return {
        "seed": seed,
        "size": size,
        "page": page,
        "max_running": choice.choice([2, 4, 16]),
        "chunk": choice.choice([None, 32, 64, 128]),
        "max_prefill": choice.choice([64, 4096]),
        "radix": choice.random() < 0.8,
        "gap": choice.randrange(0, 4),
        "overlap": seed >= OVERLAPPED,
        "ratio": [ratio, ratio * 0.14],
        "requests": requests,
    }


def main() -> None:
    scheduler = loaded_scheduler()
    publish_settings()
    vars(scheduler).update(
        PrefillStats=MagicMock(), set_schedule_time_batch=lambda *_: None, set_time_batch=lambda *_: None
    )
    batches = import_module("sglang.srt.managers.schedule_batch")
    without_sampling(batches, import_module("sglang.srt.mem_cache.allocation"))
    rows = []
    for seed in range(CASES):
        case = random_case(seed)
        rows.append(json.dumps(case | steps_of(scheduler, case), separators=(",", ":")))
    text = f'{{"sglang":"{VERSION}","cases":[\n' + ",\n".join(rows) + "\n]}\n"
    Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
