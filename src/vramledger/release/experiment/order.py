"""What an experiment is asked for, beside its plan: who is asked, how it is started, where the files go."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import FlagError
from vramledger.experiment.extra import not_installed
from vramledger.experiment.plan import ExperimentPlan
from vramledger.telemetry.command_words import without_secrets
from vramledger.telemetry.engine_process import launch_words
from vramledger.telemetry.web import checked_url

HOST = "127.0.0.1"


class Order(Struct, frozen=True, kw_only=True):
    """Either `target`, an address where somebody answers, or `launch`, a command with {model}, {host} and {port}.

    `engine_url` is the engine itself and `gateway_url` the admin address where `target` is a gateway. `engine` names it where it does not
    say, `model` what it is to be asked for (and what {model} stands for). `key` is the bearer token that requests carry.
    """

    plan: ExperimentPlan
    out: Path
    made_by: str
    target: str | None = None
    launch: str | None = None
    model: str | None = None
    engine: str | None = None
    engine_url: str | None = None
    gateway_url: str | None = None
    manifest: Path | None = None
    key: str = ""
    fresh: bool = False
    ready_s: float = 900.0

    def __repr__(self) -> str:
        return f"Order({self.target or launched_words(self)!r}, out={str(self.out)!r})"


def checked_order(order: Order) -> Order:
    """The same order, its addresses in one spelling. Raises FlagError for what does not go together."""
    if order.target is not None and order.launch is not None:
        raise FlagError(
            "--target is an engine that runs, --launch starts one: give one of them", flag="launch"
        )
    if order.target is None and order.launch is None:
        raise FlagError("give --target URL, or --launch 'COMMAND' to start the engine here", flag="target")
    if order.launch is not None and (order.engine_url or order.gateway_url):
        raise FlagError(
            "--engine-url and --gateway are of a --target that is a gateway; the engine of --launch is asked itself",
            flag="gateway" if order.gateway_url else "engine_url",
        )
    launched_words(order)
    changes = {
        name: checked_url(address)
        for name in ("target", "engine_url", "gateway_url")
        if (address := getattr(order, name)) is not None
    }
    return replace(order, **changes)


def launched_words(order: Order) -> tuple[str, ...]:
    """The command with its model, its host and port left open, as it may be kept: without keys that are named in it. Empty where an engine
    is asked that runs. Raises FlagError for one that cannot be read."""
    if order.launch is None:
        return ()
    if "{port}" not in order.launch:
        raise FlagError(
            "--launch has no {port}: the engine is to listen on a free one of this machine", flag="launch"
        )
    if "{model}" in order.launch and order.model is None:
        raise FlagError("--launch has {model}; say which by --model", flag="model")
    launch_words(order.launch, model=order.model or "", host=HOST, port=1)
    return without_secrets([word.replace("{model}", order.model or "") for word in shlex.split(order.launch)])


def need_libraries() -> None:
    """Raises InputError where a library of the extra is missing."""
    for name in ("httptools", "numpy", "pyarrow"):
        try:
            __import__(name)
        except ImportError as problem:
            raise not_installed(problem) from None
