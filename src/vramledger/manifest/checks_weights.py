"""Items about weights, formats and adapters. Each check takes a manifest and gives a finding."""

from __future__ import annotations

from vramledger.ledger import Lifetime, Owner
from vramledger.manifest.comparison import compared_weights
from vramledger.manifest.derived import COUNT_OF_DIVIDED, divisions
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.finding import (
    Cited,
    Finding,
    failed,
    not_evidenced,
    of_facts,
    of_measurement,
    of_model,
    of_plan,
    passed,
)
from vramledger.units import counted

_TOLERATED = 0.01
"""Share of the files' bytes that an index or padding may add to the sum of the tensors."""


def units(document: ManifestDocument) -> Finding:
    """Every GiB has its bytes and is them divided."""
    wrong = tuple(divisions(document))
    if wrong:
        return failed(f"{len(wrong)} figures are not their bytes divided: {wrong[0]}")
    kept = [document.raw_weight_bytes, document.kv_pool_bytes_per_rank, document.headroom_bytes_per_rank]
    if document.raw_weight_bytes is None:
        return not_evidenced("the bytes of the weights are not in it")
    return passed(
        of_plan(
            document,
            f"{COUNT_OF_DIVIDED} figures in GiB or KiB stand beside their bytes; "
            f"{sum(size is not None for size in kept)} of weights, pool and headroom are known",
        )
    )


def disk_and_runtime(document: ManifestDocument) -> Finding:
    """What lies on disk and what the device holds are two figures with two sources."""
    raw, seen = document.raw_weight_bytes, document.measured_weight_steady_bytes_per_rank
    if raw is None or raw <= 0:
        return not_evidenced("the bytes on disk are not in it")
    disk = _of_figure(document, "raw_weight_bytes", f"on disk {raw:,} bytes for the whole model")
    if seen is None:
        return not_evidenced(
            "the weights on the device were not measured; only a plan says what they take", *disk
        )
    ranks = sum(len(rank.ranks) for rank in document.plan.ranks)
    if seen == raw and ranks > 1:
        return failed(
            f"the figure of a rank is that of the files although {ranks} ranks share them: one was copied",
            *disk,
        )
    on_device = f"on the device {seen:,} bytes a rank"
    return passed(*disk, *_of_figure(document, "measured_weight_steady_bytes_per_rank", on_device))


def quantisation(document: ManifestDocument) -> Finding:
    """The scheme, the formats by part, and every matrix that stays in plain elements."""
    facts = document.quantization
    if facts is None:
        return not_evidenced("the checkpoint was not read; give MODEL beside --plan")
    told = of_model(
        document,
        f"{facts.summary}; {len(facts.formats)} formats by part, {len(facts.unquantised_layers)} kinds of matrices "
        "unquantised"
        if facts.is_quantized
        else f"{facts.summary}; nothing is quantised",
    )
    if facts.summary != document.weight_format:
        return not_evidenced(
            f"the engine loads {document.weight_format}, made of {facts.summary}: what becomes of each layer is not in it",
            told,
        )
    total = sum(part.stored_bytes for part in facts.formats)
    raw = document.raw_weight_bytes
    if raw is not None and abs(total - raw) > _TOLERATED * raw:
        return failed(f"the formats add up to {total:,} bytes, the files to {raw:,}", told)
    plain = sum(layer.stored_bytes for layer in facts.unquantised_layers)
    if plain > total:
        return failed(f"unquantised layers have {plain:,} bytes, all parts {total:,}", told)
    return passed(told)


