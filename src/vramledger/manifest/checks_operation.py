"""Items about how the release is run: admission, load, tools, cancellation, updates."""

from __future__ import annotations

from vramledger.manifest.declared import CapacityResult, Latency, Trial
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.finding import Cited, Finding, failed, not_evidenced, passed

_PERCENTILES = (95, 99)


def admission(document: ManifestDocument) -> Finding:
    """Requests come in by free blocks and by what the running ones may still grow to."""
    policy = document.admission
    if policy is None:
        return not_evidenced("nobody declared how requests are admitted")
    told = Cited(
        text=f"by free blocks: {_yes(policy.by_free_blocks)}; by future growth: {_yes(policy.by_future_growth)}",
        source=policy.source,
        at=policy.at,
    )
    lacking = [
        name
        for name, does in (("free blocks", policy.by_free_blocks), ("future growth", policy.by_future_growth))
        if not does
    ]
    return failed(f"admission does not look at {' and '.join(lacking)}", told) if lacking else passed(told)


def load_tested(document: ManifestDocument) -> Finding:
    """Latencies at p95 and p99, under a burst too."""
    results = document.capacity_results
    if not results:
        return not_evidenced("no operating point is in it")
    told = tuple(_cited(result) for result in results[:6])
    limited = [
        all(_within(item) for item in _percentiles(result))
        for result in results
        if any(item.limit_s is not None for item in _percentiles(result))
    ]
    if limited and not any(limited):
        return failed("no operating point keeps its limits at p95 and p99", *told)
    seen = {item.percentile for result in results for item in result.latencies}
    missing = [f"p{percentile}" for percentile in _PERCENTILES if percentile not in seen]
    bursts = [result for result in results if result.arrival == "burst"]
    if not bursts:
        missing.append("a burst")
    elif not any(_percentiles(result) for result in bursts):
        missing.append("p95 or p99 of a burst")
    if missing:
        return not_evidenced(f"not tested: {', '.join(missing)}", *told)
    return passed(*told)


def _percentiles(result: CapacityResult) -> list[Latency]:
    return [item for item in result.latencies if item.percentile in _PERCENTILES]


def _within(item: Latency) -> bool:
    return item.limit_s is None or item.seconds <= item.limit_s


def _cited(result: CapacityResult) -> Cited:
    rate = "" if result.requests_per_s is None else f" at {result.requests_per_s:g} requests/s"
    latencies = ", ".join(
        f"{item.metric} p{item.percentile:g} {item.seconds:g} s" for item in result.latencies[:6]
    )
    return Cited(
        text=f"{result.arrival}{rate}: {latencies or 'no latencies'}", source=result.source, at=result.at
    )


def tool_wait(document: ManifestDocument) -> Finding:
    """What becomes of KV while a tool runs, with an end."""
    policy = document.tool_wait_policy
    if policy is None:
        return not_evidenced("nobody declared what becomes of KV while a tool runs")
    limit = "" if policy.limit_s is None else f" for {policy.limit_s:g} s at most"
    told = Cited(text=f"{policy.action}{limit}", source=policy.source, at=policy.at)
    if policy.action == "hold" and policy.limit_s is None:
        return failed("blocks are held while a tool runs, without an end", told)
    return passed(told)


def cancellation(document: ManifestDocument) -> Finding:
    """Blocks of a cancelled request are free again."""
    test = _test(document, "kv_returned_after_cancellation")
    if test is None:
        return not_evidenced("no such test is in it")
    told = _of_test(test)
    before, after = test.free_blocks_before, test.free_blocks_after
    if not test.passed:
        return failed("the test failed", told)
    if before is not None and after is not None and after < before:
        return failed(f"{before - after:,} blocks did not come back", told)
    return passed(told)


def update_and_recovery(document: ManifestDocument) -> Finding:
    """A rolling update and a recovery, each with what was left on the device."""
    tests = {name: _test(document, name) for name in ("rolling_update", "recovery_headroom")}
    run = [test for test in tests.values() if test is not None]
    told = tuple(_of_test(test) for test in run)
    for test in run:
        if not test.passed:
            return failed(f"{test.name} failed", *told)
        if test.smallest_headroom_bytes is not None and test.smallest_headroom_bytes < 0:
            return failed(f"{test.name} went {-test.smallest_headroom_bytes:,} bytes over the device", *told)
    missing = [name for name, test in tests.items() if test is None]
    if missing:
        return not_evidenced(f"not tested: {', '.join(missing)}", *told)
    return passed(*told)


def _test(document: ManifestDocument, name: str) -> Trial | None:
    return next((test for test in document.tests if test.name == name), None)


def _of_test(test: Trial) -> Cited:
    parts = [f"{test.name}: {'passed' if test.passed else 'failed'}"]
    if test.free_blocks_before is not None and test.free_blocks_after is not None:
        parts.append(f"free blocks {test.free_blocks_before:,} before, {test.free_blocks_after:,} after")
    if test.smallest_headroom_bytes is not None:
        parts.append(f"{test.smallest_headroom_bytes:,} bytes free at least")
    return Cited(text="; ".join(parts), source=test.source, at=test.at)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
