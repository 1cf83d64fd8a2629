"""vLLM's log lines about what was started: version, settings, model, ranks.

Wordings were read in the logger calls of 0.6.6 to 0.33.0; older ones are those of published logs. A source without
releases is worded alike in all.
"""

from __future__ import annotations

from functools import partial

from vramledger.engines.log_pattern import line_pattern
from vramledger.observation import Event

_settings = partial(line_pattern, Event.SETTINGS)

IDENTITY = (
    _settings(
        " LLM engine",
        r"Initializing an? (?:(?P<core>V[01]) )?LLM engine(?: \(v(?P<engine_version>[^)\s]{1,100})\))? with config: "
        r"(?P<config>.*)",
        source="engine/llm_engine.py to 0.10 (named V0 from 0.7), v1/engine/core.py from 0.6.6 (named V1 from 0.7)",
    ),
    _settings(
        " LLM engine (v",
        r"\b(?P<core>V[01]) LLM engine \(v(?P<engine_version>[^)\s]{1,100})\) with config: (?P<config>.*)",
        source="logging_utils/dump_input.py, from 0.9, when a step fails",
        failing=True,
    ),
    _settings(
        "non-default args: ",
        r"non-default args: (?P<args>\{.*)",
        source="entrypoints/openai/cli_args.py 0.9-0.10.0, entrypoints/utils.py 0.10.1-0.22, entrypoints/serve/utils/"
        "api_utils.py 0.23-0.31, entrypoints/common/startup.py from 0.33",
    ),
    _settings(
        "args: Namespace(",
        r"args: (?P<args>Namespace\(.*)",
        source="entrypoints/openai/api_server.py, entrypoints/api_server.py, to 0.8",
    ),
    line_pattern(
        Event.VERSION,
        "version ",
        r"vLLM (?:API server|server|batch processing API) version (?P<engine_version>[^\s,]{1,100})"
        r"(?:, serving model (?P<model>[^\s]{1,300}))?",
        source="entrypoints/openai/api_server.py, entrypoints/utils.py, entrypoints/common/startup.py",
    ),
    line_pattern(
        Event.VERSION,
        "█  version ",
        r"█ {1,8}version (?P<engine_version>[^\s]{1,100})",
        source="entrypoints/utils.py (the banner), from 0.12",
    ),
    line_pattern(
        Event.MODEL,
        "█  model ",
        r"█ {1,8}model {1,8}(?P<model>[^\s]{1,300})",
        source="entrypoints/utils.py (the banner), from 0.12",
    ),
    line_pattern(
        Event.MODEL,
        "Resolved architecture: ",
        r"Resolved architecture: (?P<architecture>[A-Za-z0-9_]{1,120})",
        source="config/model.py, from 0.10",
    ),
    line_pattern(
        Event.MODEL,
        "Using max model len ",
        r"Using max model len (?P<context_len>NUM)",
        source="config/model.py, from 0.9.2",
    ),
    line_pattern(
        Event.MODEL,
        "Auto-fit max_model_len: reduced",
        r"Auto-fit max_model_len: reduced from (?P<asked_len>NUM) to (?P<context_len>NUM) to fit in available "
        r"(?:GPU memory \((?P<kv_cache_gib>NUM) GiB|KV cache memory)",
        source="v1/core/kv_cache_utils.py 0.14-0.31, v1/core/kv_cache_planning.py from 0.33",
    ),
    line_pattern(
        Event.MODEL,
        "Auto-fit max_model_len: ",
        r"Auto-fit max_model_len: (?:full model context length|attention-free model, using derived max_model_len)"
        r"[ =](?P<context_len>NUM)",
        source="v1/core/kv_cache_utils.py 0.14-0.31, v1/core/kv_cache_planning.py from 0.33",
    ),
    line_pattern(
        Event.MODEL,
        "Updated max_model_len to ",
        r"Updated max_model_len to (?P<context_len>NUM)",
        source="v1/worker/gpu_worker.py, from 0.16, debug",
    ),
)

RANKS = (
    line_pattern(
        Event.RANK,
        " is assigned as DP rank ",
        r"rank (?P<rank_id>NUM) in world size (?P<world_size>NUM) is assigned as DP rank (?P<dp_rank_id>NUM), "
        r"PP rank (?P<pp_rank_id>NUM), (?:PCP rank NUM, )?TP rank (?P<tp_rank_id>NUM)"
        r"(?:, ETP rank [^,]{1,8})?(?:, EP rank (?:(?P<ep_rank_id>NUM)|N/A))?",
        source="distributed/parallel_state.py, from 0.8",
    ),
    line_pattern(
        Event.RANK,
        "distributed_init_method=",
        r"world_size=(?P<world_size>NUM) rank=(?P<rank_id>NUM) local_rank=(?P<local_rank_id>NUM) "
        r"distributed_init_method=",
        source="distributed/parallel_state.py, from 0.9; debug in older ones",
    ),
    line_pattern(
        Event.RANK,
        "[EP Rank ",
        r"\[EP Rank (?P<ep_rank_id>NUM)/(?P<ep_size>NUM)\] Expert parallelism is enabled\.[^/]{0,120}?[Ll]ocal/global "
        r"number of experts: (?P<local_experts_count>NUM)/(?P<experts_count>NUM)",
        source="model_executor/layers/fused_moe/layer.py, from 0.10",
    ),
    line_pattern(
        Event.RANK,
        "EP weight filter: ep_size=",
        r"EP weight filter: ep_size=(?P<ep_size>NUM), ep_rank=(?P<ep_rank_id>NUM), loading "
        r"(?P<local_experts_count>NUM)/(?P<experts_count>NUM) experts",
        source="model_executor/model_loader/default_loader.py, from 0.18",
    ),
)

STARTUP_PATTERNS = IDENTITY + RANKS
