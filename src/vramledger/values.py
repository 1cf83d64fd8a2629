"""`dataclass`, for values whose methods are made when they are first used.

The standard decorator compiles up to nine methods for every class while its module is imported: 0.3 to 0.6 ms
each, half of the time that a plan takes in a fresh process. This one gives the same classes (fields, slots,
frozen, keyword-only, order by fields, `replace`, `fields`, pattern matching, pickling) and compiles only an
`__init__`, when the first value is made; the other methods are shared by all classes. Type checkers see the
standard decorator. A class and its bases use the same of the two; fields that are not parameters are not
supported.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - the name this module gives
else:

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass` with `frozen`, `slots`, `kw_only` and `order`."""
        if cls is None:
            return lambda decorated: _value_class(decorated, **options)
        return _value_class(cls, **options)


def _value_class(
    cls: type, *, frozen: bool = False, slots: bool = False, kw_only: bool = False, order: bool = False
) -> type:
    own = cls.__dict__
    undocumented = cls.__doc__ is None
    if undocumented:
        cls.__doc__ = cls.__name__  # or the standard decorator works out a signature for it
    made: type = _with_fields(cls, slots=slots, kw_only=kw_only)
    if undocumented:
        made.__doc__ = None
    setattr(made, "__init__", _first_init(made, frozen=frozen))  # noqa: B010 - mypy refuses the plain form
    for name, method in (("__repr__", _repr), ("__eq__", _eq)):
        if name not in own:
            setattr(made, name, method)
    if frozen:
        setattr(made, "__setattr__", _refuse_set)  # noqa: B010
        setattr(made, "__delattr__", _refuse_delete)  # noqa: B010
        if "__hash__" not in own:
            setattr(made, "__hash__", _hash)  # noqa: B010
        if slots:
            setattr(made, "__getstate__", _get_state)  # noqa: B010
            setattr(made, "__setstate__", _set_state)  # noqa: B010
    elif "__eq__" not in own:
        setattr(made, "__hash__", None)  # noqa: B010
    if order:
        for name, method in _ORDER.items():
            setattr(made, name, method)
    return made


def _with_fields(cls: type, *, slots: bool, kw_only: bool) -> Any:
    return dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)


def _first_init(cls: Any, *, frozen: bool) -> Any:
    def __init__(self: Any, *args: Any, **values: Any) -> None:  # noqa: N807
        made = _compile_init(cls, frozen=frozen)
        cls.__init__ = made
        made(self, *args, **values)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def _compile_init(cls: Any, *, frozen: bool) -> Any:
    """`__init__` as the standard decorator writes it, from the class's fields."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_given": _NOT_GIVEN}
    positional: list[str] = []
    keyword: list[str] = []
    body: list[str] = []
    for item in dataclasses.fields(cls):
        if not item.init:
            raise TypeError(f"{cls.__qualname__}.{item.name}: a field that is not a parameter")
        name = value = parameter = item.name
        if item.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = item.default
            parameter = f"{name}=_default_{name}"
        elif item.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = item.default_factory
            parameter = f"{name}=_given"
            value = f"_make_{name}() if {name} is _given else {name}"
        (keyword if item.kw_only else positional).append(parameter)
        body.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    head = ", ".join(["self", *positional, *(["*", *keyword] if keyword else [])])
    exec(f"def __init__({head}):\n" + "\n".join(body or [" pass"]), names)  # noqa: S102 - field names only
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


_NOT_GIVEN = object()
_COMPARED: dict[type, tuple[str, ...]] = {}


def _compared(cls: Any) -> tuple[str, ...]:
    found = _COMPARED.get(cls)
    if found is None:
        found = _COMPARED[cls] = tuple(item.name for item in dataclasses.fields(cls) if item.compare)
    return found


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in _compared(type(self))])


def _repr(self: Any) -> str:
    shown = ", ".join(
        f"{item.name}={getattr(self, item.name)!r}" for item in dataclasses.fields(self) if item.repr
    )
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for item, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)


def _comparison(name: str) -> Any:
    def compare(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return getattr(_values(self), name)(_values(other))

    compare.__name__ = name
    return compare


_ORDER = {name: _comparison(name) for name in ("__lt__", "__le__", "__gt__", "__ge__")}
