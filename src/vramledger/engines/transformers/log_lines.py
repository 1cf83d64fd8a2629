"""The memory lines of the library's log, as each release words them.

Source: transformers generation/continuous_batching/cache.py and offloading_manager.py of each release.
"""

from __future__ import annotations

from vramledger.engines.transformers.cache import Sized
from vramledger.engines.transformers.settings import Settings
from vramledger.engines.transformers.version import Rules
from vramledger.units import GIB, MIB


def log_lines(settings: Settings, sized: Sized, masks: int) -> tuple[str, ...]:
    """The lines with expected values; none for a cache that is refused."""
    solution, rules = sized.expected, sized.rules
    if settings.version.rules in (Rules.PAIRED, Rules.CAPPED):
        flags = settings.flags
        both = flags.num_blocks is None and flags.max_batch_tokens is None
        said = both or settings.version.rules is Rules.CAPPED
        first = (f"Cache memory: {solution.available_bytes}",) if said else ()
        built = (
            f"PagedAttentionCache initialized with self.num_blocks = {solution.units}, self.block_size = "
            f"{settings.page_tokens}, page_size = {rules.shape.head_dim * rules.kv_heads_held}, "
            f"self.max_batch_tokens = {solution.batch_tokens} num_attention_masks = {masks}"
        )
        return (*first, built) if solution.fits else first
    first = (f"Memory available for cache allocation: {solution.available_bytes // MIB} MB",)
    if not solution.fits:
        return first
    if settings.version.rules is Rules.POLYNOMIAL:
        built = (
            f"Paged cache initialized: self.max_batch_tokens = {solution.batch_tokens}, self.num_blocks = "
            f"{solution.units}, self.block_size = {settings.page_tokens}"
        )
        return (*first, built)
    built = (
        f"Paged cache initialized: self.max_batch_tokens = {solution.batch_tokens}, self.num_sectors = "
        f"{solution.units}, mb_per_sector = {rules.unit_bytes // MIB}"
    )
    sectors = int(settings.flags.cpu_offload_space * GIB) // rules.unit_bytes
    if not sectors:
        return (*first, built)
    pinned = sectors * rules.unit_bytes / GIB
    return (*first, built, f"CPU swap pool initialized: {sectors} sectors ({pinned:.2f} GiB pinned)")
