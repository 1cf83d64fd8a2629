"""SGLang's wordings release by release, and what a start-up's lines measure.

recorded/logs/sglang-0.5.23-cpu.log is what SGLang 0.5.23 printed on a CPU with a tiny Llama and a pool of 8,192 tokens; lines that say
nothing of memory, and most arguments, are left out. Other lines are worded as the sources of the release named beside them
word them, with the figures of the worked example of an 8B model on an H100.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from log_support import measure, observed, values
from vramledger.engines import find_log
from vramledger.engines.printed_arguments import MOST_ARGUMENTS, printed_arguments
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import Figure, Measurement
from vramledger.observation import Event
from vramledger.telemetry.log_reading import read_log
from vramledger.units import GIB

RECORDED = Path(__file__).parent / "recorded" / "logs" / "sglang-0.5.23-cpu.log"
ARGUMENTS = "server_args=ServerArgs(model_path='org/llama', revision='abc', tp_size=2, pp_size=1, dp_size=1, page_size=64, "
START = (
    ARGUMENTS
    + "mem_fraction_static=0.83, max_running_requests=None, kv_cache_dtype='auto', cuda_graph_bs=[1, 2], quantization=None)",
    "[2026-08-01 10:00:01 TP0] Init torch distributed ends. elapsed=1.20 s, mem usage=1.06 GB",
    "[2026-08-01 10:00:01 TP1] Init torch distributed ends. elapsed=1.20 s, mem usage=1.07 GB",
    "[2026-08-01 10:00:02 TP0] Load weight begin. avail mem=78.60 GB",
    "[2026-08-01 10:00:02 TP1] Load weight begin. avail mem=78.50 GB",
    "[2026-08-01 10:00:09 TP0] Load weight end. elapsed=6.50 s, type=LlamaForCausalLM, quant=fp8, avail mem=63.61 GB, mem usage=14.99 GB.",
    "[2026-08-01 10:00:09 TP1] Load weight end. elapsed=6.50 s, type=LlamaForCausalLM, quant=fp8, avail mem=63.51 GB, mem usage=14.99 GB.",
    "[2026-08-01 10:00:10 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 411584, K size: 25.12 GB, V size: 25.12 GB",
    "[2026-08-01 10:00:10 TP1] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 411520, K size: 25.11 GB, V size: 25.11 GB",
    "[2026-08-01 10:00:10 TP0] Memory pool end. avail mem=13.36 GB",
    "[2026-08-01 10:00:11 TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1, 2, 4], avail mem=12.86 GB",
    "Capturing batches (bs=4 avail_mem=12.80 GB):   0%|          | 0/3 [00:00<?, ?it/s]",
    "Capturing batches (bs=2 avail_mem=12.50 GB):  33%|###       | 1/3 [00:01<00:02]",
    "Capturing batches (bs=1 avail_mem=12.40 GB):  66%|######    | 2/3 [00:01<00:02]",
    "[2026-08-01 10:00:13 TP0] Capture target decode CUDA graph end. elapsed=2.10 s, mem usage=0.50 GB, avail mem=12.36 GB.",
    "[2026-08-01 10:00:14 TP0] Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8], avail mem=12.36 GB",
    "[2026-08-01 10:00:15 TP0] Capture target prefill CUDA graph end. elapsed=1.00 s, mem usage=0.25 GB, avail mem=12.11 GB.",
    "[2026-08-01 10:00:15 TP0] max_total_num_tokens=411584, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=131072, available_gpu_mem=12.11 GB",
    "[2026-08-01 10:00:16] The server is fired up and ready to roll!",
)


def of_owner(found: Measurement, owner: Owner, rank: int | None = None) -> list[Figure]:
    wanted = () if rank is None else (rank,)
    return [figure for figure in found.figures if owner in figure.owners and figure.ranks == wanted]


def two(gib: float) -> ByteRange:
    """A print with two decimals."""
    expected, half = round(gib * 100) * GIB // 100, GIB // 200
    return ByteRange(expected - half, expected, expected + half)


def test_a_recorded_start_up_states_its_pool_and_settings() -> None:
    found = measure("sglang", RECORDED.read_text().splitlines(), RECORDED.name)
    (pool,) = found.pools
    assert pool.tokens is not None and pool.tokens.expected == 8192
    assert (pool.block_size, pool.context_len) == (1, 4096)
    assert (found.model, found.architecture, found.tp) == ("models/tiny-llama", "LlamaForCausalLM", 1)
    settings = dict(found.settings)
    assert settings["max_total_tokens"] == settings["max_total_num_tokens"] == 8192
    assert settings["mem_fraction_static"] == 0.1
    assert settings["effective_max_running_requests"] == 2048
    assert "max_running_requests" not in settings
    (weights,) = of_owner(found, Owner.WEIGHTS)
    assert weights.bytes == two(0.01)
    assert weights.evidence.source == "sglang-0.5.23-cpu.log:6, sglang"


def test_each_rank_has_figures_and_the_pool_is_the_smallest() -> None:
    found = measure("sglang", START)
    assert found.pools[0].bytes == two(25.11) + two(25.11)
    assert [figure.bytes for figure in of_owner(found, Owner.WEIGHTS, 1)] == [two(14.99)]
    assert [figure.bytes for figure in of_owner(found, Owner.COLLECTIVES, 0)] == [two(1.06)]
    assert [figure.bytes for figure in of_owner(found, Owner.KV_CACHE, 0)] == [two(25.12) + two(25.12)]
    assert (found.tp, found.model_revision) == (2, "abc")
    assert dict(found.settings)["quantization"] == "fp8"
    (pool,) = [pool for pool in found.pools if not pool.kind]
    assert pool.tokens is not None and pool.tokens.expected == 411520
    assert pool.context_len == 131072


def test_a_container_s_log_of_interleaved_ranks_measures_the_same() -> None:
    """As Kubernetes writes it, the progress bar on one line."""
    bar = [line for line in START if line.startswith("Capturing")]
    lines = [line for line in START if line not in bar[1:]]
    lines[lines.index(bar[0])] = "\r".join(bar)
    text = "".join(f"2026-08-01T10:00:00.000000001Z stderr F {line}\n" for line in lines)
    log = find_log("sglang")
    assert log is not None
    found = log.measured(item for item in read_log(io.BytesIO(text.encode())) if item.engine == "sglang")
    plain = measure("sglang", START)
    assert [figure.bytes for figure in found.figures] == [figure.bytes for figure in plain.figures]
    assert [figure.ranks for figure in found.figures] == [figure.ranks for figure in plain.figures]
    assert [graph.increment_bytes for graph in found.graphs] == [
        graph.increment_bytes for graph in plain.graphs
    ]
    assert found.settings == plain.settings


def test_the_last_print_of_one_rank_gives_pages() -> None:
    found = measure("sglang", [line for line in START if "TP1" not in line])
    (pool,) = found.pools
    assert pool.num_blocks is not None and pool.num_blocks.expected == 411584 // 64
    assert pool.context_len == 131072


def test_captured_sizes_are_what_free_memory_lost_between_prints() -> None:
    found = measure("sglang", START)
    assert [(graph.shape, graph.increment_bytes.expected) for graph in found.graphs] == [
        (shape, two(before).expected - two(after).expected)
        for shape, before, after in (
            ("batch 4", 12.8, 12.5),
            ("batch 2", 12.5, 12.4),
            ("batch 1", 12.4, 12.36),
        )
    ]
    (graphs,) = of_owner(found, Owner.GRAPH_POOL, 0)
    assert graphs.bytes == two(0.5) + two(0.25)


def test_free_memory_is_told_at_every_point() -> None:
    found = measure("sglang", START)
    points = [(state.point, state.phase) for state in found.allocator if state.ranks == (0,)]
    assert points == [
        ("before the load", Phase.LOAD),
        ("after the load", Phase.LOAD),
        ("after the pools", Phase.WARMUP),
        ("before capture of target decode CUDA graph", Phase.WARMUP),
        ("after capture of target decode CUDA graph", Phase.WARMUP),
        ("before capture of target prefill CUDA graph", Phase.WARMUP),
        ("after capture of target prefill CUDA graph", Phase.WARMUP),
        ("start-up ends", Phase.WARMUP),
    ]


def test_of_several_start_ups_the_last_counts() -> None:
    again = [
        line.replace("411584", "400000").replace("25.12", "24.41") for line in START if "TP1" not in line
    ]
    found = measure("sglang", [*START, *again])
    (tokens,) = [pool.tokens for pool in found.pools if not pool.kind]
    assert tokens is not None and tokens.expected == 400000
    assert found.notes[-1] == "the log holds 2 start-ups; this is the last"


def test_a_second_node_s_arguments_do_not_begin_a_new_start_up() -> None:
    found = measure("sglang", [START[0], *START])
    assert not any("start-ups" in note for note in found.notes)
    assert of_owner(found, Owner.WEIGHTS, 0)


@pytest.mark.parametrize(
    ("release", "line", "expected"),
    [
        ("0.2.5", "[gpu_id=1] Load weight begin. avail mem=23.35 GB", {"rank_id": 1, "free_bytes": two(23.35)}),
        ("0.2.13", "[gpu=0] Memory pool end. avail mem=4.01 GB", {"rank_id": 0, "free_bytes": two(4.01)}),
        (
            "0.1.17",
            "[rank=0] Load weight end. Type=LlamaForCausalLM. Avail mem=8.00 GB",
            {"architecture": "LlamaForCausalLM", "free_bytes": two(8.0)},
        ),
        (
            "0.3.4",
            "Load weight end. type=LlamaForCausalLM, dtype=torch.float16, avail mem=8.00 GB",
            {"dtype": "torch.float16", "free_bytes": two(8.0)},
        ),
        (
            "0.4.9",
            "Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, avail mem=21.73 GB, mem usage=166.59 GB.",
            {"architecture": "DeepseekV3ForCausalLM", "weights_bytes": two(166.59)},
        ),
        (
            "0.4.5",
            "Capture cuda graph end. Time elapsed: 20.30 s. avail mem=5.01 GB. mem usage=1.83 GB.",
            {"capture": "cuda graph", "graph_bytes": two(1.83), "free_bytes": two(5.01)},
        ),
        (
            "0.5.4",
            "Capture draft extend cuda graph end. Time elapsed: 2.00 s. mem usage=0.12 GB. avail mem=5.01 GB.",
            {"capture": "draft extend cuda graph", "graph_bytes": two(0.12)},
        ),
        (
            "0.5.22",
            "Capture target decode CUDA graph end. bs=[1, 2, 4], elapsed=2.00 s, mem usage=0.12 GB, avail mem=5.01 GB.",
            {"graph_bytes": two(0.12), "free_bytes": two(5.01)},
        ),
        (
            "0.4.6",
            "max_total_num_tokens=443776, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, context_len=8192",
            {"kv_tokens": 443776, "context_len": 8192},
        ),
        (
            "0.5.2",
            "max_total_num_tokens=10, chunked_prefill_size=None, max_prefill_tokens=16384, max_running_requests=5, context_len=8192, available_gpu_mem=1.50 GB",
            {"kv_tokens": 10, "free_bytes": two(1.5)},
        ),
        ("0.4.6", "KV Cache is allocated. #tokens: 1000, KV size: 1.50 GB", {"kv_tokens": 1000, "kv_cache_bytes": two(1.5)}),
        (
            "0.5.5",
            "Use Sliding window memory pool. full_layer_tokens=70656, swa_layer_tokens=56320",
            {"full_tokens": 70656, "window_tokens": 56320},
        ),
        (
            "0.5.6",
            "SWAKVPool mem usage: 6.0791015625 GB, swa size: 56320, full size: 70656",
            {"window_tokens": 56320, "full_tokens": 70656},
        ),
        (
            "0.5.12",
            "Mamba Cache is allocated. max_mamba_cache_size: 262, conv_state size: 0.44GB, ssm_state size: 18.49GB intermediate_ssm_state_cache size: 1.00GB intermediate_conv_window_cache size: 0.10GB ",
            {"state_slots_count": 262, "ssm_bytes": two(18.49), "draft_conv_bytes": two(0.1)},
        ),
        (
            "0.4.9",
            "max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead.",
            {"asked_tokens": 131072, "profiled_tokens": -561981},
        ),
        (
            "0.4.6",
            "Allocating 12.50 GB host memory for hierarchical KV cache.",
            {"size_bytes": ByteRange(12_495_000_000, 12_500_000_000, 12_505_000_000)},
        ),
        (
            "0.5.20",
            "Allocating MHA hierarchical KV host pool: 823168 tokens, 100.90 GB host memory.",
            {"kv_tokens": 823168, "pool": "MHA"},
        ),
        (
            "0.5.18",
            "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 500000, KV size: 61.04 GB, avail mem=2.00 GB",
            {"kv_tokens": 500000, "kv_cache_bytes": two(61.04), "free_bytes": two(2.0)},
        ),
    ],
)  # fmt: skip
def test_wordings_of_a_start_up(release: str, line: str, expected: dict[str, object]) -> None:
    found = values("sglang", line)
    assert {name: found.get(name) for name in expected} == expected, release


@pytest.mark.parametrize(
    ("release", "line", "expected"),
    [
        (
            "0.2.10",
            "[gpu=0] Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0, cache hit rate: 0.00%, #running-req: 0, #queue-req: 0",
            {"scheduled_tokens": 7, "running_requests": 0, "waiting_requests": 0, "cache_hit_ratio": 0.0},
        ),
        (
            "0.3.0",
            "Prefill batch(mixed #running-req: 12). #new-seq: 1, #new-token: 7, #cached-token: 5, cache hit rate: 41.67%, #queue-req: 3",
            {"mixed_requests": 12, "waiting_requests": 3},
        ),
        (
            "0.5.23",
            "Prefill batch, #new-seq: 1, #new-token: 11, #cached-token: 2, full token usage: 0.10, swa token usage: 0.20, #running-req: 4, #queue-req: 0, #pending-token: 9, cuda graph: False",
            {"kv_usage_ratio": 0.1, "window_usage_ratio": 0.2, "running_requests": 4, "waiting_tokens": 9},
        ),
        (
            "0.4.3",
            "Decode batch. #running-req: 30, #token: 4801, token usage: 0.72, gen throughput (token/s): 812.20, largest-len: 0, #queue-req: 2, ",
            {"kv_used_tokens": 4801, "kv_usage_ratio": 0.72, "waiting_requests": 2},
        ),
        (
            "0.4.9",
            "Decode batch. #running-req: 3, #token: full=100, swa=50, token usage: full=0.50, swa=0.25, cuda graph: True, gen throughput (token/s): 1.00, #queue-req: 0",
            {"kv_used_tokens": 100, "kv_usage_ratio": 0.5, "window_usage_ratio": 0.25},
        ),
        (
            "0.5.6",
            "Decode batch [120], #running-req: 3, #full token: 900, full token usage: 0.30, mamba num: 12, mamba usage: 0.80, accept len: 2.10, cuda graph: True, gen throughput (token/s): 1.00, #queue-req: 6",
            {"kv_used_tokens": 900, "state_used_count": 12, "state_usage_ratio": 0.8, "waiting_requests": 6, "step_id": 120},
        ),
        (
            "0.4.2",
            "Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.0980 -> 0.7070",
            {"preempted_requests": 1, "after_ratio": 0.707},
        ),
        (
            "0.5.4",
            "KV cache pool is full. Retract requests. #retracted_reqs: 2, #aborted_retracted_reqs: 1, #new_token_ratio: 0.1000 -> 0.2000",
            {"preempted_requests": 2, "aborted_requests": 1, "before_ratio": 0.1},
        ),
        (
            "0.5.23",
            "KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 812, #mamba_num_gained: 3, #new_token_ratio: 0.1000 -> 0.2000",
            {"gained_tokens": 812, "gained_states_count": 3, "after_ratio": 0.2},
        ),
    ],
)  # fmt: skip
def test_wordings_of_service(release: str, line: str, expected: dict[str, object]) -> None:
    found = values("sglang", line)
    assert {name: found.get(name) for name in expected} == expected, release


def test_sleep_and_wake_are_routes_of_the_access_log() -> None:
    lines = [
        f'INFO:     127.0.0.1:1 - "POST /{verb}_memory_occupation HTTP/1.1" 200 OK'
        for verb in ("release", "resume")
    ]
    assert [item.event for item in observed("sglang", lines)] == [Event.SLEEP, Event.WAKE]


def test_a_window_pool_without_a_name_is_known_by_its_tokens() -> None:
    """0.5.5 to 0.5.15 print the window's pool first, and name neither."""
    lines = (
        "Use sliding window memory pool. full_layer_tokens=70656, swa_layer_tokens=56320",
        "KV Cache is allocated. #tokens: 56320, K size: 2.70 GB, V size: 2.70 GB",
        "KV Cache is allocated. #tokens: 70656, K size: 0.34 GB, V size: 0.34 GB",
        "max_total_num_tokens=70656, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=8192",
    )
    found = {pool.kind: pool.tokens.expected for pool in measure("sglang", lines).pools if pool.tokens}
    assert found == {"sliding window": 56320, "": 70656}


