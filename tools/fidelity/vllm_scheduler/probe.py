"""Runs under the Python of a vLLM installation: vLLM's own Scheduler, step by step, one JSON line a case.

    python probe.py CASES.json

CASES.json is a list of cases as tools/fidelity/vllm_scheduler/cases.py describes them. No model is loaded and no device
asked: a step's output tokens are made up, and everything else is the engine's own classes. Needs nothing of vramledger: the
two sides share only the cases.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    CUDA_VISIBLE_DEVICES="",
    PYTHONHASHSEED="0",
)
sys.modules["torchvision._meta_registrations"] = ModuleType("torchvision._meta_registrations")

STOP_TOKEN = 1
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 1_000_000,
    "max_position_embeddings": 1_000_000,
    "torch_dtype": "bfloat16",
}


def main() -> int:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the engine prints on stdout too
    version = import_module("vllm").__version__
    platforms: Any = import_module("vllm.platforms")
    if platforms.current_platform.is_unspecified():  # Sources without an installation know no platform.
        platforms._current_platform = import_module("vllm.platforms.cpu").CpuPlatform()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        print(json.dumps({"ready": version}), file=out, flush=True)
        for case in cases:
            try:
                answer: dict[str, Any] = {"steps": Engine(folder, case).run()}
            except NotThere as error:
                answer = {"lacks": str(error)}
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                answer = {
                    "error": f"{type(error).__name__}: {str(error)[:400]}",
                    "where": f"{Path(where.filename).name}:{where.lineno}",
                }
            print(json.dumps({"name": case["name"], **answer}), file=out, flush=True)
    return 0


class NotThere(Exception):
    """The release has no such setting."""


def name_of(number: int) -> str:
    """Ids whose order as text is that of arrival: by priority the engine breaks ties so."""
    return f"{number:06}"


class Engine:
    """One scheduler over one pool, and the requests of a case."""

    def __init__(self, folder: str, case: dict[str, Any]) -> None:
        self.case = case
        settings = case["settings"]
        self.is_async = settings["async_scheduling"]
        config = self._config(folder, settings)
        config.scheduler_config.async_scheduling = self.is_async  # The CPU platform would switch it off.
        if any(group["kind"] == "kept-state" for group in settings["groups"]):
            config.cache_config.mamba_cache_mode = "align"
        kv = self._kv_config(settings)
        config.cache_config.num_gpu_blocks = settings["num_blocks"]
        kv_utils: Any = import_module("vllm.v1.core.kv_cache_utils")
        block_tokens, hash_tokens = kv_utils.resolve_kv_cache_block_sizes(kv, config)
        hashing: Any = import_module("vllm.utils.hashing").sha256
        kv_utils.init_none_hash(hashing)
        self.hasher = kv_utils.get_request_block_hasher(hash_tokens, hashing)
        module = "async_scheduler" if self.is_async else "scheduler"
        kind = "AsyncScheduler" if self.is_async else "Scheduler"
        scheduler: Any = getattr(import_module(f"vllm.v1.core.sched.{module}"), kind)
        manager: Any = import_module("vllm.v1.structured_output").StructuredOutputManager
        self.scheduler = scheduler(
            vllm_config=config,
            kv_cache_config=kv,
            structured_output_manager=manager(config),
            block_size=block_tokens,
            hash_block_size=hash_tokens,
            log_stats=True,
        )
        self.status: Any = import_module("vllm.v1.request").RequestStatus
        self.requests: dict[str, Any] = {}
        self.outputs: dict[str, list[int]] = {}

    def _config(self, folder: str, settings: dict[str, Any]) -> Any:
        arguments: Any = import_module("vllm.engine.arg_utils").EngineArgs
        serving = import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
        given = {
            "model": folder,
            "skip_tokenizer_init": True,
            "load_format": "dummy",
            "enforce_eager": True,
            "max_model_len": settings["max_model_len"],
            "max_num_seqs": settings["max_num_seqs"],
            "max_num_batched_tokens": settings["max_num_batched_tokens"],
            "long_prefill_token_threshold": settings["long_prefill_token_threshold"],
            "enable_chunked_prefill": settings["chunked_prefill"],
            "enable_prefix_caching": settings["prefix_caching"],
            "scheduling_policy": "priority" if settings["priority"] else "fcfs",
            "scheduler_reserve_full_isl": settings["reserve_full_prompt"],
            "watermark": settings["watermark"],
            "async_scheduling": self.is_async,
            "block_size": min(group["block_tokens"] for group in settings["groups"]),
            "prefix_cache_retention_interval": settings["retention_interval"],
        }
        known = {field.name for field in dataclasses.fields(arguments)}
        later = {name: value for name, value in given.items() if name not in known}
        if later.get("watermark") or later.get("prefix_cache_retention_interval") is not None:
            raise NotThere(", ".join(later))
        return arguments(**{name: given[name] for name in known & given.keys()}).create_engine_config(serving)

    def _kv_config(self, settings: dict[str, Any]) -> Any:
        interface: Any = import_module("vllm.v1.kv_cache_interface")
        torch: Any = import_module("torch")
        groups = []
        for number, group in enumerate(settings["groups"]):
            shape = {
                "block_size": group["block_tokens"],
                "num_kv_heads": 1,
                "head_size": 64,
                "dtype": torch.bfloat16,
            }
            if group["kind"] == "window":
                spec = interface.SlidingWindowSpec(**shape, sliding_window=group["window_tokens"])
            elif group["kind"] == "chunk":
                spec = interface.ChunkedLocalAttentionSpec(
                    **shape, attention_chunk_size=group["window_tokens"]
                )
            elif group["kind"] in ("state", "kept-state"):
                spec = interface.MambaSpec(
                    block_size=group["block_tokens"],
                    shapes=((8, 8),),
                    dtypes=(torch.float32,),
                    mamba_cache_mode="none" if group["kind"] == "state" else "align",
                )
            else:
                spec = interface.FullAttentionSpec(**shape)
            groups.append(interface.KVCacheGroupSpec([f"layer.{number}"], spec))
        given = {
            "num_blocks": settings["num_blocks"],
            "kv_cache_tensors": [],
            "kv_cache_groups": groups,
            "prefix_cache_retention_interval": settings["retention_interval"],
        }
        known = {field.name for field in dataclasses.fields(interface.KVCacheConfig)}
        return interface.KVCacheConfig(**{name: given[name] for name in known & given.keys()})

    def run(self) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        waiting_output: Any = None
        last_event = max(
            max(request["at_step"], request.get("cancel_step") or 0) for request in self.case["requests"]
        )
        for step in range(self.case["max_steps"]):
            self._events(step)
            entry, output = self._schedule()
            if self.is_async:
                ended = self._update(waiting_output)
                waiting_output = output
            else:
                ended = self._update(output)
            entry["ended"] = ended
            entry["free_after"] = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            steps.append(entry)
            if step > last_event and not self.requests and not entry["tokens"]:
                break
        return steps

    def _events(self, step: int) -> None:
        for number, request in enumerate(self.case["requests"]):
            if request.get("cancel_step") == step and name_of(number) in self.requests:
                self.scheduler.finish_requests(name_of(number), self.status.FINISHED_ABORTED)
                del self.requests[name_of(number)]
        for number, request in enumerate(self.case["requests"]):
            if request["at_step"] == step:
                self._add(name_of(number), request)

    def _add(self, name: str, request: dict[str, Any]) -> None:
        sampling: Any = import_module("vllm.sampling_params").SamplingParams
        made: Any = import_module("vllm.v1.request").Request
        self.outputs[name] = request["outputs"]
        self.requests[name] = made(
            request_id=name,
            prompt_token_ids=request["prompt"],
            sampling_params=sampling(
                max_tokens=request["max_output_tokens"], stop_token_ids=[STOP_TOKEN], ignore_eos=True
            ),
            pooling_params=None,
            arrival_time=float(request["at_step"]),
            priority=request["priority"],
            block_hasher=self.hasher,
        )
        self.scheduler.add_request(self.requests[name])

    def _schedule(self) -> tuple[dict[str, Any], Any]:
        scheduler = self.scheduler
        before = [request.request_id for request in scheduler.running]
        preemptions = {name: request.num_preemptions for name, request in self.requests.items()}
        output = scheduler.schedule()
        tokens = dict(output.num_scheduled_tokens)
        admitted = [name for name in tokens if name not in before]
        yields = {name: len(self._made(name)) for name in tokens if not self.requests[name].is_prefill_chunk}
        blocks = {
            request.request_id: [
                [block.block_id for block in group]
                for group in scheduler.kv_cache_manager.get_blocks(request.request_id).blocks
            ]
            for request in scheduler.running
        }
        entry = {
            "tokens": [[int(name), count] for name, count in tokens.items()],
            "admitted": [
                [int(name), self.requests[name].num_computed_tokens - tokens[name]] for name in admitted
            ],
            "preempted": sorted(
                int(name)
                for name, request in self.requests.items()
                if request.num_preemptions > preemptions[name]
            ),
            "running": [int(request.request_id) for request in scheduler.running],
            "waiting": [int(request.request_id) for request in scheduler.waiting],
            "blocks": {str(int(name)): tables for name, tables in blocks.items()},
            "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }
        return entry, (output, list(yields))

    def _made(self, name: str) -> Any:
        return self.requests[name].output_token_ids

    def _update(self, scheduled: Any) -> list[int]:
        """Tells the scheduler what a step computed; the requests that ended."""
        if scheduled is None:
            return []
        output, yielding = scheduled
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            request = self.requests.get(name)
            if name not in yielding or request is None:
                sampled.append([] if name not in yielding else [0])
            else:
                sampled.append([self.outputs[name][len(request.output_token_ids)]])
        runner: Any = import_module("vllm.v1.outputs").ModelRunnerOutput
        self.scheduler.update_from_output(
            output,
            runner(
                req_ids=names,
                req_id_to_index={name: place for place, name in enumerate(names)},
                sampled_token_ids=sampled,
            ),
        )
        ended = [name for name, request in self.requests.items() if request.is_finished()]
        for name in ended:
            del self.requests[name]
        return sorted(map(int, ended))


if __name__ == "__main__":
    sys.exit(main())
