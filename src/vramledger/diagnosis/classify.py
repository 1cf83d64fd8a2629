"""The class of a failure: every rule in the order of evidence, their sum, and how sure that makes it."""

from __future__ import annotations

from msgspec import Struct

from vramledger.diagnosis import rules_arithmetic, rules_domain, rules_phase
from vramledger.diagnosis.facts import HOW_TO_LEARN, Facts
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.rule import Rule, Spoken, Step, ask
from vramledger.diagnosis.terms import Confidence, FailureClass, Weight

RULES: tuple[Rule, ...] = tuple(
    sorted((*rules_domain.RULES, *rules_phase.RULES, *rules_arithmetic.RULES), key=lambda rule: rule.step)
)
# A sure answer has a rule that decides, or two that are strong, and leaves the next class behind by one strong rule.
SURE, SURE_MARGIN = 6, 4
LIKELY, LIKELY_MARGIN = 3, 2
RAISED = "the traceback of that error, read by whoever knows the code: most such errors are no lack of memory"
ABOVE = "the log above this line, of the process that ended first: its stack trace names the cause"


class Answer(Struct, frozen=True, kw_only=True):
    """The class, None where no rule speaks for one; the next one; how sure, and the one thing that would make it surer."""

    failure_class: FailureClass | None
    runner_up: FailureClass | None
    confidence: Confidence
    scores: tuple[tuple[FailureClass, int], ...]
    spoken: Spoken
    surer: tuple[str, ...] = ()


def classify(facts: Facts) -> Answer:
    """The class by domain, phase, arithmetic and trend, in this order.

    A domain that decides ends the question: what is not device, host or pool memory is of no other class.
    """
    spoken = ask(RULES, facts)
    deciding = [
        rule
        for rule in spoken.applied
        if rule.step is Step.DOMAIN and max(rule.says.values()) >= Weight.DECIDES
    ]
    if deciding:
        spoken = Spoken(
            applied=tuple(rule for rule in spoken.applied if rule.step is Step.DOMAIN), unasked=spoken.unasked
        )
    scores = sorted(
        ((kind, score) for kind, score in spoken.scores().items() if score > 0),
        key=lambda pair: (-pair[1], list(FailureClass).index(pair[0])),
    )
    best = scores[0] if scores else None
    second = scores[1] if len(scores) > 1 else None
    if (
        best is not None
        and second is not None
        and best[1] == second[1]
        and _same_grounds(spoken, best[0], second[0])
    ):
        return Answer(
            failure_class=None,
            runner_up=None,
            confidence=Confidence.LOW,
            scores=tuple(scores),
            spoken=spoken,
            surer=_surer(spoken, Confidence.LOW, frozenset((best[0], second[0]))),
        )
    if not (facts.kind or facts.symptoms or facts.device_slope_bytes_per_h or facts.host_slope_bytes_per_h):
        # Only where a log ends tells it.
        return Answer(
            failure_class=None if best is None else best[0],
            runner_up=None if second is None else second[0],
            confidence=Confidence.LOW,
            scores=tuple(scores),
            spoken=spoken,
            surer=(HOW_TO_LEARN["kernel_says_oom"],),
        )
    margin = 0 if best is None else best[1] - (0 if second is None else second[1])
    confidence = _confidence(0 if best is None else best[1], margin, spoken, best and best[0], facts)
    return Answer(
        failure_class=None if best is None else best[0],
        runner_up=None if second is None else second[0],
        confidence=confidence,
        scores=tuple(scores),
        spoken=spoken,
        surer=((RAISED,) if facts.raised else (ABOVE,))
        if facts.standing is Standing.CONSEQUENCE
        else (HOW_TO_LEARN["kernel_says_oom"],)
        if facts.domain is Domain.HOST and not facts.is_proven
        else _surer(spoken, confidence, frozenset(pair[0] for pair in (best, second) if pair is not None)),
    )


def _same_grounds(spoken: Spoken, one: FailureClass, other: FailureClass) -> bool:
    """Whether the same rules speak for both, so that nothing tells them apart."""
    return all(rule.says.get(one, 0) == rule.says.get(other, 0) for rule in spoken.applied)


def _confidence(
    score: int, margin: int, spoken: Spoken, best: FailureClass | None, facts: Facts
) -> Confidence:
    if best is None or score < LIKELY or margin < LIKELY_MARGIN:
        return Confidence.LOW
    grounds = sum(max(rule.says.get(best, 0), 0) for rule in spoken.applied if not rule.by_words)
    if facts.standing is Standing.CONSEQUENCE:
        return Confidence.LOW
    if score >= SURE and margin >= SURE_MARGIN and grounds >= SURE and facts.is_proven:
        return Confidence.HIGH
    return Confidence.MEDIUM if grounds >= LIKELY or score >= SURE else Confidence.LOW


def _surer(spoken: Spoken, confidence: Confidence, rivals: frozenset[FailureClass]) -> tuple[str, ...]:
    """What would let rules speak that could not, those first that would weigh most for or against the classes in
    question; nothing where the answer is sure."""
    if confidence is Confidence.HIGH:
        return ()
    gain: dict[str, int] = {}
    for rule, lacking in spoken.unasked:
        strength = max(
            (abs(weight) for kind, weight in rule.says.items() if not rivals or kind in rivals), default=0
        )
        if rule.by_words or strength == 0 or len(lacking) > 2:
            continue
        for name in lacking:
            if name in HOW_TO_LEARN:
                text = HOW_TO_LEARN[name]
                gain[text] = max(gain.get(text, 0), strength - len(lacking))
    return tuple(sorted(gain, key=lambda text: -gain[text])[:3])
