"""What holds for every model, device, version and set of flags."""

from __future__ import annotations

from math import isfinite
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from support import (
    DEEPSEEK_V3,
    GPT_OSS_20B,
    LFM2_1_2B,
    LLAMA_3_1_8B,
    MIXTRAL_8X7B,
    NEMOTRON_3_NANO_30B,
    QWEN3_5_27B,
    QWEN3_30B_A3B,
    TINY_LLAMA,
    checkpoint,
    layout,
    planned,
    question,
    tensor_bytes,
    weights,
)
from support import settings as run_with
from vramledger.answer import Plan
from vramledger.engines.partition import local_experts
from vramledger.engines.vllm.expert_parallel import BACKEND_NAMES
from vramledger.engines.vllm.flags import AUTO, LORA_RANKS, KvTransfer, ParallelPlan, Speculation, VllmFlags
from vramledger.engines.vllm.kv_budget import (
    blocks_per_request,
    capacity,
    context_step,
    longest_context,
    request_blocks,
    usable_bytes,
)
from vramledger.engines.vllm.kv_connectors import CONNECTOR_NAMES, ROLES
from vramledger.engines.vllm.sharding import pipeline_layers, rank_kinds
from vramledger.engines.vllm.version import NEWEST, VllmVersion, parse_version
from vramledger.errors import VramledgerError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Owner, Phase

VERSIONS = (
    "0.6.6",
    "0.8.5",
    "0.9.2",
    "0.10.2",
    "0.13.0",
    "0.17.1",
    "0.20.2",
    "0.26.0",
    "0.27.1",
    "0.29.0",
    "0.33.0",
)
DEVICES = tuple(
    find_device(name)
    for name in ("H100-80GB", "A100-40GB", "RTX 4090", "B200", "T4", "MI300X", "custom:3GiB", "cpu:24GiB")
)
POWERS = st.sampled_from((1, 1, 2, 4, 8))
version_texts = st.sampled_from(VERSIONS)


@st.composite
def dense_configs(draw: st.DrawFn) -> dict[str, Any]:
    kv_heads = draw(st.sampled_from((1, 2, 3, 4, 8)))
    config = TINY_LLAMA | {
        "hidden_size": draw(st.sampled_from((64, 128, 520, 2048))),
        "head_dim": draw(st.sampled_from((32, 64, 128))),
        "intermediate_size": draw(st.sampled_from((96, 256, 1000, 8192))),
        "max_position_embeddings": draw(st.integers(1, 200_000)),
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * draw(st.sampled_from((1, 2, 5, 8))),
        "num_hidden_layers": draw(st.integers(1, 12)),
        "tie_word_embeddings": draw(st.booleans()),
        "vocab_size": draw(st.integers(1, 150_000)),
    }
    window = draw(st.sampled_from((None, 1, 100, 4096)))
    if window is not None:
        kinds = draw(
            st.lists(
                st.sampled_from(("sliding_attention", "full_attention")),
                min_size=config["num_hidden_layers"],
                max_size=config["num_hidden_layers"],
            )
        )
        config |= {"model_type": "gemma3_text", "sliding_window": window, "layer_types": kinds}
    return config


@st.composite
def hybrid_configs(draw: st.DrawFn) -> dict[str, Any]:
    layers = draw(st.integers(1, 6))
    pattern = draw(st.text("M*E-", min_size=layers, max_size=layers))
    return NEMOTRON_3_NANO_30B | {
        "hybrid_override_pattern": pattern,
        "num_hidden_layers": layers,
        "hidden_size": 256,
        "mamba_num_heads": draw(st.sampled_from((4, 8))),
        "n_groups": draw(st.sampled_from((1, 2, 4))),
        "n_routed_experts": draw(st.integers(1, 9)),
        "num_experts_per_tok": 1,
        "num_attention_heads": 8,
        "max_position_embeddings": draw(st.integers(1, 50_000)),
        "vocab_size": 4096,
    }


@st.composite
def mixture_configs(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 17))
    return QWEN3_30B_A3B | {
        "hidden_size": 256,
        "head_dim": 64,
        "moe_intermediate_size": draw(st.sampled_from((64, 96, 768))),
        "num_attention_heads": 8,
        "num_experts": count,
        "num_experts_per_tok": draw(st.integers(1, count)),
        "num_hidden_layers": draw(st.integers(1, 6)),
        "vocab_size": 4096,
    }


