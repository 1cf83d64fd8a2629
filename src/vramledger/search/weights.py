"""The same model with its weights stored in another format: hypothetical checkpoints.

Each format is the quantisation config that its most common producer writes, read by the reader of real ones. The
matrices of the decoder's layers change; embeddings, the head, routers, norms, drafts and the towers of other
modalities stay as the model has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import FlagError
from vramledger.evidence import calculated
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Dense
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.quantization import apply, read_quantization
from vramledger.models.tensors import Component, Role

STORED = "stored"


class WeightChoice(Struct, frozen=True, kw_only=True):
    """One way to store the weights.

    `section` makes the `quantization_config` from the modules to leave alone, None where there is none. `loss` is the
    class of precision: 0 as published or 16 bits, 1 for 8 bits, 2 for 4. `engines` are those that load it.
    `file_type` names the format for an engine that converts the model to files of its own. `needs` is the least compute
    capability (89 for 8.9) by engine, where an engine runs it on newer NVIDIA devices alone and does not itself
    say so in its plan.
    """

    name: str
    help: str
    loss: int
    engines: frozenset[str]
    section: Callable[[list[str]], dict[str, Any]] | None = None
    file_type: str = ""
    needs: Mapping[str, int] = {}


_SERVERS = frozenset({"vllm", "sglang", "tensorrt-llm", "transformers"})
_LLAMACPP = frozenset({"llamacpp"})
_COMPRESSED = frozenset({"vllm", "sglang", "transformers"})
_LINEAR = ["Linear"]


def _compressed(stored_as: str, weights: dict[str, Any], inputs: dict[str, Any] | None) -> Callable[..., Any]:
    def section(ignored: list[str]) -> dict[str, Any]:
        group = {"targets": _LINEAR, "weights": weights, "input_activations": inputs}
        return {
            "quant_method": "compressed-tensors",
            "format": stored_as,
            "config_groups": {"group_0": group},
            "ignore": ignored,
        }

    return section


def _fp8_block(ignored: list[str]) -> dict[str, Any]:
    return {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ignored,
    }


def _awq(_ignored: list[str]) -> dict[str, Any]:
    return {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}


def _gptq(_ignored: list[str]) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}


def _nvfp4(ignored: list[str]) -> dict[str, Any]:
    return {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "exclude_modules": ignored,
    }


# What a format needs: TensorRT-LLM's support matrix of precisions; sglang srt/layers/quantization/modelopt_quant.py;
# transformers quantizers/quantizer_finegrained_fp8.py.
_DYNAMIC = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}

FORMATS: Mapping[str, WeightChoice] = {
    choice.name: choice
    for choice in (
        WeightChoice(
            name=STORED,
            help="as the checkpoint has them",
            loss=0,
            engines=_SERVERS | _LLAMACPP,
        ),
        WeightChoice(
            name="bf16", help="unquantised, 16 bits", loss=0, engines=_SERVERS | _LLAMACPP, file_type="BF16"
        ),
        WeightChoice(
            name="fp8",
            help="FP8 with a scale for each row (llm-compressor's FP8_DYNAMIC)",
            loss=1,
            engines=_COMPRESSED,
            section=_compressed(
                "float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}, _DYNAMIC
            ),
        ),
        WeightChoice(
            name="fp8-block",
            help="FP8 with a scale for each tile of 128 x 128 (DeepSeek's layout)",
            loss=1,
            engines=_SERVERS,
            section=_fp8_block,
            needs={"tensorrt-llm": 90, "transformers": 89},
        ),
        WeightChoice(
            name="int8-w8a8",
            help="INT8 weights and activations, a scale for each row (llm-compressor's W8A8)",
            loss=1,
            engines=_COMPRESSED,
            section=_compressed(
                "int-quantized",
                {"num_bits": 8, "type": "int", "strategy": "channel"},
                {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
            ),
        ),
        WeightChoice(
            name="awq-int4",
            help="INT4 with zero points for each group of 128 (AutoAWQ)",
            loss=2,
            engines=_COMPRESSED,
            section=_awq,
        ),
        WeightChoice(
            name="gptq-int4",
            help="INT4 in groups of 128, symmetric (GPTQModel)",
            loss=2,
            engines=_COMPRESSED,
            section=_gptq,
        ),
        WeightChoice(
            name="nvfp4",
            help="4-bit floats, an 8-bit scale for each 16 (ModelOpt)",
            loss=2,
            engines=frozenset({"vllm", "sglang", "tensorrt-llm"}),
            section=_nvfp4,
            needs={"tensorrt-llm": 100, "sglang": 100},
        ),
        WeightChoice(
            name="mxfp4",
            help="4-bit floats, a power of two for each 32 (llm-compressor's MXFP4)",
            loss=2,
            engines=frozenset({"vllm"}),
            section=_compressed(
                "mxfp4-pack-quantized",
                {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
                None,
            ),
        ),
        *(
            WeightChoice(
                name=file_type.lower(),
                help=f"GGUF file of type {file_type}, by llama-quantize's own choice for each tensor",
                loss=loss,
                engines=_LLAMACPP,
                file_type=file_type,
            )
            for file_type, loss in (("Q8_0", 1), ("Q6_K", 1), ("Q5_K_M", 2), ("Q4_K_M", 2), ("Q4_0", 2))
        ),
    )
}


def weight_names() -> tuple[str, ...]:
    """Names of the formats, "stored" first."""
    return tuple(FORMATS)


def choice_of(name: str) -> WeightChoice:
    """Raises FlagError for a name without a format here."""
    found = FORMATS.get(name)
    if found is None:
        from difflib import get_close_matches

        near = tuple(get_close_matches(name, FORMATS, n=3))
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(FORMATS)}"
        raise FlagError(
            f"--weights {name!r} is not a format here; {hint}", flag="weights", value=name, closest=near
        )
    return found


def restored(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """The checkpoint as it would be in another format, itself for "stored" and for what it already is.

    Its sizes are calculated, its note says that it is hypothetical. Raises FlagError for an unknown name, UnknownFormat where
    a matrix cannot be stored so.
    """
    choice = choice_of(name)
    if name == STORED or (name == "bf16" and is_plain(checkpoint)):
        return checkpoint
    if choice.section is None and name != "bf16":
        raise FlagError(f"weights {name} are a file that its engine converts to", flag="weights", value=name)
    model = _without_formats(checkpoint.model)
    scheme = None
    if choice.section is not None:
        config = Config(
            {
                "model_type": model.model_type,
                "num_hidden_layers": model.num_layers,
                "quantization_config": choice.section(_left_alone(model)),
            },
            f"hypothetical {name}",
        )
        scheme = read_quantization(config, model.dtype)
    stored = apply(model, scheme)
    was = checkpoint.quantization
    return Checkpoint(
        model=model,
        stored=stored,
        quantization=scheme.summary if scheme is not None else model.dtype.value,
        disk_bytes=sum(item.stored_bytes for item in stored),
        disk_evidence=calculated(f"hypothetical: {model.id} stored as {name}", "sum of stored tensors"),
        differences=(
            f"the weights are hypothetical: {choice.help}, made from a checkpoint that has them as {was}",
        ),
    )


def is_plain(checkpoint: Checkpoint) -> bool:
    """Whether nothing is quantised and nothing is wider than 16 bits."""
    return all(
        isinstance(item.format, Dense) and item.format.dtype in (DType.BF16, DType.F16)
        for item in checkpoint.stored
        if item.tensor.linear
    )


def _without_formats(model: Model) -> Model:
    """Matrices take the type the model runs in, which headers may have noted otherwise."""
    if model.dtype in (DType.BF16, DType.F16):
        return model
    return replace(model, dtype=DType.BF16)


def _left_alone(model: Model) -> list[str]:
    """The head, and the matrices of drafts and of other modalities, as a config lists them."""
    out = ["lm_head"]
    for tensor in model.tensors:
        if not tensor.linear or (tensor.component is Component.DECODER and tensor.role is not Role.LM_HEAD):
            continue
        module = re.sub(r"\{(block|expert)\}", "*", tensor.module)
        if "{layer}" in module:
            out.extend(module.replace("{layer}", str(layer)) for layer in tensor.layers)
        else:
            out.append(module)
    return list(dict.fromkeys(out))
