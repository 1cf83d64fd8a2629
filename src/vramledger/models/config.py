"""Typed, bounded access to a config.json that came from outside.

A key that is missing and has no class default is an error that names the file and the key; a value of the
wrong kind or size is an error that names the value. Nothing above this module sees a raw dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramledger.errors import ConfigError, UnknownFormat
from vramledger.formats.dtypes import DType, parse_dtype

MAX_DIMENSION = 2**31
MAX_LAYERS = 4096
_MISSING: Any = object()


class Config:
    """A JSON object with the path it came from, for messages such as "config.json: text_config.head_dim"."""

    __slots__ = ("_data", "_where", "notes")

    def __init__(self, data: Mapping[str, Any], where: str, notes: list[str] | None = None) -> None:
        self._data = data
        self._where = where
        self.notes: list[str] = notes if notes is not None else []

    @property
    def where(self) -> str:
        """The file, and the place in it, for messages."""
        return self._where

    def __contains__(self, key: str) -> bool:
        return self._data.get(key) is not None

    def _fail(self, key: str, problem: str, value: object = None) -> ConfigError:
        return ConfigError(f"{self._where}: {key} {problem}", file=self._where, key=key, value=value)

    def _raw(self, keys: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for key in keys:
            value = self._data.get(key)
            if value is not None:
                return key, value
        if default is _MISSING:
            also = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
            raise self._fail(keys[0] + also, "is missing and the model class has no default for it")
        return keys[0], default

    def integer(
        self, *keys: str, default: int = _MISSING, minimum: int = 1, maximum: int = MAX_DIMENSION
    ) -> int:
        """A whole number from the first of `keys` that is there.

        Raises ConfigError when it is missing without a default, not a whole number, or out of range.
        """
        key, value = self._raw(keys, default)
        if isinstance(value, float) and value == value and abs(value) < 1e15 and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._fail(key, f"must be a whole number, not {_show(value)}", value)
        if not minimum <= value <= maximum:
            raise self._fail(key, f"is {_show(value)}, outside {minimum} to {maximum}", value)
        return value

    def optional_int(self, *keys: str, minimum: int = 0, maximum: int = MAX_DIMENSION) -> int | None:
        """A whole number, or None where none of `keys` is there or it is null."""
        key, value = self._raw(keys, None)
        return None if value is None else self.integer(key, minimum=minimum, maximum=maximum)

    def number(self, *keys: str, default: float = _MISSING) -> float:
        key, value = self._raw(keys, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise self._fail(key, f"must be a number, not {_show(value)}", value)
        if abs(value) > 1e18:
            raise self._fail(key, f"is {_show(value)}, too large", value)
        return float(value)

    def flag(self, *keys: str, default: bool = _MISSING) -> bool:
        key, value = self._raw(keys, default)
        if not isinstance(value, bool) and value not in (0, 1):
            raise self._fail(key, f"must be true or false, not {_show(value)}", value)
        return bool(value)

    def text(self, *keys: str, default: str = _MISSING) -> str:
        key, value = self._raw(keys, default)
        if not isinstance(value, str):
            raise self._fail(key, f"must be text, not {_show(value)}", value)
        return value

    def integers(self, key: str, *, minimum: int = 0, maximum: int = MAX_DIMENSION) -> tuple[int, ...]:
        """A list of whole numbers; empty where the key is absent or null. `false`/`true` count as 0/1."""
        out = []
        for item in self.items(key):
            number = int(item) if isinstance(item, bool) else item
            if not isinstance(number, int) or not minimum <= number <= maximum:
                raise self._fail(
                    key, f"holds {_show(item)}, not a whole number in {minimum} to {maximum}", item
                )
            out.append(number)
        return tuple(out)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty where the key is absent or null."""
        items = self.items(key)
        for item in items:
            if not isinstance(item, str):
                raise self._fail(key, f"holds {_show(item)}, not text", item)
        return tuple(items)

    def items(self, key: str) -> Sequence[Any]:
        value = self._data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self._fail(key, f"must be a list, not {_show(value)}", value)
        if len(value) > 65536:
            raise self._fail(key, f"has {len(value)} items, more than 65536")
        return value

    def sub(self, key: str) -> Config:
        """A nested object; an error where it is missing."""
        nested = self.optional_sub(key)
        if nested is None:
            raise self._fail(key, "is missing")
        return nested

    def optional_sub(self, key: str) -> Config | None:
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._fail(key, f"must be an object, not {_show(value)}", value)
        return Config(value, f"{self._where}: {key}", self.notes)

    def subs(self, key: str) -> tuple[Config, ...]:
        """A list of nested objects."""
        out = []
        for index, item in enumerate(self.items(key)):
            if not isinstance(item, Mapping):
                raise self._fail(key, f"[{index}] must be an object, not {_show(item)}", item)
            out.append(Config(item, f"{self._where}: {key}[{index}]", self.notes))
        return tuple(out)

    def raw(self, key: str) -> Any:
        """The value as parsed, None where absent; for the few keys that are text in one model and a list in another."""
        return self._data.get(key)

    def keys(self) -> tuple[str, ...]:
        return tuple(self._data)

    def num_layers(self, *keys: str, default: int = _MISSING) -> int:
        return self.integer(*(keys or ("num_hidden_layers",)), default=default, minimum=1, maximum=MAX_LAYERS)

    def dtype(self, default: DType = DType.F32) -> DType:
        """The declared element type (`dtype` or `torch_dtype`), or Transformers' default of float32.

        Raises ConfigError for one that is not text, UnknownFormat for a name PyTorch does not have.
        """
        for key in ("dtype", "torch_dtype"):
            name = self.text(key, default="")
            if name == "auto":
                return default
            if name:
                try:
                    return parse_dtype(name)
                except UnknownFormat as problem:
                    raise UnknownFormat(
                        f"{self._where}: {key} {problem.message}", file=self._where, key=key, value=name
                    ) from None
        return default

    def num_labels(self) -> int:
        """Outputs of a classifier: `num_labels`, the labels of `id2label`, or Transformers' default of two."""
        labels = self._data.get("id2label")
        stated = len(labels) if isinstance(labels, Mapping) and labels else 2
        return self.integer("num_labels", default=stated)

    def replacing(self, **values: object) -> Config:
        """This object with some keys set; it shares the notes."""
        return Config({**self._data, **values}, self._where, self.notes)

    def with_defaults(self, class_name: str, **defaults: object) -> Config:
        """This object with the class's defaults for keys that are absent; one that is null stays null.

        Notes those that add or shape something, under the name of the config class they come from.
        """
        absent = {key: value for key, value in defaults.items() if key not in self._data}
        telling = [
            f"{key}={value}" for key, value in absent.items() if value is not None and value is not False
        ]
        if telling:
            self.assume(f"default of {class_name}: {', '.join(telling)}")
        return Config({**absent, **self._data}, self._where, self.notes)

    def fail(self, key: str, problem: str) -> ConfigError:
        """An error that names this file and `key`, for a rule across several keys."""
        return self._fail(key, problem)

    def assume(self, note: str) -> None:
        """Record a default that came from the model class, not from the file."""
        self.notes.append(note)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
