"""The file that llama.cpp loads: the one that is there, or the one a conversion to a file type would write."""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.llamacpp.architectures import Architecture
from vramledger.engines.llamacpp.file_tensors import FileTensor, file_tensors
from vramledger.engines.llamacpp.file_type import ModelFacts, file_type_name, typed
from vramledger.engines.llamacpp.version import LlamaBuild
from vramledger.engines.recent import Recent
from vramledger.errors import FlagError
from vramledger.evidence import Evidence, calculated, reported
from vramledger.formats.dtypes import DType
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import FullAttention, LatentAttention, MixtureOfExperts
from vramledger.models.model import Model


class FileModel(Struct, frozen=True, kw_only=True):
    """The tensors that are loaded, with their types; `file_type` as a person names it."""

    tensors: tuple[FileTensor, ...]
    file_type: str
    evidence: Evidence
    notes: tuple[str, ...] = ()


_recent: Recent[FileModel] = Recent(128)


def file_model(
    checkpoint: Checkpoint, architecture: Architecture, build: LlamaBuild, file_type: str | None
) -> FileModel:
    """The file of a checkpoint. A file type applies only where the checkpoint is none yet.

    Raises FlagError for an unknown file type, or one asked of a GGUF file, which has its types already.
    """
    return _recent.get(
        checkpoint,
        (architecture, build, file_type),
        lambda: _file_model(checkpoint, architecture, build, file_type),
    )


def _file_model(
    checkpoint: Checkpoint, architecture: Architecture, build: LlamaBuild, file_type: str | None
) -> FileModel:
    model, info = checkpoint.model, checkpoint.gguf
    if info is not None:
        if file_type is not None:
            raise FlagError(
                f"--ftype {file_type}: the file has its types already ({checkpoint.quantization})",
                flag="ftype",
                value=file_type,
            )
        tensors = tuple(
            FileTensor(name=item.name, dims=item.dims, type=item.type)
            for item in info.tensors
            if _loaded(item.name, model)
        )
        return FileModel(
            tensors=tensors,
            file_type=checkpoint.quantization,
            evidence=reported("GGUF headers", f"sum of {len(tensors)} tensors"),
        )
    name = file_type_name(file_type) if file_type else _own_type(model)
    bare = file_tensors(model, architecture, absorbed=build.has_latents)
    tensors = typed(bare, name, _facts(model, architecture))
    if architecture.name == "gpt-oss":
        tensors = _native_experts(tensors)
    note = (
        f"MODEL is no GGUF file: a conversion to {name} is planned, types by llama-quantize's rules without an importance "
        "matrix; published files with --tensor-type overrides differ"
    )
    return FileModel(
        tensors=tensors,
        file_type=name,
        evidence=calculated("llama.cpp src/llama-quant.cpp", f"{len(tensors)} tensors of a {name} file"),
        notes=(note,),
    )


def _loaded(name: str, model: Model) -> bool:
    """Draft heads after the last layer and towers stay in the file."""
    parts = name.split(".")
    return not (
        parts[0] == "blk" and len(parts) > 1 and parts[1].isdigit() and int(parts[1]) >= model.num_layers
    )


def _own_type(model: Model) -> str:
    return {DType.F32: "F32", DType.BF16: "BF16"}.get(model.dtype, "F16")


def _native_experts(tensors: tuple[FileTensor, ...]) -> tuple[FileTensor, ...]:
    """gpt-oss's experts are MXFP4 in the checkpoint, and every file keeps them so."""
    from msgspec.structs import replace

    return tuple(replace(item, type="MXFP4") if "_exps.weight" in item.name else item for item in tensors)


def _facts(model: Model, architecture: Architecture) -> ModelFacts:
    experts = max(
        (
            layer.channel_mixer.num_experts
            for layer in model.layers
            if isinstance(layer.channel_mixer, MixtureOfExperts)
        ),
        default=0,
    )
    attention = next(
        (mixer for mixer in model.token_mixers if isinstance(mixer, (FullAttention, LatentAttention))), None
    )
    if isinstance(attention, FullAttention):
        gqa = attention.q_heads // max(attention.kv_heads, 1)
    else:
        gqa = attention.q_heads if attention is not None else 0
    return ModelFacts(
        experts=experts,
        gqa=gqa,
        blocks=model.num_layers,
        is_70b=architecture.name == "llama" and model.num_layers == 80 and gqa > 1,
        is_falcon=architecture.name == "falcon",
    )
