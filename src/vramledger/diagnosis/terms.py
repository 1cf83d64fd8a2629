"""Words of a diagnosis: classes, domains, stages of an instance's life, weights of rules."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class FailureClass(StrEnum):
    """The six classes, and `none` for what looks like one of them and is not a lack of device, host or pool memory."""

    LOAD_TIME = "load-time"
    WARM_UP = "warm-up"
    PREFILL_SPIKE = "prefill-spike"
    DECODE_GROWTH = "decode-growth"
    FRAGMENTATION = "fragmentation"
    RECOVERY = "recovery"
    NONE = "none"


class Stage(StrEnum):
    """Where in an instance's life it happened, finer than the ledger's phases."""

    BUILD = "build"
    STARTUP_CHECK = "startup-check"
    STARTING = "starting"
    HOST_LOAD = "host-load"
    WEIGHT_LOAD = "weight-load"
    POST_LOAD = "post-load"
    KV_SIZING = "kv-sizing"
    KV_ALLOC = "kv-alloc"
    RUNTIME_BUFFERS = "runtime-buffers"
    PROFILE_RUN = "profile-run"
    COMPUTE_BUFFERS = "compute-buffers"
    EXECUTOR_CREATE = "executor-create"
    FIRST_COLLECTIVE = "first-collective"
    GRAPH_CAPTURE = "graph-capture"
    SAMPLER_WARMUP = "sampler-warmup"
    WARMUP_FORWARD = "warmup-forward"
    FIRST_REQUEST = "first-request"
    PREFILL = "prefill"
    DECODE = "decode"
    SERVING = "serving"
    IDLE_CHECK = "idle-check"
    SLEEP = "sleep"
    WAKE = "wake"
    RESTART = "restart"
    TRANSFER = "pd-transfer"
    UNLOAD = "unload"
    RELOAD = "reload"
    RESTORE = "restore"
    AFTER_FAILURE = "after-failure"


LOADING = frozenset(
    {
        Stage.BUILD,
        Stage.STARTUP_CHECK,
        Stage.STARTING,
        Stage.HOST_LOAD,
        Stage.WEIGHT_LOAD,
        Stage.POST_LOAD,
        Stage.KV_SIZING,
        Stage.KV_ALLOC,
        Stage.RUNTIME_BUFFERS,
    }
)
WARMING = frozenset(
    {
        Stage.PROFILE_RUN,
        Stage.COMPUTE_BUFFERS,
        Stage.EXECUTOR_CREATE,
        Stage.FIRST_COLLECTIVE,
        Stage.GRAPH_CAPTURE,
        Stage.SAMPLER_WARMUP,
        Stage.WARMUP_FORWARD,
    }
)
IN_SERVICE = frozenset({Stage.FIRST_REQUEST, Stage.PREFILL, Stage.DECODE, Stage.SERVING, Stage.IDLE_CHECK})
RECOVERING = frozenset(
    {
        Stage.SLEEP,
        Stage.WAKE,
        Stage.RESTART,
        Stage.TRANSFER,
        Stage.UNLOAD,
        Stage.RELOAD,
        Stage.AFTER_FAILURE,
    }
)


class Weight(IntEnum):
    """How strongly a rule speaks. One that decides outweighs any one that is strong."""

    AGAINST = -4
    HINTS = 1
    SUGGESTS = 2
    STRONG = 4
    DECIDES = 9


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
