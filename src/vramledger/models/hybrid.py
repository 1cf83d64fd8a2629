"""Which kind each layer of a hybrid model is, as configs state it."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.models.config import Config

FULL = "full_attention"
LINEAR = "linear_attention"


def layer_types(
    config: Config,
    count: int,
    *,
    allowed: tuple[str, ...],
    default: str | tuple[str, ...] = "",
    keys: tuple[str, ...] = ("layer_types", "layers_block_type"),
) -> tuple[str, ...]:
    """The kind of each of `count` layers, from the first of `keys` that is there.

    `default` is the model class's own, one kind for all layers or one each. Raises ConfigError for a list
    of another length, an unknown kind, or a missing list without a default.
    """
    for key in keys:
        types = config.texts(key)
        if not types:
            continue
        if len(types) != count:
            raise config.fail(key, f"has {len(types)} entries for {count} layers")
        for kind in types:
            if kind not in allowed:
                raise config.fail(key, f"holds {kind[:40]!r}, not one of {', '.join(allowed)}")
        return types
    if not default:
        raise config.fail(keys[0], "is missing and the model class has no default for it")
    return (default,) * count if isinstance(default, str) else default


def interval_types(config: Config, count: int, *, default_interval: int = 4) -> tuple[str, ...]:
    """Qwen3-Next's rule: every full_attention_interval-th layer attends, the others are linear."""
    step = config.integer("full_attention_interval", default=default_interval, maximum=4096)
    default = tuple(LINEAR if (index + 1) % step else FULL for index in range(count))
    return layer_types(config, count, allowed=(FULL, LINEAR), default=default)


def pattern_types(config: Config, key: str, kinds: Mapping[str, str], *, maximum: int) -> tuple[str, ...]:
    """A text of one letter a layer ("M-M*"), in words; empty where it is absent. Raises ConfigError."""
    pattern = config.text(key, default="")
    if len(pattern) > maximum:
        raise config.fail(key, f"has {len(pattern)} letters, more than {maximum}")
    for letter in pattern:
        if letter not in kinds:
            raise config.fail(key, f"holds {letter!r}, not one of {' '.join(kinds)}")
    return tuple(kinds[letter] for letter in pattern)
