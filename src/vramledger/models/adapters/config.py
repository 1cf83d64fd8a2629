"""`adapter_config.json` of a LoRA adapter, as PEFT writes it.

Source: peft tuners/lora/config.py (LoraConfig) of 0.1 to 0.21; keys that change no size are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from vramledger.errors import ConfigError
from vramledger.models.config import Config

CONFIG_NAME = "adapter_config.json"
MAX_RANK = 2**20
_MOST_PATTERNS = 65_536

# Inits that only set where training starts; all others change the base weights that the adapter belongs to
# (peft tuners/lora/layer.py; vllm lora/peft_helper.py, `_init_is_supported`).
_PLAIN_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica", "lora_ga"})


class AdapterConfig(Struct, frozen=True, kw_only=True):
    """What the file says of sizes and of features that engines may lack.

    `target_modules` are names a module's path ends in, or one regular expression in `target_pattern`;
    `target_parameters` are paths of stacks of experts. `rank_pattern` and `alpha_pattern` give a module another
    rank or scale, by the end of its path. `init` is an initialisation that changed the base weights, "" for a
    plain one. `trainable_tokens` counts the rows of embeddings that were trained.
    """

    rank: int
    alpha: float
    target_modules: tuple[str, ...] = ()
    target_pattern: str = ""
    exclude_modules: tuple[str, ...] = ()
    exclude_pattern: str = ""
    target_parameters: tuple[str, ...] = ()
    modules_to_save: tuple[str, ...] = ()
    rank_pattern: tuple[tuple[str, int], ...] = ()
    alpha_pattern: tuple[tuple[str, float], ...] = ()
    layers_to_transform: tuple[int, ...] | None = None
    bias: str = "none"
    use_dora: bool = False
    use_rslora: bool = False
    lora_bias: bool = False
    init: str = ""
    is_activated: bool = False
    replicates_layers: bool = False
    is_block_diagonal: bool = False
    use_qalora: bool = False
    trainable_tokens: int = 0
    base_model: str = ""
    task: str = ""

    @property
    def largest_rank(self) -> int:
        """The largest rank that the file allows a module."""
        return max((self.rank, *(rank for _, rank in self.rank_pattern)))


def adapter_config(data: Mapping[str, Any], where: str) -> AdapterConfig:
    """The adapter that the JSON object `data` of the file `where` describes.

    Raises ConfigError naming the key for a method other than LoRA, a missing rank, and values that cannot be.
    """
    config = Config(data, where)
    method = config.text("peft_type", default="LORA")
    if method.upper() != "LORA":
        raise ConfigError(
            f"{where}: peft_type is {method[:40]!r}; only LORA adapters have matrices an engine keeps in slots",
            file=where,
            key="peft_type",
            value=method[:40],
        )
    modules, pattern = _names(config, "target_modules")
    excluded, exclude_pattern = _names(config, "exclude_modules")
    return AdapterConfig(
        rank=config.integer("r", maximum=MAX_RANK),
        alpha=config.number("lora_alpha", default=8.0),
        target_modules=modules,
        target_pattern=pattern,
        exclude_modules=excluded,
        exclude_pattern=exclude_pattern,
        target_parameters=config.texts("target_parameters"),
        modules_to_save=config.texts("modules_to_save"),
        rank_pattern=tuple((key, int(value)) for key, value in _numbers(config, "rank_pattern", whole=True)),
        alpha_pattern=_numbers(config, "alpha_pattern", whole=False),
        layers_to_transform=_layers(config),
        bias=config.text("bias", default="none"),
        use_dora=config.flag("use_dora", default=False),
        use_rslora=config.flag("use_rslora", default=False),
        lora_bias=config.flag("lora_bias", default=False),
        init=_init(config),
        is_activated=bool(config.items("alora_invocation_tokens")),
        replicates_layers=bool(config.items("layer_replication")),
        is_block_diagonal=bool(config.raw("use_bdlora")),
        use_qalora=config.flag("use_qalora", default=False),
        trainable_tokens=_trainable_tokens(config),
        base_model=config.text("base_model_name_or_path", default="")[:300],
        task=config.text("task_type", default="")[:60],
    )


def _names(config: Config, key: str) -> tuple[tuple[str, ...], str]:
    """A list of names, or one text: a pattern, which "all-linear" and a plain name are too."""
    value = config.raw(key)
    if isinstance(value, str):
        return (), value
    return config.texts(key), ""


def _numbers(config: Config, key: str, *, whole: bool) -> tuple[tuple[str, float], ...]:
    found = config.optional_sub(key)
    if found is None:
        return ()
    names = found.keys()
    if len(names) > _MOST_PATTERNS:
        raise config.fail(key, f"has {len(names)} patterns, more than {_MOST_PATTERNS}")
    if whole:
        return tuple((name, found.integer(name, maximum=MAX_RANK)) for name in names)
    return tuple((name, found.number(name)) for name in names)


def _layers(config: Config) -> tuple[int, ...] | None:
    value = config.raw("layers_to_transform")
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return (config.integer("layers_to_transform", minimum=0),)
    return config.integers("layers_to_transform")


def _init(config: Config) -> str:
    value = config.raw("init_lora_weights")
    if not isinstance(value, str) or value.lower() in _PLAIN_INITS:
        return ""
    return value[:60]


def _trainable_tokens(config: Config) -> int:
    """Rows: a list of tokens, or lists by the name of an embedding."""
    value = config.raw("trainable_token_indices")
    if isinstance(value, Mapping):
        found = config.sub("trainable_token_indices")
        return sum(len(found.items(name)) for name in tuple(found.keys()))
    return len(config.items("trainable_token_indices"))
