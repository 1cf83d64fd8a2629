"""Which engine a request goes to when it arrives: one where it may go in now, with the most of its prompt cached; else where it waits least."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.admission.candidate import Candidate
from vramledger.admission.decision import Admission, Decision, Rule
from vramledger.gateway.live.candidates import PS_PER_NS
from vramledger.gateway.live.instance import Instance

NEVER_MS = 1 << 62


def chosen(options: Sequence[tuple[Instance, Candidate]], now_ns: int) -> tuple[Instance, Candidate]:
    """Of instances that take requests, each with the request as a candidate there (lengths and pools may differ)."""
    if len(options) == 1:
        return options[0]
    return min(options, key=lambda option: _rank(option[0], option[1], now_ns))


def _rank(instance: Instance, candidate: Candidate, now_ns: int) -> tuple[int, int, int, int]:
    """Smaller is better: (whether it goes in, tokens to be computed or the wait, load, place)."""
    policy, view = instance.policy, instance.view(now_ns)
    decision = policy.would(candidate, view, now_ns * PS_PER_NS)
    usable = view.used_blocks + view.free_blocks
    load_permille = (
        (view.used_blocks + policy.queued_tokens // instance.block_tokens) * 1000 // max(1, usable)
    )
    if instance.is_suspect:
        return 2, 0, load_permille, instance.place
    if decision.answer is Admission.ACCEPT and not policy.queued_count:
        return 0, decision.uncached_tokens, load_permille, instance.place
    if decision.answer is Admission.REJECT:
        return (4 if decision.rule is Rule.NEVER_FITS else 3), 0, load_permille, instance.place
    return 1, _wait_ms(instance, decision, now_ns), load_permille, instance.place


def _wait_ms(instance: Instance, decision: Decision, now_ns: int) -> int:
    """Until what waits there already and this one have had room, at the pace of late."""
    ahead = decision.queued_tokens // instance.block_tokens
    wait_ms = instance.pace.wait_ms(ahead + decision.need_blocks, now_ns)
    return NEVER_MS if wait_ms is None else wait_ms
