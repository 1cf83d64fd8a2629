"""Engines by name. Each is one folder, imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from vramledger.errors import FlagError

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.engines.adapter_service import AdapterRules
    from vramledger.engines.full_pool import FullPool
    from vramledger.engines.lifecycle import Lifecycle
    from vramledger.engines.log_pattern import LinePattern
    from vramledger.engines.metrics_table import InfoEndpoint, InfoMetric, MetricName, SampleEndpoint
    from vramledger.engines.option import Option
    from vramledger.engines.scheduling import EngineScheduling
    from vramledger.engines.serving import Serving
    from vramledger.hardware.catalogue import Device
    from vramledger.measurement import Measurement
    from vramledger.models.checkpoint import Checkpoint
    from vramledger.observation import Observation

_MODULES = {
    "vllm": "vramledger.engines.vllm.options",
    "tensorrt-llm": "vramledger.engines.tensorrtllm.options",
    "sglang": "vramledger.engines.sglang.options",
    "llamacpp": "vramledger.engines.llamacpp.options",
    "transformers": "vramledger.engines.transformers.options",
}
_LIFECYCLES = {
    "vllm": "vramledger.engines.vllm.lifecycle",
    "sglang": "vramledger.engines.sglang.lifecycle",
}
_ADAPTER_RULES = {
    "vllm": "vramledger.engines.vllm.lora_service",
    "sglang": "vramledger.engines.sglang.adapter_rules",
    "llamacpp": "vramledger.engines.llamacpp.adapter_rules",
    "tensorrt-llm": "vramledger.engines.tensorrtllm.adapter_rules",
}
_LOGS = {
    "vllm": "vramledger.engines.vllm.log",
    "sglang": "vramledger.engines.sglang.log",
    "llamacpp": "vramledger.engines.llamacpp.log",
    "tensorrt-llm": "vramledger.engines.tensorrtllm.log",
}
_METRICS = {
    "vllm": "vramledger.engines.vllm.metrics",
    "sglang": "vramledger.engines.sglang.metrics",
    "llamacpp": "vramledger.engines.llamacpp.metrics",
    "tensorrt-llm": "vramledger.engines.tensorrtllm.metrics",
}
_ENDPOINTS = {
    "vllm": "vramledger.engines.vllm.server_info",
    "sglang": "vramledger.engines.sglang.server_info",
    "llamacpp": "vramledger.engines.llamacpp.server_info",
    "tensorrt-llm": "vramledger.engines.tensorrtllm.server_info",
}
_SERVINGS = {
    "vllm": "vramledger.engines.vllm.serve",
    "tensorrt-llm": "vramledger.engines.tensorrtllm.serve",
    "sglang": "vramledger.engines.sglang.serve",
    "llamacpp": "vramledger.engines.llamacpp.serve",
    "transformers": "vramledger.engines.transformers.serve",
}
_PRINTED = {
    "vllm": "vramledger.engines.vllm.printed",
    "tensorrt-llm": "vramledger.engines.tensorrtllm.printed",
    "sglang": "vramledger.engines.sglang.printed",
    "llamacpp": "vramledger.engines.llamacpp.printed",
    "transformers": "vramledger.engines.transformers.printed",
}
_ALIASES = {"llama.cpp": "llamacpp", "trtllm": "tensorrt-llm"}


class Engine(Protocol):
    """What an engine's `options` module offers. `OPTIONS` are its flags."""

    OPTIONS: tuple[Option, ...]

    def plan_with(
        self,
        checkpoint: Checkpoint,
        device: Device,
        *,
        version: str | None,
        values: Mapping[str, object],
        concurrency: int = 1,
        remedies: bool = False,
    ) -> Plan:
        """The plan under `values` by flag name, None standing for a flag not given; the verdict is about
        `concurrency` full-length requests, and with `remedies` names changes under which it holds.

        Raises FlagError for unknown, malformed or contradictory flags and an unknown version.
        """
        ...


class EngineLog(Protocol):
    """What an engine's `log` module offers: how its log words things, and what they mean in the ledger.

    `SIGNS` are texts that only this engine's logs contain. Patterns are in the order in which they are tried.
    """

    SIGNS: tuple[str, ...]
    PATTERNS: tuple[LinePattern, ...]

    def measured(self, observations: Iterable[Observation]) -> Measurement:
        """What one instance's log states, in the ledger's words; of several start-ups in one log the last."""
        ...


class EngineMetrics(Protocol):
    """What an engine's `metrics` module offers."""

    METRICS: tuple[MetricName, ...]
    INFO_METRICS: tuple[InfoMetric, ...]


class EngineEndpoints(Protocol):
    """What an engine's `server_info` module offers: paths in the order in which they are asked."""

    ENDPOINTS: tuple[InfoEndpoint, ...]


class PrintedSettings(Protocol):
    """What an engine's `printed` module offers: how it calls its settings where it prints them.

    `FLAG_OF` are names that are not the flag's, `WORDS` values by flag that are not the flag's. `UNSHOWN` are defaults of flags that
    a plan shows only where they are set; None among them is the engine's choice, except for `LIMITS`, where it is no limit.
    `EP_IS_SWITCH` is whether expert parallelism is a switch and not a number of ranks.
    """

    FLAG_OF: Mapping[str, str]
    UNSHOWN: Mapping[str, object]
    LIMITS: frozenset[str]
    WORDS: Mapping[str, Mapping[str, str]]
    EP_IS_SWITCH: bool


