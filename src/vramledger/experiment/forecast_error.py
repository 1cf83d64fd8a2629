"""By how much forecasts were off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramledger.experiment.result import ForecastError, LoadFigures, Stage

PERCENTILES = ("p50", "p90", "p99")


def forecast_errors(stages: Iterable[Stage]) -> tuple[ForecastError, ...]:
    """Every figure of every stage that was foretold and measured. Times in nanoseconds; `relative` is of the measured figure, and where
    that is 0 of the forecast one."""
    return tuple(
        ForecastError(
            stage=stage.name,
            figure=figure,
            forecast=forecast,
            measured=measured,
            relative=_relative(forecast, measured),
        )
        for stage in stages
        if stage.forecast is not None
        for figure, forecast, measured in _figures(stage.forecast, stage.measured)
    )


def _figures(forecast: LoadFigures, measured: LoadFigures) -> Iterator[tuple[str, float, float]]:
    for name in ("ttft_ns", "tpot_ns", "latency_ns"):
        ours, theirs = getattr(forecast, name), getattr(measured, name)
        if ours.count and theirs.count:
            for percentile in ("mean", *PERCENTILES):
                yield (
                    f"{name} {percentile}",
                    float(getattr(ours, percentile)),
                    float(getattr(theirs, percentile)),
                )
    for name in (
        "goodput", "finished", "output_tokens_per_s", "cached_prompt_tokens", "preemptions", "kv_usage_peak_ratio",
        "running_peak",
    ):  # fmt: skip
        one, other = getattr(forecast, name), getattr(measured, name)
        if one is not None and other is not None:
            yield name, float(one), float(other)


def _relative(forecast: float, measured: float) -> float:
    if forecast == measured:
        return 0.0
    return (forecast - measured) / (measured or forecast)
