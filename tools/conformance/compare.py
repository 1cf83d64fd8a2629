"""Our plan of a case beside what vLLM computed, field by field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from vramledger import load_model, plan
from vramledger.answer import Plan
from vramledger.engines.vllm.kv_budget import blocks_per_request, usable_bytes
from vramledger.engines.vllm.lora import lora_bytes
from vramledger.engines.vllm.options import read_flags
from vramledger.engines.vllm.planner import cache_format, kv_layout
from vramledger.engines.vllm.settings import resolve
from vramledger.engines.vllm.sharding import rank_kinds
from vramledger.engines.vllm.version import parse_version
from vramledger.engines.vllm.weights import rank_weights
from vramledger.hardware.catalogue import Device, find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import GIB

HOST = "cpu:24GiB"
# Our devices for those that can stand in for one (cuda_stand_in.py).
DEVICES = {"": HOST, "A100": "A100-80GB", "H100": "H100-80GB", "B200": "B200"}

# Our words for vLLM's spec classes.
KINDS = {
    "FullAttentionSpec": "full_attention",
    "SlidingWindowSpec": "sliding_window",
    "ChunkedLocalAttentionSpec": "chunked_local",
    "MLAAttentionSpec": "mla",
    "SlidingWindowMLASpec": "sliding_window_mla",
    "CrossAttentionSpec": "cross_attention",
    "MambaSpec": "mamba",
}
# Kinds of ours that vLLM spells with the same class.
SAME_CLASS = {
    "mla_indexer": "mla",
    "compressed_mla": "mla",
    "compressor_state": "sliding_window_mla",
}


class Field(Struct, frozen=True, kw_only=True):
    """One figure of a case, ours and vLLM's."""

    name: str
    ours: str
    theirs: str

    @property
    def equal(self) -> bool:
        return self.ours == self.theirs


def compare(
    case: dict[str, Any], theirs: dict[str, Any], folder: Path, version: str, device: str = ""
) -> list[Field]:
    """Every figure both sides give. Raises VramledgerError where our rules refuse the case."""
    checkpoint = load_model(folder, headers=False)
    values = {**case["args"], "tp": case.get("tp", 1), "pp": case.get("pp", 1)}
    target = find_device(DEVICES[device])
    if "slots" in theirs:
        return _slots(checkpoint, values, theirs["slots"], version, target)
    out = [*_weights(checkpoint, values, theirs["weights"], version, target)]
    if case.get("stated", True):
        values["kv_cache_memory_bytes"] = case.get("pool_bytes") or case["kv_memory_bytes"]
    found = plan(checkpoint, target, engine=f"vllm=={version}", **values)
    shown = dict(found.inputs.settings)
    for name in ("max_num_batched_tokens", "max_num_seqs", "enable_prefix_caching"):
        if name in theirs["settings"]:
            out.append(Field(name=name, ours=str(shown[name]), theirs=str(theirs["settings"][name])))
    if "refused" in theirs:
        return [*out, *_refusal(checkpoint, values, found, theirs["refused"], version, target)]
    return [*out, *_pool(found, theirs, checkpoint, values, version, target)]


def _slots(
    checkpoint: Checkpoint,
    values: dict[str, Any],
    stages: list[list[list[Any]]],
    version: str,
    device: Device,
) -> list[Field]:
    """Bytes of the adapters' slots of one rank of each pipeline stage, by kind of module."""
    parallel, flags = read_flags(values)
    settings = resolve(checkpoint.model, device, parse_version(version), parallel, flags)
    kinds = {
        kind.stage: kind for kind in reversed(rank_kinds(checkpoint.model, parallel, flags, settings.version))
    }
    out = []
    for stage, modules in enumerate(stages):
        ours = lora_bytes(checkpoint.model, kinds[stage], settings)
        label = f" of stage {stage}" if len(stages) > 1 else ""
        for name, held, wrappers in (
            ("slots of experts", ours.experts, ("FusedMoE",)),
            ("slots of embedding and head", ours.vocabulary, ("VocabParallel", "LogitsProcessor")),
            ("slots of linears", ours.linears, ("",)),
        ):
            mine = [row for row in modules if row[1].startswith(wrappers)]
            modules = [row for row in modules if row not in mine]  # noqa: PLW2901 - the rest is for the next kind
            total = sum(count * size for _, _, count, size in mine)
            out.append(Field(name=f"{name}{label}", ours=f"{held:,}", theirs=f"{total:,}"))
    return out


def _weights(
    checkpoint: Checkpoint,
    values: dict[str, Any],
    stages: list[dict[str, Any]],
    version: str,
    device: Device,
) -> list[Field]:
    """Tensor bytes and rope tables of one rank of each pipeline stage."""
    parallel, flags = read_flags(values)
    settings = resolve(checkpoint.model, device, parse_version(version), parallel, flags)
    kinds = {
        kind.stage: kind for kind in reversed(rank_kinds(checkpoint.model, parallel, flags, settings.version))
    }
    out = []
    for stage, held in enumerate(stages):
        ours = rank_weights(checkpoint, settings, kinds[stage], device)
        label = f" of stage {stage}" if len(stages) > 1 else ""
        total = sum(group.total for group in ours.groups.values())
        out += [
            Field(name=f"weight bytes{label}", ours=f"{total:,}", theirs=f"{held['parameters']:,}"),
            Field(name=f"rope bytes{label}", ours=f"{ours.rope_bytes:,}", theirs=f"{held['rope']:,}"),
        ]
    return out


