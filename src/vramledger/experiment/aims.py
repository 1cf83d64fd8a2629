"""What requests are to keep to, in words."""

from __future__ import annotations

from vramledger.simulation.settings import Slo


def aims_text(slo: Slo) -> str:
    """ "TTFT 2 s, TPOT 200 ms", empty where there is no aim but to be answered."""
    aims = (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("whole answer", slo.latency_ms))
    return ", ".join(f"{name} {_limit_text(limit_ms)}" for name, limit_ms in aims if limit_ms is not None)


def _limit_text(limit_ms: float) -> str:
    return f"{limit_ms:g} ms" if limit_ms < 1000 else f"{limit_ms / 1000:g} s"
