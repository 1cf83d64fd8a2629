"""The catalogue of failure messages: how frameworks, drivers, kernels and engines say that memory ran out.

`FAILURES` are the wordings in the order in which they are tried, `KINDS` what each kind is, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from vramledger.diagnosis.messages import (
    cuda,
    ggml,
    host,
    servers,
    sglang,
    torch_allocator,
    unnamed,
    vllm,
)
from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.engines.log_pattern import LinePattern
from vramledger.observation import Observation

__all__ = ["FAILURES", "KINDS", "Domain", "MessageKind", "Standing", "kind_of"]

# A wrapper's own line stands behind what it wraps (the allocator's numbers are worth more than the wrapper's name), and
# what is said in anyone's words comes last.
_FAMILIES = (torch_allocator, vllm, sglang, ggml, servers, host, cuda, unnamed)

FAILURES: tuple[LinePattern, ...] = tuple(pattern for family in _FAMILIES for pattern in family.PATTERNS)
KINDS: Mapping[str, MessageKind] = MappingProxyType(
    {kind.name: kind for family in _FAMILIES for kind in family.KINDS}
)


def kind_of(observation: Observation) -> MessageKind:
    """What an observation of the catalogue is about.

    Raises KeyError for an observation that is none of a failure.
    """
    return KINDS[str(observation.values["message"])]