def _pool(
    found: Plan,
    theirs: dict[str, Any],
    checkpoint: Checkpoint,
    values: dict[str, Any],
    version: str,
    device: Device,
) -> list[Field]:
    pool = found.kv_pool
    if pool is None or not theirs["groups"]:
        return [
            Field(
                name="groups",
                ours=str(0 if pool is None else len(pool.groups)),
                theirs=str(len(theirs["groups"])),
            )
        ]
    parallel, flags = read_flags(values)
    settings = resolve(checkpoint.model, device, parse_version(version), parallel, flags)
    layout = kv_layout(checkpoint, settings, device, cache_format(checkpoint, settings, device))
    kinds = {kind.stage: kind for kind in rank_kinds(checkpoint.model, parallel, flags, settings.version)}
    ours_groups = sorted(
        _words(
            {SAME_CLASS.get(m.spec.kind.value, m.spec.kind.value) for m in group.members},
            len(group.members),
            group.spec.block_size,
            {m.spec.page_bytes for m in group.members},
            next(g.blocks_per_request for g in [pool.groups[index]]),
        )
        for index, group in enumerate(layout.groups)
    )
    their_groups = sorted(
        _words(
            {KINDS.get(kind, kind) for kind in group["kind"]},
            group["layers"],
            group["block_size"],
            set(group["pages"]),
            group["blocks_per_request"],
        )
        for group in theirs["groups"]
    )
    per_block = [layout.bytes_per_block(kinds[stage].kv_layers) for stage in sorted(kinds)]
    return [
        Field(name="num_blocks", ours=f"{pool.num_blocks.expected:,}", theirs=f"{theirs['num_blocks']:,}"),
        Field(name="bytes per block", ours=str(per_block), theirs=str(theirs["bytes_per_block"])),
        Field(name="groups", ours=_counted(ours_groups), theirs=_counted(their_groups)),
        Field(name="tokens", ours=f"{pool.tokens.expected:,}", theirs=f"{theirs['tokens']:,}"),
        Field(
            name="max concurrency",
            ours=f"{pool.max_concurrency.expected:.4f}",
            theirs=f"{theirs['max_concurrency']:.4f}",
        ),
        Field(name="max_model_len", ours=str(pool.context_len), theirs=str(theirs["context_len"])),
    ]


def _words(kinds: set[str], layers: int, block_size: int, pages: set[int], blocks: int) -> str:
    sizes = "+".join(map(str, sorted(pages)))
    return f"{'+'.join(sorted(kinds))} {layers} layers, block {block_size}, page {sizes}, {blocks} a request"


def _counted(groups: list[str]) -> str:
    return "; ".join(f"{groups.count(text)} x {text}" for text in dict.fromkeys(groups))


_NEEDED = re.compile(r"max seq len \((\d+)\), \(([\d.]+) GiB KV cache is needed.*?memory \(([\d.]+) GiB\)")
_ESTIMATED = re.compile(r"estimated maximum model length is (\d+)")


def _refusal(
    checkpoint: Checkpoint,
    values: dict[str, Any],
    found: Plan,
    message: str,
    version: str,
    device: Device,
) -> list[Field]:
    """The start-up error's figures: needed, available, the longest length it offers."""
    pool = found.kv_pool
    needed, estimated = _NEEDED.search(message), _ESTIMATED.search(message)
    holds = Field(name="refused", ours=str(found.verdict.holds is False), theirs="True")
    if pool is None or needed is None:  # not even one token, which has a sentence without figures
        return [holds]
    parallel, flags = read_flags(values)
    settings = resolve(checkpoint.model, device, parse_version(version), parallel, flags)
    layout = kv_layout(checkpoint, settings, device, cache_format(checkpoint, settings, device))
    blocks = blocks_per_request(layout, settings.context_len, settings)
    stated = values.get("kv_cache_memory_bytes")
    kinds = rank_kinds(checkpoint.model, parallel, flags, settings.version)
    # The first stage that is short speaks, whichever is shortest.
    for kind in sorted(kinds, key=lambda kind: kind.stage):
        per_block = layout.bytes_per_block(kind.kv_layers)
        held = pool.num_blocks.expected * per_block if stated is None else stated
        need, left = per_block * blocks, usable_bytes(held, per_block, settings)
        if need > left:
            break
    estimate = Field(
        name="estimated length",
        ours=str(pool.longest_context.expected),
        theirs=estimated.group(1) if estimated else "0",
    )
    return [
        holds,
        Field(name="needed GiB", ours=_gib(need), theirs=needed.group(2)),
        Field(name="available GiB", ours=_gib(left), theirs=needed.group(3)),
        *([estimate] if parallel.pp == 1 else []),
    ]


def _gib(size: int) -> str:
    return f"{round(size / GIB, 2)}"


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
