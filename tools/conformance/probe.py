"""Runs under the Python of a vLLM installation: what vLLM itself computes for each case, one JSON line each.

    python probe.py CASES.json [DEVICE]

CASES.json is a list of {"name", "config" or "folder", "args", "tp", "pp", "kv_memory_bytes"}; "args" are
EngineArgs. Models are built by vLLM's own classes on the meta device, so no weight is ever stored; ranks of a
world larger than one are built one after the other over torch's fake process group. The KV plan is made by
vllm.v1.core.kv_cache_utils from the specs that the built layers report.

DEVICE (A100, H100, B200) stands in for a GPU, see cuda_stand_in.py; without it the CPU platform is asked.
Needs nothing of vramledger: the two sides share only the cases.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_DIST_IDENT="conformance",
    CUDA_VISIBLE_DEVICES="",
)
# A torchvision built for CUDA registers shapes of operators that it cannot load beside a CPU torch.
sys.modules["torchvision._meta_registrations"] = ModuleType("torchvision._meta_registrations")

tensor_context: Any = nullcontext
if len(sys.argv) > 2:
    stand_in: Any = import_module("cuda_stand_in")
    stand_in.install(sys.argv[2])
    tensor_context = stand_in.on_meta
torch: Any = import_module("torch")
dist: Any = import_module("torch.distributed")
state: Any = import_module("vllm.distributed.parallel_state")
vllm_config_module: Any = import_module("vllm.config")
kv_utils: Any = import_module("vllm.v1.core.kv_cache_utils")
platform: Any = import_module("vllm.platforms").current_platform

CASE_LIMIT_S = 60
SHARED_WITH_DRAFT = ("embed_tokens", "lm_head", "shared_head.head")
SCALARS = ("_scale", "_zero_point")
ROPE_TABLES = ("cos_sin_cache", "long_short_cos_sin_cache")


def main() -> int:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    _only_fake_groups()
    _inspect_models_here()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the engine prints on stdout too
    print(json.dumps({"ready": import_module("vllm").__version__}), file=out, flush=True)
    signal.signal(signal.SIGALRM, _too_slow)
    for case in cases:
        signal.alarm(CASE_LIMIT_S)
        try:
            found = run(case)
            signal.alarm(0)
        except BaseException as error:  # an engine may raise SystemExit
            signal.alarm(0)
            if isinstance(error, KeyboardInterrupt):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = {
                "error": f"{type(error).__name__}: {str(error)[:600]}",
                "where": f"{Path(where.filename).name}:{where.lineno}",
            }
            if os.environ.get("CONFORMANCE_TRACE"):
                traceback.print_exc()
        print(json.dumps({"name": case["name"], **found}), file=out, flush=True)
        gc.collect()
    return 0


class TooSlow(BaseException):
    """Not an Exception, so that no handler of the engine takes it for a failure of its own."""


def _too_slow(*_: Any) -> None:
    signal.alarm(1)
    raise TooSlow(f"more than {CASE_LIMIT_S} s")


def run(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(case["folder"]) if "folder" in case else Path(scratch)
        if "config" in case:
            (folder / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
        core = make_config(folder, case)
        tp, pp = case.get("tp", 1), case.get("pp", 1)
        stages = []
        for stage in range(pp):
            worker = make_config(folder, case)
            with world(worker, tp, pp, rank=stage * tp):
                stages.append(build(worker, case.get("tensors", "meta")))
                if worker.lora_config is not None:
                    made = import_module("lora_probe").slots
                    stages[-1]["slots"] = made(stages[-1]["models"][0], worker, case.get("tensors", "meta"))
    if stages and "slots" in stages[0]:
        return {"slots": [stage["slots"] for stage in stages]}
    result: dict[str, Any] = {
        "settings": settings(core),
        "weights": [weigh(stage["models"], shared=pp == 1) for stage in stages],
    }
    try:
        result |= kv_plan(core, stages, case["kv_memory_bytes"])
    except ValueError as error:
        result["refused"] = str(error)
    return result


def make_config(folder: Path, case: dict[str, Any]) -> Any:
    engine_args = import_module("vllm.engine.arg_utils").EngineArgs
    serving = import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
    given = {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "enforce_eager": True,
        "tensor_parallel_size": case.get("tp", 1),
        "pipeline_parallel_size": case.get("pp", 1),
        "distributed_executor_backend": "mp",
        "kv_cache_memory_bytes": case["kv_memory_bytes"],
    }
    return engine_args(**{**given, **case["args"]}).create_engine_config(serving)


def settings(config: Any) -> dict[str, Any]:
    scheduler = config.scheduler_config
    return {
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_model_len": config.model_config.max_model_len,
        "enable_prefix_caching": bool(config.cache_config.enable_prefix_caching),
        "hybrid_manager": not scheduler.disable_hybrid_kv_cache_manager,
        "mamba_cache_mode": str(config.cache_config.mamba_cache_mode),
        "max_concurrent_batches": getattr(config, "max_concurrent_batches", 0),
    }


def _only_fake_groups() -> None:
    """Every process group that vLLM makes is torch's fake one: no rank but this exists."""
    original = dist.new_group

    def new_group(ranks: Any = None, *_: Any, **kwargs: Any) -> Any:
        return original(ranks, backend="fake")

    dist.new_group = new_group
    plain = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
    platform.get_device_communicator_cls = lambda: plain
    queue = import_module("vllm.distributed.device_communicators.shm_broadcast").MessageQueue
    queue.create_from_process_group = staticmethod(lambda *_, **__: None)
    state.in_the_same_node_as = lambda group, source_rank=0: [True] * dist.get_world_size(group)


def _inspect_models_here() -> None:
    """vLLM asks each model class what it can do in a process of its own; one import of the engine is enough."""
    registry: Any = import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda function: function()


