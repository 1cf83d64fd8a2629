"""Continuous batching of transformers: worked figures, what holds for every model, the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from five_kinds import DENSE, checkpoint, write_config
from vramledger import Plan, plan
from vramledger.cli import main
from vramledger.engines.transformers.cache import CacheRules, cache_rules, guaranteed, size
from vramledger.engines.transformers.geometry import geometry
from vramledger.engines.transformers.options import flags_from
from vramledger.engines.transformers.sectors import SectorRules
from vramledger.engines.transformers.settings import resolve
from vramledger.engines.transformers.sizing import longest_within, requests_within, share_of, units_for
from vramledger.engines.transformers.version import parse_version
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.report.schema import schema_of
from vramledger.units import GIB

TOTAL, USED = int(79.10 * GIB), int(15.50 * GIB)
PLAIN: dict[str, Any] = {"use_async_batching": False, "max_blocks_per_request": 0}
FLASH: dict[str, Any] = {**PLAIN, "attn_implementation": "flash_attention_2"}


def rules(kind: str = "dense", version: str = "5.23.0", **flags: Any) -> CacheRules:
    model = checkpoint(kind).model
    shape = geometry(model)
    settings = resolve(model, shape, find_device("H100-80GB"), parse_version(version), flags_from(flags))
    return cache_rules(settings, shape, shape.kv_heads)


def sectors(kind: str = "dense", **flags: Any) -> SectorRules:
    found = rules(kind, **flags)
    assert isinstance(found, SectorRules)
    return found


def planned(device: str = "H100-80GB", *, version: str = "5.23.0", **flags: Any) -> Plan:
    return plan(checkpoint("dense"), device, engine=f"transformers=={version}", **flags)


def test_the_worked_example_with_flash_attention() -> None:
    found = sectors(**FLASH)
    base = share_of(TOTAL - USED, found.settings)
    assert base / GIB == pytest.approx(57.24, abs=0.005)
    assert found.fixed_bytes / GIB == pytest.approx(0.5596, abs=0.00005)
    assert found.unit_bytes == 32 << 20
    assert found.batch_bytes_per_token == 24624
    assert found.read_bytes_per_token + found.index_bytes_per_token == 4104
    solution = found.solve(base)
    assert (solution.batch_tokens, solution.units, solution.units * found.unit_tokens) == (8192, 1752, 448512)


def test_the_worked_example_with_sdpa() -> None:
    found = sectors(**PLAIN, attn_implementation="sdpa")
    base = share_of(TOTAL - USED, found.settings)
    assert found.batch_bytes_per_token == 38960
    assert found.read_bytes_per_token + found.index_bytes_per_token == 18440
    unmasked = (base - found.fixed_bytes - 8192 * found.batch_bytes_per_token) // found.cost_of_unit
    solution = found.solve(base)
    assert (unmasked, unmasked - solution.units) == (1581, 160)
    assert (solution.units, solution.units * found.unit_tokens) == (1421, 363776)


def test_the_first_release_sized_cache_and_batch_together() -> None:
    """At most 4096 blocks of 32 tokens and 256 tokens a batch; a share of what torch itself has not reserved."""
    found = planned(version="5.0.0")
    pool = found.kv_pool
    assert pool is not None
    assert (pool.num_blocks.expected, pool.tokens.expected, pool.block_size) == (4096, 131072, 32)
    assert dict(found.inputs.settings)["max_batch_tokens"] == 256
    assert found.printed[-1] == (
        "PagedAttentionCache initialized with self.num_blocks = 4096, self.block_size = 32, page_size = 1024, "
        "self.max_batch_tokens = 256 num_attention_masks = 1"
    )
    weights = found.ranks[0].weights.device_bytes.expected
    free = find_device("H100-80GB").total_bytes - weights
    assert found.budget_bytes == pytest.approx(free * 0.8, rel=1e-3)


def test_caps_from_5_6_to_5_12() -> None:
    """The last release whose blocks are capped has a larger batch than the first, and knows the driver's context."""
    first, last = (planned(version=version) for version in ("5.6.0", "5.12.0"))
    for found, batch, share in ((first, 256, 0.8), (last, 1024, 0.9)):
        assert found.kv_pool is not None
        assert found.kv_pool.num_blocks.expected <= 4096
        assert dict(found.inputs.settings)["max_batch_tokens"] == batch
        assert dict(found.inputs.settings)["max_memory_percent"] == share
        assert found.printed[0] == f"Cache memory: {found.budget_bytes}"
        assert found.printed[1].startswith("PagedAttentionCache initialized with self.num_blocks = ")
    weights = first.ranks[0].weights.device_bytes.expected
    free = find_device("H100-80GB").total_bytes - weights
    assert first.budget_bytes == pytest.approx(free * 0.8, rel=1e-3)
    assert last.budget_bytes < free * 0.9 - 0.3 * GIB


