"""Figures of a manifest that follow from others in it, and what of them does not agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from vramledger.documents.measurement_reader import measurement_of
from vramledger.documents.plan_reader import plan_of
from vramledger.manifest.declared import Trial
from vramledger.manifest.document import SCHEMA_VERSION, ManifestDocument, RankFigures
from vramledger.reconciliation.document import reconciliation_of
from vramledger.units import GIB, KIB

MEASURED = (
    "measured_weight_steady_bytes_per_rank",
    "measured_runtime_peak_bytes_per_rank",
    "measured_kv_pool_bytes_per_rank",
    "measured_headroom_bytes_per_rank",
)
_DIVIDED = (
    ("raw_weight_gib", "raw_weight_bytes", GIB),
    ("measured_weight_steady_gib_per_rank", "measured_weight_steady_bytes_per_rank", GIB),
    ("measured_runtime_peak_gib_per_rank", "measured_runtime_peak_bytes_per_rank", GIB),
    ("kv_kib_per_token_per_rank", "kv_bytes_per_token_per_rank", KIB),
    ("kv_pool_gib_per_rank", "kv_pool_bytes_per_rank", GIB),
    ("headroom_gib_per_rank", "headroom_bytes_per_rank", GIB),
    ("measured_kv_pool_gib_per_rank", "measured_kv_pool_bytes_per_rank", GIB),
    ("measured_headroom_gib_per_rank", "measured_headroom_bytes_per_rank", GIB),
)
_RANK_DIVIDED = (
    ("measured_weight_steady_gib", "measured_weight_steady_bytes"),
    ("measured_runtime_peak_gib", "measured_runtime_peak_bytes"),
    ("measured_headroom_gib", "measured_headroom_bytes"),
)
# Names that stand for evidence in version 1.0. A minor version that adds one keeps them apart, since a manifest lists what its
# own version had.
_MAY_BE_NULL = (
    "kv_format", "raw_weight_bytes", "kv_bytes_per_token_per_rank", "kv_pool_bytes_per_rank",
    "headroom_bytes_per_rank", *MEASURED, "quantization", "parameters", "kv", "kv_tokens", "adapters",
    "prefix_sharing_boundary", "tool_wait_policy", "admission", "communication_overlap", "measurement",
    "reconciliation",
)  # fmt: skip
_SINCE_1_1 = ("experiment",)
_LISTED = frozenset({*_MAY_BE_NULL, *_SINCE_1_1, "capacity_results", "tests"})
BOUNDARIES = ("tenant", "model", "tokenizer", "template", "adapter")
TESTS = ("kv_returned_after_cancellation", "rolling_update", "recovery_headroom")


_OF_EXPERIMENT = ("operating_point", "latency_model")
COUNT_OF_DIVIDED = len(_DIVIDED) + 2


def gib(size_bytes: int | None) -> float | None:
    """Bytes divided by 2^30, exactly: every whole number below 2^53 is."""
    return None if size_bytes is None else size_bytes / GIB


def kib(size_bytes: int | None) -> float | None:
    """Bytes divided by 2^10."""
    return None if size_bytes is None else size_bytes / KIB


def missing(document: ManifestDocument) -> tuple[str, ...]:
    """Names of what is null or empty and stands for evidence, sorted."""
    may_be = (*_MAY_BE_NULL, *(_SINCE_1_1 if minor_version(document) >= 1 else ()))
    names = [name for name in may_be if getattr(document, name) is None]
    boundary = document.prefix_sharing_boundary
    if boundary is not None:
        names += [f"prefix_sharing_boundary.{name}" for name in BOUNDARIES if getattr(boundary, name) is None]
    if not document.capacity_results:
        names.append("capacity_results")
    names += [f"experiment.{name}" for name in _OF_EXPERIMENT if _lacks(document, name)]
    run = {test.name for test in document.tests}
    names += [f"tests.{name}" for name in TESTS if name not in run]
    return tuple(sorted(names))


def _lacks(document: ManifestDocument, name: str) -> bool:
    return document.experiment is not None and getattr(document.experiment, name) is None


def disagreements(document: ManifestDocument) -> tuple[str, ...]:
    """Every figure that does not follow from those it stands for, each in a sentence; empty for a sound manifest."""
    return (
        *_impossible(document),
        *divisions(document),
        *_of_the_plan(document),
        *_of_measurement(document),
        *_lists(document),
        *_of_experiment(document),
    )


def _impossible(document: ManifestDocument) -> Iterator[str]:
    """Parts that stand for no plan, measurement or reconciliation: a range upside down, bytes below 0."""
    parts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("plan", lambda: plan_of(document.plan)),
        ("measurement", lambda: document.measurement and measurement_of(document.measurement)),
        ("reconciliation", lambda: document.reconciliation and reconciliation_of(document.reconciliation)),
    )
    for name, made in parts:
        try:
            made()
        except (ValueError, msgspec.MsgspecError) as problem:
            yield f"its {name} cannot be: {problem}"


def divisions(document: ManifestDocument) -> Iterator[str]:
    """GiB and KiB that are not their bytes divided."""
    for name, source, unit in _DIVIDED:
        yield from _divided(document, name, source, unit, "")
    budget = document.budget
    yield from _divided(budget, "budget_gib", "budget_bytes", GIB, "budget.")
    yield from _divided(budget, "device_total_gib", "device_total_bytes", GIB, "budget.")
    for number, rank in enumerate(document.per_rank):
        for name, source in _RANK_DIVIDED:
            yield from _divided(rank, name, source, GIB, f"per_rank[{number}].")


def _divided(holder: object, name: str, source: str, unit: int, where: str) -> Iterator[str]:
    stated, size_bytes = getattr(holder, name), getattr(holder, source)
    right = None if size_bytes is None else size_bytes / unit
    if stated != right:
        yield f"{where}{name} is {_shown(stated)}, {where}{source} makes it {_shown(right)}"


def _of_the_plan(document: ManifestDocument) -> Iterator[str]:
    plan, pool = document.plan, document.plan.kv_pool
    wanted: list[tuple[str, object, object]] = [
        (name, getattr(document, name), getattr(plan.inputs, name)) for name in ("tp", "pp", "dp", "ep")
    ]
    wanted += [
        ("weight_format", document.weight_format, plan.inputs.quantization),
        ("kv_format", document.kv_format, None if pool is None else pool.dtype),
        (
            "raw_weight_bytes",
            document.raw_weight_bytes,
            plan.ranks[0].weights.disk_bytes if plan.ranks else None,
        ),
        ("kv_bytes_per_token_per_rank", document.kv_bytes_per_token_per_rank, pool and pool.bytes_per_token),
        ("kv_pool_bytes_per_rank", document.kv_pool_bytes_per_rank, pool and pool.bytes.expected),
        ("budget.budget_bytes", document.budget.budget_bytes, plan.budget_bytes),
        ("budget.device_total_bytes", document.budget.device_total_bytes, plan.inputs.device_total_bytes),
        ("conditions", document.conditions, plan.verdict.conditions),
        ("model_revision", document.model_revision, document.model.revision),
        ("engine_revision", document.engine_revision, document.engine.text),
        ("engine.name", document.engine.name, plan.inputs.engine),
        ("engine.version", document.engine.version, plan.inputs.engine_version),
        (
            "headroom_bytes_per_rank",
            document.headroom_bytes_per_rank,
            min((rank.headroom_bytes.expected for rank in document.per_rank), default=None),
        ),
        ("per_rank", tuple(r.ranks for r in document.per_rank), tuple(r.ranks for r in plan.ranks)),
    ]
    tokens = document.kv_tokens
    if tokens is not None:
        wanted.append(("kv_tokens.physical", tokens.physical, tokens.num_blocks * tokens.block_size))
        wanted.append(("kv_tokens.logical", tokens.logical, pool and pool.tokens.expected))
    for name, stated, right in wanted:
        if stated != right:
            yield f"{name} is {_shown(stated)}, the manifest's own plan and identity make it {_shown(right)}"


def _of_measurement(document: ManifestDocument) -> Iterator[str]:
    if document.measurement is None:
        for name in MEASURED:
            if getattr(document, name) is not None:
                yield f"{name} is {_shown(getattr(document, name))}, and the manifest holds no measurement"
    for name, of_rank, pick in (
        ("measured_weight_steady_bytes_per_rank", "measured_weight_steady_bytes", max),
        ("measured_runtime_peak_bytes_per_rank", "measured_runtime_peak_bytes", max),
        ("measured_headroom_bytes_per_rank", "measured_headroom_bytes", min),
    ):
        found = _known(document.per_rank, of_rank)
        stated = getattr(document, name)
        # A figure whose source names no rank stands here alone.
        if found and (stated is None or pick(stated, pick(found)) != stated):
            yield f"{name} is {_shown(stated)}, per_rank has {_shown(pick(found))}"


def _of_experiment(document: ManifestDocument) -> Iterator[str]:
    found = document.experiment
    if found is None:
        return
    if minor_version(document) < 1:
        yield f"it holds an experiment, which version {document.schema_version} has not"
    point = found.operating_point
    if point is not None and not (
        point.low_requests_per_s <= point.requests_per_s <= point.high_requests_per_s
    ):
        yield (
            f"experiment.operating_point.requests_per_s is {point.requests_per_s!r}, outside its own interval of "
            f"{point.low_requests_per_s!r} to {point.high_requests_per_s!r}"
        )
    for trend in found.trends:
        if trend.low_per_hour > trend.high_per_hour:
            yield f"experiment.trends: the interval of {_shown(trend.name)} is upside down"


def _known(ranks: tuple[RankFigures, ...], name: str) -> list[int]:
    return [getattr(rank, name) for rank in ranks if getattr(rank, name) is not None]


def _lists(document: ManifestDocument) -> Iterator[str]:
    right = missing(document)
    stated = document.not_evidenced
    if minor_version(document) > minor_version(None):
        # A later version may list what this one does not know.
        stated = tuple(name for name in stated if name in right or name.partition(".")[0] in _LISTED)
    if stated != right:
        difference = sorted(set(stated) ^ set(right))
        yield f"not_evidenced does not list what is null: {', '.join(difference) or 'its order is another'}"
    told = {item.figure for item in document.evidence}
    for name in ("raw_weight_bytes", *MEASURED):
        if getattr(document, name) is not None and name not in told:
            yield f"{name} has no evidence"
    doubled = _doubled(document.tests)
    if doubled:
        yield f"tests has {doubled} more than once"


def minor_version(document: ManifestDocument | None) -> int:
    """Of a document, or the one that is written here."""
    version = SCHEMA_VERSION if document is None else document.schema_version
    return int(version.partition(".")[2])


def _doubled(tests: tuple[Trial, ...]) -> str:
    names = [test.name for test in tests]
    return next((name for name in names if names.count(name) > 1), "")


def _shown(value: object) -> str:
    text = "null" if value is None else f"{value:,}" if isinstance(value, int) else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