@contextmanager
def world(config: Any, tp: int, pp: int, *, rank: int) -> Iterator[None]:
    """vLLM's parallel state as rank `rank` of tp x pp sees it."""
    fake = import_module("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", rank=rank, world_size=tp * pp, store=fake.FakeStore())
    config.parallel_config.rank = rank
    try:
        with vllm_config_module.set_current_vllm_config(config):
            state.init_distributed_environment(
                world_size=tp * pp,
                rank=rank,
                distributed_init_method="env://",
                local_rank=rank,
                backend="fake",
            )
            state.initialize_model_parallel(tp, pp, backend="fake")
            yield
    finally:
        state.destroy_model_parallel()
        state._WORLD = None
        if dist.is_initialized():
            dist.destroy_process_group()


def build(config: Any, tensors: str) -> dict[str, Any]:
    """One rank's models, KV specs by layer and the cache layouts its backends can use."""
    initialize = import_module("vllm.model_executor.model_loader.utils").initialize_model
    torch_utils = import_module("vllm.utils.torch_utils")
    models = []
    default_type = torch_utils.set_default_torch_dtype(config.model_config.dtype)
    with default_type, torch.device(tensors), tensor_context():
        models.append(initialize(vllm_config=config))
        draft = config.speculative_config
        if draft is not None and draft.draft_model_config is not None:
            models.append(initialize(vllm_config=config, model_config=draft.draft_model_config))
    platform.update_block_size_for_backend(config)
    with vllm_config_module.set_current_vllm_config(config):
        found = {"models": models, "specs": kv_specs(config), "layouts": None}
        backends = import_module("vllm.v1.attention.backends.utils")
        if hasattr(backends, "get_supported_kv_cache_layouts"):
            current = import_module("vllm.v1.worker.worker_base").get_current_attn_backends(config)
            found["layouts"] = [item.name for item in backends.get_supported_kv_cache_layouts(current)]
    return found


def kv_specs(config: Any) -> dict[str, Any]:
    return dict(import_module("vllm.v1.worker.gpu.attn_utils").get_kv_cache_spec(config))


def kv_plan(core: Any, stages: list[dict[str, Any]], memory: int) -> dict[str, Any]:
    specs = [stage["specs"] for stage in stages]
    backends = import_module("vllm.v1.attention.backends.utils")
    if hasattr(backends, "resolve_kv_cache_layout"):
        every = [spec for one in specs for spec in one.values()]
        backends.resolve_kv_cache_layout(core, [stage["layouts"] for stage in stages], every)
    configs = kv_utils.get_kv_cache_configs(core, specs, [memory] * len(specs))
    scheduler = kv_utils.generate_scheduler_kv_cache_config(configs)
    if not scheduler.kv_cache_groups:
        return {"num_blocks": scheduler.num_blocks, "groups": []}
    concurrency = kv_utils.get_max_concurrency_for_kv_cache_config(core, scheduler)
    context = core.model_config.max_model_len
    return {
        "num_blocks": scheduler.num_blocks,
        "bytes_per_block": [kv_utils._pool_bytes_per_block(core, item.kv_cache_groups) for item in configs],
        "tokens": int(concurrency * context),
        "max_concurrency": concurrency,
        "context_len": context,
        "groups": [group(core, item, specs) for item in _global_groups(configs)],
    }


def _global_groups(configs: list[Any]) -> list[tuple[Any, int]]:
    """Each group's spec on the first stage that has layers of it, and its layers over all stages."""
    out = []
    for parts in zip(*(item.kv_cache_groups for item in configs), strict=True):
        held = next(part for part in parts if part.layer_names)
        out.append((held.kv_cache_spec, sum(len(part.layer_names) for part in parts)))
    return out


def group(core: Any, item: tuple[Any, int], specs: list[dict[str, Any]]) -> dict[str, Any]:
    spec, layers = item
    members = list(getattr(spec, "kv_cache_specs", {"": spec}).values())
    blocks = -(-spec.max_memory_usage_bytes(core) // spec.page_size_bytes)
    return {
        "kind": sorted({type(member).__name__ for member in members}),
        "layers": layers,
        "block_size": spec.block_size,
        "pages": sorted({member.page_size_bytes for member in members}),
        "blocks_per_request": blocks,
    }


def weigh(models: list[Any], *, shared: bool) -> dict[str, Any]:
    """Bytes of parameters and buffers of one rank: matrices, rope tables, single numbers; and what modules
    hold as plain attributes. `tensors` lists them by module path, for a look at what differs. On one stage
    (`shared`) a draft takes the target's embedding and head once both are loaded."""
    sums = {"parameters": 0, "buffers": 0, "rope": 0, "single": 0, "attributes": 0}
    tensors: dict[str, list[Any]] = {}
    seen: set[int] = set()

    def add(kind: str, name: str, value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        size = value.numel() * value.element_size()
        if value.numel() <= 1 and (kind != "parameters" or name.endswith(SCALARS)):
            kind = "single"
        elif name.rpartition(".")[2] in ROPE_TABLES:
            kind = "rope"
        sums[kind] += size
        if kind != "single":
            tensors[f"{kind}:{name}"] = [list(value.shape), str(value.dtype).removeprefix("torch."), size]

    for index, model in enumerate(models):
        for name, value in model.named_parameters():
            if index and shared and any(part in name for part in SHARED_WITH_DRAFT):
                continue
            add("parameters", name, value)
        for name, value in model.named_buffers():
            add("buffers", name, value)
        for path, module in model.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, torch.Tensor):
                    add("attributes", f"{path}.{name}", value)
    return {**sums, "tensors": tensors}


if __name__ == "__main__":
    sys.exit(main())