configs = st.one_of(
    dense_configs(),
    hybrid_configs(),
    mixture_configs(),
    st.sampled_from((DEEPSEEK_V3, GPT_OSS_20B, LFM2_1_2B, QWEN3_5_27B)),
)
parallel_flags = {
    "tp": POWERS,
    "pp": st.sampled_from((1, 1, 1, 2, 3, 5)),
    "dp": st.sampled_from((1, 1, 2, 3)),
    "dcp": st.sampled_from((1, 1, 1, 2)),
    "enable_expert_parallel": st.booleans(),
}
other_flags = {
    "max_model_len": st.one_of(st.just(AUTO), st.integers(1, 300_000)),
    "max_num_seqs": st.integers(1, 4096),
    "max_num_batched_tokens": st.integers(1, 70_000),
    "gpu_memory_utilization": st.floats(0.001, 1.0),
    "kv_cache_dtype": st.sampled_from(
        ("auto", "fp8", "bfloat16", "int8_per_token_head", "nvfp4", "fp8_ds_mla")
    ),
    "dtype": st.sampled_from(("auto", "float16", "float32")),
    "block_size": st.sampled_from((1, 16, 32, 100, 256)),
    "enforce_eager": st.booleans(),
    "enable_prefix_caching": st.booleans(),
    "enable_chunked_prefill": st.booleans(),
    "disable_hybrid_kv_cache_manager": st.booleans(),
    "async_scheduling": st.booleans(),
    "max_cudagraph_capture_size": st.integers(0, 2048),
    "enable_lora": st.booleans(),
    "max_loras": st.integers(1, 64),
    "max_lora_rank": st.sampled_from(LORA_RANKS),
    "fully_sharded_loras": st.booleans(),
    "num_redundant_experts": st.integers(0, 4),
    "enable_eplb": st.booleans(),
    "all2all_backend": st.sampled_from(BACKEND_NAMES),
    "kv_transfer_config": st.builds(
        KvTransfer,
        connector=st.sampled_from([name for name in CONNECTOR_NAMES if name != "MultiConnector"]),
        role=st.sampled_from(ROLES),
        buffer_device=st.sampled_from((None, "cuda", "cpu")),
        permutes=st.booleans(),
    ),
    "kv_offloading_size": st.sampled_from((0.5, 8.0)),
    "cpu_offload_gb": st.sampled_from((0.5, 3.0)),
    "offload_group_size": st.integers(0, 8),
    "cp_kv_cache_interleave_size": st.integers(1, 16),
    "mamba_cache_mode": st.sampled_from(("none", "align", "all")),
    "quantization": st.sampled_from(("fp8", "bitsandbytes")),
    "offline": st.booleans(),
    "use_v1": st.booleans(),
    "speculative": st.builds(
        Speculation, method=st.sampled_from(("mtp", "ngram")), num_speculative_tokens=st.integers(1, 8)
    ),
}
pool_bytes = {"kv_cache_memory_bytes": st.integers(1, 2**38)}
pool_blocks = {"num_gpu_blocks_override": st.integers(1, 10**6)}
pool_flags = st.one_of(
    *map(st.fixed_dictionaries, ({}, pool_bytes, pool_blocks, {**pool_bytes, **pool_blocks}))
)
flag_sets = st.builds(
    lambda usual, pool: {**usual, **pool},
    st.fixed_dictionaries({}, optional={**parallel_flags, **other_flags}),
    pool_flags,
)
relaxed = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def check_ledgers(plan: Plan) -> None:
    world = plan.inputs.dp * plan.inputs.pp * plan.inputs.tp
    assert sorted(rank for item in plan.ranks for rank in item.ranks) == list(range(world))
    for item in plan.ranks:
        for entry in item.entries:
            assert 0 <= entry.bytes.low <= entry.bytes.expected <= entry.bytes.high
            assert entry.bytes.high > 0
            assert entry.phases or entry.owner is Owner.HEADROOM
            assert entry.inside_budget or not entry.is_remainder
            assert entry.evidence.source
        for phase in Phase:
            alive = [entry.bytes for entry in item.entries if phase in entry.phases]
            assert item.peak(phase).expected == sum(size.expected for size in alive)
            assert item.occupied(phase).expected == item.peak(phase).expected
        figures = item.weights
        assert 0 <= figures.host_peak_bytes.low <= figures.host_peak_bytes.high
        assert figures.disk_bytes > 0
        assert figures.device_bytes.low > 0


