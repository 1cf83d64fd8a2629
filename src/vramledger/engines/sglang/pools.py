"""From free memory to pools: tokens, windowed tokens, recurrent slots, requests.

Source: sglang srt/mem_cache/kv_cache_configurator.py (`_profile_available_bytes`, `_handle_max_mamba_cache`,
`resolve_max_num_reqs`), model_executor/pool_configurator.py; model_runner.py and its KV cache mixin before. GiB are
floats here as they are there, so that truncation falls on the same token.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vramledger.engines.sglang.layers import StageCells
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.states import SlotBytes
from vramledger.units import GIB, ceil_div, round_up

MULTIMODAL_RESERVE_SINCE = (5, 18)
MULTIMODAL_RESERVE_GIB = 100 / 1024  # SGLANG_VLM_CACHE_SIZE_MB
PADDING_SLOT_SINCE = (5, 18)
LIMIT_ON_FULL_POOL_SINCE = (5, 12)
"""Before, --max-total-tokens cut what full and windowed tokens are solved from, and the windowed ones came of the full
ones before those were cut to pages."""
RATIO_SINCE = (5, 4)
EXTRA_BUFFER_SINCE = (5, 15)
FIXED_SLOTS = 512  # of a recurrent model up to 0.5.3, where no flag names a number
REQUEST_CAP_POOL_SINCE = (5, 22)
EVICTION_INTERVAL = 128
_EXTRA_BUFFER = (
    "KimiLinear",
    "Qwen3_5",
    "Qwen3Next",
    "Qwen4Exp",
    "FalconH1",
    "GraniteMoeHybrid",
    "NemotronH",
)


class Pools(Struct, frozen=True, kw_only=True):
    """Sizes of every pool of one attention group, the same on all its ranks.

    `tokens` is max_total_num_tokens (0: nothing fits). `swa_tokens` is None without a pool of windowed layers,
    `slots` without recurrent layers. `rest_bytes` is what the budget leaves after recurrent states, less than 0 where
    the weights exceed it. `capped_by` names what sets `max_running_requests`.
    """

    tokens: int
    swa_tokens: int | None
    slots: int | None
    slots_per_request: int
    max_running_requests: int
    capped_by: str
    rest_bytes: int
    static_bytes: int


def slots_per_request(settings: Settings) -> int:
    """State slots a request takes: 1 without a radix cache, else 3 and the tracked ones of the extra buffers."""
    flags = settings.flags
    if flags.disable_radix_cache:
        return 1
    strategy = flags.mamba_radix_cache_strategy
    if strategy == "auto":
        supported = settings.architecture.startswith(_EXTRA_BUFFER)
        wanted = flags.overlap or settings.page_size > 1
        buffered = settings.version.since(*EXTRA_BUFFER_SINCE) and supported and wanted
        strategy = "extra_buffer" if buffered else "no_buffer"
    if strategy == "no_buffer":
        return 3
    if strategy == "extra_buffer_lazy":
        return 4
    overlap = flags.overlap
    if not settings.version.since(5, 15):
        overlap = flags.speculative_algorithm is None
    return 5 if overlap else 4


def solve(
    avail_gib: float, pre_gib: float, stages: Sequence[StageCells], slot: SlotBytes | None, settings: Settings
) -> Pools:
    """Pools for `avail_gib` free after weights (smallest of all ranks) of `pre_gib` free before them.

    `slot` is one recurrent slot of the stage that has most of them, None without recurrent layers.
    """
    rest = avail_gib - pre_gib * (1 - settings.mem_fraction_static)
    if settings.is_multimodal and settings.version.since(*MULTIMODAL_RESERVE_SINCE):
        rest -= MULTIMODAL_RESERVE_GIB
    static = int(rest * GIB)
    slots: int | None = None
    if slot is not None:
        slots, rest = _recurrent(rest, slot.total, settings)
    rest_bytes = int(rest * GIB)
    sized = [_stage(max(rest_bytes, 0), cells, settings) for cells in stages]
    unaligned = min((full for full, _ in sized), default=0)
    tokens = unaligned // settings.page_size * settings.page_size
    profiled = min((plain for _, plain in sized), default=0)
    limit = settings.flags.max_total_tokens
    if limit is not None and (
        settings.version.since(*LIMIT_ON_FULL_POOL_SINCE) or not stages[0].is_hybrid_swa
    ):
        tokens = min(tokens, limit)
    tokens = tokens // settings.page_size * settings.page_size
    swa: int | None = None
    hybrid = next((cells for cells in stages if cells.is_hybrid_swa), None)
    if hybrid is not None:
        swa = _windowed(
            tokens if settings.version.since(*LIMIT_ON_FULL_POOL_SINCE) else unaligned, hybrid, settings
        )
    per_request = slots_per_request(settings) if slots is not None else 0
    counted = tokens if settings.version.since(5, 10) else profiled
    running, capped_by = max_requests(counted, slots, per_request, settings)
    return Pools(
        tokens=max(tokens, 0),
        swa_tokens=swa,
        slots=slots,
        slots_per_request=per_request,
        max_running_requests=running,
        capped_by=capped_by,
        rest_bytes=rest_bytes,
        static_bytes=static,
    )


def _stage(size_bytes: int, cells: StageCells, settings: Settings) -> tuple[int, int]:
    """Tokens that `size_bytes` give a stage's full pool, and those the profile counts before pages and limits."""
    page, version = settings.page_size, settings.version
    if not cells.is_hybrid_swa:
        cell = cells.plain_cell
        if not cell:
            tokens = settings.flags.max_total_tokens or settings.context_len
            return tokens, tokens
        tokens = size_bytes // cell
        return _with_draft_tokens(tokens, settings) // page * page, tokens
    if not cells.full_layers:
        tokens = int(size_bytes // (cells.swa_cell + cells.draft_bytes))
        return tokens // page * page, tokens
    if uses_request_cap(settings, cells):
        swa = round_up(request_cap(cells, settings), page)
        tokens = max(int((size_bytes - swa * cells.swa_cell) // cells.full_cell) // page * page, 0)
        return tokens, tokens
    denominator = cells.full_cell + settings.swa_full_tokens_ratio * cells.swa_cell
    if version.since(*LIMIT_ON_FULL_POOL_SINCE):
        tokens = int(size_bytes // denominator)
        return tokens // page * page, tokens
    profiled = size_bytes // cells.plain_cell
    limited = min(profiled, settings.flags.max_total_tokens or profiled)
    total = limited // page * page * cells.plain_cell
    return int(total / denominator), profiled


def _with_draft_tokens(tokens: int, settings: Settings) -> int:
    """Up to 0.4.x the pool also grew by what drafts of all requests may hold (model_runner.py, init_memory_pool)."""
    flags = settings.flags
    if settings.version.since(5) or flags.speculative_algorithm is None:
        return tokens
    requests = settings.max_running_requests or 48
    steps, width = flags.speculative_num_steps or 5, flags.speculative_eagle_topk or 4
    return tokens + requests * steps * width + requests * (flags.draft_tokens or 8) + 100


def _windowed(tokens: int, cells: StageCells, settings: Settings) -> int:
    page = settings.page_size
    if not cells.full_layers:
        return tokens
    if uses_request_cap(settings, cells):
        return min(round_up(request_cap(cells, settings), page), tokens)
    return int(tokens * settings.swa_full_tokens_ratio) // page * page


def uses_request_cap(settings: Settings, cells: StageCells) -> bool:
    """Whether the windowed pool is sized by requests instead of the ratio (SWARequestCapPoolConfigurator)."""
    flags = settings.flags
    chunked = settings.chunked_prefill_size > 0 or flags.disaggregation_mode == "decode"
    return (
        settings.version.since(*REQUEST_CAP_POOL_SINCE)
        and flags.max_running_requests is not None
        and flags.disable_radix_cache
        and chunked
        and cells.window > 0
        and cells.full_layers > 0
    )


def request_cap(cells: StageCells, settings: Settings) -> int:
    """Windowed tokens that all requests and the chunks in flight may hold (`compute_swa_request_cap`)."""
    flags, page = settings.flags, settings.page_size
    drafts = flags.draft_tokens or 1
    per_request = cells.window + EVICTION_INTERVAL * drafts + page
    step = max((flags.speculative_eagle_topk or 1) * (flags.speculative_num_steps or 1), drafts)
    per_request += page if flags.speculative_algorithm is None else 2 * step
    requests = settings.requests_asked or 1
    if flags.disaggregation_mode == "decode":
        return per_request * requests + (cells.window + page) * prealloc_rows(settings)
    in_flight = 2 if flags.overlap else 1
    return per_request * requests + in_flight * settings.chunked_prefill_size + page


def prealloc_rows(settings: Settings) -> int:
    """Rows a decode server keeps for requests on their way from prefill."""
    asked = settings.requests_asked
    if settings.flags.disaggregation_mode != "decode" or asked is None or asked > 32:
        return 0
    return 2 * asked


def _recurrent(rest: float, per_slot: int, settings: Settings) -> tuple[int, float]:
    """Slots of the state pool, and the GiB left for tokens."""
    flags, version = settings.flags, settings.version
    drafts = flags.draft_tokens
    padded = version.since(*PADDING_SLOT_SINCE)
    asked = settings.requests_asked
    snapshots = drafts and not (padded and flags.disaggregation_mode == "prefill")
    if not padded and snapshots and asked is not None and version.since(5, 7):
        rest -= per_slot * asked * drafts / GIB
    if flags.max_mamba_cache_size is not None:
        slots = flags.max_mamba_cache_size // flags.attn_dp
        if padded and snapshots:
            requests = min(asked or 1, slots // slots_per_request(settings))
            rest -= per_slot * (requests + 1) * drafts / GIB
    elif not version.since(*RATIO_SINCE):
        slots = (flags.max_running_requests or FIXED_SLOTS) // flags.attn_dp
    elif flags.disable_radix_cache and (asked is not None or not version.since(5, 7)):
        slots = asked if asked is not None else FIXED_SLOTS
        if padded and snapshots:
            rest -= per_slot * (slots + 1) * drafts / GIB
    else:
        budget = rest * flags.mamba_full_memory_ratio / (1 + flags.mamba_full_memory_ratio) * GIB
        if not version.since(5, 7):
            slots = int(budget // per_slot // (1 + drafts))
        elif not padded:
            slots = int(budget // per_slot)
        elif snapshots:
            ratio = slots_per_request(settings)
            slots = int((budget - per_slot * (1 + drafts)) // (per_slot * (1 + drafts / ratio)))
            requests = min(asked or 1, max(slots, 0) // ratio)
            rest -= per_slot * (requests + 1) * drafts / GIB
        else:
            slots = int((budget - per_slot) // per_slot)
    slots = max(slots, 0)
    kept = (slots + (1 if padded else 0)) * per_slot
    if not version.since(5, 7):
        kept *= 1 + drafts
    return slots, rest - kept / GIB


def max_requests(tokens: int, slots: int | None, per_request: int, settings: Settings) -> tuple[int, str]:
    """`max_running_requests` as printed for one attention group, and what sets it."""
    version = settings.version
    asked = settings.requests_asked
    limit, capped_by = 0, "the default of 2048 to 4096 by tokens and context"
    if asked is not None:
        limit, capped_by = asked, "--max-running-requests"
    else:
        limit = _default_requests(tokens, settings)
    if (asked is None or version.since(5, 10)) and tokens // 2 < limit:
        limit, capped_by = tokens // 2, "half of the tokens in the pool"
    if slots is not None and per_request and slots // per_request < limit:
        limit = slots // per_request
        capped_by = f"{slots} recurrent states, {per_request} a request"
    return max(limit, 0), capped_by


def _default_requests(tokens: int, settings: Settings) -> int:
    """The cap without a flag: 512 contexts' worth of tokens, clamped; old releases print the table's rows instead (one
    more up to 0.4.6, one less up to 0.3.0)."""
    version = settings.version
    estimate = int(tokens / settings.context_len * 512)
    if not version.since(2, 10):
        return estimate - 1
    if not version.since(3, 1):
        return max(min(estimate, 5120), 2048) - 1
    return max(min(estimate, 4096), 2048) + (0 if version.since(4, 7) else 1)


def request_table_bytes(requests: int, settings: Settings) -> int:
    """`req_to_token`: a row of int32 token slots for each request."""
    flags, version = settings.flags, settings.version
    extra = 4 + (flags.draft_tokens if version.since(5, 2) else 0)
    if version.since(5, 18) and flags.speculative_algorithm is not None and settings.page_size > 1:
        step = max(
            (flags.speculative_eagle_topk or 1) * (flags.speculative_num_steps or 1), flags.draft_tokens
        )
        extra = max(extra, 2 * step + settings.page_size * flags.dcp_size - 1)
    rows = requests + prealloc_rows(settings) + (1 if version.since(5, 15) or not version.since(4, 7) else 0)
    return rows * (settings.context_len + extra) * 4


def pool_rows(tokens: int, settings: Settings) -> int:
    """Rows that are allocated for a pool: the padding page comes on top."""
    return tokens + settings.page_size


def pages(tokens: int, settings: Settings) -> int:
    return ceil_div(tokens, settings.page_size)
