"""What a failure message is about, as a value; the table of all kinds is `KINDS` of the package."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Domain(StrEnum):
    """Which memory a message speaks of."""

    DEVICE = "device"
    HOST = "host"
    KV_POOL = "kv-pool"  # tokens or blocks of a pool that was sized before
    WORKSPACE = "workspace"  # a buffer of fixed size that a kernel works in
    REQUEST_SLOTS = "request-slots"
    SHARED_MEMORY_PER_BLOCK = "shared-memory-per-block"  # on the chip, a kernel's own
    SHARED_SEGMENT = "shared-memory-segment"  # /dev/shm of a container
    NONE = "none"


class Standing(StrEnum):
    """What a message says about the failure it belongs to."""

    CAUSE = "cause"
    CONSEQUENCE = "consequence"  # comes after the cause, never the first of a failure
    WARNING = "warning"  # memory was short and the program went on
    BENIGN = "benign"  # reads like a shortage and is none
    EVIDENCE = "evidence"  # a state that tells one cause from another


class MessageKind(Struct, frozen=True, kw_only=True):
    """One kind of message. `name` is stable and stands in an observation's value "message".

    `proves_memory` is whether the text alone proves that memory of `domain` was short: a killed process or a library that
    failed to start may have other reasons. `source` names the program, its file and the releases that print it.
    """

    name: str
    domain: Domain
    standing: Standing
    meaning: str
    source: str
    proves_memory: bool = True