def check_pool(plan: Plan, values: dict[str, Any], version: VllmVersion) -> None:
    pool = plan.kv_pool
    if pool is None:
        return
    for found in (pool.bytes, pool.num_blocks, pool.tokens, pool.max_concurrency, pool.longest_context):
        assert 0 <= found.low <= found.expected <= found.high
    for ratio in (pool.max_concurrency, pool.steady_concurrency):
        assert all(isfinite(end) for end in (ratio.low, ratio.expected, ratio.high))
    assert pool.bytes_per_block > 0
    assert pool.bytes.expected == pool.num_blocks.expected * pool.bytes_per_block
    assert pool.block_size == min(group.block_size for group in pool.groups) > 0
    assert pool.context_len >= 1
    assert pool.steady_bytes_per_request <= pool.admission_bytes_per_request
    if "kv_cache_memory_bytes" in values:
        assert pool.bytes.high <= values["kv_cache_memory_bytes"]
    need = sum(group.blocks_per_request for group in pool.groups)
    usable = 1 if version.since(29) else 0
    if plan.verdict.holds:
        assert pool.num_blocks.low - usable >= need
        assert pool.max_concurrency.low >= 1 or _v0_states(plan)


def _v0_states(plan: Plan) -> bool:
    """V0's concurrency line divides tokens by the context, whatever a recurrent state takes."""
    return (
        dict(plan.inputs.settings)["engine"] == "V0"
        and plan.kv_pool is not None
        and any(group.kind == "mamba" for group in plan.kv_pool.groups)
    )


def _no_memory_helps(summary: str) -> bool:
    return "does not load" in summary or "whatever the memory" in summary


def check_verdict(plan: Plan) -> None:
    verdict = plan.verdict
    assert verdict.summary
    assert verdict.holds is not True or verdict.conditions
    assert verdict.holds is not False or verdict.shortfall_bytes > 0 or _no_memory_helps(verdict.summary)
    assert verdict.holds is not None or verdict.missing
    assert verdict.holds is False or verdict.shortfall_bytes == 0


@relaxed
@given(configs, st.sampled_from(DEVICES), version_texts, flag_sets)
def test_a_question_is_answered_consistently_or_refused_in_one_sentence(
    config: dict[str, Any], device: Any, version: str, values: dict[str, Any]
) -> None:
    try:
        subject = checkpoint(config)
        plan = planned(subject, device, version, **values)
    except VramledgerError as refused:
        assert str(refused)
        assert "\n" not in str(refused)
        return
    check_ledgers(plan)
    check_pool(plan, values, parse_version(version))
    check_verdict(plan)
    assert planned(subject, device, version, **values) == plan


@given(st.sampled_from((LLAMA_3_1_8B, GPT_OSS_20B, DEEPSEEK_V3, QWEN3_5_27B)), version_texts, st.data())
@settings(max_examples=60, deadline=None)
def test_more_tokens_never_need_fewer_blocks(
    config: dict[str, Any], version: str, data: st.DataObject
) -> None:
    subject = checkpoint(config)
    values: dict[str, Any] = {
        "max_num_batched_tokens": data.draw(st.integers(1, 20_000)),
        "tp": data.draw(POWERS),
    }
    found = run_with(subject, version=version, **values)
    groups = layout(subject, version=version, **values)
    short, long = sorted(data.draw(st.tuples(st.integers(0, 200_000), st.integers(0, 200_000))))
    for group in groups.groups:
        assert request_blocks(group.spec, short, found) <= request_blocks(group.spec, long, found)
    assert blocks_per_request(groups, 0, found) == 0
    assert blocks_per_request(groups, 1, found) > 0


