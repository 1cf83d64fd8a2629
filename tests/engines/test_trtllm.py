"""TensorRT-LLM: worked figures, rounding by version, windows, admission, verdicts, the command line."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from five_kinds import DENSE, FIVE, checkpoint, write_config
from support import GPT_OSS_20B, LLAMA_3_1_8B
from support import checkpoint as checkpoint_of
from vramledger import Checkpoint, Plan, load_model, plan
from vramledger.cli import main
from vramledger.engines.tensorrtllm.activation import estimation_tokens, graph_sizes
from vramledger.engines.tensorrtllm.admission import Request, blocks_to_completion, guaranteed_requests
from vramledger.engines.tensorrtllm.kv_layers import KvLayer, element_bytes, kv_layers
from vramledger.engines.tensorrtllm.options import flags_from
from vramledger.engines.tensorrtllm.pools import RankPools, agreed, fill, quota, stranded_blocks, windows_of
from vramledger.engines.tensorrtllm.settings import Settings, resolve
from vramledger.engines.tensorrtllm.version import parse_version
from vramledger.errors import FlagError
from vramledger.ledger import Owner, Phase
from vramledger.report.schema import schema_of
from vramledger.units import GIB

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LLAMA_2_7B = LLAMA_3_1_8B | {
    "intermediate_size": 11008,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "rope_scaling": None,
}
GPT_OSS_120B = GPT_OSS_20B | {
    "num_hidden_layers": 36,
    "num_local_experts": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}
QWEN_2_5: dict[str, Any] = {
    "model_type": "qwen2",
    "max_position_embeddings": 32768,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN_0_5B = QWEN_2_5 | {
    "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_hidden_layers": 24,
}  # fmt: skip
QWEN_1_5B = QWEN_2_5 | {
    "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_hidden_layers": 28,
}  # fmt: skip


@cache
def _checkpoint(text: str) -> Checkpoint:
    return checkpoint_of(json.loads(text))


def settings(config: dict[str, Any], version: str = "1.2.1", **flags: Any) -> Settings:
    return resolve(_checkpoint(json.dumps(config)), parse_version(version), flags_from(flags))


def layers(config: dict[str, Any], run: Settings) -> tuple[KvLayer, ...]:
    model = _checkpoint(json.dumps(config)).model
    return kv_layers(model, range(model.num_layers), run.flags, run.dtype, run.cache)


def pools(config: dict[str, Any], budget: int, version: str = "1.2.1", **flags: Any) -> RankPools:
    run = settings(config, version, **flags)
    return fill(layers(config, run), run, budget)


def per_token(config: dict[str, Any], **flags: Any) -> int:
    run = settings(config, **flags)
    return sum(layer.token_bytes for layer in layers(config, run))


def planned(kind: str = "dense", device: str = "H100-80GB", *, version: str = "1.2.1", **flags: Any) -> Plan:
    return plan(checkpoint(kind), device, engine=f"tensorrt-llm=={version}", **flags)


@pytest.mark.parametrize(
    ("config", "kind", "expected"),
    [
        (LLAMA_3_1_8B, "fp8", 65536),
        (LLAMA_3_1_8B, "auto", 131072),
        (GPT_OSS_120B, "auto", 73728),
        (QWEN_0_5B, "auto", 12288),
        (QWEN_1_5B, "auto", 28672),
    ],
)
def test_bytes_a_token(config: dict[str, Any], kind: str, expected: int) -> None:
    assert per_token(config, kv_cache_dtype=kind) == expected


def test_heads_and_latents_on_a_rank() -> None:
    assert per_token(LLAMA_3_1_8B, tp=4) == 131072 // 4
    assert per_token(LLAMA_3_1_8B, tp=16) == 131072 // 8, "a head on two ranks each"
    assert per_token(LLAMA_3_1_8B, tp=4, enable_attention_dp=True) == 131072
    assert per_token(FIVE["latent"], tp=8) == 27 * (512 + 64) * 2, "a latent on every rank"
    assert element_bytes(128, "nvfp4") == 64 + 8
    assert element_bytes(33, "nvfp4") == 17 + 3


@pytest.mark.parametrize(
    ("config", "available_gib", "size", "printed", "tokens"),
    [
        (LLAMA_3_1_8B | {"torch_dtype": "float16"}, 17.83, 32, 8219, 263008),
        (LLAMA_2_7B, 70.48, 64, 4060, 259840),
        (LLAMA_2_7B, 85.57, 32, 9859, 315488),
        (LLAMA_2_7B, 1.42, 64, 82, 5248),
    ],
)
def test_blocks_that_logs_print(
    config: dict[str, Any], available_gib: float, size: int, printed: int, tokens: int
) -> None:
    """The free memory is printed with two decimals: the blocks lie between the ends of its rounding."""
    low, high = (
        pools(
            config, int((available_gib + rest) * GIB * 0.9), "0.17.0", backend="tensorrt", kv_cache_dtype="fp8",
            tokens_per_block=size,
        ).binding.blocks
        for rest in (-0.005, 0.005)
    )  # fmt: skip
    assert low <= printed <= high
    assert printed * size == tokens


def test_a_begun_block_counts_until_the_newest() -> None:
    """70.48 GiB are 4059.6 blocks: the log has 4060, and rounding down would give 4059."""
    budget = int(70.48 * GIB * 0.9)
    asked = {"kv_cache_dtype": "fp8", "tokens_per_block": 64}
    assert pools(LLAMA_2_7B, budget, "1.2.1", **asked).binding.blocks == 4060
    assert pools(LLAMA_2_7B, budget, "1.3.0", **asked).binding.blocks == 4059
    assert pools(LLAMA_2_7B, budget, "1.3.0", backend="tensorrt", **asked).binding.blocks == 4060


def test_the_pool_of_a_real_start_up() -> None:
    """gpt-oss-120b on a GB10 with 1.1.0rc3: 86711 tokens became 2710 blocks and the longest request."""
    run = settings(GPT_OSS_120B, "1.1.0rc3", max_batch_size=64)
    assert estimation_tokens(run, 1 << 40) == 257 * 32 == 8224
    temporary = 8224 * 73728
    assert temporary / GIB == pytest.approx(0.5647, abs=0.0001)
    budget = int((119.70 - 113.65 + temporary / GIB) * 0.9 * GIB)
    assert budget / GIB == pytest.approx(5.953, abs=0.0005)
    found = fill(layers(GPT_OSS_120B, run), run, budget)
    assert found.max_tokens == pytest.approx(86711, abs=75), "figures with two decimals"
    limited = pools(GPT_OSS_120B, GIB * 20, "1.1.0rc3", max_tokens=86711, max_batch_size=64)
    assert (limited.binding.blocks, limited.binding.blocks * 32) == (2710, 86720)
    assert limited.reached_len == 86720
    assert limited.kv_bytes / GIB == pytest.approx(5.95, abs=0.005)


def test_weights_and_activation_of_a_real_start_up() -> None:
    """The same start-up printed 63.52 GiB of weights and 0.85 GiB allocated by the dummy workload; 4-bit experts of
    2880 columns are padded to 2944."""
    found = plan(
        load_model(EXAMPLES / "gpt-oss-120b", headers=False), "custom:119.70GiB", engine="tensorrt-llm==1.1.0rc3",
        max_batch_size=64,
    )  # fmt: skip
    (rank,) = found.ranks
    assert rank.weights.device_bytes.expected / GIB == pytest.approx(63.52, rel=0.005)
    (step,) = (entry for entry in rank.entries if entry.name == "activation of a full step")
    assert step.bytes.low / GIB < 0.85 < step.bytes.high / GIB
    assert step.bytes.expected / GIB == pytest.approx(0.85, rel=0.1)
    assert "kv size is 73728. device total memory 119.70 GiB, , tmp kv_mem 0.56 GiB" in "\n".join(
        found.printed
    )


def test_the_cache_of_a_token_in_other_logs() -> None:
    """DeepSeek-R1 with an fp8 cache printed 35136 bytes."""
    deep = plan(
        load_model(EXAMPLES / "DeepSeek-V3", headers=False),
        "B200",
        engine="tensorrt-llm",
        tp=8,
        kv_cache_dtype="fp8",
    )
    assert deep.kv_pool is not None
    assert deep.kv_pool.bytes_per_token == 61 * (512 + 64) == 35136


def test_the_smaller_of_tokens_bytes_and_share_holds() -> None:
    plain = pools(LLAMA_3_1_8B, 8 * GIB)
    assert plain.binding.blocks == 2048
    assert pools(LLAMA_3_1_8B, 8 * GIB, max_tokens=1000).binding.blocks == 32
    assert pools(LLAMA_3_1_8B, 8 * GIB, max_tokens=10**9).binding.blocks == 2048
    assert pools(LLAMA_3_1_8B, 8 * GIB, max_gpu_total_bytes="2G").binding.blocks == 512


def test_windows_share_the_bytes_equally() -> None:
    """18 layers with a window of 128 take half of 10 GiB, which they cannot use."""
    found = pools(
        GPT_OSS_120B, 10 * GIB, max_attention_window="128,131072", max_seq_len=131072, max_batch_size=64
    )
    short, full = found.pools
    assert (short.window, short.num_layers, short.token_bytes) == (128, 18, 36864)
    assert (full.window, full.num_layers, full.token_bytes) == (131072, 18, 36864)
    assert 5 * GIB // 36864 == 145635
    assert short.blocks == full.blocks == 4551
    assert found.reached_len == 131072
    run = settings(GPT_OSS_120B, max_attention_window="128,131072", max_seq_len=131072, max_batch_size=64)
    assert stranded_blocks(found, run, short) == 4551 - 64 * (4 + 1)
    assert stranded_blocks(found, run, full) == 0


def test_stranded_memory_is_an_entry_and_a_note() -> None:
    found = plan(
        _checkpoint(json.dumps(GPT_OSS_20B)), "H100-80GB", engine="tensorrt-llm==1.2.1",
        max_attention_window="128,131072", max_batch_size=16,
    )  # fmt: skip
    (entry,) = (entry for entry in found.ranks[0].entries if entry.name.startswith("stranded"))
    assert entry.owner is Owner.KV_CACHE
    assert any("equal share" in note for note in found.notes)
    pool = found.kv_pool
    assert pool is not None
    held = sum(entry.bytes.expected for entry in found.ranks[0].entries if entry.owner is Owner.KV_CACHE)
    assert held == pool.bytes.expected
    short, full = pool.groups
    assert short.pool_blocks is not None
    assert full.pool_blocks is not None
    assert short.blocks_per_request == 4 + 1
    windows = [line for line in found.printed if line.startswith("[windowSize=")]
    assert windows == [
        f"[windowSize=128] {{.primaryBlocks={short.pool_blocks.expected}, .secondayBlocks=0}}",
        f"[windowSize=131072] {{.primaryBlocks={full.pool_blocks.expected}, .secondayBlocks=0}}",
    ]


def test_windows_that_do_not_fit_once_are_lowered_together() -> None:
    """All layers fill alike until the short window is full; the rest goes to the long one."""
    per_layer = 2 * 8 * 64 * 2
    budget = 36 * per_layer * 128 + 18 * per_layer * 1000
    found = pools(GPT_OSS_120B, budget, max_attention_window="128,131072", max_batch_size=64)
    assert [pool.window for pool in found.pools] == [128, 1128]
    tiny = pools(GPT_OSS_120B, 36 * per_layer * 50, max_attention_window="128,131072", max_batch_size=64)
    assert [(pool.window, pool.num_layers) for pool in tiny.pools] == [(50, 36)]


def test_the_quota_of_v2() -> None:
    """A window is a fixed amount for every request of a batch, the other layers take the rest; max_tokens counts at
    the fill level up to which requests are resumed."""
    asked: dict[str, Any] = {"use_kv_cache_manager_v2": True, "max_batch_size": 64, "max_seq_len": 131072}
    run = settings(GPT_OSS_120B, **asked)
    own = windows_of(layers(GPT_OSS_120B, run), run)
    assert [pool.window for pool in own] == [128, 131072]
    short, full = pools(GPT_OSS_120B, 10 * GIB, **asked).pools
    block = 36864 * 32
    assert short.blocks == 64 * (4 + 1)
    assert full.blocks == (10 * GIB - 64 * 5 * block) // 36864 // 32
    limited = settings(GPT_OSS_120B, **asked, max_tokens=10000)
    assert quota(limited, own, 10 * GIB) == -(-10000 * 73728 * 100 // 95)
    lines = planned(use_kv_cache_manager_v2=True, max_tokens=100_000).printed
    assert any(
        line.startswith("max_tokens 100000 is provided. Allowed quota from max_tokens is 12.85 GiB")
        for line in lines
    )
    assert any(line.startswith("KV cache manager v2 device quota set to 12.85 GiB") for line in lines)


def test_graph_batches() -> None:
    padded: dict[str, Any] = {"cuda_graph_enable_padding": True}
    assert len(graph_sizes(settings(LLAMA_3_1_8B, max_batch_size=64, **padded))) == 11
    assert graph_sizes(settings(LLAMA_3_1_8B, **padded)) == (1, 2, 4, *range(8, 129, 8))
    assert graph_sizes(settings(LLAMA_3_1_8B)) == (*range(1, 33), 64, 128)
    wide = graph_sizes(settings(LLAMA_3_1_8B, cuda_graph_max_batch_size=600, **padded))
    assert wide[-3:] == (256, 512, 600)
    assert graph_sizes(settings(LLAMA_3_1_8B, max_batch_size=16, **padded)) == (1, 2, 4, 8, 16)
    assert graph_sizes(settings(LLAMA_3_1_8B, cuda_graph=False)) == ()
    assert graph_sizes(settings(LLAMA_3_1_8B, backend="tensorrt")) == ()


def test_blocks_to_completion() -> None:
    request = Request(prompt=1000, new_tokens=500)
    assert blocks_to_completion(request, tokens_per_block=32) == 47
    assert blocks_to_completion(request, tokens_per_block=32, held=40) == 7
    assert blocks_to_completion(request, tokens_per_block=32, window=128) == 4 + 1
    assert (
        blocks_to_completion(Request(prompt=1000, new_tokens=500, beams=4), tokens_per_block=32)
        == 31 + 16 * 4
    )
    assert guaranteed_requests({0: 100}, request, tokens_per_block=32, most=64) == 2
    assert guaranteed_requests({0: 100, 128: 9}, request, tokens_per_block=32, most=64) == 1
    assert guaranteed_requests({0: 10**6}, request, tokens_per_block=32, most=64) == 64


def test_an_asked_length_that_is_lowered_is_a_failure() -> None:
    found = planned(
        device="custom:24GiB", max_seq_len=131072, max_batch_size=8, max_num_tokens=2048, remedies=True
    )
    assert found.verdict.holds is False
    assert "silently lower max_seq_len" in found.verdict.summary
    assert found.verdict.shortfall_bytes > 0
    assert any(remedy.startswith("--max-seq-len ") for remedy in found.verdict.remedies)
    for remedy in found.verdict.remedies:
        if remedy.startswith("--max-seq-len "):
            length = int(remedy.split()[1])
            assert planned(
                device="custom:24GiB", max_seq_len=length, max_batch_size=8, max_num_tokens=2048
            ).verdict.holds


def test_a_default_length_that_is_lowered_is_a_condition() -> None:
    found = planned(device="custom:24GiB", max_batch_size=8, max_num_tokens=2048)
    pool = found.kv_pool
    assert pool is not None
    assert found.verdict.holds
    assert pool.context_len < 131072
    assert pool.context_len == pool.num_blocks.expected * 32
    assert any("max_seq_len is lowered from 131,072" in text for text in found.verdict.conditions)
    assert "to which max_seq_len 131,072 is lowered" in found.verdict.summary
    assert f"Adjusted max_seq_len to {pool.context_len}" in found.printed


def test_lines_of_the_pytorch_back_end() -> None:
    found = planned(version="1.1.0", max_batch_size=64)
    pool = found.kv_pool
    assert pool is not None
    text = "\n".join(found.printed)
    for part in (
        "Memory used after loading model weights (inside torch) in memory usage profiling: 14.96 GiB",
        "Memory dynamically allocated during inference (inside torch) in memory usage profiling: ",
        "fraction is set 0.9, kv size is 131072. device total memory 79.19 GiB, , tmp kv_mem 1.00 GiB",
        f"Estimated max memory in KV cache : {found.budget_bytes / GIB:.2f} GiB",
        f"[windowSize=131072] {{.primaryBlocks={pool.num_blocks.expected}, .secondayBlocks=0}}",
        "Number of tokens per block: 32.",
        f"for max tokens in paged KV cache ({pool.tokens.expected}).",
        "max_seq_len=131072, max_num_requests=64, max_num_tokens=8192, max_batch_size=64",
    ):
        assert part in text
    newest = "\n".join(planned(version="1.3.0").printed)
    assert "kv size per token is 131072. device total memory 79.19 GiB, temporary kv cache memory" in newest


def test_lines_of_the_trt_back_end() -> None:
    found = planned(version="0.17.0", host_cache_size="1G")
    pool = found.kv_pool
    assert pool is not None
    assert pool.block_size == 64
    text = "\n".join(found.printed)
    for part in (
        "Memory usage when calculating max tokens in paged kv cache: total: 79.19 GiB, available: ",
        f"Number of blocks in KV cache primary pool: {pool.num_blocks.expected}",
        "Number of blocks in KV cache secondary pool: 128, onboard blocks to primary memory before reuse: true",
        "Number of tokens per block: 64.",
    ):
        assert part in text
    owners = {entry.name for entry in found.ranks[0].entries}
    assert {"execution context", "runtime buffers", "decoder buffers"} <= owners


def test_every_owner_and_phase() -> None:
    found = planned(
        "mixture",
        tp=2,
        ep=True,
        enable_lora=True,
        host_cache_size="8G",
        max_batch_size=64,
        device="H200-141GB",
    )
    (rank,) = found.ranks
    assert {entry.owner for entry in rank.entries} == set(Owner)
    assert all(rank.peak(phase).expected > 0 for phase in Phase)
    assert {entry.owner for entry in found.host} == {
        Owner.RUNTIME_CONTEXT,
        Owner.KV_CACHE,
        Owner.ADAPTERS,
        Owner.WEIGHTS,
    }
    charged = sum(entry.bytes.expected for entry in rank.entries if entry.inside_budget)
    assert abs(found.budget_bytes - charged) <= 2 * 32 * 98304
    assert rank.occupied(Phase.PREFILL).expected < rank.device_total_bytes


def test_stages_experts_and_attention_dp() -> None:
    stages = planned("mixture", tp=2, pp=4, device="H200-141GB").ranks
    assert [rank.ranks for rank in stages] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    names = [{entry.name for entry in rank.entries} for rank in stages]
    assert "embedding" in names[0]
    assert "embedding" not in names[1]
    assert "lm head" in names[3]
    dealt = planned("mixture", tp=4, ep=True, device="H200-141GB").ranks[0]
    cut = planned("mixture", tp=4, device="H200-141GB").ranks[0]
    assert _size(dealt, "experts") == _size(cut, "experts")
    whole = planned("mixture", tp=4, ep=True, enable_attention_dp=True, device="H200-141GB").ranks[0]
    assert _size(whole, "attention") == 4 * _size(cut, "attention")
    assert _size(whole, "experts") == _size(cut, "experts")


def _size(rank: Any, name: str) -> int:
    return sum(entry.bytes.expected for entry in rank.entries if entry.name == name)


def test_an_mtp_block_has_weights_and_a_cache() -> None:
    drafted = {"decoding_type": "MTP", "max_draft_len": 1}
    config = FIVE["latent"] | {
        "model_type": "deepseek_v3",
        "num_nextn_predict_layers": 1,
        "n_group": 8,
        "topk_group": 4,
    }
    model = _checkpoint(json.dumps(config))
    plain, mtp = (
        plan(model, "H200-141GB", engine="tensorrt-llm", speculative_config=value)
        for value in (None, drafted)
    )
    assert plain.kv_pool is not None
    assert mtp.kv_pool is not None
    assert mtp.kv_pool.bytes_per_token == plain.kv_pool.bytes_per_token * 28 // 27
    assert _size(mtp.ranks[0], "draft") > 0
    assert _size(plain.ranks[0], "draft") == 0


@pytest.mark.parametrize(("kind", "stages_with_draft"), [("Eagle3", {1}), ("DraftTarget", {0, 1})])
def test_a_draft_of_its_own(tmp_path: Path, kind: str, stages_with_draft: set[int]) -> None:
    """One model: the draft is on the last stage; two models: beside every stage."""
    draft = write_config(tmp_path / "draft", DENSE | {"num_hidden_layers": 2, "vocab_size": 128256})
    asked = {"decoding_type": kind, "max_draft_len": 3, "speculative_model": str(draft)}
    plain, drafted = (
        plan(checkpoint("dense"), "H100-80GB", engine="tensorrt-llm", pp=2, speculative_config=value)
        for value in (None, asked)
    )
    with_draft = {index for index, rank in enumerate(drafted.ranks) if _size(rank, "draft model")}
    assert with_draft == stages_with_draft
    assert _size(drafted.ranks[1], "draft model") > 2 * 128256 * 4096 * 2
    assert drafted.kv_pool is not None
    assert plain.kv_pool is not None
    assert drafted.kv_pool.tokens.expected < plain.kv_pool.tokens.expected
    assert any(kind in text for text in drafted.verdict.conditions)


def test_what_an_engine_keeps_in_other_types() -> None:
    """The TRT back end: routers in float32, up-projections of latents as they are, the keys' a second time, and the
    embedding whole on every rank; the PyTorch back end cuts the embedding and quantises what is linear."""
    built, run = (
        planned("latent", tp=2, backend=backend, quantization="int8_weight_only").ranks[0]
        for backend in ("tensorrt", "pytorch")
    )
    assert _size(built, "router") == 2 * _size(run, "router") == 26 * 64 * 2048 * 4
    assert _size(built, "embedding") == 2 * _size(run, "embedding") == 102400 * 2048 * 2
    twice = 27 * 16 // 2 * 512 * 128 * 2
    assert _size(built, "rearranged up-projections of latents") == twice
    assert _size(run, "rearranged up-projections of latents") == twice
    assert _size(built, "attention") > _size(run, "attention")


def test_recurrent_states_are_kept_for_a_batch() -> None:
    found = planned("recurrent", device="H200-141GB", tp=4, max_batch_size=16, enable_block_reuse=False)
    pool = found.kv_pool
    assert pool is not None
    conv = (2 * 16 * 128 + 32 * 128) // 4 * 3 * 2
    state = 32 // 4 * 128 * 128 * 2
    assert pool.state_bytes_per_sequence == 36 * (conv + state)
    assert _size(found.ranks[0], "recurrent states") == 16 * pool.state_bytes_per_sequence
    newest = planned("recurrent", device="H200-141GB", tp=4, max_batch_size=16, version="1.3.0")
    assert newest.kv_pool is not None
    snapshots = newest.kv_pool.tokens.expected // 256
    held = _size(newest.ranks[0], "recurrent states") // pool.state_bytes_per_sequence
    assert snapshots <= held - 16 <= snapshots + 1


def test_states_of_a_large_batch_may_leave_no_block() -> None:
    found = planned("recurrent", device="H200-141GB", tp=4, max_batch_size=20_000, remedies=True)
    assert found.verdict.holds is False
    assert "the states of 20,000 requests take" in found.verdict.summary
    assert any(remedy.startswith("--max-batch-size ") for remedy in found.verdict.remedies)


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        ({"backend": "triton"}, "not one of pytorch, tensorrt"),
        ({"free_gpu_memory_fraction": 1.0}, "below 1"),
        ({"kv_cache_dtype": "int4"}, "not a type of TensorRT-LLM's cache"),
        ({"tp": 3}, "do not divide"),
        ({"pp": 33}, "more than the 32 layers"),
        ({"tp": 4, "ep_size": 3}, "must divide"),
        ({"dp": 2}, "no replicas"),
        ({"max_attention_window": "0,4096"}, "at least 1"),
        ({"use_kv_cache_manager_v2": True, "backend": "tensorrt"}, "PyTorch back end"),
        ({"speculative_config": '{"decoding_type": "MTP", "max_draft_len": 1}'}, "does not have"),
        ({"speculative_config": '{"decoding_type": "Lookahead", "max_draft_len": 1}'}, "decoding_type"),
        ({"speculative_config": '{"decoding_type": "Eagle3", "max_draft_len": 1}'}, "speculative_model"),
        ({"gpu_memory_utilization": 0.9}, "has no flag"),
    ],
)
def test_what_is_refused(flags: dict[str, Any], match: str) -> None:
    with pytest.raises(FlagError, match=match):
        planned(**flags)


@pytest.mark.parametrize("device", ["MI300X", "cpu:24GiB"])
def test_devices_of_other_makers_are_refused(device: str) -> None:
    with pytest.raises(FlagError, match="NVIDIA devices"):
        planned(device=device)


@pytest.mark.parametrize("version", ["0.4.0", "2.0.0", "newest"])
def test_releases_without_rules_are_refused(version: str) -> None:
    with pytest.raises(FlagError, match="tensorrt-llm"):
        planned(version=version)


budgets = st.integers(0, 200 * GIB)
versions = st.sampled_from(("0.13.0", "1.0.0", "1.2.1", "1.3.0"))
sizes = st.sampled_from((16, 32, 64, 128))
windows = st.sampled_from((None, "128,131072", "4096", "128,4096,131072"))


@given(budgets, st.integers(0, 20 * GIB), versions, sizes, windows)
def test_more_bytes_never_mean_fewer_blocks_or_a_shorter_request(
    budget: int, more: int, version: str, size: int, window: str | None
) -> None:
    asked = {"tokens_per_block": size, "max_attention_window": window, "max_batch_size": 64}
    less, better = (pools(GPT_OSS_20B, value, version, **asked) for value in (budget, budget + more))
    if [pool.window for pool in less.pools] == [pool.window for pool in better.pools]:
        for before, after in zip(less.pools, better.pools, strict=True):
            assert after.blocks >= before.blocks
    assert better.max_tokens >= less.max_tokens or len(less.pools) > 1
    assert 0 <= less.reached_len <= 131072


@given(budgets, versions, sizes, windows)
def test_pools_exceed_their_bytes_by_less_than_a_block_each(
    budget: int, version: str, size: int, window: str | None
) -> None:
    found = pools(
        GPT_OSS_20B, budget, version, tokens_per_block=size, max_attention_window=window, max_batch_size=64
    )
    slack = sum(pool.block_bytes(size) for pool in found.pools) if version < "1.3" else 0
    assert found.kv_bytes <= budget + slack
    if version == "1.3.0":
        assert found.kv_bytes <= budget


@given(budgets, budgets)
def test_ranks_agree_on_the_fewest(one: int, other: int) -> None:
    run = settings(LLAMA_3_1_8B)
    mine, theirs = agreed([fill(layers(LLAMA_3_1_8B, run), run, size) for size in (one, other)], run)
    assert (
        mine.binding.blocks
        == theirs.binding.blocks
        == fill(layers(LLAMA_3_1_8B, run), run, min(one, other)).binding.blocks
    )


requests = st.builds(
    Request, prompt=st.integers(1, 10_000), new_tokens=st.integers(0, 10_000), beams=st.integers(1, 4)
)


@given(requests, sizes, st.sampled_from((0, 128, 4096)), st.integers(1, 5000))
def test_the_guaranteed_count_fits_and_one_more_does_not(
    request_: Request, size: int, window: int, blocks: int
) -> None:
    need = blocks_to_completion(request_, tokens_per_block=size, window=window)
    count = guaranteed_requests({window: blocks}, request_, tokens_per_block=size, most=1 << 30)
    assert count * need <= blocks < (count + 1) * need


@given(requests, sizes, st.sampled_from((0, 128, 4096)))
def test_a_request_needs_less_the_more_it_holds(request_: Request, size: int, window: int) -> None:
    needs = [
        blocks_to_completion(request_, tokens_per_block=size, window=window, held=held) for held in range(40)
    ]
    assert needs == sorted(needs, reverse=True)
    assert needs[0] > 0


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(write_config(tmp_path / "dense", DENSE))
    asked = ["plan", config, "-d", "H100-80GB", "--engine", "trtllm==1.2.1", "--max_batch_size", "64"]
    flags = ["--kv_cache_free_gpu_memory_fraction", "0.8", "--tp_size", "2", "--kv-cache-dtype", "fp8"]
    assert main([*asked, *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("plan")).validate(found)
    assert found["inputs"]["engine"] == "tensorrt-llm"
    assert dict(found["inputs"]["settings"])["free_gpu_memory_fraction"] == 0.8
    assert main([*asked, "--explain"]) == 0
    page = capsys.readouterr().out
    assert "for max tokens in paged KV cache" in page
    assert max(map(len, page.splitlines())) <= 80
    assert main([*asked, "--backend", "onnx"]) == 2


def test_a_decode_steps_activation_says_its_own_tokens() -> None:
    entries = plan(checkpoint("dense"), "H100", engine="tensorrt-llm", max_batch_size=64).ranks[0].entries
    found = {entry.name: entry for entry in entries if entry.owner is Owner.ACTIVATION}
    decode, full = found["activation of a decode step"], found["activation of a full step"]
    assert (decode.evidence.formula or "").startswith("64 tokens x ")
    assert decode.bytes.expected * 8192 == full.bytes.expected * 64


@pytest.mark.parametrize("flags", [{"max_tokens": 1000}, {"max_tokens": 1000, "max_seq_len": 32768}])
def test_a_cap_on_tokens_is_no_shortfall_of_memory(flags: dict[str, Any]) -> None:
    verdict = plan(checkpoint("dense"), "H100", engine="tensorrt-llm", concurrency=4, **flags).verdict
    assert verdict.holds is False
    assert verdict.shortfall_bytes == 0
    assert "limited by --max-tokens 1000 whatever the memory" in verdict.summary


def test_a_state_type_that_is_none_names_its_flag() -> None:
    with pytest.raises(FlagError, match="--mamba-ssm-cache-dtype nonsense is not a type"):
        plan(checkpoint("recurrent"), "H100", engine="tensorrt-llm", mamba_ssm_cache_dtype="nonsense")


@pytest.mark.parametrize("flags", [{"tokens_per_block": 7}, {"max_batch_size": 1 << 40}])
def test_sizes_that_the_engine_cannot_count_are_refused(flags: dict[str, int]) -> None:
    with pytest.raises(FlagError, match=r"power of two|int32"):
        plan(checkpoint("dense"), "H100", engine="tensorrt-llm", **flags)  # type: ignore[arg-type]


def test_a_shortfall_is_of_the_asked_length_and_falls_with_memory() -> None:
    found = [
        plan(checkpoint("dense"), device, engine="tensorrt-llm", concurrency=64) for device in ("L4", "H100")
    ]
    small, large = (answer.verdict for answer in found)
    assert "to which the engine lowers 131,072" in small.summary
    assert "lowers" not in large.summary
    assert small.shortfall_bytes > large.shortfall_bytes > 0


def test_a_shortfall_counts_contexts_that_find_no_room() -> None:
    flags: dict[str, Any] = {"engine": "tensorrt-llm", "max_seq_len": 4096}
    few, many = (
        plan(checkpoint("dense"), "H100", held_contexts=count, **flags).verdict for count in (1000, 2000)
    )
    assert few.holds is many.holds is False
    assert many.shortfall_bytes - few.shortfall_bytes == 1000 * 4096 * 131072
