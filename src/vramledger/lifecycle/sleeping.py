"""What an instance holds while it sleeps."""

from __future__ import annotations

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.engines.lifecycle import SleepLevel
from vramledger.ledger import ZERO, ByteRange, Entry, Phase, RankLedger, total

AWAKE = Phase.DECODE


class Asleep(Struct, frozen=True, kw_only=True):
    """One kind of rank asleep: what stays on its device, what the host holds for it, what its device gets back."""

    ranks: tuple[int, ...]
    stays: tuple[Entry, ...]
    on_host: tuple[Entry, ...]
    released: tuple[Entry, ...]

    @property
    def device_bytes(self) -> ByteRange:
        return total(entry.bytes for entry in self.stays)

    @property
    def host_bytes(self) -> ByteRange:
        return total(entry.bytes for entry in self.on_host)


def asleep(rank: RankLedger, level: SleepLevel) -> Asleep:
    """A rank that served and then went to sleep: what lives for one iteration is over, the rest by the level's rules."""
    held = [entry for entry in rank.entries if AWAKE in entry.phases and entry.lifetime.value != "iteration"]
    return Asleep(
        ranks=rank.ranks,
        stays=tuple(entry for entry in held if not level.is_released(entry)),
        on_host=tuple(entry for entry in held if level.goes_to_host(entry)),
        released=tuple(entry for entry in held if level.is_released(entry)),
    )


def host_bytes_asleep(plan: Plan, level: SleepLevel) -> ByteRange:
    """Host memory of a whole sleeping instance: what it keeps there anyway, and every rank's copies."""
    copies = ZERO
    for rank in plan.ranks:
        one = asleep(rank, level).host_bytes
        copies = copies + total([one] * len(rank.ranks))
    return copies + host_bytes_awake(plan)


def host_bytes_awake(plan: Plan) -> ByteRange:
    """What the host keeps for an instance after it has started; what only loading takes is not there any more."""
    return total(entry.bytes for entry in plan.host if AWAKE in entry.phases)
