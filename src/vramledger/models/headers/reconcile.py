"""A described checkpoint corrected by its headers, and what the two disagree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from vramledger.models.headers.compare import Outcome, Pool, SourceRow, compare_pool
from vramledger.models.headers.counting import Placed
from vramledger.models.headers.findings import Findings
from vramledger.models.headers.findings import tensors as counted
from vramledger.models.headers.gguf_names import gguf_stems, is_bias
from vramledger.models.headers.leftovers import Leftover, is_copy_of, leftovers, tell
from vramledger.models.headers.matching import match_stems
from vramledger.models.headers.parts import BIAS, Module, modules_of, stem_of
from vramledger.models.headers.reading import read_gguf, read_safetensors
from vramledger.models.model import Model
from vramledger.models.quantization import StoredTensor
from vramledger.models.sources.header_table import HeaderTable
from vramledger.models.tensors import Component, Role, Tensor
from vramledger.units import format_bytes

Stems = tuple[str, ...]


class Reconciled(Struct, frozen=True, kw_only=True):
    """The model without draft layers that the file lacks, every tensor with the format the file has, and differences.

    `unreadable` says which parts no known format has; such tensors keep the format the config implies.
    """

    model: Model
    stored: tuple[StoredTensor, ...]
    differences: tuple[str, ...]
    unreadable: tuple[str, ...] = ()


def reconcile(
    model: Model, stored: tuple[StoredTensor, ...], table: HeaderTable, *, is_gguf: bool = False
) -> Reconciled:
    """Hold every stored tensor against the table's rows.

    `table` is of safetensors files, or with `is_gguf` of a GGUF file under llama.cpp's names. A described tensor
    that the file lacks keeps its format, since an engine allocates it all the same.
    """
    findings, outcome = Findings(), Outcome()
    modules = modules_of(table.rows)
    homes = _gguf_homes(stored, modules) if is_gguf else _homes(stored, modules)
    for pool in _pools(stored, homes, modules, quiet=is_gguf):
        compare_pool(pool, read_gguf if is_gguf else read_safetensors, outcome, findings)
    outcome.missing.extend((place, item) for place, item in enumerate(stored) if not homes[place])
    left = leftovers(table.rows, outcome.used)
    embeddings = [item.tensor.shape for item in stored if item.tensor.role is Role.EMBEDDING]
    missing, left = _found_elsewhere(outcome.missing, left, findings)
    missing, dropped = _without_drafts(model, stored, missing, findings)
    _tell_missing(model, stored, missing, findings)
    tell(left, embeddings, model.num_layers + len(model.draft_layers), findings)
    kept = sorted(
        [*outcome.stored, *outcome.missing],
        key=lambda placed: (placed[0], placed[1].tensor.layers),
    )
    if dropped:
        model = replace(
            model,
            tensors=tuple(t for t in model.tensors if t.component is not Component.DRAFT),
            draft_layers=(),
        )
        kept = [placed for placed in kept if placed[1].tensor.component is not Component.DRAFT]
    return Reconciled(
        model=model,
        stored=tuple(item for _, item in kept),
        differences=findings.sentences(),
        unreadable=tuple(dict.fromkeys(outcome.unknown)),
    )


def _homes(stored: Sequence[StoredTensor], modules: Mapping[str, Module]) -> list[Stems]:
    """The modules that hold each stored tensor, by name."""
    stems = [stem_of(item.tensor)[0] for item in stored]
    matched = match_stems(list(dict.fromkeys(stems)), list(modules))
    return [matched.get(stem, ()) for stem in stems]


def _gguf_homes(stored: Sequence[StoredTensor], modules: Mapping[str, Module]) -> list[Stems]:
    return [gguf_stems(item.tensor, modules) for item in stored]


def _pools(
    stored: Sequence[StoredTensor], homes: Sequence[Stems], modules: Mapping[str, Module], *, quiet: bool
) -> list[Pool]:
    """Stored tensors that share modules, together."""
    claims: dict[tuple[Stems, bool], list[Placed]] = {}
    for place, item in enumerate(stored):
        if homes[place]:
            bias = is_bias(item.tensor) if quiet else stem_of(item.tensor)[1]
            claims.setdefault((homes[place], bias), []).append((place, item))
    out = []
    for (stems, bias), placed in claims.items():
        rows: list[SourceRow] = []
        for source, stem in enumerate(stems):
            module = modules[stem]
            rows.extend((source, suffix, row) for suffix, row in module.parts(bias=bias))
            if not bias and ((stems, True)) not in claims and any(s == ".qweight" for s, _ in module.rows):
                rows.extend((source, suffix, row) for suffix, row in module.rows if suffix == BIAS)
        ours = {stem_of(item.tensor)[0] for _, item in placed}
        out.append(
            Pool(
                claims=tuple(placed),
                rows=tuple(rows),
                names=stems,
                one_to_one=len(ours) == 1 and len(stems) == 1 and _same_stack(placed, stems[0], quiet=quiet),
                quiet=quiet,
            )
        )
    return out


def _same_stack(placed: Sequence[Placed], stem: str, *, quiet: bool) -> bool:
    """Whether both sides number experts in the name, or neither."""
    return quiet or all(stem_of(item.tensor)[0].count("{}") == stem.count("{}") for _, item in placed)


def _found_elsewhere(
    missing: Sequence[Placed], left: list[Leftover], findings: Findings
) -> tuple[list[Placed], list[Leftover]]:
    """An embedding that the file has under the head's name only."""
    out = []
    for place, item in missing:
        tensor = item.tensor
        match = None
        if tensor.role is Role.EMBEDDING and tensor.component is not Component.DRAFT:
            match = next((one for one in left if is_copy_of(one.row, [tensor.shape])), None)
        if match is None:
            out.append((place, item))
            continue
        left = [one for one in left if one is not match]
        findings.add(f"{tensor.name} is in the file as {match.row.template}")
    return out, left