@given(
    st.sampled_from((LLAMA_3_1_8B, GPT_OSS_20B, QWEN3_5_27B)),
    version_texts,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_more_blocks_never_hold_fewer_tokens(
    config: dict[str, Any], version: str, left: int, right: int
) -> None:
    subject = checkpoint(config)
    found, groups = run_with(subject, version=version), layout(subject, version=version)
    fewer, more = (capacity(groups, count, found) for count in sorted((left, right)))
    assert fewer.tokens <= more.tokens
    assert fewer.max_concurrency <= more.max_concurrency


@given(st.sampled_from((LLAMA_3_1_8B, QWEN3_30B_A3B, DEEPSEEK_V3, MIXTRAL_8X7B, QWEN3_5_27B)), version_texts)
@settings(max_examples=40, deadline=None)
def test_more_ranks_never_hold_more_each_and_together_no_less(config: dict[str, Any], version: str) -> None:
    subject = checkpoint(config)
    (alone,) = weights(subject, version=version)
    whole = tensor_bytes(alone)
    last_weights, last_page = whole, None
    for ranks in (2, 4):
        (each,) = weights(subject, version=version, tp=ranks)
        assert tensor_bytes(each) < last_weights
        assert tensor_bytes(each) * ranks >= whole
        last_weights = tensor_bytes(each)
        page = layout(subject, version=version, tp=ranks, block_size=64)
        size = page.bytes_per_block() / page.block_size
        assert last_page is None or size <= last_page
        last_page = size


@given(st.integers(1, 200), st.integers(1, 64), version_texts)
def test_stages_partition_the_layers(layers: int, stages: int, version: str) -> None:
    assume(stages <= layers)
    found = pipeline_layers(layers, stages, parse_version(version), None)
    assert len(found) == stages
    assert [layer for stage in found for layer in stage] == list(range(layers))
    sizes = [len(stage) for stage in found]
    if parse_version(version).since(8):
        assert max(sizes) - min(sizes) <= 1
        assert sizes[-1] == min(sizes)


@given(st.integers(1, 300), st.integers(1, 8), st.integers(1, 8), st.integers(1, 3), st.integers(0, 64))
def test_ranks_share_all_experts(count: int, tp: int, dp: int, pp: int, redundant: int) -> None:
    model = checkpoint(
        QWEN3_30B_A3B | {"num_experts": count, "num_experts_per_tok": 1, "num_hidden_layers": 3}
    ).model
    plan = ParallelPlan(tp=tp, dp=dp, pp=pp, enable_expert_parallel=True)
    flags = VllmFlags(num_redundant_experts=redundant, enable_eplb=redundant > 0)
    try:
        kinds = rank_kinds(model, plan, flags, NEWEST)
    except VramledgerError:
        assert redundant
        assert plan.ep == 1 or (count + redundant) % plan.ep
        return
    assert sorted(rank for kind in kinds for rank in kind.ranks) == list(range(tp * dp * pp))
    held = [(kind.stage, local_experts(count, kind.cuts)) for kind in kinds for _ in kind.ranks]
    for stage in range(pp):
        sizes = [size for at, size in held if at == stage]
        assert sum(sizes) == count + redundant
        assert max(sizes) - min(sizes) <= 1


@given(
    st.sampled_from((LLAMA_3_1_8B, GPT_OSS_20B, DEEPSEEK_V3, QWEN3_5_27B)),
    st.sampled_from(("0.14.1", "0.26.0", "0.33.0")),
    st.integers(0, 2**37),
)
@settings(max_examples=80, deadline=None)
def test_the_longest_context_fits_and_one_token_more_does_not(
    config: dict[str, Any], version: str, available: int
) -> None:
    subject = checkpoint(config)
    found = run_with(subject, version=version, max_num_batched_tokens=2048)
    groups = layout(subject, version=version, max_num_batched_tokens=2048)
    per_block = groups.bytes_per_block()

    def need(length: int) -> int:
        return per_block * blocks_per_request(groups, length, found)

    limit = found.context_len
    longest = longest_context(need, available, per_block, found, limit, step=context_step(groups))
    assert longest == longest_context(need, available, per_block, found, limit)
    usable = usable_bytes(available, per_block, found)
    assert 0 <= longest <= limit
    assert longest == 0 or need(longest) <= usable
    assert longest == limit or need(longest + 1) > usable


@given(flag_sets)
@settings(max_examples=60, deadline=None)
def test_equal_flags_are_equal_questions(values: dict[str, Any]) -> None:
    try:
        first = question(values)
    except VramledgerError:
        return
    assert first == question(dict(reversed(values.items())))
    assert hash(first) == hash(question(values))
