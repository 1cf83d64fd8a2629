"""Which request continues which turn: the pause while a tool ran, and what the engine still held of the conversation afterwards."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from vramledger.gateway.record import RequestRecord
from vramledger.units import ceil_div

if TYPE_CHECKING:
    from vramledger.gateway.messages import RequestHead

REMEMBERED = 4096
LOOKED_BACK = 512


class Turns:
    """An observer that goes before others. It knows a turn by the identity of its prompt's last full block, of one tenant alone.

    At most `REMEMBERED` turns are kept; a request whose prompt grew by more than `LOOKED_BACK` blocks is not recognised.
    """

    def __init__(self) -> None:
        self._ended: OrderedDict[tuple[int, int], tuple[int, int]] = OrderedDict()

    def arrived(self, record: RequestRecord, head: RequestHead) -> None: ...

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None: ...

    def ended(self, record: RequestRecord) -> None:
        prompt, tenant = record.facts.prompt, record.facts.tenant
        if prompt is None or not prompt.keys or not record.finished_ns:
            return
        if record.facts.after_tool:
            for key in prompt.keys[: -LOOKED_BACK - 1 : -1]:
                before = self._ended.pop((tenant, key), None)
                if before is not None:
                    self._continues(record, *before)
                    break
        place = (tenant, prompt.keys[-1])
        self._ended[place] = (record.finished_ns, prompt.tokens)
        self._ended.move_to_end(place)
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def _continues(self, record: RequestRecord, finished_ns: int, tokens: int) -> None:
        record.tool_pause_ns = max(0, record.facts.arrival_ns - finished_ns)
        cached = record.ending.cached_prompt_tokens if record.ending is not None else None
        if cached is None:
            return
        # Engines find whole blocks, so up to a block of what they still hold is not counted as found.
        keys = record.facts.prompt.keys if record.facts.prompt is not None else ()
        block = ceil_div(record.facts.prompt.tokens, len(keys) + 1) if record.facts.prompt is not None else 0
        record.prefix_kept = "kept" if cached > tokens - 2 * block else "part" if cached else "lost"
