"""How vLLM words its log, and what that means in the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.engines.log_pattern import LinePattern
from vramledger.engines.vllm.log_allocator import allocator_states, device_total, graph_captures
from vramledger.engines.vllm.log_buffers import BUFFER_PATTERNS
from vramledger.engines.vllm.log_choices import CHOICE_PATTERNS
from vramledger.engines.vllm.log_figures import figures
from vramledger.engines.vllm.log_graphs import GRAPH_PATTERNS
from vramledger.engines.vllm.log_host import host_figures
from vramledger.engines.vllm.log_instance import Instance, last_instance
from vramledger.engines.vllm.log_memory import MEMORY_PATTERNS
from vramledger.engines.vllm.log_pool import measured_pool, pool_figures
from vramledger.engines.vllm.log_run import RUN_PATTERNS
from vramledger.engines.vllm.log_said import as_range
from vramledger.engines.vllm.log_serving import SERVING_PATTERNS
from vramledger.engines.vllm.log_settings import Setting
from vramledger.engines.vllm.log_startup import STARTUP_PATTERNS
from vramledger.measurement import Measurement
from vramledger.observation import Event, Observation
from vramledger.units import GIB

SIGNS: tuple[str, ...] = (
    "vLLM API server version ",
    "vLLM server version ",
    " V1 LLM engine (v",
    " V0 LLM engine (v",
    "Initializing an LLM engine (v",
    "(EngineCore pid=",
    "(EngineCore_",
    "(VllmWorker",
    "Available KV cache memory: ",
    "the current vLLM instance can use ",
    "GPU KV cache size: ",
    "Maximum concurrency for ",
    "vllm/v1/",
    "vllm/engine/",
    "[gpu_worker.py:",
    "[gpu_model_runner.py:",
    "[kv_cache_utils.py:",
)

PATTERNS: tuple[LinePattern, ...] = (
    MEMORY_PATTERNS
    + GRAPH_PATTERNS
    + BUFFER_PATTERNS
    + SERVING_PATTERNS
    + STARTUP_PATTERNS
    + CHOICE_PATTERNS
    + RUN_PATTERNS
)

_SIZES = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}


def measured(observations: Iterable[Observation]) -> Measurement:
    """What the last start-up in a log states, in the ledger's words.

    Figures of several ranks stay apart where the log tells who printed them; the pool is the smallest rank's. Sources
    are left to who read the log.
    """
    said = tuple(observations)
    instance = last_instance(said)
    pool = measured_pool(instance)
    sizes = {name: instance.whole(setting) for name, setting in _SIZES.items()}
    return Measurement(
        sources=(),
        engine="vllm" if said else None,
        engine_version=instance.version,
        model=_text(instance, "model", "model_tag"),
        model_revision=_text(instance, "revision"),
        architecture=_last(instance, Event.MODEL, "architecture"),
        device="cpu" if instance.settings.get("device_config") == "cpu" else None,
        device_total_bytes=device_total(instance),
        tp=sizes["tp"],
        pp=sizes["pp"],
        dp=sizes["dp"],
        ep=_expert_ranks(instance),
        settings=tuple(sorted(_told(instance).items())),
        figures=(*figures(instance), *pool_figures(instance, pool), *host_figures(instance)),
        pools=() if pool is None else (pool,),
        allocator=allocator_states(instance),
        graphs=graph_captures(instance),
        notes=_notes(instance),
    )


def _told(instance: Instance) -> dict[str, Setting]:
    settings = dict(instance.settings)
    length = _last_len(instance)
    if length is not None:
        settings["max_model_len"] = length
    stated = _stated_pool(instance)
    if stated is not None:
        settings.setdefault("kv_cache_memory_bytes", stated)
    return settings


def _stated_pool(instance: Instance) -> int | None:
    """A pool that was set and not profiled, where no flag says it: VLLM_CPU_KVCACHE_SPACE has whole GiB, so that its print
    is exact."""
    for said in reversed(instance.observations):
        size = as_range(said.values.get("kv_cache_bytes"))
        if said.event is Event.KV_BUDGET and said.values.get("is_stated") is True and size is not None:
            return size.expected if size.expected % GIB == 0 else None
    return None


def _last_len(instance: Instance) -> int | None:
    """The context length that the engine settled on: fitting it to memory comes after the configuration is printed."""
    for said in reversed(instance.observations):
        value = said.values.get("context_len")
        if said.event is Event.MODEL and isinstance(value, int):
            return value
    return None


def _text(instance: Instance, *names: str) -> str | None:
    for name in names:
        value = instance.settings.get(name)
        if isinstance(value, str) and value:
            return value
    return (
        _last(instance, Event.MODEL, "model") or _last(instance, Event.VERSION, "model")
        if "model" in names
        else None
    )


def _last(instance: Instance, event: Event, name: str) -> str | None:
    for said in reversed(instance.observations):
        if said.event is event and name in said.values:
            return str(said.values[name])
    return None


def _expert_ranks(instance: Instance) -> int | None:
    """Over how many ranks experts are spread, where a rank says so."""
    for said in reversed(instance.observations):
        size = said.values.get("ep_size")
        if said.event is Event.RANK and isinstance(size, int):
            return size
    return None


def _notes(instance: Instance) -> tuple[str, ...]:
    notes = []
    if instance.starts > 1:
        notes.append(f"{instance.starts} start-ups in the log; this is the last")
    if instance.settings.get("enable_eplb") is True:
        notes.append("the weights after load contain the maps and buffers of expert load balancing")
    if any(said.event is Event.SLEEP for said in instance.observations):
        notes.append("the instance slept; figures are those of its start-up")
    return tuple(notes)
