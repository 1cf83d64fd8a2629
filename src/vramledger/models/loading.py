"""From what was read of a model to what planning needs."""

from __future__ import annotations

from vramledger.evidence import calculated, reported
from vramledger.models.architectures import describe
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.quantization import QuantizationScheme, StoredTensor, apply, read_quantization
from vramledger.models.sources.load import Source, load_source


def load_checkpoint(text: str, *, headers: bool = True) -> Checkpoint:
    """The model at a folder, file or hub id. Raises what `load_source` and `checkpoint_from_source` raise."""
    return checkpoint_from_source(load_source(text, headers=headers))


def checkpoint_from_source(source: Source) -> Checkpoint:
    """Describe, size and compare.

    Raises UnknownArchitecture or UnknownFormat for what has no description here, ConfigError for a config
    that lacks what its class needs.
    """
    config = source.config_view()
    model = describe(config, source.id)
    hf_quant = source.quant_configs.get("hf_quant_config.json")
    scheme = read_quantization(
        config, model.dtype, Config(hf_quant, "hf_quant_config.json") if hf_quant is not None else None
    )
    stored = apply(model, scheme)
    size = sum(item.stored_bytes for item in stored)
    if source.disk_bytes is not None:
        disk, evidence = source.disk_bytes, source.disk_evidence or reported("the files' sizes")
    else:
        disk, evidence = size, calculated("config.json", "sum of stored tensors")
    return Checkpoint(
        model=model,
        stored=stored,
        quantization=_summary(model, scheme),
        disk_bytes=disk,
        disk_evidence=evidence,
        declared_kv_dtype=scheme.declared_kv.dtype if scheme and scheme.declared_kv else None,
        declared_kv_source=scheme.declared_kv.source if scheme and scheme.declared_kv else "",
        differences=(),
    )


def _summary(model: Model, scheme: QuantizationScheme | None) -> str:
    return scheme.summary if scheme is not None else model.dtype.value


__all__ = ["StoredTensor", "checkpoint_from_source", "load_checkpoint"]
