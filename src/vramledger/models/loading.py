"""From what was read of a model to what planning needs."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.errors import UnknownArchitecture, UnknownFormat
from vramledger.evidence import Evidence, calculated, reported
from vramledger.formats.weights import Dense, format_label
from vramledger.models.architectures import describe
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.quantization import QuantizationScheme, StoredTensor, apply, read_quantization
from vramledger.models.sources.load import Source, load_source

_SIDE_METHODS = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Files of AutoGPTQ and AutoAWQ from before config.json held a quantization_config, and whose they are."""


def load_checkpoint(text: str, *, headers: bool = True) -> Checkpoint:
    """The model at a folder, file, hub id or `builtin:NAME`. Raises what `load_source` and `checkpoint_from_source` raise."""
    return checkpoint_from_source(load_source(text, headers=headers))


def checkpoint_from_source(source: Source) -> Checkpoint:
    """Describe, size and compare.

    Where headers were read, stored formats and the size on disk are theirs, and what the description has otherwise
    is told in `differences`; with an index alone, its names are compared and its total size is taken.

    Raises UnknownArchitecture or UnknownFormat for what has no description here, ConfigError for a config
    that lacks what its class needs; each names the file.
    """
    try:
        return _checkpoint(source)
    except (UnknownArchitecture, UnknownFormat) as problem:
        if source.where in problem.message:
            raise
        facts = {"file": source.where} | problem.facts
        raise type(problem)(
            f"{source.where}: {problem.message.removeprefix('config.json: ')}", **facts
        ) from None


def _checkpoint(source: Source) -> Checkpoint:
    config = source.config_view()
    model = describe(config, source.id)
    said: list[str] = []
    refusal: UnknownFormat | None = None
    scheme: QuantizationScheme | None = None
    try:
        scheme = _scheme(source, config, model, said)
        stored = apply(model, scheme)
    except UnknownFormat as problem:
        if source.table is None:
            raise
        refusal, scheme = problem, None
        stored = apply(model, None)
        said.append(f"{problem.message}; formats are the headers'")
    assumed = stored
    if source.table is not None:
        from vramledger.models.headers.reconcile import reconcile

        found = reconcile(model, stored, source.table, is_gguf=source.gguf is not None)
        if refusal is not None and found.unreadable:
            raise refusal
        model, stored = found.model, found.stored
        said.extend(found.differences)
    elif source.index is not None:
        from vramledger.models.headers.names_only import compare_names

        said.extend(compare_names(model, stored, source.index))
    if source.notes:
        model = replace(model, notes=(*model.notes, *source.notes))
    disk_bytes, evidence = _disk(source, stored)
    return Checkpoint(
        model=model,
        stored=stored,
        quantization=_summary(source, model, scheme, assumed, stored),
        disk_bytes=disk_bytes,
        disk_evidence=evidence,
        largest_file_bytes=_largest_file(source),
        declared_kv_dtype=scheme.declared_kv.dtype if scheme and scheme.declared_kv else None,
        declared_kv_source=scheme.declared_kv.source if scheme and scheme.declared_kv else "",
        differences=tuple(said),
        gguf=source.gguf,
    )


def _scheme(source: Source, config: Config, model: Model, said: list[str]) -> QuantizationScheme | None:
    """The scheme of config.json or hf_quant_config.json, else of an older file beside them."""
    hf_quant = source.quant_configs.get("hf_quant_config.json")
    scheme = read_quantization(
        config, model.dtype, Config(hf_quant, "hf_quant_config.json") if hf_quant is not None else None
    )
    if scheme is not None:
        return scheme
    for name, method in _SIDE_METHODS.items():
        beside = source.quant_configs.get(name)
        if beside is None:
            continue
        if name == "quantize_config.json" and "w_bit" in beside:
            method = "awq"  # noqa: PLW2901 - AutoAWQ's keys in AutoGPTQ's file
        section = {"quant_method": method, **beside}
        merged = Config({**source.config, "quantization_config": section}, source.where)
        said.append(f"config.json has no quantization_config; the scheme is that of {name}")
        return read_quantization(merged, model.dtype)
    return None


def _disk(source: Source, stored: tuple[StoredTensor, ...]) -> tuple[int, Evidence]:
    """Bytes of all tensors: of the headers, else of the index, else of the files, else of the description."""
    if source.table is not None:
        table = source.table
        return table.total_bytes, reported(
            "GGUF headers" if source.gguf is not None else "safetensors headers",
            f"sum of {table.tensor_count} tensors in {len(table.files)} file(s)",
        )
    if source.index is not None and source.index.total_size_bytes is not None:
        return source.index.total_size_bytes, reported(source.index.file, "metadata.total_size")
    if source.disk_bytes is not None:
        return source.disk_bytes, source.disk_evidence or reported("the files' sizes")
    return sum(item.stored_bytes for item in stored), calculated("config.json", "sum of stored tensors")


def _largest_file(source: Source) -> int:
    if source.table is None:
        return 0
    return max((file.file_bytes or file.data_bytes for file in source.table.files), default=0)


def _summary(
    source: Source,
    model: Model,
    scheme: QuantizationScheme | None,
    assumed: tuple[StoredTensor, ...],
    stored: tuple[StoredTensor, ...],
) -> str:
    """The scheme's own words, unless the headers hold other formats than it implies."""
    labels = _labels(stored)
    if source.table is None or labels == _labels(assumed):
        return scheme.summary if scheme is not None else model.dtype.value
    method = "gguf" if source.gguf is not None else "headers" if scheme is None else scheme.method
    declared = f", {scheme.declared_kv.dtype} KV cache" if scheme and scheme.declared_kv else ""
    return f"{method}: {', '.join(labels)}{declared}" if labels else _plain(stored, model)


def _labels(stored: tuple[StoredTensor, ...]) -> list[str]:
    """Formats of quantised matrices, those of the most bytes first."""
    sums: dict[str, int] = {}
    for item in stored:
        if not isinstance(item.format, Dense):
            label = format_label(item.format)
            sums[label] = sums.get(label, 0) + item.stored_bytes
    return sorted(sums, key=lambda label: -sums[label])


def _plain(stored: tuple[StoredTensor, ...], model: Model) -> str:
    """The element type of most bytes."""
    sums: dict[str, int] = {}
    for item in stored:
        if isinstance(item.format, Dense):
            label = item.format.dtype.value
            sums[label] = sums.get(label, 0) + item.stored_bytes
    return max(sums, key=sums.__getitem__, default=model.dtype.value)


__all__ = ["StoredTensor", "checkpoint_from_source", "load_checkpoint"]
