"""What a plan costs, and which plans no other is better than in everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from vramledger.errors import FlagError, shorter
from vramledger.hardware.catalogue import find_device
from vramledger.search.rows import Row
from vramledger.search.terms import KV_LOSS
from vramledger.search.weights import FORMATS

DEAREST = 10**9


class Order(StrEnum):
    """By what plans are ordered: fewest devices, least money, most tokens in the pool, most tokens for the money."""

    DEVICES = "devices"
    PRICE = "price"
    TOKENS = "tokens"
    TOKENS_PER_PRICE = "tokens-per-price"

    def check_prices(self, devices: Sequence[str], prices: Mapping[str, float]) -> None:
        """Raises FlagError where money is asked about and a device has no price."""
        lacking = [name for name in devices if name not in prices]
        if self in (Order.PRICE, Order.TOKENS_PER_PRICE) and lacking:
            shown = ", ".join(lacking[:4]) + (f" and {len(lacking) - 4} more" if len(lacking) > 4 else "")
            raise FlagError(
                f"--order {self.value} needs a price for {shown}; give --price DEVICE=PRICE or name fewer --devices",
                flag="order",
                value=self.value,
            )


class Cost(Struct, frozen=True, kw_only=True):
    """What one plan takes and gives. `price` is that of all its devices in the user's own unit, None without one;
    `tokens` the pool's expected tokens; the losses are classes of precision (0 none, 1 eight bits, 2 four bits)."""

    devices: int
    price: float | None
    tokens: int
    weights_loss: int
    kv_loss: int


def order_of(name: str) -> Order:
    """Raises FlagError for another name than those of `Order`."""
    try:
        return Order(name)
    except ValueError:
        raise FlagError(
            f"order {shorter(name)} is not one of {', '.join(Order)}", flag="order", value=shorter(name)
        ) from None


def cost_of(row: Row) -> Cost:
    """What the plan of a row takes and gives; no tokens where the model keeps no KV."""
    return Cost(
        devices=row.devices,
        price=row.price,
        tokens=row.pool_tokens or 0,
        weights_loss=FORMATS[row.weights].loss,
        kv_loss=KV_LOSS[row.kv],
    )


def sort_key(cost: Cost, order: Order) -> tuple[float, ...]:
    """Smaller is better. Equal ones are told apart by price, devices, tokens and precision, in this order."""
    price = cost.price if cost.price is not None else DEAREST
    first = {
        Order.DEVICES: float(cost.devices),
        Order.PRICE: price,
        Order.TOKENS: float(-cost.tokens),
        Order.TOKENS_PER_PRICE: -cost.tokens / price if price > 0 else float("-inf"),
    }[order]
    return (first, price, cost.devices, -cost.tokens, cost.weights_loss + cost.kv_loss)


def front(costs: Sequence[Cost]) -> frozenset[int]:
    """Numbers of the plans that no other is at least as good as in everything and better in something.

    What is compared: the price where every plan has one, else the devices; tokens; both classes of precision.
    """
    by_price = all(cost.price is not None for cost in costs)
    points = [_point(cost, by_price=by_price) for cost in costs]
    best = _undominated(set(points))
    return frozenset(number for number, point in enumerate(points) if point in best)


Point = tuple[float, int, int, int]


def _point(cost: Cost, *, by_price: bool) -> Point:
    spent = cost.price if by_price and cost.price is not None else float(cost.devices)
    return (spent, -cost.tokens, cost.weights_loss, cost.kv_loss)


def _undominated(points: set[Point]) -> set[Point]:
    """In sorted order a point can only be dominated by one before it."""
    kept: list[Point] = []
    for point in sorted(points):
        if not any(all(a <= b for a, b in zip(other, point, strict=True)) for other in kept):
            kept.append(point)
    return set(kept)


def named_prices(prices: Mapping[str, float]) -> dict[str, float]:
    """Prices of one device (an hour, a month, to buy: the unit is the user's) by the catalogue's names.

    Raises FlagError for one that is no number of at least 0, DeviceError for an unknown device.
    """
    for name, price in prices.items():
        if type(price) not in (int, float) or not 0 <= price < DEAREST:
            raise FlagError(
                f"the price of {name} is {shorter(price)}, no number of at least 0",
                flag="price",
                value=shorter(price),
            )
    return {find_device(name).name: price for name, price in prices.items()}


def read_prices(assignments: Iterable[str]) -> dict[str, float]:
    """ "H100-80GB=2.5" and the like, as `named_prices` gives them; the last of two for one device counts.

    Raises FlagError for what is not a device and a number of at least 0, DeviceError for an unknown device.
    """
    prices: dict[str, float] = {}
    for text in assignments:
        name, _, value = text.rpartition("=")
        try:
            price = float(value)
        except ValueError:
            price = -1.0
        if not name.strip() or not 0 <= price < DEAREST:
            raise FlagError(
                f"--price {text!r} is not DEVICE=PRICE with a number of at least 0, as in H100-80GB=2.5",
                flag="price",
                value=text,
            )
        prices |= named_prices({name.strip(): price})
    return prices
