"""Second question: where in the instance's life it happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.rule import Rule, Step
from vramledger.diagnosis.terms import (
    IN_SERVICE,
    LOADING,
    RECOVERING,
    WARMING,
    FailureClass,
    Stage,
    Weight,
)

LOAD, WARM, SPIKE = FailureClass.LOAD_TIME, FailureClass.WARM_UP, FailureClass.PREFILL_SPIKE
GROWTH, RECOVERY, FRAGMENTED = (
    FailureClass.DECODE_GROWTH,
    FailureClass.RECOVERY,
    FailureClass.FRAGMENTATION,
)
DECIDES, STRONG, SUGGESTS, HINTS = Weight.DECIDES, Weight.STRONG, Weight.SUGGESTS, Weight.HINTS

# A previous engine that ended so shortly before may still hold what it had.
RELEASE_LAG_S = 600.0
LOW_USAGE, HIGH_USAGE = 0.5, 0.9
# Stages that two classes share: the static set and a dummy step meet there.
_SHARED = frozenset({Stage.EXECUTOR_CREATE, Stage.FIRST_COLLECTIVE, Stage.COMPUTE_BUFFERS})
# The engine's pool is as large as it will ever be before it serves.
FIXED_POOL = frozenset({"vllm", "vllm-ascend", "sglang", "tgi", "tensorrt-llm", "lmdeploy"})

_MEMORY = frozenset({Domain.DEVICE, Domain.HOST, None})


def _of_memory(facts: Facts) -> bool:
    return facts.domain in _MEMORY and facts.standing is not Standing.BENIGN


def _at(stages: frozenset[Stage]) -> Callable[[Facts], bool]:
    return lambda facts: _of_memory(facts) and facts.stage in stages and facts.stage_told_by != "words"


def _in_words(stages: frozenset[Stage]) -> Callable[[Facts], bool]:
    return lambda facts: _of_memory(facts) and facts.stage in stages and facts.stage_told_by == "words"


def _rule(
    name: str,
    needs: tuple[str, ...],
    when: Callable[[Facts], bool],
    says: Mapping[FailureClass, Weight],
    why: str,
    *,
    by_words: bool = False,
) -> Rule:
    return Rule(name=name, step=Step.PHASE, needs=needs, when=when, says=says, why=why, by_words=by_words)


def _in_service_on_device(facts: Facts) -> bool:
    return facts.stage in IN_SERVICE and facts.domain in (Domain.DEVICE, None)


def _ran_short_in_service(facts: Facts) -> bool:
    """Not where all that was read is that a process ended: that may be no lack of memory at all."""
    return _in_service_on_device(facts) and facts.standing is not Standing.CONSEQUENCE


def _refused_for_activation(facts: Facts) -> bool:
    """A refusal at KV sizing in which the profile's peak, or the estimate of graphs, is larger than what is missing."""
    if facts.stage is not Stage.KV_SIZING:
        return False
    transient = max(
        (size.expected for size in (facts.activation_bytes, facts.graph_bytes) if size is not None), default=0
    )
    missing = 0
    if facts.needed_bytes is not None and facts.available_bytes is not None:
        missing = facts.needed_bytes.expected - facts.available_bytes.expected
    weights = facts.weights_bytes.expected if facts.weights_bytes is not None else 0
    return transient > missing and transient > weights


def _pools_before_service(facts: Facts) -> bool:
    return (
        facts.private_pool_bytes is not None
        and facts.private_pool_bytes.expected > 0
        and facts.ready is False
        and not facts.served
        and facts.stage not in IN_SERVICE | RECOVERING
    )


def _previous_engine(facts: Facts) -> bool:
    return (
        facts.previous_engine_s is not None
        and facts.previous_engine_s <= RELEASE_LAG_S
        and facts.stage in LOADING | {Stage.RESTART}
        and facts.domain in (Domain.DEVICE, None)
    )