def test_what_the_library_prints() -> None:
    found = planned(attn_implementation="flash_attention_2")
    pool = found.kv_pool
    assert pool is not None
    first, second = found.printed
    assert first == f"Memory available for cache allocation: {found.budget_bytes >> 20} MB"
    sectors_there = pool.num_blocks.expected
    assert second.startswith("Paged cache initialized: self.max_batch_tokens = 8192, ")
    assert second.endswith(f"self.num_sectors = {sectors_there}, mb_per_sector = 32")
    older = planned(version="5.17.0", attn_implementation="flash_attention_2").printed[-1]
    assert older.startswith("Paged cache initialized: self.max_batch_tokens = 8192, self.num_blocks = ")


def test_the_attention_implementation_moves_the_budget() -> None:
    flash, sdpa = (planned(attn_implementation=name).kv_pool for name in ("flash_attention_2", "sdpa"))
    assert flash is not None
    assert sdpa is not None
    assert 0.17 < 1 - sdpa.tokens.expected / flash.tokens.expected < 0.21


def test_two_kinds_of_attention_share_a_sector() -> None:
    """22 sliding and 4 full layers of Gemma 3 1B: a sector has 2 blocks of the one or 11 of the other."""
    found = rules("windowed", **FLASH)
    sliding, full = found.groups
    page = 2 * 256 * 2 * 256
    assert (sliding.kind, sliding.block_bytes, sliding.blocks_per_unit) == ("sliding_attention", 22 * page, 2)
    assert (full.kind, full.block_bytes, full.blocks_per_unit) == ("full_attention", 4 * page, 11)
    assert found.unit_bytes == 44 * page
    # 10,000 tokens: two blocks for the window of 512, 40 full ones; three requests together save half a sector twice.
    assert units_for(found.groups, 10_000, 1) == 1 + 4
    assert units_for(found.groups, 10_000, 3) == 3 + 11


@pytest.mark.parametrize("kind", ["latent", "recurrent"])
def test_models_without_a_paged_cache_are_refused(kind: str) -> None:
    with pytest.raises(FlagError, match="full and sliding attention only"):
        plan(checkpoint(kind), "H100-80GB", engine="transformers")


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        ({"continuous_batching": False}, "rules here are those of continuous batching"),
        ({"attn_implementation": "flex_attention"}, "no continuous batching"),
        ({"max_memory_percent": 1.5}, "at most 1"),
        ({"block_size": 3}, "at least 4"),
        ({"quantization": "fp8"}, "bnb-4bit"),
        ({"dtype": "int8"}, "not a type the model runs in"),
        ({"tp": 3}, "3"),
        ({"pp": 2}, "no pipeline parallelism"),
        ({"ep": True}, "no expert parallelism"),
        ({"block_size": 16, "page_size": 32}, "given as 16 and as 32"),
        ({"gpu_memory_utilization": 0.9}, "has no flag"),
    ],
)
def test_what_is_refused(flags: dict[str, Any], match: str) -> None:
    with pytest.raises(FlagError, match=match):
        planned(**flags)


@pytest.mark.parametrize("version", ["4.57.0", "6.0", "newest"])
def test_releases_without_rules_are_refused(version: str) -> None:
    with pytest.raises(FlagError, match="transformers"):
        planned(version=version)


def test_a_host_serves_since_its_memory_is_asked() -> None:
    with pytest.raises(FlagError, match=r"starts with 5\.1"):
        planned("cpu:64GiB", version="5.0.0")
    found = planned("cpu:64GiB", max_length=8192)
    settings_there = dict(found.inputs.settings)
    assert settings_there["max_memory_percent"] == 0.6
    assert settings_there["use_async_batching"] is False
    assert settings_there["max_blocks_per_request"] == 0
    assert found.verdict.holds


def test_a_newer_release_is_planned_by_the_newest_rules_and_says_so() -> None:
    assert any("5.30" in text for text in planned(version="5.30.0").verdict.conditions)


