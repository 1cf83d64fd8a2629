"""One question answered: the plan, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.engines import engine_name
from vramledger.errors import VramledgerError
from vramledger.hardware.catalogue import Device, find_device
from vramledger.ledger import SERVING, ByteRange, Owner, Phase, RankLedger
from vramledger.models.checkpoint import Checkpoint
from vramledger.planning import plan
from vramledger.search.terms import Question, Unasked, flags_of, terms_of
from vramledger.search.weights import STORED, choice_of, restored


class Status(StrEnum):
    """`holds`, `fails` and `untold` are the verdict's; `refused` is a plan that the engine does not start or that
    cannot be asked for, so that no number of bytes would help."""

    HOLDS = "holds"
    FAILS = "fails"
    UNTOLD = "untold"
    REFUSED = "refused"


class Outcome(Struct, frozen=True, kw_only=True):
    """A question and its answer. `plan` is None where the question could not be put; `reason` is the verdict's
    sentence with what an untold one lacks, or why it could not. `flags` are the question in the engine's own words, as far as it has any."""

    question: Question
    status: Status
    reason: str
    plan: Plan | None = None
    flags: Mapping[str, object] = {}

    @property
    def shortfall_bytes(self) -> int:
        return self.plan.verdict.shortfall_bytes if self.plan is not None else 0