def test_a_draft_s_weights_and_pool_are_its_own() -> None:
    lines = (
        "Load weight begin. avail mem=70.00 GB",
        "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=55.00 GB, mem usage=15.00 GB.",
        "KV Cache is allocated. #tokens: 1000, K size: 1.00 GB, V size: 1.00 GB",
        "Memory pool end. avail mem=20.00 GB",
        "Load weight begin. avail mem=20.00 GB",
        "Load weight end. type=LlamaForCausalLMEagle3, dtype=torch.bfloat16, avail mem=19.00 GB, mem usage=1.00 GB.",
        "KV Cache is allocated. #tokens: 1000, K size: 0.05 GB, V size: 0.05 GB",
    )
    found = measure("sglang", lines)
    draft = [figure for figure in found.figures if figure.name == "draft weights"]
    assert [figure.bytes for figure in draft] == [two(1.0)]
    assert found.architecture == "LlamaForCausalLM"
    assert {pool.kind for pool in found.pools} == {"", "draft"}
    (pools,) = of_owner(found, Owner.KV_CACHE)
    assert pools.bytes.expected == 2 * two(1.0).expected + 2 * two(0.05).expected


def test_weights_of_old_releases_are_the_difference_of_free_memory() -> None:
    lines = (
        "Load weight begin. avail mem=23.35 GB",
        "Load weight end. type=LlamaForCausalLM, dtype=torch.float16, avail mem=8.35 GB",
    )
    (weights,) = of_owner(measure("sglang", lines), Owner.WEIGHTS)
    assert weights.bytes == two(23.35) - two(8.35)