def test_tensor_parallel_cuts_heads_and_keeps_embeddings() -> None:
    one, two = planned().ranks[0], planned(tp=2).ranks[0]
    sizes = [{entry.name: entry.bytes.expected for entry in rank.entries} for rank in (one, two)]
    assert sizes[1]["embedding"] == sizes[0]["embedding"]
    for name in ("attention", "mlp", "lm head"):
        assert sizes[1][name] * 2 == sizes[0][name]
    assert two.ranks == (0, 1)
    pools = [planned(tp=tp).kv_pool for tp in (1, 2)]
    assert pools[0] is not None
    assert pools[1] is not None
    assert pools[1].bytes_per_token * 2 == pools[0].bytes_per_token


def test_bitsandbytes_leaves_head_and_embedding() -> None:
    sizes = {entry.name: entry.bytes.expected for entry in planned(quantization="bnb-4bit").ranks[0].entries}
    assert sizes["lm head"] == sizes["embedding"] == 128256 * 4096 * 2
    assert sizes["mlp"] < 0.27 * 32 * 3 * 4096 * 14336 * 2


def test_a_shortage_names_bytes_and_changes_that_help() -> None:
    found = planned("custom:19GiB", remedies=True, max_length=32768)
    assert found.verdict.holds is False
    assert found.verdict.shortfall_bytes > 0
    for remedy in found.verdict.remedies:
        if remedy.startswith("--cb-max-batch-tokens "):
            batch = remedy.split()[1]
            assert planned("custom:19GiB", max_length=32768, max_batch_tokens=batch).verdict.holds
    assert any(remedy.startswith("--tp-size") for remedy in found.verdict.remedies)


def test_weights_beyond_the_device_are_told_as_such() -> None:
    found = planned("custom:12GiB")
    assert found.verdict.holds is False
    assert "leave nothing of the device free" in found.verdict.summary
    assert found.verdict.shortfall_bytes > 3 * GIB


def test_a_batch_has_a_limit_of_requests() -> None:
    found = planned(max_length=16, max_requests_per_batch=8, concurrency=9)
    assert found.verdict.holds is False
    assert "at most 8 requests" in found.verdict.summary


def test_stated_blocks_that_do_not_fit_raise_at_start() -> None:
    found = planned(num_blocks=100_000)
    assert found.verdict.holds is False
    assert "raises at start" in found.verdict.summary
    assert len(found.printed) == 1


def test_host_memory_has_the_pinned_pool() -> None:
    (_, pinned) = planned(cpu_offload_space=10.01).host
    assert pinned.bytes.expected == int(10.01 * GIB) // (32 << 20) * (32 << 20)
    assert (
        planned(cpu_offload_space=10.01).printed[-1]
        == "CPU swap pool initialized: 320 sectors (10.00 GiB pinned)"
    )


def test_every_phase_and_owner_of_the_ledger() -> None:
    (rank,) = planned(tp=2, attn_implementation="flash_attention_2").ranks
    owners = {entry.owner for entry in rank.entries}
    assert owners >= {
        Owner.WEIGHTS, Owner.KV_CACHE, Owner.ACTIVATION, Owner.WORKSPACE, Owner.RUNTIME_CONTEXT, Owner.COLLECTIVES,
        Owner.GRAPH_POOL, Owner.HEADROOM, Owner.ALLOCATOR,
    }  # fmt: skip
    assert all(rank.peak(phase).expected > 0 for phase in Phase)
    charged = sum(entry.bytes.expected for entry in rank.entries if entry.inside_budget)
    budget = planned(tp=2, attn_implementation="flash_attention_2").budget_bytes
    assert 0 <= budget - charged < sectors(attn_implementation="flash_attention_2").cost_of_unit


memory = st.integers(0, 200 * GIB)
attentions = st.sampled_from(("sdpa", "eager", "flash_attention_2", "flash_attention_3"))
versions = st.sampled_from(("5.0.0", "5.5.0", "5.6.0", "5.9.0", "5.13.0", "5.17.0", "5.18.0", "5.23.0"))
kinds = st.sampled_from(("dense", "mixture", "windowed"))


@given(memory, attentions, versions, kinds, st.sampled_from((None, 64, 1000, 8192)))
def test_what_is_found_fits_and_one_more_does_not(
    free: int, attention: str, version: str, kind: str, batch: int | None
) -> None:
    """Sectors are the most that fit, to within what the one-shot removal for masks leaves over."""
    found = rules(kind, version, attn_implementation=attention, max_batch_tokens=batch)
    solution = found.solve(share_of(free, found.settings))
    if solution.fits:
        assert found.footprint(solution.batch_tokens, solution.units) <= solution.available_bytes
        extra = sum(item.bytes for item in found.reserves(solution.batch_tokens, solution.units))
        assert extra + solution.units * found.unit_bytes <= solution.available_bytes
    if version in ("5.18.0", "5.23.0") and found.masks == 0:
        assert found.footprint(solution.batch_tokens, solution.units + 1) > solution.available_bytes