class Subject:
    """The models of a search and all they are asked with: devices by name, checkpoints by weight format, the
    engines' own flags. What is derived is kept, so equal questions cost the derivation once."""

    def __init__(
        self, checkpoints: tuple[Checkpoint, ...], flags: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        self.checkpoints = checkpoints
        self.flags = flags or {}
        self._devices: dict[str, Device] = {}
        self._restored: dict[tuple[int, str], Checkpoint | str] = {}

    def device(self, name: str) -> Device:
        """Raises DeviceError for a name that the catalogue does not have."""
        if name not in self._devices:
            self._devices[name] = find_device(name)
        return self._devices[name]

    def checkpoint(self, model: int, weights: str) -> Checkpoint:
        """Raises Unasked where the model cannot be stored so."""
        key = (model, weights)
        if key not in self._restored:
            try:
                self._restored[key] = restored(self.checkpoints[model], weights)
            except VramledgerError as problem:
                self._restored[key] = problem.message
        found = self._restored[key]
        if isinstance(found, str):
            raise Unasked(found)
        return found


def evaluate(question: Question, subject: Subject) -> Outcome:
    """The answer to one question; what an engine refuses is an outcome, not an error.

    Raises DeviceError for an unknown device and FlagError for an engine without rules here.
    """
    device = subject.device(question.device)
    flags: dict[str, object] = {}
    try:
        _check(question, subject, device)
        flags = flags_of(question)
        converts = terms_of(question.engine).file_type is not None
        checkpoint = subject.checkpoint(question.model, STORED if converts else question.weights)
        own = subject.flags.get(question.engine, {})
        answer = plan(
            checkpoint,
            device,
            engine=question.engine,
            concurrency=question.concurrency,
            **{**flags, **own},  # type: ignore[arg-type]
        )
    except Unasked as problem:
        return Outcome(question=question, status=Status.REFUSED, reason=str(problem))
    except VramledgerError as problem:
        return Outcome(question=question, status=Status.REFUSED, reason=problem.message, flags=flags)
    taken = sum(len(rank.ranks) for rank in answer.ranks)
    if own and taken != question.devices:
        reason = f"its own flags make it take {taken} devices, not the {question.devices} of tp x pp"
        return Outcome(question=question, status=Status.REFUSED, reason=reason, flags=flags)
    return told(question, answer, flags)


def told(question: Question, answer: Plan, flags: Mapping[str, object] | None = None) -> Outcome:
    """The outcome of a question that has a plan."""
    return Outcome(
        question=question, status=_status(answer), reason=_reason(answer), plan=answer, flags=flags or {}
    )


def _check(question: Question, subject: Subject, device: Device) -> None:
    """Questions that have no answer of their own, and formats that the device is too old for."""
    if question.ep and question.tp == 1:
        raise Unasked("expert parallel over one rank is no expert parallel")
    if question.ep and not subject.checkpoints[question.model].model.is_moe:
        raise Unasked("the model has no experts to spread")
    name, generation = engine_name(question.engine), _capability(device)
    for what, needs in (
        (f"{question.weights} weights", choice_of(question.weights).needs.get(name, 0)),
        (f"a {question.kv} KV cache", terms_of(question.engine).kv_needs.get(question.kv, 0)),
    ):
        if generation is not None and generation < needs:
            raise Unasked(
                f"{name} runs {what} on compute capability {needs // 10}.{needs % 10} and newer, not on {device.name}"
            )


def _capability(device: Device) -> int | None:
    """An NVIDIA device's compute capability, 89 for 8.9; None for others and for one that is not known."""
    if device.vendor != "nvidia" or device.compute_capability is None:
        return None
    major, _, minor = device.compute_capability.partition(".")
    return int(major) * 10 + int(minor)


def _reason(answer: Plan) -> str:
    """The verdict's sentence, and of one that cannot be told what would have to be known."""
    verdict = answer.verdict
    if verdict.holds is None and verdict.missing:
        return f"{verdict.summary}: {'; '.join(verdict.missing)}"
    return verdict.summary


def _status(answer: Plan) -> Status:
    verdict = answer.verdict
    if verdict.holds is None:
        return Status.UNTOLD
    if verdict.holds:
        return Status.HOLDS
    return Status.FAILS if verdict.shortfall_bytes else Status.REFUSED


class Held(Struct, frozen=True, kw_only=True):
    """What one rank holds while it serves, expected bytes: every owner in `phase`, the serving phase with the larger
    peak, and `unused_bytes` of the device (negative where more is held than it has)."""

    rank: RankLedger
    phase: Phase
    by_owner: dict[Owner, int]
    peak_bytes: int

    @property
    def unused_bytes(self) -> int:
        return self.rank.device_total_bytes - self.peak_bytes

    def ranges(self) -> dict[Owner, ByteRange]:
        """The ends of each owner's bytes, those of its entries added."""
        found: dict[Owner, ByteRange] = {}
        for entry in self.rank.entries:
            if self.phase in entry.phases:
                before = found.get(entry.owner)
                found[entry.owner] = entry.bytes if before is None else before + entry.bytes
        return found


def held(answer: Plan) -> Held:
    """The kind of rank that holds most while serving, the first of equals."""
    return max((_held(rank) for rank in answer.ranks), key=lambda item: item.peak_bytes)


def _held(rank: RankLedger) -> Held:
    best: tuple[int, Phase, dict[Owner, int]] | None = None
    for phase in Phase:
        if phase not in SERVING:
            continue
        by_owner: dict[Owner, int] = {}
        for entry in rank.entries:
            if phase in entry.phases:
                by_owner[entry.owner] = by_owner.get(entry.owner, 0) + entry.bytes.expected
        peak = sum(by_owner.values())
        if best is None or peak > best[0]:
            best = (peak, phase, by_owner)
    assert best is not None
    return Held(rank=rank, phase=best[1], by_owner=best[2], peak_bytes=best[0])


def blamed(answer: Plan, worst: Held) -> Owner:
    """The owner that a failing plan fails by: the largest of what is held beside the KV cache where that alone passes the
    budget, else the KV cache, which gets less than the requests need. `worst` is what `held` tells of the plan."""
    beside = {owner: size for owner, size in worst.by_owner.items() if owner is not Owner.KV_CACHE}
    charged = sum(
        entry.bytes.expected
        for entry in worst.rank.entries
        if entry.inside_budget and worst.phase in entry.phases and entry.owner is not Owner.KV_CACHE
    )
    limit = min(answer.budget_bytes, worst.rank.device_total_bytes)
    if beside and (charged >= limit or sum(beside.values()) >= worst.rank.device_total_bytes):
        return max(beside, key=lambda owner: beside[owner])
    return Owner.KV_CACHE
