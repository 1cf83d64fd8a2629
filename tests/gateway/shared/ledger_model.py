"""What the store is to do, written a second time, plainly and without a server."""

from __future__ import annotations

import dataclasses

from vramledger.gateway.shared.terms import Answer, Ask


class Refused(Exception):
    pass


@dataclasses.dataclass
class Row:
    number: int
    ends: int
    kept: list[int]
    want: tuple[int, int]
    next: tuple[int, int]
    total: tuple[int, int]
    since: int
    epoch: str

    @property
    def is_short(self) -> bool:
        return self.next[0] > self.kept[0] or self.next[1] > self.kept[1]


@dataclasses.dataclass
class Ledger:
    """One instance's record. `wall_ms` and `run` are the server's; the caller sets them."""

    wall_ms: int = 0
    run: str = "0"
    clock: int | None = None
    wall: int = 0
    open_at: int = 0
    run_seen: str = ""
    lease_ms: int = 0
    rows: dict[str, Row] = dataclasses.field(default_factory=dict)

    def forget(self) -> None:
        self.clock = None
        self.rows.clear()

    def call(self, me: str, ask: Ask, lease_ms: int) -> Answer:
        is_new = self.clock is None
        passed = 0 if self.clock is None else self.wall_ms - self.wall
        clock = (self.clock or 0) + max(0, min(passed, lease_ms // 4))
        open_at = clock + lease_ms if is_new or self.run_seen != self.run else self.open_at
        self.rows = {name: row for name, row in self.rows.items() if name == me or row.ends > clock}
        before = self.rows.get(me)
        others = {name: row for name, row in self.rows.items() if name != me}
        if others and self.lease_ms != lease_ms:
            raise Refused("lease")
        if before is not None and ask.number <= before.number:
            raise Refused("later call")
        self.clock, self.wall, self.run_seen, self.open_at = clock, self.wall_ms, self.run, open_at
        self.lease_ms = lease_ms
        row = Row(
            number=ask.number,
            ends=clock + lease_ms,
            kept=[ask.keep_blocks, ask.keep_places],
            want=(ask.want_blocks, ask.want_places),
            next=(ask.next_blocks, ask.next_places),
            total=(ask.total_blocks, ask.total_places),
            since=before.since if before is not None else 0,
            epoch=ask.epoch,
        )
        if ask.is_leaving and row.kept == [0, 0]:
            self.rows = others
            return Answer(0, 0, 0, 0, 0, 0, 0, 0, len(others), 0, "")
        row.since = (row.since or clock + 1) if row.is_short else 0
        self.rows = {**others, me: row}
        order = sorted(self.rows, key=lambda name: (self.rows[name].since or float("inf"), name))
        held = [sum(other.kept[which] for other in others.values()) for which in (0, 1)]
        totals, shares = [0, 0], [0, 0]
        for which in (0, 1):
            totals[which] = min(
                (one.total[which] for one in self.rows.values() if one.total[which]), default=0
            )
            unwanted = totals[which] - sum(one.want[which] for one in self.rows.values())
            spare = (ask.spare_blocks, ask.spare_places)[which]
            shares[which] = self._share(me, order, totals[which], which)
            shares[which] += max(0, min(spare, unwanted // len(order)))
            if held[which] + row.kept[which] > totals[which]:
                shares[which] = max(0, min(shares[which], totals[which] - held[which]))
        if clock >= open_at and not ask.is_leaving:
            for which in (0, 1):
                free = totals[which] - held[which] - row.kept[which]
                row.kept[which] += max(0, min(free, shares[which] - row.kept[which]))
        if not row.is_short:
            row.since = 0
        epochs = [self.rows[name].epoch for name in order if name != me]
        seen = [epoch for epoch in epochs if epoch and epoch != ask.epoch]
        opens_in = max(0, open_at - clock)
        return Answer._make(
            (*row.kept, *shares, *held, *totals, len(self.rows), opens_in, seen[-1] if seen else "")
        )

    def _share(self, me: str, order: list[str], total: int, which: int) -> int:
        wants = {name: self.rows[name].want[which] for name in order}
        shares = divided(total, wants)
        turn = order[0]
        if self.rows[turn].since:
            needed = min(self.rows[turn].next[which], total)
            if shares[turn] < needed:
                del wants[turn]
                shares = {**divided(total - needed, wants), turn: needed}
        return shares[me]


def divided(amount: int, wants: dict[str, int]) -> dict[str, int]:
    """The largest equal level of which none gets more than it wants; what is left goes one by one in the order of `wants`."""
    if sum(wants.values()) <= amount:
        return dict(wants)
    low, high = 0, amount
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(want, middle) for want in wants.values()) <= amount:
            low = middle
        else:
            high = middle - 1
    level = low
    shares = {name: min(want, level) for name, want in wants.items()}
    left = amount - sum(shares.values())
    for name, want in wants.items():
        if left and want > level:
            shares[name] += 1
            left -= 1
    return shares
