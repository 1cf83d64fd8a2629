"""Items about what runs: activations, workspaces, collectives, the allocator, graphs."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.documents.measurement import AllocatorDocument
from vramledger.documents.plan import EntryDocument
from vramledger.documents.plan_reader import plan_of
from vramledger.ledger import Owner, Phase
from vramledger.manifest.comparison import Compared, compared
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.finding import (
    Cited,
    Finding,
    failed,
    not_evidenced,
    of_measurement,
    of_plan,
    passed,
)
from vramledger.reconciliation.host_lines import is_on_host

_EAGER = (("enforce_eager", True), ("disable_cuda_graph", True), ("use_cuda_graph", False))
_LOGITS = "logits"


def activation_and_logits(document: ManifestDocument) -> Finding:
    """The peak of a prefill with the logits it ends in. An engine whose ledger has no entry of activations holds them in its
    workspaces (llama.cpp's compute and output buffers), and every one of those must be measured."""
    if not any(entry.owner is Owner.ACTIVATION for entry in _entries(document)):
        return _in_workspaces(document)
    found = [
        item
        for item in compared(document, Owner.ACTIVATION)
        if item.figure.phase in (None, Phase.PREFILL, Phase.WARMUP)
    ]
    told = _cited(document, found)
    if not found:
        return not_evidenced("the activation peak of a prefill was not measured")
    above = _above(found)
    if above:
        return failed(f"the plan leaves too little: {above}", *told)
    with_logits = [item for item in found if not _leaves_out_logits(item)]
    if not with_logits:
        return not_evidenced("the measured peak leaves the logits out", *told)
    return passed(*told)


def _in_workspaces(document: ManifestDocument) -> Finding:
    found = compared(document, Owner.WORKSPACE)
    told = _cited(document, found)
    names = [entry.name for entry in _entries(document) if entry.owner is Owner.WORKSPACE]
    if not found or not names:
        return not_evidenced("the activation peak of a prefill was not measured")
    above = _above(found)
    if above:
        return failed(f"the plan leaves too little: {above}", *told)
    missing = [name for name in names if not any(_names(item, name) for item in found)]
    if missing:
        return not_evidenced(f"not measured: {', '.join(missing[:4])}", *told)
    return passed(*told)


def _names(item: Compared, entry: str) -> bool:
    figure = item.figure
    return not entry.startswith(figure.without or ("\0",)) and entry.startswith(figure.entries or ("",))


def _entries(document: ManifestDocument) -> tuple[EntryDocument, ...]:
    return tuple(entry for rank in document.plan.ranks for entry in rank.entries)


def _leaves_out_logits(item: Compared) -> bool:
    figure = item.figure
    named = any(_LOGITS in name for name in figure.entries)
    return any(_LOGITS in name for name in figure.without) or (bool(figure.entries) and not named)


def workspaces(document: ManifestDocument) -> Finding:
    """What kernels and runners keep or borrow."""
    found = compared(document, Owner.WORKSPACE)
    told = _cited(document, found)
    if not found:
        return not_evidenced("no measured figure covers workspaces")
    above = _above(found)
    if above:
        return failed(f"the plan leaves too little: {above}", *told)
    return passed(*told)


def collectives(document: ManifestDocument) -> Finding:
    """Buffers of communication between ranks, and what of it runs beside computation."""
    ranks = sum(len(rank.ranks) for rank in document.plan.ranks)
    if ranks == 1 and max(document.tp, document.pp, document.dp, document.ep) == 1:
        return passed(of_plan(document, "one rank: nothing is exchanged"))
    planned = any(entry.owner is Owner.COLLECTIVES for rank in document.plan.ranks for entry in rank.entries)
    found = compared(document, Owner.COLLECTIVES)
    told = _cited(document, found)
    above = _above(found)
    if above:
        return failed(f"the plan leaves too little: {above}", *told)
    if not planned and document.tp > 1:
        return failed(f"{ranks} ranks exchange, the ledger has no entry of collectives", *told)
    if not found:
        return not_evidenced("no measured figure covers collectives")
    overlap = document.communication_overlap
    if overlap is None:
        return not_evidenced("nobody declared which collectives overlap with computation", *told)
    return passed(
        *told, Cited(text=f"overlapped: {overlap.overlapped}", source=overlap.source, at=overlap.at)
    )


def allocator(document: ManifestDocument) -> Finding:
    """Allocated, reserved and device free at one moment, each by itself."""
    states = document.measurement.allocator if document.measurement is not None else ()
    for state in states:
        wrong = _impossible(state)
        if wrong:
            return failed(wrong, _cited_state(document, state))
    whole = [state for state in states if not _lacking(state)]
    if whole:
        return passed(*(_cited_state(document, state) for state in whole[:4]))
    if not states:
        return not_evidenced("no reading of the allocator is in it")
    best = min(states, key=lambda state: len(_lacking(state)))
    return not_evidenced(
        f"no reading has all three; the fullest lacks {', '.join(_lacking(best))}",
        _cited_state(document, best),
    )


def _lacking(state: AllocatorDocument) -> tuple[str, ...]:
    names = ("allocated_bytes", "reserved_bytes", "device_free_bytes")
    return tuple(name for name in names if getattr(state, name) is None)


def _impossible(state: AllocatorDocument) -> str:
    allocated, reserved = state.allocated_bytes, state.reserved_bytes
    free, total = state.device_free_bytes, state.device_total_bytes
    if allocated is not None and reserved is not None and allocated.low > reserved.high:
        return f"{allocated.expected:,} bytes allocated of {reserved.expected:,} reserved"
    if free is not None and total is not None and free.low > total.high:
        return f"{free.expected:,} bytes free of {total.expected:,} on the device"
    return ""


def _cited_state(document: ManifestDocument, state: AllocatorDocument) -> Cited:
    parts = [
        f"{name.removesuffix('_bytes').replace('_', ' ')} {size.expected:,}"
        for name in ("allocated_bytes", "reserved_bytes", "pool_free_bytes", "device_free_bytes")
        if (size := getattr(state, name)) is not None
    ]
    where = state.point or (state.phase.value if state.phase is not None else "")
    text = f"{where + ': ' if where else ''}{', '.join(parts) or 'nothing'} bytes"
    return of_measurement(document, text, state.evidence.source, state.at_s)


def graph_capture(document: ManifestDocument) -> Finding:
    """What the device lost between before and after the capture, or that nothing is captured."""
    settings = document.plan.inputs.settings
    measurement = document.measurement
    captured = measurement.graphs if measurement is not None else ()
    found = compared(document, Owner.GRAPH_POOL)
    told = _cited(document, found)
    if not captured and is_on_host(plan_of(document.plan)):
        return passed(of_plan(document, f"nothing is captured on {document.plan.inputs.device}"))
    for name, value in _EAGER:
        if settings.get(name) is value and not captured:
            return passed(of_plan(document, f"nothing is captured: {name} is {str(value).lower()}"))
    above = _above(found)
    if above:
        return failed(f"the plan leaves too little: {above}", *told)
    if captured:
        total = sum(graph.increment_bytes.expected for graph in captured)
        high = max((_graph_pool_high(document, rank) for rank in range(len(document.plan.ranks))), default=0)
        text = f"{len(captured)} sizes took {total:,} bytes, {high:,} planned at most"
        cited = of_measurement(document, text, captured[0].evidence.source)
        if sum(graph.increment_bytes.low for graph in captured) > high:
            return failed("the plan leaves too little for graphs", cited, *told)
        return passed(cited, *told)
    if found:
        return passed(*told)
    return not_evidenced("neither readings before and after the capture nor what it took are in it")


def _graph_pool_high(document: ManifestDocument, number: int) -> int:
    entries = document.plan.ranks[number].entries
    return sum(entry.bytes.high for entry in entries if entry.owner is Owner.GRAPH_POOL)


def _above(found: Sequence[Compared]) -> str:
    return next((item.text for item in found if item.is_above), "")


def _cited(document: ManifestDocument, found: Sequence[Compared]) -> tuple[Cited, ...]:
    return tuple(of_measurement(document, item.text, item.figure.evidence.source) for item in found)


def verdict(document: ManifestDocument) -> Finding:
    """The plan's own verdict, under its conditions."""
    said = document.plan.verdict
    told = of_plan(document, said.summary)
    if said.holds is None:
        return not_evidenced(f"it cannot be told without {', '.join(said.missing[:3]) or 'more'}", told)
    if not said.holds:
        return failed(f"the plan does not hold; {said.shortfall_bytes:,} bytes are missing at least", told)
    return passed(told)
