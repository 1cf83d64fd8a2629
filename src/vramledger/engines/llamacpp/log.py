"""llama.cpp's log and Ollama's: their wordings, and what one start-up's lines mean in the ledger.

Devices are the ledger's ranks, in the order in which they are named; what lies in host memory is the host's, except in a
build without devices, where the host is the only rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from vramledger.engines.llamacpp.log_figures import (
    Places,
    buffer_figures,
    free_states,
    measured_pools,
    prompt_cache,
)
from vramledger.engines.llamacpp.log_serving import OLLAMA, SERVING, TABLE
from vramledger.engines.llamacpp.log_settings import settings_of
from vramledger.engines.llamacpp.log_startup import STARTUP
from vramledger.engines.llamacpp.log_state import state_of
from vramledger.engines.log_facts import last_start, size_of, text_of
from vramledger.measurement import Measurement
from vramledger.observation import Event, Observation

NAME = "llamacpp"

SIGNS: tuple[str, ...] = (
    "llama_model_loader: ",
    "llm_load_tensors: ",
    "load_tensors: ",
    "llama_kv_cache",
    "llama_context: ",
    "llama_new_context_with_model: ",
    "memory_breakdown_print: ",
    "srv  update_slots: ",
    "srv    load_model: ",
    "launch_slot_: ",
    "ggml_cuda_init: ",
    "OLLAMA_",
    'msg="llama runner started',
    'msg="model weights"',
)

PATTERNS = (*TABLE, *STARTUP, *OLLAMA, *SERVING)


def measured(observations: Iterable[Observation]) -> Measurement:
    """What the last start-up states. Sizes of Ollama's own lines (one decimal) stand where llama.cpp's are absent."""
    start = last_start(observations, _begins)
    state = state_of(start.said)
    version = _version(start.last("engine_version", Event.VERSION))
    places = Places(start, state, version)
    notes: list[str] = []
    if start.count > 1:
        notes.append(f"the log holds {start.count} start-ups; this is the last")
    ollama = start.first("ollama_version", Event.VERSION)
    if ollama is not None:
        notes.append(f"run by Ollama {ollama.values['ollama_version']}")
    figures, pools = (*buffer_figures(places), *prompt_cache(places)), measured_pools(places)
    if not (figures or pools) and any("n_slots" in item.values for item in start.of(Event.SETTINGS)):
        notes.append(
            "the log tells no buffers; llama-server of recent builds prints them at verbosity 4 (-lv 4)"
        )
    first = state.models[0] if state.models else None
    device = next(
        (item for item in start.of(Event.DEVICE) if text_of(item, "where") not in ("CPU", "BLAS")), None
    )
    total = start.last("total_bytes", Event.MEMORY, Event.DEVICE)
    architecture = start.first("architecture", Event.MODEL)
    return Measurement(
        sources=start.sources,
        engine=NAME,
        engine_version=version,
        model=first.path if first is not None else None,
        architecture=text_of(architecture, "architecture"),
        device=text_of(device, "device"),
        device_total_bytes=size_of(total, "total_bytes") if places.devices else None,
        settings=settings_of(start, state),
        figures=figures,
        pools=pools,
        allocator=free_states(places),
        notes=tuple(notes),
    )


def _begins(item: Observation, seen: AbstractSet[Event]) -> bool:
    """A build prints its number once; a server of several models, as Ollama is, loads the next one after the last was
    ready."""
    if item.event is Event.VERSION and "commit" in item.values:
        return not seen or bool(seen & {Event.BUFFER, Event.READY, Event.STEP})
    if item.event is Event.MODEL and "tensors_count" in item.values:
        return bool(seen & {Event.READY, Event.STEP})
    return item.event is Event.SETTINGS and "request" in item.values and bool(seen & {Event.READY})


def _version(item: Observation | None) -> str | None:
    """ "b11549"; a build that does not know its number prints 0, which is not read."""
    text = text_of(item, "engine_version")
    return None if text is None else text if text.startswith("b") else f"b{text}"