def _without_drafts(
    model: Model, stored: Sequence[StoredTensor], missing: list[Placed], findings: Findings
) -> tuple[list[Placed], bool]:
    """What is missing apart from draft layers, and whether all of these are."""
    drafts = [item for item in stored if item.tensor.component is Component.DRAFT]
    absent = [item for _, item in missing if item.tensor.component is Component.DRAFT]
    if not drafts or sum(map(_count, absent)) < sum(map(_count, drafts)):
        return missing, False
    layers = max(1, len(model.draft_layers))
    findings.add(
        f"the config describes {layers} draft (MTP) layer{'' if layers == 1 else 's'} and the file has none;"
        f" {counted(sum(map(_count, drafts)))} ({format_bytes(sum(item.stored_bytes for item in drafts))}) left out",
        sum(item.stored_bytes for item in drafts),
    )
    return [placed for placed in missing if placed[1].tensor.component is not Component.DRAFT], True


def _count(item: StoredTensor) -> int:
    """Tensors of a checkpoint that names experts as the description does."""
    tensor: Tensor = item.tensor
    return tensor.repetitions * (tensor.num_experts if "{expert}" in tensor.name else 1)


def _tell_missing(
    model: Model, stored: Sequence[StoredTensor], missing: Sequence[Placed], findings: Findings
) -> None:
    """A whole network that is absent in one sentence, tensors of others by name."""
    described: Counter[Component] = Counter()
    absent: Counter[Component] = Counter()
    for item in stored:
        described[item.tensor.component] += _count(item)
    for _, item in missing:
        absent[item.tensor.component] += _count(item)
    for _, item in missing:
        component = item.tensor.component
        if absent[component] == described[component]:
            findings.group(
                f"{component.value} tensors described and not in the file",
                item.tensor.name,
                _count(item),
                item.stored_bytes,
            )
        elif item.tensor.role is Role.LM_HEAD and not model.tie_word_embeddings:
            findings.add(
                f"the config does not tie the head to the embedding, and the file has no {item.tensor.name}"
                f" ({format_bytes(item.stored_bytes)})",
                item.stored_bytes,
            )
        else:
            findings.add(
                f"described and not in the file: {item.tensor.name}, {counted(_count(item))},"
                f" {format_bytes(item.stored_bytes)}",
                item.stored_bytes,
            )
