"""What goes for a tenant, and which number stands for its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from vramledger.errors import InputError, shorter
from vramledger.gateway.tenants.keys import KeyHash, read_key_hash

EVERYBODY = 0
"""The tenant of a gateway that knows no tenants."""
LONGEST_NAME = 64
MOST_MS = 86_400_000
MOST_PRIORITY = 1_000


class Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tenant may do, and what goes for all that it asks. None bounds nothing."""

    keys: tuple[str, ...] = ()
    """Hashes of its keys, as `vramledger gateway-key` prints them. Several, so that one can be replaced while both are good."""
    weight: int = 1
    """Its share when several wait: twice the weight is twice the tokens."""
    priority: int = 0
    """A smaller one goes first. A request's own priority may only be larger."""
    first_token_within_ms: int | None = None
    """What its requests' first token has to come within, unless a request says otherwise."""
    within_ms: int | None = None
    """What its requests have to be done within, unless a request says otherwise."""
    max_open: int | None = None
    """Most requests under way at once, admitted or waiting."""
    max_queued: int | None = None
    """Most requests waiting at once."""
    tokens_per_minute: int | None = None
    """Prompt and output tokens, refilled evenly; a minute's worth may be used at once."""
    models: tuple[str, ...] = ()
    """Names of models (and adapters) that it may ask for; all where there are none."""
    allow_paths: tuple[str, ...] = ()
    """Paths that pass for this tenant beside those that pass for all."""

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise ValueError(f"weight is {self.weight}: at least 1 is needed")
        if not -MOST_PRIORITY <= self.priority <= MOST_PRIORITY:
            raise ValueError(
                f"priority is {self.priority}: it lies within {-MOST_PRIORITY} and {MOST_PRIORITY}"
            )
        for name in ("first_token_within_ms", "within_ms"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_MS:
                raise ValueError(f"{name} is {value}: it lies within 1 and {MOST_MS}")
        for name, least in (("max_open", 1), ("max_queued", 0), ("tokens_per_minute", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}: at least {least} is needed")


ANY_TENANT = Tenant()


class Tenants:
    """All tenants by name and number. A name keeps its number for as long as the gateway lives, over every reload."""

    def __init__(self, tenants: Mapping[str, Tenant], before: Tenants | None = None) -> None:
        """Raises InputError naming the tenant whose name or key is not one."""
        self._numbers: dict[str, int] = {} if before is None else dict(before._numbers)
        self.by_name = dict(tenants)
        self.hashes: dict[str, tuple[KeyHash, ...]] = {}
        for name, tenant in tenants.items():
            if not name or len(name) > LONGEST_NAME or not all("!" <= letter <= "~" for letter in name):
                raise InputError(
                    f"the tenant {shorter(name)} needs a name of 1 to {LONGEST_NAME} printable ASCII characters",
                    tenant=name,
                )
            try:
                self.hashes[name] = tuple(read_key_hash(line) for line in tenant.keys)
            except InputError as problem:
                raise InputError(f"tenants.{name}.keys: {problem.message}", tenant=name) from problem
            self._numbers.setdefault(name, len(self._numbers) + 1)
        self._by_number = {self._numbers[name]: tenant for name, tenant in tenants.items()}

    def __len__(self) -> int:
        return len(self.by_name)

    def number(self, name: str) -> int:
        return self._numbers[name]

    def name(self, number: int) -> str:
        """ "" for everybody and for one that is no more."""
        return next((name for name in self.by_name if self._numbers[name] == number), "")

    def get(self, number: int) -> Tenant | None:
        """None for one that is no more."""
        return ANY_TENANT if number == EVERYBODY else self._by_number.get(number)

    @property
    def weights(self) -> dict[int, int]:
        return {number: tenant.weight for number, tenant in self._by_number.items()}

    def without_keys(self) -> Iterable[str]:
        """Tenants that nobody can be."""
        return (name for name, hashes in self.hashes.items() if not hashes)