def test_a_load_that_freed_memory_is_a_note() -> None:
    lines = (
        "Load weight begin. avail mem=1.00 GB",
        "Load weight end. type=X, avail mem=2.00 GB, mem usage=-1.00 GB.",
    )
    found = measure("sglang", lines)
    assert found.figures == ()
    assert "another process freed memory" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ServerArgs(a='x, y', b=None, c=-1.5, d=True, e=[1, (2, 3)], f={'k': 1})", {"a": "x, y", "b": None, "c": -1.5, "d": True, "e": "[1, (2, 3)]", "f": "{'k': 1}"}),
        ("{'a': 'it\\'s', \"b\": 2, 'c': {'d': [1]}}", {"a": "it\\'s", "b": 2, "c": "{'d': [1]}"}),
        ("Args(kind=<LoadFormat.AUTO: 'auto'>, n=<X.Y: 0>)", {"kind": "auto", "n": 0}),
        ("Args(a=1, b='never closed", {"a": 1}),
        ("Args(a=1, b=[2, 3", {"a": 1}),
        ("nothing", {}),
        ("Args()", {}),
        ("{1: 2}", {}),
    ],
)  # fmt: skip
def test_arguments_are_read_without_running_them(text: str, expected: dict[str, object]) -> None:
    assert printed_arguments(text) == expected


