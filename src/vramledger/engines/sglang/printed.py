"""What SGLang calls its settings where it prints them, beside the names of its flags.

Source: sglang srt/server_args.py ("server_args=..."), srt/managers/scheduler.py ("max_total_num_tokens=...").
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict

from vramledger.engines.sglang.flags import SglangFlags

FLAG_OF: Mapping[str, str] = {
    "context_len": "context_length",
    "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
}
UNSHOWN: Mapping[str, object] = asdict(SglangFlags())
LIMITS = frozenset({"max_total_tokens", "max_mamba_cache_size"})
WORDS: Mapping[str, Mapping[str, str]] = {}
EP_IS_SWITCH = False