@given(memory, st.integers(0, 50 * GIB), attentions, kinds)
def test_more_memory_never_means_fewer_sectors(free: int, more: int, attention: str, kind: str) -> None:
    found = rules(kind, attn_implementation=attention)
    less, better = found.solve(free), found.solve(free + more)
    assert better.units >= less.units


@given(kinds, versions, st.integers(0, 5000), st.integers(1, 100_000), st.integers(1, 64))
def test_requests_and_lengths_invert_units(
    kind: str, version: str, units: int, tokens: int, requests: int
) -> None:
    groups = rules(kind, version, **FLASH).groups
    count = requests_within(groups, tokens, units)
    assert units_for(groups, tokens, count) <= units < units_for(groups, tokens, count + 1)
    longest = longest_within(groups, units, 1 << 20)
    assert longest == 0 or units_for(groups, longest, 1) <= units
    assert longest == 1 << 20 or units_for(groups, longest + 1, 1) > units
    assert units_for(groups, tokens, requests + 1) >= units_for(groups, tokens, requests)


@given(memory, versions)
def test_the_guaranteed_count_never_exceeds_the_ratio(free: int, version: str) -> None:
    found = rules("windowed", version, **FLASH)
    sized = size(found, found.settings, ByteRange.exact(free))
    count = guaranteed(sized, found.settings, sized.units.expected)
    share = sum(group.blocks(found.settings.context_len) / group.blocks_per_unit for group in found.groups)
    assert count <= sized.units.expected / share + 1e-9


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(write_config(tmp_path / "dense", DENSE))
    asked = ["plan", config, "-d", "H100-80GB", "--engine", "transformers", "--continuous-batching"]
    flags = [
        "--cb-block-size",
        "32",
        "--cb-num-blocks",
        "2048",
        "--cb-max-batch-tokens",
        "4096",
        "--max-length",
        "8K",
    ]
    assert main([*asked, *flags, "--cb-max-memory-percent", "0.7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("plan")).validate(found)
    assert found["kv_pool"]["tokens"]["expected"] == 2048 * 32
    assert found["inputs"]["engine"] == "transformers"
    assert main([*asked, "--explain"]) == 0
    page = capsys.readouterr().out
    assert "Paged cache initialized" in page
    assert max(map(len, page.splitlines())) <= 80
    assert main([*asked, "--max-model-len", "8K"]) == 2


@pytest.mark.parametrize("version", ["5.5.0", "5.17.0"])
def test_nothing_left_for_a_batch_is_a_refusal_and_no_negative_entry(version: str) -> None:
    answer = planned("custom:18GiB", version=version, num_blocks=4096, max_length=32768)
    assert answer.verdict.holds is False
    assert "a batch of 1 token need" in answer.verdict.summary
    assert all(entry.bytes.low >= 0 for entry in answer.ranks[0].entries)


@pytest.mark.parametrize(("version", "flags"), [("5.23.0", {"num_blocks": 1}), ("5.0.0", {})])
def test_a_cap_on_blocks_is_no_shortfall_of_memory(version: str, flags: dict[str, Any]) -> None:
    answer = plan(checkpoint("dense"), "H200", engine=f"transformers=={version}", concurrency=64, **flags)
    assert answer.verdict.holds is False
    assert answer.verdict.shortfall_bytes == 0
    assert "whatever the memory" in answer.verdict.summary


def test_many_requests_hold_at_a_length_that_is_named() -> None:
    answer = plan(checkpoint("dense"), "H100", engine="transformers", concurrency=40, remedies=True)
    length = next(text.split()[1] for text in answer.verdict.remedies if text.startswith("--max-length"))
    again = plan(checkpoint("dense"), "H100", engine="transformers", concurrency=40, max_length=length)
    assert again.verdict.holds


def test_sizes_beyond_the_librarys_indices_are_refused_and_large_ones_shown(
    tmp_path: Path, capsys: Any
) -> None:
    model = str(write_config(tmp_path, DENSE))
    args = ["plan", model, "--device", "H100", "--engine", "transformers", "--cb-max-batch-tokens"]
    assert main([*args, "1000000000000"]) == 2
    assert "at most 2147483647" in capsys.readouterr().err
    assert main([*args, "2147483647"]) == 10
    assert "does not fit" in capsys.readouterr().out