def find_engine(text: str) -> tuple[Engine, str | None]:
    """The engine and the version of "vllm" or "vllm==0.27.1"; no version means the newest.

    Raises FlagError for a name that has no folder here.
    """
    name, equals, version = (part.strip() for part in text.partition("=="))
    module = _planner(name, text)
    if equals and not version:
        raise FlagError(f"--engine {text!r} names no version after ==", flag="engine", value=text)
    return cast(Engine, importlib.import_module(module)), version or None


def _planner(name: str, value: str) -> str:
    """The module that plans for an engine. Raises FlagError, of the flag's `value`, for a name that has no folder here."""
    module = _MODULES.get(engine_name(name))
    if module is None:
        raise FlagError(
            f"unknown engine {name!r}; known: {', '.join(engine_names())}", flag="engine", value=value
        )
    return module


def _part(engine: str, name: str) -> Any:
    """A module of an engine's folder. Raises FlagError for a name that has no folder here."""
    return importlib.import_module(f"{_planner(engine, engine).rpartition('.')[0]}.{name}")


def check_engine(text: str) -> None:
    """Raises FlagError for a name that has no folder here and for a version that its rules do not cover."""
    _, version = find_engine(text)
    if version is not None:
        _part(text, "version").parse_version(version)


def same_version(engine: str, one: str, other: str) -> bool:
    """Whether two texts name one release of an engine ("0.27.1", "v0.27.1+cu130"). Raises FlagError for a version that its
    rules do not cover."""
    parse = _part(engine, "version").parse_version
    return bool(parse(one) == parse(other))


def find_lifecycle(engine: str) -> Lifecycle | None:
    """What is known about how an engine starts and sleeps; None where nothing is."""
    module = _LIFECYCLES.get(engine)
    return None if module is None else cast("Lifecycle", importlib.import_module(module))


def find_adapter_rules(engine: str) -> AdapterRules | None:
    """What is known about how an engine serves adapters; None where nothing is."""
    module = _ADAPTER_RULES.get(engine)
    return None if module is None else cast("AdapterRules", importlib.import_module(module))


def find_serving(engine: str) -> Serving | None:
    """How an engine's server is started; None where that is not known here."""
    module = _SERVINGS.get(engine_name(engine))
    return None if module is None else cast("Serving", importlib.import_module(module).SERVING)


def find_scheduling(engine: str) -> Callable[[Plan], EngineScheduling]:
    """What an engine's scheduler goes by, of a plan of that engine. Raises FlagError for a name that has no folder here."""
    module = _part(engine, "scheduling")
    return cast("Callable[[Plan], EngineScheduling]", module.scheduling)


def find_full_pool(engine: str) -> Callable[[Mapping[str, object]], FullPool]:
    """What an engine does where its pool is full, of its settings by name (those that are not there are its defaults). Raises FlagError for a
    name that has no folder here."""
    module = _part(engine, "full_pool")
    return cast("Callable[[Mapping[str, object]], FullPool]", module.full_pool)


def find_log(engine: str) -> EngineLog | None:
    """How an engine words its log; None where that is not known here."""
    module = _LOGS.get(engine_name(engine))
    return None if module is None else cast("EngineLog", importlib.import_module(module))


def find_printed(engine: str) -> PrintedSettings | None:
    """How an engine calls its settings where it prints them; None for one without rules here."""
    module = _PRINTED.get(engine_name(engine))
    return None if module is None else cast("PrintedSettings", importlib.import_module(module))


def log_engines() -> tuple[str, ...]:
    """Engines whose logs are read."""
    return tuple(_LOGS)


def find_metrics(engine: str) -> EngineMetrics | None:
    """How an engine names its metrics; None where that is not known here."""
    module = _METRICS.get(engine_name(engine))
    return None if module is None else cast("EngineMetrics", importlib.import_module(module))


def find_endpoints(engine: str) -> EngineEndpoints | None:
    """The paths at which an engine tells of itself; None where none is known here."""
    module = _ENDPOINTS.get(engine_name(engine))
    return None if module is None else cast("EngineEndpoints", importlib.import_module(module))


def find_sample_endpoints(engine: str) -> tuple[SampleEndpoint, ...]:
    """The paths at which an engine tells quantities of the moment beside its metrics."""
    module = _ENDPOINTS.get(engine_name(engine))
    found = getattr(importlib.import_module(module), "SAMPLE_ENDPOINTS", ()) if module is not None else ()
    return cast("tuple[SampleEndpoint, ...]", found)


def metrics_engines() -> tuple[str, ...]:
    """Engines whose metrics are read."""
    return tuple(_METRICS)


def engine_name(text: str) -> str:
    """The name here of an engine as a person writes it, its version left out ("llama.cpp==b6000": "llamacpp")."""
    name = text.partition("==")[0].strip().lower()
    return _ALIASES.get(name, name)


def engine_names() -> tuple[str, ...]:
    """Names of the engines that have rules here."""
    return tuple(_MODULES)
