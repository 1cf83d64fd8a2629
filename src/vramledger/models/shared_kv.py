"""Which layers read another layer's KV cache (Gemma 3n and Gemma 4, `kv_sharing_modes` of their configs)."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.models.config import Config

KINDS = ("sliding_attention", "full_attention")


def layer_types(config: Config, count: int, *, pattern: int) -> tuple[str, ...]:
    """The kind of each layer: `layer_types`, or one full layer in `pattern`; the last one is always full.

    Raises ConfigError for a list shorter than the layers or an unknown kind.
    """
    stated = config.texts("layer_types")
    if stated and len(stated) < count:
        raise config.fail("layer_types", f"has {len(stated)} entries for {count} layers")
    for kind in stated:
        if kind not in KINDS:
            raise config.fail("layer_types", f"holds {kind!r}, which is neither of {', '.join(KINDS)}")
    if not stated:
        config.assume(f"layer_types not stated: the class's one full layer in {pattern} taken")
        stated = tuple(KINDS[(index + 1) % pattern == 0] for index in range(count))
    return (*stated[: count - 1], "full_attention")


def kv_sources(config: Config, types: Sequence[str], shared: int) -> tuple[int | None, ...]:
    """For each layer the layer whose KV it reads, None where it keeps its own.

    The last `shared` layers read the last layer of their kind before them. Raises ConfigError where there is
    none.
    """
    first = len(types) - shared
    if first <= 0:
        raise config.fail("num_kv_shared_layers", f"{shared} leaves no layer of {len(types)} with its own KV")
    last = {kind: index for index, kind in enumerate(types[:first])}
    for kind in types[first:]:
        if kind not in last:
            raise config.fail("num_kv_shared_layers", f"{shared} leaves no {kind} layer to share from")
    return (*(None for _ in range(first)), *(last[kind] for kind in types[first:]))