def resident_experts(document: ManifestDocument) -> Finding:
    """Mixtures of experts are sized by what is resident, not by what works on a token."""
    parameters = document.parameters
    if parameters is None:
        return not_evidenced("the parameters are not in it; give MODEL beside --plan")
    if parameters.moe is None:
        return passed(of_model(document, f"no experts: all {parameters.resident:,} parameters are active"))
    told = of_model(
        document,
        f"{parameters.resident:,} parameters resident, {parameters.active:,} active; {parameters.moe.num_experts} "
        f"experts of which {parameters.moe.top_k} run",
    )
    raw = document.raw_weight_bytes
    if raw is None or parameters.resident <= 0:
        return not_evidenced("the bytes of the weights are not in it", told)
    held = sum(len(rank.ranks) * rank.weights.device_bytes.expected for rank in document.plan.ranks)
    held += sum(
        entry.bytes.expected
        for entry in document.plan.host
        if entry.owner is Owner.WEIGHTS and entry.lifetime is Lifetime.WORKER
    )
    active = raw * parameters.active // parameters.resident
    if held < raw and held - active < raw - held:
        return failed(
            f"all ranks hold {held:,} bytes of weights, nearer to the {active:,} of active parameters than to the {raw:,} "
            "of all",
            told,
        )
    return passed(told, of_plan(document, f"all ranks together hold {held:,} bytes of weights"))


def shards(document: ManifestDocument) -> Finding:
    """Every rank once in the plan, and the measured weights of every kind of rank where the plan says."""
    ranks = sorted(rank for kind in document.plan.ranks for rank in kind.ranks)
    if ranks != list(range(len(ranks))):
        return failed(f"the plan's ranks are {ranks[:16]}: some are missing or there twice")
    found = compared_weights(document)
    told = tuple(of_measurement(document, item.text, item.figure.evidence.source) for item in found)
    wrong = [item for item in found if item.is_above or item.is_below]
    if wrong:
        return failed(f"weights are not where the plan has them: {wrong[0].text}", *told)
    seen = {item.ranks for item in found}
    missing = [kind.ranks for kind in document.plan.ranks if kind.ranks not in seen]
    if missing:
        return not_evidenced(
            f"the weights of {len(missing)} of {len(document.plan.ranks)} kinds of ranks were not measured",
            *told,
        )
    replicas = [f"{item.kind} x{item.replicas}" for item in (document.kv.heads if document.kv else ())]
    return passed(
        of_plan(
            document,
            f"{counted(len(ranks), 'rank')}, replicas of KV heads: {', '.join(replicas) or 'not known'}",
        ),
        *told,
    )


def adapters(document: ManifestDocument) -> Finding:
    """Adapters that are served are in the ledger, or none is served."""
    entries = [
        entry for rank in document.plan.ranks for entry in rank.entries if entry.owner is Owner.ADAPTERS
    ]
    held = sum(entry.bytes.expected for entry in entries)
    served = document.adapters
    if held:
        told = of_plan(document, f"{held:,} bytes of {len(entries)} entries are adapters'")
        if served == ():
            return failed("the ledger holds room for adapters, the facts say that none is served", told)
        return passed(told)
    if served is None:
        return not_evidenced("no entry of the ledger is an adapter's, and nobody said that none is served")
    if served:
        names = ", ".join(adapter.name for adapter in served[:4])
        return failed(f"{len(served)} adapters are served ({names}), the ledger holds none")
    return passed(of_facts(document, "no adapter is served, and the ledger holds none"))


def revisions(document: ManifestDocument) -> Finding:
    """Model and engine are named by what does not move, and the measured instance was the planned one."""
    model, engine = document.model, document.engine
    told = (
        of_model(document, f"model: {model.revision} ({model.scheme})"),
        of_plan(document, f"engine: {engine.text} ({engine.scheme})"),
    )
    unpinned = [
        name for name, item in (("the model", model), ("the engine", engine)) if item.scheme == "unpinned"
    ]
    if unpinned:
        return failed(f"{' and '.join(unpinned)} could be anything: no revision is recorded", *told)
    if document.disagreements:
        return failed(f"the measured instance was not the planned one: {document.disagreements[0]}", *told)
    measured = document.measurement.model_revision if document.measurement is not None else None
    if measured is not None and measured not in model.revision and model.scheme == "hub-commit":
        return failed(f"the measured instance served revision {measured}", *told)
    if model.scheme == "layout":
        return not_evidenced(
            "of the weights only headers and sizes were read, which other weights of that shape share", *told
        )
    return passed(*told)


def _of_figure(document: ManifestDocument, name: str, text: str) -> tuple[Cited, ...]:
    """A citation of a figure's own evidence."""
    return tuple(
        Cited(text=text, source=item.evidence.source, at=item.at)
        for item in document.evidence
        if item.figure == name
    )