def test_hostile_arguments_end() -> None:
    assert printed_arguments("A(x=" + "[" * 300_000) == {}
    assert (
        len(printed_arguments("{" + ", ".join(f"'k{n}': {n}" for n in range(5000)) + "}")) == MOST_ARGUMENTS
    )
    assert printed_arguments("A(x='" + "\\" * 250_000) == {}


@pytest.mark.parametrize(
    ("release", "line", "expected"),
    [
        ("0.5.20", "Full-CG prefill workspace: 512 MB (max bucket 8192 tokens, 2048 request slots)", {"buffer": "attention workspace"}),
        ("0.5.23", "decode rows: captured 16 rows (3 segments) in 1.20 s, 0.125 GiB; 4 graphs, 3.00 s, 0.500 GiB", {"axis": "rows", "shape_size": 16}),
        ("0.5.21", "[unified-memory-pool]   total_bytes=42949672960 (=40.00 GB), full_capacity=10, swa_capacity=5, joint_available=5 slots", {"arena_bytes": 42949672960}),
        ("0.5.23", "KV pool holds 4096 tokens, fewer than --context-length 8192. One full-length request cannot fit", {"kv_tokens": 4096, "asked_len": 8192}),
        ("0.5.20", "max_running_requests was reduced from the requested 256 to 52 (per dp worker) due to the available KV cache capacity.", {"asked_requests": 256, "reduced_requests": 52}),
        ("0.5.12", "MiniMax MSA index KV Cache is allocated. dtype: torch.uint8, #tokens: 100, KV size: 0.10 GB", {"pool": "MiniMax MSA index"}),
        ("0.5.10", "retract_decode: aborted last request 0a1b-2c due to OOM", {"aborted_requests": 1, "request": "0a1b-2c"}),
        ("0.3.4", "Update weights begin. avail mem=8.00 GB", {"point": "weight update", "free_bytes": two(8.0)}),
    ],
)  # fmt: skip
def test_wordings_of_parts_beside_the_pools(release: str, line: str, expected: dict[str, object]) -> None:
    found = values("sglang", line)
    assert {name: found.get(name) for name in expected} == expected, release


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (("Load weight end. type=X, dtype=torch.float16, avail mem=8.00 GB",), "worded as sglang 0.1.17 to 0.3.4"),
        (("Init torch distributed ends. mem usage=0.10 GB", "KV Cache is allocated. #tokens: 10, KV size: 1.50 GB"), "worded as sglang 0.4.3.post4 to 0.5.8"),
        (("Init torch distributed ends. elapsed=1.00 s, mem usage=0.10 GB", "server_args=ServerArgs(a=1)", "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 10, KV size: 1.50 GB"), "worded as sglang 0.5.13 to 0.5.18"),
        (("Memory baseline taken. mem usage=0.10 GB", "Capture target decode CUDA graph end. bs=[1], elapsed=2.00 s, mem usage=0.12 GB, avail mem=5.01 GB."), "worded as sglang 0.5.22 and newer"),
        (("Memory baseline taken. mem usage=0.10 GB", "server_args=ServerArgs(a=1)"), None),
    ],
)  # fmt: skip
def test_a_log_without_its_release_tells_it_by_its_wording(lines: tuple[str, ...], note: str | None) -> None:
    notes = [text for text in measure("sglang", lines).notes if text.startswith("worded")]
    assert notes == ([note] if note else [])
