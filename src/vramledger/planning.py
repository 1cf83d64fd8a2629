"""A question put to all floors below: this model, on this device, under this engine's flags."""

from __future__ import annotations

from os import PathLike, fspath

from vramledger.answer import Plan
from vramledger.engines import find_engine
from vramledger.errors import FlagError, InputError, shorter
from vramledger.hardware.catalogue import Device, find_device
from vramledger.models.checkpoint import Checkpoint


def plan(
    model: str | PathLike[str] | Checkpoint,
    device: str | Device,
    *,
    engine: str = "vllm",
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    concurrency: int = 1,
    remedies: bool = False,
    **flags: object,
) -> Plan:
    """Ledgers, KV pool and verdict of one engine instance.

    `model` is a folder, a file, a hub id or `builtin:NAME`, or what `load_model` gave; `device` a name of the catalogue or a
    size ("custom:79.19GiB"). `engine` is a name with or without a version ("vllm==0.27.1"), and `flags` are
    its own, spelled as Python names (`max_model_len=32768` or "32k"); None stands for a flag not given. The
    verdict is about `concurrency` requests of the full context at once; with `remedies`, one that does not
    surely hold names changes under which it does, each planned in its turn.

    Raises InputError, FlagError, DeviceError, ConfigError, HeaderError, SourceError, UnknownArchitecture or
    UnknownFormat, all of them VramledgerError.
    """
    if not isinstance(engine, str):
        raise FlagError(
            f"engine must be a name such as 'vllm==0.27.1', not {shorter(engine)}",
            flag="engine",
            value=shorter(engine),
        )
    if type(concurrency) is not int or concurrency < 1:
        raise FlagError(
            f"concurrency must be a whole number of at least 1, not {shorter(concurrency)}",
            flag="concurrency",
            value=shorter(concurrency),
        )
    rules, version = find_engine(engine)
    target = device if isinstance(device, Device) else find_device(device)
    checkpoint = model if isinstance(model, Checkpoint) else load_model(model)
    given = {"tp": tp, "pp": pp, "dp": dp}
    # Only what was left at its default is no flag; whatever else was given is for the engine to read.
    values: dict[str, object] = {
        name: size for name, size in given.items() if type(size) is not int or size != 1
    }
    if ep is not False:
        values["ep"] = ep
    return rules.plan_with(
        checkpoint,
        target,
        version=version,
        values={**values, **flags},
        concurrency=concurrency,
        remedies=remedies,
    )


def load_model(source: str | PathLike[str], *, headers: bool = True) -> Checkpoint:
    """The model at a folder, a file (config.json, an index, *.safetensors, *.gguf), a hub id or `builtin:NAME`.

    Reads headers only, never weights, and none at all without `headers`. Raises InputError, SourceError, ConfigError,
    HeaderError, UnknownArchitecture or UnknownFormat.
    """
    text = fspath(source) if isinstance(source, str | PathLike) else None
    if not isinstance(text, str):
        raise InputError(
            f"model must be a path or a hub id as text, or what load_model gave, not {shorter(source)}",
            argument="model",
            value=shorter(source),
        )
    from vramledger.models.loading import load_checkpoint

    return load_checkpoint(text, headers=headers)
