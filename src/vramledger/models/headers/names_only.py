"""An index's names held against the description, where no header was read."""

from __future__ import annotations

from vramledger.formats.weights import Dense
from vramledger.models.headers.findings import Findings
from vramledger.models.headers.matching import match_stems
from vramledger.models.headers.parts import BIAS, first_indices, split_names, stem_of
from vramledger.models.model import Model
from vramledger.models.quantization import StoredTensor
from vramledger.models.sources.index_file import IndexInfo
from vramledger.models.tensors import Component, Role
from vramledger.units import format_bytes

TOTAL_SIZE_TOLERANCE = 1000
"""A stated total is told apart from the computed one when they differ by more than one part in this many."""

_PACKED = frozenset({".qweight", ".weight_packed", "_blocks", ".weight_scale", ".weight_scale_inv", ".SCB"})


def compare_names(model: Model, stored: tuple[StoredTensor, ...], index: IndexInfo) -> tuple[str, ...]:
    """Sentences about names on one side only, packed weights that no config mentions, and the stated total size.

    Without shapes there are no bytes for what the description lacks; those of described tensors are computed.
    """
    findings = Findings()
    names = split_names(row.template for row in index.rows)
    layers = {row.template: frozenset(i for run in row.layers for i in run) for row in index.rows}
    parts: dict[str, list[tuple[str, str]]] = {}
    for template, (stem, suffix) in names.items():
        parts.setdefault(stem, []).append((suffix, template))
    ours = list(dict.fromkeys(stem_of(item.tensor)[0] for item in stored))
    matched = match_stems(ours, list(parts))
    described: dict[tuple[str, bool], set[int]] = {}
    for item in stored:
        stem, is_bias = stem_of(item.tensor)
        homes = [
            template
            for home in matched.get(stem, ())
            for suffix, template in parts[home]
            if (suffix == BIAS) == is_bias
        ]
        first = first_indices(item.tensor)
        there = frozenset().union(*(layers[template] for template in homes))
        for home in matched.get(stem, ()):
            described.setdefault((home, is_bias), set()).update(first if first is not None else there)
        absent = not homes or bool(first and first - there)
        if absent:
            _tell_absent(model, item, findings)
        elif isinstance(item.format, Dense) and item.tensor.linear:
            packed = {suffix for home in matched[stem] for suffix, _ in parts[home]} & _PACKED
            if packed:
                findings.group(
                    f"parts named {', '.join(sorted(packed))}, and no quantisation in the config",
                    item.tensor.name,
                    item.tensor.repetitions,
                )
    for row in index.rows:
        stem, suffix = names[row.template]
        claimed = described.get((stem, suffix == BIAS))
        if claimed is None:
            findings.group("in the index and not described", row.template, row.count)
    _tell_total(stored, index, findings)
    return findings.sentences()


def _tell_absent(model: Model, item: StoredTensor, findings: Findings) -> None:
    tensor = item.tensor
    count = tensor.repetitions * (tensor.num_experts if "{expert}" in tensor.name else 1)
    size = item.stored_bytes
    if tensor.component is Component.DRAFT:
        findings.group("draft (MTP) tensors described and not all in the index", tensor.name, count, size)
    elif tensor.role is Role.LM_HEAD and not model.tie_word_embeddings:
        findings.add(
            f"the config does not tie the head to the embedding, and the index has no {tensor.name} ({format_bytes(size)})",
            size,
        )
    else:
        findings.group("described and not all in the index", tensor.name, count, size)


def _tell_total(stored: tuple[StoredTensor, ...], index: IndexInfo, findings: Findings) -> None:
    total = index.total_size_bytes
    computed = sum(item.stored_bytes for item in stored)
    if total is not None and abs(total - computed) * TOTAL_SIZE_TOLERANCE > total:
        findings.add(
            f"{index.file} states a total size of {total} bytes; the description comes to {computed}"
            f" ({(computed - total) / total:+.2%})",
            computed - total,
        )
