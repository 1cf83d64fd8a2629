"""One question put to the plan and to the engine."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from tools.llamacpp_agreement.cases import Case
from tools.llamacpp_agreement.header_file import write_header_file

from vramledger.engines.llamacpp.architectures import architecture_of
from vramledger.engines.llamacpp.file_model import file_model
from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.llamacpp.planner import configure
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.engines.llamacpp.version import NEWEST
from vramledger.formats.ggml import ggml_type
from vramledger.hardware.catalogue import find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import MIB

MOST_COMPUTE_ERROR = 0.03
HOST_DEVICE = "cpu:64GiB"
_PROBE = Path(__file__).with_name("dry_run.py")
_SIZES = re.compile(
    r"(llama_kv_cache|llama_memory_recurrent): size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers.*: +([\d.]+) MiB, [VS] \(\w+\): +([\d.]+) MiB"
)


class Figures(Struct, frozen=True, kw_only=True):
    """What is compared: bytes, and the caches' printed sizes, cells and layers in the order they are printed."""

    model_bytes: int
    context_bytes: int
    compute_bytes: int
    caches: tuple[tuple[str, str, str, str, str], ...]


class Outcome(Struct, frozen=True, kw_only=True):
    """One case; `problem` is "" where nothing differs."""

    case: Case
    plan: Figures
    engine: Figures | None
    problem: str

    @property
    def compute_error(self) -> float:
        return self.plan.compute_bytes / self.engine.compute_bytes - 1 if self.engine else 0.0


def planned(case: Case, checkpoint: Checkpoint) -> Measured:
    """The configuration that the plan has for a case, on a host without devices."""
    _, _, fitted = configure(checkpoint, find_device(HOST_DEVICE), NEWEST, case.flags)
    return fitted.measured


def plan_figures(measured: Measured) -> Figures:
    """The plan's side of a comparison."""
    caches = []
    for windowed, index in ((False, False), (True, False), (False, True)):
        layers = [
            item for item in measured.caches.caches if item.is_windowed is windowed and item.is_index is index
        ]
        if layers:
            keys, values = sum(item.key_bytes for item in layers), sum(item.value_bytes for item in layers)
            caches.append(
                (_mib(keys + values), str(layers[0].cells), str(len(layers)), _mib(keys), _mib(values))
            )
    states = measured.caches.states
    if states:
        shift, state = sum(item.shift_bytes for item in states), sum(item.state_bytes for item in states)
        slots = measured.settings.slots
        caches.append(
            (_mib(shift + state), str(slots), str(len(measured.placement.layers)), _mib(shift), _mib(state))
        )
    return Figures(
        model_bytes=measured.placement.host_bytes + measured.placement.host_tied_bytes,
        context_bytes=measured.context_bytes(HOST),
        compute_bytes=measured.compute[HOST].expected,
        caches=tuple(caches),
    )


def _mib(size: int) -> str:
    return f"{size / MIB:.2f}"


def engine_figures(answer: Mapping[str, Any]) -> Figures:
    """The engine's side, from a probe's answer."""
    found = [match.groups() for line in answer["lines"] if (match := _SIZES.search(line))]
    return Figures(
        model_bytes=answer["model_bytes"],
        context_bytes=answer["context_bytes"],
        compute_bytes=answer["compute_bytes"],
        caches=tuple(
            (total, cells, layers, first, second) for _, total, cells, layers, first, second in found
        ),
    )


def compare(case: Case, checkpoint: Checkpoint, answer: Mapping[str, Any]) -> Outcome:
    """What differs between the plan and a probe's answer."""
    ours = plan_figures(planned(case, checkpoint))
    if "error" in answer:
        return Outcome(case=case, plan=ours, engine=None, problem=f"the engine refused: {answer['error']}")
    theirs = engine_figures(answer)
    problems = []
    for name in ("model_bytes", "context_bytes"):
        if getattr(ours, name) != getattr(theirs, name):
            problems.append(f"{name} {getattr(ours, name):,} and the engine {getattr(theirs, name):,}")
    if ours.caches != theirs.caches:
        problems.append(f"caches {ours.caches} and the engine {theirs.caches}")
    if abs(ours.compute_bytes / theirs.compute_bytes - 1) > MOST_COMPUTE_ERROR:
        problems.append(f"compute {_mib(ours.compute_bytes)} MiB and the engine {_mib(theirs.compute_bytes)}")
    return Outcome(case=case, plan=ours, engine=theirs, problem="; ".join(problems))


def ask(python: str, case: Case, checkpoint: Checkpoint, scratch: Path) -> dict[str, Any]:
    """The engine's answer to a case: a header-only file is written, measured in a process of its own, removed."""
    architecture = architecture_of(checkpoint.model)
    file = file_model(checkpoint, architecture, NEWEST, case.flags.ftype)
    path = scratch / "model.gguf"
    write_header_file(path, checkpoint.model, architecture, file.tensors)
    done = subprocess.run(
        [python, str(_PROBE), str(path), json.dumps(_parameters(case))],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    path.unlink()
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "rror" in line or "ASSERT" in line]
        return {"error": (said or done.stderr.splitlines() or [f"exit {done.returncode}"])[0][:200]}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _parameters(case: Case) -> dict[str, int]:
    """Context parameters as the engine's C interface names them."""
    flags = case.flags
    return {
        "n_ctx": flags.ctx_size or 0,
        "n_batch": flags.batch_size or 2048,
        "n_ubatch": flags.ubatch_size or 512,
        "n_seq_max": flags.parallel or 1,
        "n_outputs_max": flags.n_outputs_max or flags.parallel or 1,
        "flash_attn": 0 if flags.flash_attn == "off" else -1,
        "type_k": ggml_type(flags.cache_type_k or "f16").number,
        "type_v": ggml_type(flags.cache_type_v or "f16").number,
        "kv_unified": int(bool(flags.kv_unified)),
        "swa_full": int(flags.swa_full),
    }
