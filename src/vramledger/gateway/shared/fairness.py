"""Tenants' fairness over several gateways: each policy is told what others let a tenant in with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from vramledger.gateway.live.instance import Instance
from vramledger.gateway.shared.keeper import SharedBudgets
from vramledger.gateway.shared.served import Charges
from vramledger.gateway.tenants.tenant import EVERYBODY, Tenants


def share_tenants(
    shared: SharedBudgets, instances: Iterable[Instance], tenants: Callable[[], Tenants]
) -> None:
    """Between gateways tenants go by their names. `tenants` are those of now; what others tell of one that is not among them is nothing here."""
    for instance in instances:
        shared.share_served(
            instance.name, partial(taken, instance, tenants), partial(told, instance, tenants)
        )


def taken(instance: Instance, tenants: Callable[[], Tenants]) -> dict[tuple[int, str], int]:
    """What its policy let in since it was last asked."""
    if not instance.is_open:
        return {}
    names = tenants()
    return {
        (line, names.name(number)): tokens
        for (line, number), tokens in instance.policy.take_charged().items()
        if number == EVERYBODY or names.get(number) is not None
    }


def told(instance: Instance, tenants: Callable[[], Tenants], charges: Charges) -> None:
    """What others let in."""
    if not instance.is_open:
        return
    names = tenants()
    for (line, name), tokens in charges.items():
        if not name:
            instance.policy.served_elsewhere(line, EVERYBODY, tokens)
        elif name in names.by_name:
            instance.policy.served_elsewhere(line, names.number(name), tokens)
