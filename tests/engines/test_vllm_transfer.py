"""KV moved between instances or to the host, weights kept on the host, contexts shared by ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import DEEPSEEK_V3, GEMMA_3_27B, H100, LLAMA_3_1_8B, checkpoint, planned
from vramledger.answer import Plan
from vramledger.engines.vllm.flags import KvTransfer
from vramledger.engines.vllm.kv_connectors import CONNECTOR_NAMES, keeps_groups
from vramledger.engines.vllm.options import plan_with, read_flags
from vramledger.engines.vllm.version import parse_version
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import ByteRange, Entry, Owner
from vramledger.units import GIB, MIB, ceil_div, round_up

H200 = find_device("H200")
LLAMA_TOKEN_BYTES = 131072


def moved(version: str = "0.33.0", *, config: dict[str, Any] | None = None, **values: Any) -> Plan:
    return plan_with(checkpoint(config or LLAMA_3_1_8B), H200, version=version, values=values)


def transfer(connector: str, role: str = "kv_both", **more: Any) -> dict[str, Any]:
    return {"kv_connector": connector, "kv_role": role, **more}


def held(plan: Plan, name: str) -> Entry:
    (found,) = [entry for entry in plan.host if entry.name == name]
    return found


def staged(plan: Plan, name: str) -> Entry:
    (found,) = [entry for entry in plan.ranks[0].entries if entry.name == name]
    return found


# Connectors


def test_nixl_registers_the_pool_and_copies_it_only_over_host_memory() -> None:
    direct = moved(tp=2, kv_transfer_config=transfer("NixlConnector", "kv_producer"))
    assert not any(entry.owner is Owner.KV_CACHE for entry in direct.host)
    plain = moved(tp=2)
    assert direct.kv_pool == plain.kv_pool
    through = moved(tp=2, kv_transfer_config=transfer("NixlConnector", kv_buffer_device="cpu"))
    assert through.kv_pool is not None
    assert held(through, "copy of the KV pool (NIXL over host memory)").bytes.expected == (
        2 * through.kv_pool.bytes.expected
    )


@pytest.mark.parametrize(
    ("version", "limit"),
    [("0.9.2", "without a limit"), ("0.10.2", "120 s"), ("0.16.0", "480 s"), ("0.23.0", "30 s")],
)
def test_a_producer_holds_blocks_until_they_are_fetched(version: str, limit: str) -> None:
    plan = moved(version, kv_transfer_config=transfer("NixlConnector", "kv_producer"))
    (condition,) = [text for text in plan.verdict.conditions if "until they are fetched" in text]
    assert limit in condition
    assert "16.00 GiB a request of 131,072 tokens" in condition
    consumer = moved(version, kv_transfer_config=transfer("NixlConnector", "kv_consumer"))
    assert any("from the moment its KV is awaited" in text for text in consumer.verdict.conditions)
    assert not any("fetched" in text for text in consumer.verdict.conditions)


def test_both_sides_of_p2p_keep_buffers() -> None:
    producer = moved("0.12.0", tp=2, kv_transfer_config=transfer("P2pNcclConnector", "kv_producer"))
    consumer = moved("0.12.0", tp=2, kv_transfer_config=transfer("P2pNcclConnector", "kv_consumer"))
    sent = staged(producer, "KV copied out for sending")
    assert sent.bytes == ByteRange(0, 8192 * LLAMA_TOKEN_BYTES // 2, 8192 * LLAMA_TOKEN_BYTES // 2)
    assert not sent.inside_budget
    assert staged(consumer, "KV received before it enters the pool").bytes == ByteRange(0, 10**9, 10**9)
    for side in (producer, consumer):
        assert held(side, "pool of received KV (P2pNccl)").bytes.expected == 2 * 32 * GIB
    odd = transfer("P2pNcclConnector", kv_connector_extra_config={"mem_pool_size_gb": "5"})
    assert (
        held(moved("0.12.0", kv_transfer_config=odd), "pool of received KV (P2pNccl)").bytes.expected
        == 8 * GIB
    )


def test_v0_buffers_what_the_config_says() -> None:
    config = transfer("PyNcclConnector", "kv_producer", kv_buffer_size=3e9)
    plan = moved("0.7.3", kv_transfer_config=config)
    assert staged(plan, "KV waiting to be sent").bytes.high == 3 * 10**9
    assert not any("KV" in entry.name for entry in plan.host if entry.name != "swap space")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_offloaded_kv_is_whole_chunks_of_all_workers(ranks: int) -> None:
    plan = moved(tp=ranks, kv_offloading_size=10)
    chunk = 16 * LLAMA_TOKEN_BYTES
    assert held(plan, "offloaded KV").bytes == ByteRange.exact(10 * GIB // chunk * chunk)


def test_latents_are_offloaded_once_since_0_29() -> None:
    def size(version: str) -> str:
        plan = moved(version, config=DEEPSEEK_V3, tp=8, kv_offloading_size=8)
        return held(plan, "offloaded KV").evidence.formula

    assert "8 worker(s)" in size("0.27.1")
    assert "1 worker(s)" in size("0.33.0")


def test_a_multi_connector_is_its_children() -> None:
    children = [{"kv_connector": "NixlConnector"}, {"kv_connector": "SimpleCPUOffloadConnector"}]
    config = transfer("MultiConnector", kv_connector_extra_config={"connectors": children})
    plan = moved(kv_transfer_config=config)
    assert held(plan, "offloaded KV").bytes.expected == 8 * GIB
    assert any("until they are fetched" in text for text in plan.verdict.conditions)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"kv_role": "kv_both"}, "names no kv_connector"),
        (transfer("NixlConector"), "did you mean NixlConnector"),
        (transfer("NixlConnector", "both"), "kv_role 'both'"),
        (transfer("NixlConnector", kv_bufer_size=1), "no key 'kv_bufer_size'"),
        (transfer("NixlConnector", kv_buffer_size=-1), "kv_buffer_size -1"),
        (transfer("NixlConnector", kv_buffer_device="tape"), "kv_buffer_device 'tape'"),
        (transfer("MultiConnector"), "MultiConnector without"),
        (transfer("NixlConnector", kv_connector_extra_config=[1]), "is not an object"),
        ("[]", "JSON object"),
    ],
)
def test_a_bad_config_is_refused(value: Any, words: str) -> None:
    with pytest.raises(FlagError) as refused:
        read_flags({"kv_transfer_config": value})
    assert words in str(refused.value)


def test_a_connector_of_another_release_is_refused() -> None:
    with pytest.raises(FlagError, match=r"0\.33\.0 has no P2pNcclConnector.*0\.9 to 0\.25"):
        moved(kv_transfer_config=transfer("P2pNcclConnector"))


def test_a_connector_of_somebody_elses_is_named_unknown() -> None:
    config = transfer("OurConnector", kv_connector_module_path="ours.connector")
    plan = moved(kv_transfer_config=config)
    assert any("what OurConnector keeps" in text for text in plan.verdict.conditions)


# What 0.32.0's KVConnectorFactory.supports_hma_config answers.
GROUPS_KEPT = {
    "DecodeBenchConnector": True, "ExampleConnector": False, "ExampleHiddenStatesConnector": True,
    "FlexKVConnectorV1": False, "HF3FSKVConnector": False, "HiSparseConnector": True, "LMCacheConnectorV1": False,
    "MooncakeConnector": True, "MooncakeStoreConnector": True, "NixlConnector": True, "NixlPullConnector": True,
    "NixlPushConnector": True, "OffloadingConnector": True, "SimpleCPUOffloadConnector": True,
}  # fmt: skip


@pytest.mark.parametrize(("connector", "kept"), GROUPS_KEPT.items())
def test_groups_stay_apart_with_the_connectors_that_can(connector: str, kept: bool) -> None:
    _, flags = read_flags({"kv_transfer_config": transfer(connector)})
    assert keeps_groups(flags, parse_version("0.32.0"), 1) is kept
    assert connector in CONNECTOR_NAMES


def test_a_connector_gives_windows_full_length_blocks_before_0_23() -> None:
    values: dict[str, Any] = {"kv_transfer_config": transfer("NixlConnector"), "max_model_len": 32768}
    flat, plain = (moved("0.20.2", config=GEMMA_3_27B, **more) for more in (values, {"max_model_len": 32768}))
    assert flat.kv_pool is not None
    assert plain.kv_pool is not None
    assert len(flat.kv_pool.groups) == 1
    assert len(plain.kv_pool.groups) > 1
    newest = moved(config=GEMMA_3_27B, **values)
    assert newest.kv_pool is not None
    assert len(newest.kv_pool.groups) > 1


# Weights on the host

LAYER = 2 * (6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336 + 2 * 4096)


def test_offloading_takes_whole_parameters_until_the_budget_is_reached() -> None:
    plan, plain = moved(cpu_offload_gb=4), moved()
    whole, rest = divmod(4 * GIB, LAYER)
    order = [2 * 6144 * 4096, 2 * 4096 * 4096, 2 * 28672 * 4096, 2 * 4096 * 14336, 2 * 4096, 2 * 4096]
    taken = 0
    for size in order:
        if taken >= rest:
            break
        taken += size
    expected = whole * LAYER + taken
    assert held(plan, "offloaded weights").bytes == ByteRange.exact(expected)
    steady = [item.ranks[0].weights.device_bytes.expected for item in (plain, plan)]
    assert steady[0] - steady[1] == expected
    assert plan.kv_pool is not None
    assert plain.kv_pool is not None
    assert plan.kv_pool.bytes.expected - plain.kv_pool.bytes.expected <= expected
    assert expected - 4 * GIB < max(order)


@given(st.floats(0.1, 40), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2)))
def test_nothing_is_lost_between_device_and_host(gibibytes: float, tp: int, pp: int) -> None:
    plan = planned(checkpoint(LLAMA_3_1_8B), H100, tp=tp, pp=pp, cpu_offload_gb=gibibytes)
    plain = planned(checkpoint(LLAMA_3_1_8B), H100, tp=tp, pp=pp)
    on_host = sum(entry.bytes.expected for entry in plan.host if entry.name == "offloaded weights")

    def on_devices(of: Plan) -> int:
        return sum(rank.weights.device_bytes.expected * len(rank.ranks) for rank in of.ranks)

    assert on_devices(plain) - on_devices(plan) == on_host
    assert all(entry.bytes.low >= 0 for rank in plan.ranks for entry in rank.entries)


def test_layers_fetched_ahead_have_buffers() -> None:
    plan = moved(offload_group_size=8, offload_num_in_group=2, offload_prefetch_step=3)
    assert held(plan, "offloaded weights").bytes == ByteRange.exact(8 * LAYER)
    assert staged(plan, "layers fetched ahead").bytes == ByteRange.exact(3 * LAYER)


def test_v0_copies_a_layer_and_keeps_swap_space() -> None:
    plan = moved("0.7.3", cpu_offload_gb=1.0, tp=2)
    assert staged(plan, "a layer copied from host memory").inside_budget
    assert held(plan, "swap space").bytes == ByteRange.exact(2 * 4 * GIB)
    assert not any(entry.name == "swap space" for entry in moved("0.9.2").host)
    assert not any(entry.name == "swap space" for entry in moved("0.7.3", swap_space=0).host)


def test_only_the_named_weights_go_to_the_host() -> None:
    plan = moved(config=DEEPSEEK_V3, tp=8, cpu_offload_gb=20, cpu_offload_params="experts")
    (attention,) = [entry for entry in plan.ranks[0].entries if entry.name == "attention"]
    (experts,) = [entry for entry in plan.ranks[0].entries if entry.name == "experts"]
    assert "host memory" not in attention.evidence.formula
    assert "host memory" in experts.evidence.formula
    with pytest.raises(FlagError, match="no_such"):
        moved(cpu_offload_gb=1, cpu_offload_params="no_such")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"offload_group_size": 2, "offload_num_in_group": 3}, "--offload-num-in-group 3"),
        ({"cpu_offload_gb": float("inf")}, "--cpu-offload-gb"),
        ({"cpu_offload_gb": -1}, "--cpu-offload-gb"),
        ({"kv_offloading_size": 1e30}, "--kv-offloading-size"),
    ],
)
def test_bad_offloading_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(FlagError) as refused:
        moved(**values)
    assert words in str(refused.value)


# Contexts shared by ranks: what 0.32.0's get_dcp_local_seq_lens answers.


def interleaved_tokens(context_len: int, ranks: int, interleave: int, rank: int) -> int:
    """Tokens of a context that a rank of the group keeps: `interleave` in a row on each in turn."""
    turn = interleave * ranks
    rest = context_len % turn - rank * interleave
    return context_len // turn * interleave + min(max(rest, 0), interleave)


@pytest.mark.parametrize(
    ("tokens", "ranks", "interleave", "expected"),
    [
        (1000, 4, 1, [250, 250, 250, 250]),
        (1003, 4, 16, [256, 256, 251, 240]),
        (163840, 8, 64, [20480] * 8),
        (17, 2, 8, [9, 8]),
        (5, 8, 1, [1, 1, 1, 1, 1, 0, 0, 0]),
        (4099, 8, 16, [515, 512, 512, 512, 512, 512, 512, 512]),
    ],
)
def test_tokens_interleave_over_ranks(tokens: int, ranks: int, interleave: int, expected: list[int]) -> None:
    assert [interleaved_tokens(tokens, ranks, interleave, rank) for rank in range(ranks)] == expected


@given(
    st.integers(0, 10**6),
    st.integers(1, 16),
    st.sampled_from((1, 2, 4, 8, 16)),
    st.sampled_from((16, 32, 64)),
)
def test_an_interleave_that_divides_the_block_costs_no_block(
    tokens: int, ranks: int, interleave: int, block: int
) -> None:
    held_by = [interleaved_tokens(tokens, ranks, interleave, rank) for rank in range(ranks)]
    assert sum(held_by) == tokens
    assert ceil_div(max(held_by), block) == ceil_div(ceil_div(tokens, ranks), block)


def test_an_interleave_that_does_not_divide_the_block_is_refused() -> None:
    with pytest.raises(FlagError, match="--cp-kv-cache-interleave-size 12"):
        moved(config=DEEPSEEK_V3, tp=8, dcp=8, cp_kv_cache_interleave_size=12)


def test_sharing_a_context_multiplies_the_tokens_and_takes_buffers() -> None:
    alone = moved(config=DEEPSEEK_V3, tp=8)
    shared = moved(config=DEEPSEEK_V3, tp=8, dcp=8, dcp_comm_backend="a2a")
    assert alone.kv_pool is not None
    assert shared.kv_pool is not None
    assert 7.5 < shared.kv_pool.tokens.expected / alone.kv_pool.tokens.expected < 8
    outputs = staged(shared, "exchanged outputs of the context's ranks")
    size = 2 * 8 * 1024 * 16 * (512 * 2 + 4)
    assert outputs.bytes.expected == round_up(size, 2 * MIB)
    assert outputs.inside_budget
    queries = staged(shared, "gathered queries of the context's ranks").bytes
    assert queries == ByteRange(0, 1024 * 128 * 576 * 2, 1024 * 128 * 576 * 2)


@pytest.mark.parametrize(
    ("version", "ends"),
    [
        ("0.10.2", ["dcp_world_size 4."]),
        ("0.12.0", ["dcp_world_size 4)."]),
        ("0.20.2", []),
    ],
)
def test_old_logs_say_what_they_multiply_by(version: str, ends: list[str]) -> None:
    plan = moved(version, config=DEEPSEEK_V3, tp=8, dcp=4)
    found = [text for text in plan.printed if text.startswith("Multiplying")]
    assert [" ".join(text.split()[-2:]) for text in found] == ends


def test_connectors_are_values() -> None:
    _, flags = read_flags({"kv_transfer_config": transfer("NixlConnector", kv_rank=0, kv_parallel_size=2)})
    assert flags.kv_transfer_config == KvTransfer(connector="NixlConnector", role="kv_both")
    assert str(flags.kv_transfer_config) == "NixlConnector as kv_both"
