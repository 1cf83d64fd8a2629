"""Typed access to a GGUF header's keys, and what every decoder states."""

from __future__ import annotations

from typing import Any

from vramledger.errors import ConfigError
from vramledger.models.sources.bounded_file import quote
from vramledger.models.sources.gguf import GgufInfo
from vramledger.models.sources.gguf_reader import Array


class Keys:
    """Typed access to one architecture's keys; a missing or wrong one is a ConfigError that names it."""

    def __init__(self, info: GgufInfo, where: str) -> None:
        self.info = info
        self.where = where
        self.blocks = self.integer("block_count", most=4096)

    def _find(self, key: str) -> tuple[str, Any]:
        name = key if key.startswith(("general.", "tokenizer.")) else f"{self.info.architecture}.{key}"
        return name, self.info.metadata.get(name)

    def fail(self, name: str, problem: str, value: object = None) -> ConfigError:
        return ConfigError(f"{self.where}: {name} {problem}", file=self.where, key=name, value=value)

    def optional(self, key: str, *, least: int = 0, most: int = 2**31) -> int | None:
        name, value = self._find(key)
        if isinstance(value, tuple) and value and all(item == value[0] for item in value):
            value = value[0]
        if value is None:
            return None
        if type(value) is not int:
            raise self.fail(name, f"is {quote(value)}, not one whole number for all layers", value)
        if not least <= value <= most:
            raise self.fail(name, f"is {quote(value)}, outside {least} to {most}", value)
        return value

    def integer(self, key: str, *, least: int = 1, most: int = 2**31) -> int:
        value = self.optional(key, least=least, most=most)
        if value is None:
            raise self.fail(self._find(key)[0], "is missing")
        return value

    def number(self, key: str) -> float | None:
        name, value = self._find(key)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise self.fail(name, f"is {quote(value)}, not a number", value)

    def text(self, key: str) -> str | None:
        value = self._find(key)[1]
        return value if isinstance(value, str) else None

    def per_layer(self, key: str) -> tuple[int, ...]:
        """One whole number a layer; a single one stands for all."""
        name, value = self._find(key)
        values = value if isinstance(value, tuple) else (value,) * self.blocks
        if len(values) != self.blocks or any(
            type(item) is not int or not 0 <= item <= 2**31 for item in values
        ):
            raise self.fail(
                name, f"is {quote(value)}, not a whole number for each of {self.blocks} layers", value
            )
        return tuple(values)

    def has(self, tensor: str) -> bool:
        return self.info.tensor(tensor) is not None

    def vocab_size(self) -> int:
        """Rows of the embedding, which may be padded beyond the tokenizer's tokens."""
        embedding = self.info.tensor("token_embd.weight")
        if embedding is not None and len(embedding.dims) == 2:
            return embedding.dims[1]
        stated = self.optional("vocab_size", least=1)
        if stated is not None:
            return stated
        name, tokens = self._find("tokenizer.ggml.tokens")
        if isinstance(tokens, Array | tuple):
            return tokens.length if isinstance(tokens, Array) else len(tokens)
        raise self.fail(name, "is missing, and so is every other statement of the vocabulary's size")


def put(config: dict[str, Any], **values: Any) -> dict[str, Any]:
    """`config` with the values that are known."""
    config.update({key: value for key, value in values.items() if value is not None})
    return config


def common(keys: Keys) -> dict[str, Any]:
    heads = keys.integer("attention.head_count")
    width = keys.integer("embedding_length")
    scaling = keys.text("rope.scaling.type")
    config = put(
        {},
        hidden_size=width,
        num_hidden_layers=keys.blocks,
        num_attention_heads=heads,
        vocab_size=keys.vocab_size(),
        max_position_embeddings=keys.integer("context_length"),
        tie_word_embeddings=not keys.has("output.weight"),
        torch_dtype="float16",
        rope_theta=keys.number("rope.freq_base"),
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        head_dim=keys.optional("attention.key_length", least=1)
        or (None if width % heads else width // heads),
    )
    if scaling not in (None, "none"):
        config["rope_scaling"] = put(
            {"rope_type": scaling},
            factor=keys.number("rope.scaling.factor"),
            original_max_position_embeddings=keys.optional("rope.scaling.original_context_length", least=1),
        )
    return config


def decoder(keys: Keys) -> dict[str, Any]:
    """Attention and a dense MLP the same in every layer."""
    return put(
        common(keys),
        num_key_value_heads=keys.optional("attention.head_count_kv", least=1)
        or keys.integer("attention.head_count"),
        intermediate_size=keys.optional("feed_forward_length", least=1),
    )
