"""A manifest as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.experiment_result import ExperimentResult
from vramledger.manifest.load_quantities import conditions_text
from vramledger.report.text import Line, columns, gib, line, ranks_text, wrapped

_UNKNOWN = "not evidenced"
_VERDICTS = {True: "good", False: "bad", None: "unsure"}


def manifest_lines(
    manifest: ManifestDocument, *, notes: tuple[str, ...] = (), width: int = 80
) -> Iterator[Line]:
    """Revisions, the figures with their bytes and evidence, ranks, conditions, and what is not evidenced."""
    yield from wrapped(manifest.model_revision, width, rest="  ", style="head")
    device = manifest.plan.inputs.device
    yield from wrapped(
        f"{manifest.engine_revision} · {device} · tp {manifest.tp} pp {manifest.pp} dp {manifest.dp} ep {manifest.ep}",
        width,
        rest="  ",
        style="head",
    )
    yield from wrapped(f"weights {manifest.weight_format} · KV {manifest.kv_format or 'none'}", width)
    yield from wrapped(f"{manifest.digest}, {manifest.created_at}, {manifest.made_by}", width, style="dim")
    yield line()
    yield from _figures(manifest, width)
    yield line()
    yield from _ranks(manifest, width)
    yield from wrapped(verdict_text(manifest), width, rest="  ", style=_VERDICTS[manifest.plan.verdict.holds])
    for condition in manifest.conditions:
        yield from wrapped(condition, width, first="  if  ")
    for text in manifest.disagreements:
        yield from wrapped(text, width, first="  measured otherwise: ", rest="    ", style="unsure")
    if manifest.experiment is not None:
        yield line()
        yield from _experiment(manifest.experiment, width)
    if manifest.not_evidenced:
        yield line()
        yield from wrapped(
            f"{_UNKNOWN}: {', '.join(manifest.not_evidenced)}", width, rest="  ", style="unsure"
        )
    for note in notes:
        yield from wrapped(f"note: {note}", width, rest="  ")


def verdict_text(manifest: ManifestDocument) -> str:
    """The plan's own verdict, which a manifest carries and an audit does not judge."""
    return f"plan: {manifest.plan.verdict.summary}"


def _figures(manifest: ManifestDocument, width: int) -> Iterator[Line]:
    evidence = {item.figure: item for item in manifest.evidence}
    rows: list[tuple[str, ...]] = [("per rank", "GiB", "bytes", "evidence")]
    for title, name in (
        ("raw weights (all files)", "raw_weight_bytes"),
        ("weights, steady, measured", "measured_weight_steady_bytes_per_rank"),
        ("runtime peak, measured", "measured_runtime_peak_bytes_per_rank"),
        ("KV pool", "kv_pool_bytes_per_rank"),
        ("KV pool, measured", "measured_kv_pool_bytes_per_rank"),
        ("headroom", "headroom_bytes_per_rank"),
        ("headroom, measured", "measured_headroom_bytes_per_rank"),
    ):
        size = getattr(manifest, name)
        known = evidence.get(name)
        rows.append(
            (
                f"  {title}",
                "-" if size is None else gib(size),
                "-" if size is None else f"{size:,}",
                _UNKNOWN if size is None else known.evidence.kind.value if known is not None else "",
            )
        )
    token = manifest.kv_bytes_per_token_per_rank
    if token is not None:
        rows.append(("  KV a token", f"{token / 1024:,.2f} KiB", f"{token:,}", "calculated"))
    yield from columns(rows, right=(1, 2), styles=("dim",), width=width)
    tokens = manifest.kv_tokens
    if tokens is not None:
        seen = "" if tokens.measured_logical is None else f", {tokens.measured_logical:,} measured"
        yield from wrapped(
            f"  KV tokens: {tokens.logical:,} logical{seen}, {tokens.physical:,} physical in {tokens.num_blocks:,} "
            f"blocks of {tokens.block_size}",
            width,
            rest="    ",
        )


def _experiment(found: ExperimentResult, width: int) -> Iterator[Line]:
    point, times = found.operating_point, found.latency_model
    if point is None:
        yield from wrapped("no operating point: the experiment ended before", width, style="unsure")
    else:
        ends = f"{point.low_requests_per_s:.4g} to {point.high_requests_per_s:.4g}, {point.confidence:g} confidence"
        least = "at least " if point.is_limit_of_load else ""
        yield from wrapped(
            f"serves {least}{point.requests_per_s:.4g} requests/s well ({ends})", width, rest="  "
        )
        binds = f"; {point.binds} is missed first beyond it" if point.binds else ""
        yield from wrapped(f"{conditions_text(found.conditions)}{binds}", width, first="  ", style="dim")
        for item in point.latencies:
            limit = "" if item.limit_s is None else f" of {item.limit_s:g} s"
            yield line(f"  {item.metric} p{item.percentile:g}: {item.seconds:.4g} s{limit}")
    if times is not None:
        error = "" if times.relative_error is None else f", off by {100 * times.relative_error:.3g} %"
        yield from wrapped(
            f"time of a step: fitted to {times.fitted_requests:,} requests{error}", width, rest="  "
        )
    for trend in found.trends:
        ends = f", {trend.low_per_hour:,.4g} to {trend.high_per_hour:,.4g} {trend.unit} an hour"
        yield from wrapped(
            f"{trend.name}: {trend.verdict}{ends if trend.low_per_hour < trend.high_per_hour else ''}",
            width,
            rest="  ",
            style={"grows": "bad", "untold": "unsure"}.get(trend.verdict, ""),
        )
    if found.failure is not None:
        yield from wrapped(f"the engine ended: {found.failure}", width, rest="  ", style="bad")


def _ranks(manifest: ManifestDocument, width: int) -> Iterator[Line]:
    rows: list[tuple[str, ...]] = [("GiB", "weights", "measured", "peak", "measured", "free", "measured")]
    for rank in manifest.per_rank:
        rows.append(
            (
                f"  {ranks_text(rank.ranks)}",
                gib(rank.weight_steady_bytes.expected),
                _or_dash(rank.measured_weight_steady_bytes),
                gib(rank.runtime_peak_bytes.expected),
                _or_dash(rank.measured_runtime_peak_bytes),
                gib(rank.headroom_bytes.expected),
                _or_dash(rank.measured_headroom_bytes),
            )
        )
    yield from columns(rows, right=range(1, 7), styles=("dim",), width=width)


def _or_dash(size: int | None) -> str:
    return "-" if size is None else gib(size)
