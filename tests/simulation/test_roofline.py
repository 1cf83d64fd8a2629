"""Step times from a data sheet against hand arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramledger.errors import InputError
from vramledger.evidence import EvidenceKind
from vramledger.hardware.catalogue import find_device
from vramledger.planning import load_model, plan
from vramledger.simulation.roofline import IDEAL, roofline_step, touched_experts
from vramledger.simulation.step_model import StepModel

EXAMPLES = Path(__file__).parents[2] / "examples"


def step(model: str, device: str, *, engine: str = "vllm", **more: Any) -> tuple[StepModel, StepModel]:
    """The assumed step model, and the bound."""
    checkpoint, card = load_model(EXAMPLES / model), find_device(device)
    found = plan(checkpoint, card, engine=engine, **more)
    return (
        roofline_step(found, checkpoint, card),
        roofline_step(found, checkpoint, card, efficiency=IDEAL),
    )


def test_a_dense_model_on_one_card() -> None:
    _, bound = step("Llama-3.1-8B-Instruct", "RTX 4090", max_model_len=8192)
    # 8,030,261,248 parameters in two bytes, without the embedding of 128,256 x 4096 that is only looked up.
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    assert bound.floor_ps == round(weights / 1008e9 * 1e12)
    assert bound.kv_token_ps == round(131_072 / 1008e9 * 1e12)
    matrices = 8_030_261_248 - 2 * 128_256 * 4096
    assert bound.token_ps == round(2 * matrices / 165.2e12 * 1e12)
    # 32 heads of 128 for keys and for values, two FLOPs each, in 32 layers.
    assert bound.pair_ps_per_1024 == round(1024 * 32 * 4 * 32 * 128 / 165.2e12 * 1e12)
    assert bound.overhead_ps == 0


def test_the_bound_is_below_what_is_assumed_in_every_part() -> None:
    for model, device, tp in (("Llama-3.1-8B-Instruct", "H100", 2), ("Qwen3-30B-A3B", "H200", 1)):
        assumed, bound = step(model, device, tp=tp)
        names = ("overhead_ps", "floor_ps", "token_ps", "decode_seq_ps", "kv_token_ps", "pair_ps_per_1024")
        assert all(0 <= getattr(bound, name) < getattr(assumed, name) for name in names)
        assert assumed.evidence.kind is EvidenceKind.ASSUMED


def test_two_ranks_read_half_each_and_stages_are_passed_in_turn() -> None:
    _, one = step("Llama-3.1-8B-Instruct", "H100", engine="tensorrt-llm")
    _, two = step("Llama-3.1-8B-Instruct", "H100", engine="tensorrt-llm", tp=2)
    _, staged = step("Llama-3.1-8B-Instruct", "H100", engine="tensorrt-llm", pp=2)
    assert two.floor_ps == pytest.approx(one.floor_ps / 2, rel=0.001)
    assert two.kv_token_ps == pytest.approx(one.kv_token_ps / 2, abs=1)
    assert two.token_ps > one.token_ps / 2  # the all-reduces
    assert staged.floor_ps == pytest.approx(one.floor_ps, rel=0.001)
    assert staged.kv_token_ps == one.kv_token_ps


def test_experts_that_a_batch_touches() -> None:
    assert touched_experts(128, 8, 1) == pytest.approx(8)
    assert touched_experts(8, 2, 2) == pytest.approx(3.5)
    assert touched_experts(128, 8, 1000) == pytest.approx(128)
    _, few = step("Qwen3-30B-A3B", "H200")
    checkpoint, card = load_model(EXAMPLES / "Qwen3-30B-A3B"), find_device("H200")
    found = plan(checkpoint, card)
    one = roofline_step(found, checkpoint, card, efficiency=IDEAL, batch_seqs=1)
    # One sequence reads what is active: 3.35e9 parameters less the embedding.
    assert one.floor_ps == pytest.approx(2 * (3_353_032_704 - 311_164_928) / 4.8e12 * 1e12, rel=0.001)
    assert few.floor_ps > 5 * one.floor_ps


def test_windows_and_states_cost_by_sequence() -> None:
    _, gemma = step("gemma-3-27b-it", "H200")
    # 10 of 62 layers keep everything: 2 x 16 heads x 128 x 2 bytes each.
    assert gemma.kv_token_ps == round(10 * 2 * 16 * 128 * 2 / 4.8e12 * 1e12)
    assert gemma.decode_seq_ps > 52 * 1024 * 2 * 16 * 128 * 2 / 4.8e12 * 1e12


def test_what_the_catalogue_lacks_is_named() -> None:
    with pytest.raises(InputError, match="no memory bandwidth and no half-precision FLOPs"):
        step("Llama-3.1-8B-Instruct", "custom:80GiB")


def test_attention_of_its_own_on_every_rank_computes_whole_batches() -> None:
    """DP attention: eight batches at once, each on one rank, and their tokens meet at the same experts."""
    _, by_layer = step("DeepSeek-V3", "H200", engine="sglang", tp=8, context_length=16384)
    _, sglang = step(
        "DeepSeek-V3", "H200", engine="sglang", tp=8, dp=8, enable_dp_attention=True, context_length=16384
    )
    _, trtllm = step(
        "DeepSeek-V3", "H200", engine="tensorrt-llm", tp=8, enable_attention_dp=True, max_seq_len=16384
    )
    _, vllm = step("DeepSeek-V3", "H200", dp=8, ep=True, max_model_len=16384)
    for found in (sglang, trtllm, vllm):
        # 8 x 32 sequences touch all 256 experts, of which a rank holds an eighth; attention and the shared expert are whole.
        assert found.floor_ps > 671e9 / 8 / 4.8e12 * 1e12
        assert found.floor_ps == pytest.approx(vllm.floor_ps, rel=0.06)
        assert found.token_ps > 2 * by_layer.token_ps
    # A token goes to seven others and comes back, in each of 58 layers of experts: 7168 halves over 450 GB/s.
    exchange = 58 * 2 * 7 * 7168 * 2 / 450e9 * 1e12
    assert vllm.token_ps == pytest.approx(
        8 * (by_layer.token_ps - 61 * 4 * 7 / 8 * 7168 * 2 / 450e9 * 1e12) + exchange, rel=0.01
    )


def test_decoding_latents_computes_longer_than_it_reads() -> None:
    _, sharded = step("DeepSeek-V3", "H200", tp=8, max_model_len=16384)
    assert sharded.kv_token_ps == round(61 * 576 * 2 / 4.8e12 * 1e12)
    _, whole = step("DeepSeek-V3", "H200", dp=8, ep=True, max_model_len=16384)
    # Each of 128 heads reads 512 + 64 elements for its scores and 512 for its values.
    assert whole.kv_token_ps == round(61 * 2 * 128 * (512 + 64 + 512) / 989.4e12 * 1e12)


def test_windows_are_read_as_windows_whatever_the_engine_keeps() -> None:
    for model in ("gemma-3-27b-it", "gpt-oss-120b"):
        _, vllm = step(model, "H200")
        for engine in ("sglang", "tensorrt-llm"):
            _, other = step(model, "H200", engine=engine)
            assert other.kv_token_ps == vllm.kv_token_ps
            assert other.decode_seq_ps == pytest.approx(vllm.decode_seq_ps, rel=0.01)


def test_a_window_that_nobody_outgrows_reads_what_there_is() -> None:
    _, long = step("gemma-3-27b-it", "H200", max_model_len=8192)
    _, short = step("gemma-3-27b-it", "H200", max_model_len=1024)
    assert short.kv_token_ps == round(62 * 2 * 16 * 128 * 2 / 4.8e12 * 1e12)
    assert short.decode_seq_ps < long.decode_seq_ps / 10
    assert short.pair_ps_per_1024 == pytest.approx(6.2 * long.pair_ps_per_1024, rel=0.001)


def test_an_indexer_scores_every_token_and_attention_reads_those_it_selects(tmp_path: Path) -> None:
    config = json.loads((EXAMPLES / "DeepSeek-V3" / "config.json").read_text(encoding="utf-8"))
    sparse: dict[str, Any] = {"model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"]}
    sparse |= {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}
    (tmp_path / "config.json").write_text(json.dumps(config | sparse), encoding="utf-8")
    checkpoint, card = load_model(tmp_path), find_device("H200")
    found = roofline_step(
        plan(checkpoint, card, tp=8, max_model_len=65536), checkpoint, card, efficiency=IDEAL
    )
    # Of a cached token an index key of 128 bytes and its scale; of 2,048 of them the latent.
    assert found.kv_token_ps == round(61 * 132 / 4.8e12 * 1e12)
    assert found.decode_seq_ps > 2048 * 61 * 576 * 2 / 4.8e12 * 1e12
    assert found.pair_ps_per_1024 == round(1024 * 61 * 2 * 64 * 128 / 8 / 989.4e12 * 1e12)
