"""A GGUF file's header gives the plan that the config.json of the same model gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tools.accuracy.data import ModelSet
from tools.llamacpp_agreement.cases import Case, cases
from tools.llamacpp_agreement.compare import plan_figures, planned
from tools.llamacpp_agreement.header_file import write_header_file

from vramledger.engines.llamacpp.architectures import architecture_of
from vramledger.engines.llamacpp.file_model import file_model
from vramledger.engines.llamacpp.version import NEWEST
from vramledger.models.loading import checkpoint_from_source, load_checkpoint
from vramledger.models.model import Model

MODELS = ModelSet(Path(__file__).resolve().parents[2] / "data")
# Architectures that no reader of headers describes; the engine plans them from config.json.
NOT_READ = (
    "Qwen2.5-VL", "Qwen3-VL", "Qwen-7B-Chat", "chatglm3", "falcon-7b", "bloom", "mpt-7b", "gpt2-xl", "Nemotron-Super",
)  # fmt: skip
FIRST = {case.model: case for case in reversed(list(cases()))}
READ = [case for case in FIRST.values() if not any(word in case.model for word in NOT_READ)]


def described(model: Model) -> dict[str, int]:
    """Parameters by group without the encoders, which are files of their own under llama.cpp."""
    counts = model.parameter_counts().by_group
    return {
        name: count for name, count in counts if name not in ("vision", "audio", "projector", "embedding")
    }


@pytest.mark.parametrize("case", READ, ids=lambda case: case.model)
def test_a_header_plans_as_its_config_does(case: Case, tmp_path: Path) -> None:
    checkpoint = checkpoint_from_source(MODELS.source(case.model))
    architecture = architecture_of(checkpoint.model)
    path = tmp_path / "model.gguf"
    tensors = file_model(checkpoint, architecture, NEWEST, case.flags.ftype).tensors
    write_header_file(path, checkpoint.model, architecture, tensors)
    read = load_checkpoint(str(path))
    assert described(read.model) == described(checkpoint.model)
    as_file = replace(case, flags=replace(case.flags, ftype=None))
    assert plan_figures(planned(as_file, read)) == plan_figures(planned(case, checkpoint))


@pytest.mark.parametrize(
    "model",
    [
        "ibm-granite__granite-4.0-h-tiny",
        "tiiuae__Falcon-H1-0.5B-Instruct",
        "ai21labs__AI21-Jamba-Mini-1.7",
        "state-spaces__mamba-1.4b-hf",
        "Qwen__Qwen3.5-9B",
        "Qwen__Qwen3-Next-80B-A3B-Instruct",
        "zai-org__GLM-4-9B-0414",
    ],
)
def test_every_tensor_of_a_file_is_one_that_the_description_has(model: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_from_source(MODELS.source(model))
    architecture = architecture_of(checkpoint.model)
    tensors = file_model(checkpoint, architecture, NEWEST, FIRST[model].flags.ftype).tensors
    write_header_file(tmp_path / "model.gguf", checkpoint.model, architecture, tensors)
    assert load_checkpoint(str(tmp_path / "model.gguf")).differences == ()
