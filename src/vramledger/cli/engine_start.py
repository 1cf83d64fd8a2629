"""How the engine of a plan is started, in its document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from vramledger.documents.plan import StartDocument
from vramledger.engines import engine_name, find_engine, find_serving
from vramledger.engines.start_line import start_line

_BUILTIN = "builtin:"
_NO_GGUF = "MODEL.gguf"


def start_document(
    model: str, *, model_id: str, engine: str, flags: Mapping[str, object]
) -> StartDocument | None:
    """The engine's own command for a plan of `model`, as the command line has it, under `flags`; None where it is not known how the
    engine is started.

    A built-in model is served by the id that it is published under, a file of a checkpoint by its folder. llama.cpp serves GGUF files:
    any other model stands as one to be made.
    """
    serving = find_serving(engine)
    if serving is None:
        return None
    served = _served(model, model_id)
    notes: tuple[str, ...] = ()
    if engine_name(engine) == "llamacpp" and not served.endswith(".gguf"):
        served, notes = _NO_GGUF, (f"{_NO_GGUF}: {served} as a GGUF file (convert_hf_to_gguf.py makes one)",)
    found = start_line(serving, find_engine(engine)[0].OPTIONS, model=served, values=flags)
    return StartDocument(command=found.command, left_out=(*notes, *found.left_out))


def _served(model: str, model_id: str) -> str:
    if model.startswith(_BUILTIN):
        return model_id
    path = PurePath(model)
    if path.suffix in (".json", ".safetensors"):
        return str(path.parent)
    return model