RULES: tuple[Rule, ...] = (
    _rule(
        "while-loading",
        ("stage",),
        _at(LOADING),
        {LOAD: DECIDES},
        "it happened while weights, pool or buffers were placed, or by arithmetic before any forward",
    ),
    _rule(
        "while-warming-up",
        ("stage",),
        lambda facts: _at(WARMING)(facts) and facts.stage not in _SHARED,
        {WARM: DECIDES},
        "a dummy or first-use step before the instance served: profile, capture, sampler, first forward",
    ),
    _rule(
        "worst-case-buffers",
        ("stage",),
        _at(_SHARED),
        {WARM: DECIDES, LOAD: STRONG},
        "buffers of the worst case, or of a first use, on top of what was already placed",
    ),
    _rule(
        "while-recovering",
        ("stage",),
        _at(RECOVERING),
        {RECOVERY: DECIDES},
        "it happened while an instance slept, woke, was unloaded, reloaded or replaced",
    ),
    _rule(
        "in-prefill",
        ("stage",),
        lambda facts: (
            _in_service_on_device(facts) and facts.stage is Stage.PREFILL and facts.stage_told_by != "words"
        ),
        {SPIKE: DECIDES},
        "the step that failed computed a prompt, or a chunk of one",
    ),
    _rule(
        "in-decode",
        ("stage",),
        lambda facts: _of_memory(facts) and facts.stage is Stage.DECODE and facts.stage_told_by != "words",
        {GROWTH: DECIDES},
        "the step that failed generated tokens",
    ),
    _rule(
        "in-service-transient",
        ("stage", "engine"),
        lambda facts: _ran_short_in_service(facts) and facts.engine in FIXED_POOL,
        {SPIKE: SUGGESTS, GROWTH: HINTS},
        "this engine's KV pool is of fixed size when it serves: what a step needs more is transient, most for prompts",
    ),
    _rule(
        "in-service-growing",
        ("stage", "engine"),
        lambda facts: _ran_short_in_service(facts) and facts.engine not in FIXED_POOL,
        {SPIKE: HINTS, GROWTH: HINTS},
        "this engine may still allocate when it serves: for prompts, and as contexts grow",
    ),
    _rule(
        "prompt-just-before",
        ("stage",),
        lambda facts: _in_service_on_device(facts) and facts.prefill_just_before,
        {SPIKE: STRONG},
        "a new request or a prefill stands just before it",
    ),
    _rule(
        "decode-just-before",
        ("stage",),
        lambda facts: (
            _in_service_on_device(facts) and facts.decode_just_before and not facts.prefill_just_before
        ),
        {GROWTH: SUGGESTS},
        "only generation stands just before it",
    ),
    _rule(
        "pool-nearly-empty",
        ("kv_usage_ratio", "domain"),
        lambda facts: (
            facts.domain is Domain.DEVICE
            and facts.kv_usage_ratio is not None
            and facts.kv_usage_ratio < LOW_USAGE
        ),
        {SPIKE: STRONG},
        "little of the KV pool was in use: what ran short is the room for activations beside it",
    ),
    _rule(
        "pool-nearly-full",
        ("kv_usage_ratio", "running_requests", "domain"),
        lambda facts: (
            facts.domain in (Domain.DEVICE, Domain.KV_POOL)
            and (facts.kv_usage_ratio or 0) > HIGH_USAGE
            and (facts.running_requests or 0) > 0
            and facts.stage in IN_SERVICE
        ),
        {GROWTH: SUGGESTS},
        "almost all of the KV pool was in use by running requests",
    ),
    _rule(
        "rows-per-prompt-token",
        ("prompt_rows",),
        lambda facts: (
            facts.prompt_rows is True
            and _of_memory(facts)
            and facts.stage not in LOADING | WARMING | RECOVERING
        ),
        {SPIKE: STRONG},
        "an option asks for a row of logits for every token of the prompt, which no profile counts",
    ),
    _rule(
        "warm-up-off",
        ("warmup_off",),
        lambda facts: (
            facts.warmup_off is True
            and _of_memory(facts)
            and facts.stage not in LOADING | WARMING | RECOVERING
        ),
        {SPIKE: SUGGESTS, WARM: HINTS},
        "warm-up was off: first requests allocate what it would have reserved",
    ),
    _rule(
        "graph-pools-before-service",
        ("private_pool_bytes",),
        lambda facts: _of_memory(facts) and _pools_before_service(facts),
        {WARM: STRONG},
        "private pools of graphs hold memory and no request was served",
    ),
    _rule(
        "graph-pools",
        ("private_pool_bytes",),
        lambda facts: (
            facts.private_pool_bytes is not None
            and facts.private_pool_bytes.expected > 0
            and facts.ready is None
            and facts.stage is None
        ),
        {WARM: HINTS, SPIKE: HINTS},
        "private pools of graphs hold memory: loading was over",
    ),
    _rule(
        "refused-for-activation",
        ("stage", "activation_bytes"),
        _refused_for_activation,
        {WARM: DECIDES, LOAD: Weight.AGAINST},
        "the profile's peak is larger than the weights and than what is missing: it is the dominant term",
    ),
    _rule(
        "previous-engine",
        ("previous_engine_s", "stage"),
        _previous_engine,
        {RECOVERY: Weight.DECIDES, LOAD: Weight.AGAINST},
        "a previous engine on this device ended within minutes before",
    ),
    _rule(
        "reloaded-beside",
        ("recovery_beside",),
        lambda facts: _of_memory(facts) and facts.stage not in LOADING | WARMING,
        {RECOVERY: Weight.DECIDES},
        "an unload, a reload, a sleep or a wake stands right beside it",
    ),
    _rule(
        "sleep-mode",
        ("sleep_mode",),
        lambda facts: facts.sleep_mode is True and _of_memory(facts) and facts.stage in (None, Stage.SERVING),
        {RECOVERY: HINTS},
        "sleep mode is on: memory is unmapped and mapped again",
    ),
    _rule(
        "no-ready-line",
        ("ready",),
        lambda facts: (
            facts.ready is False
            and _of_memory(facts)
            and not facts.served
            and facts.stage in (None, Stage.STARTING)
            and facts.standing is not Standing.CONSEQUENCE
        ),
        {LOAD: SUGGESTS, WARM: HINTS},
        "nothing that was read says that the instance was ready",
    ),
    _rule(
        "words-loading",
        ("stage",),
        _in_words(LOADING),
        {LOAD: SUGGESTS},
        "the description places it in loading",
        by_words=True,
    ),
    _rule(
        "words-warming",
        ("stage",),
        _in_words(WARMING),
        {WARM: STRONG},
        "the description places it in warm-up",
        by_words=True,
    ),
    _rule(
        "words-prompt",
        ("symptoms",),
        lambda facts: "prompt" in facts.symptoms and facts.stage not in LOADING | WARMING,
        {SPIKE: SUGGESTS},
        "the description names prompts or prefill",
        by_words=True,
    ),
    _rule(
        "words-generation",
        ("symptoms",),
        lambda facts: (
            "generation" in facts.symptoms
            and "prompt" not in facts.symptoms
            and facts.stage not in LOADING | WARMING
        ),
        {GROWTH: SUGGESTS},
        "the description names generation",
        by_words=True,
    ),
    _rule(
        "words-in-service",
        ("symptoms",),
        lambda facts: "in-service" in facts.symptoms and facts.stage not in LOADING | WARMING,
        {SPIKE: HINTS, GROWTH: HINTS},
        "the description places it in service",
        by_words=True,
    ),
    _rule(
        "words-recovery",
        ("symptoms",),
        lambda facts: "recovery" in facts.symptoms,
        {RECOVERY: DECIDES},
        "the description has memory held, or not given back, after something ended, slept, woke or was replaced",
        by_words=True,
    ),
)
