"""A full pool under llama.cpp's server, by whether slots share one."""

from __future__ import annotations

from collections.abc import Mapping

from vramledger.engines.full_pool import FullPool, WhenFull


def full_pool(settings: Mapping[str, object]) -> FullPool:
    """Slots that share cells may ask for more than there are, and then every request in a slot ends with an error; with cells of its own a
    request cannot outgrow its slot. Slots share them where kv_unified says so, and where their number is left to the server."""
    slots = settings.get("parallel")
    is_unified = settings.get("kv_unified")
    if is_unified is None:
        is_unified = slots in (None, -1)
    return FullPool(
        when_full=WhenFull.FAIL if is_unified and slots != 1 else WhenFull.NEVER,
        source="llama.cpp tools/server/server-context.cpp, update_slots: Context size has been exceeded",
    )
