"""The ledger of one kind of rank, and what the instance keeps in host memory."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.engines.entry import entry as _entry
from vramledger.engines.held_weights import HeldWeights
from vramledger.engines.tensorrtllm.activation import ATTENTION_WORKSPACE, graph_sizes
from vramledger.engines.tensorrtllm.budget import SLACK, RankTerms
from vramledger.engines.tensorrtllm.pools import RankPools, WindowPool, stranded_blocks, window_blocks
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.evidence import assumed, calculated, reported
from vramledger.ledger import AFTER_LOAD, ALL_PHASES, ByteRange, Entry, Lifetime, Owner, Phase
from vramledger.models.model import Model
from vramledger.units import GIB

_BATCH = frozenset({Phase.WARMUP, Phase.PREFILL, Phase.RECOVERY})
_DECODE = frozenset({Phase.DECODE})


def rank_entries(
    model: Model, settings: Settings, terms: RankTerms, ends: tuple[RankPools, RankPools, RankPools]
) -> tuple[Entry, ...]:
    """Every entry of one kind of rank; `ends` are its pools at the low, the expected and the high end."""
    out = _weights(settings, terms)
    out += _pools(settings, ends)
    out += _step(model, settings, terms)
    out += _around(settings, terms)
    return tuple(entry for entry in out if entry.bytes.high)


def _weights(settings: Settings, terms: RankTerms) -> list[Entry]:
    flags = settings.flags
    source = f"tensorrt-llm {settings.version}, tp {flags.tp_size} pp {flags.pp_size} ep {flags.ep}"
    out = [
        _entry(
            Owner.WEIGHTS,
            group.name,
            ALL_PHASES,
            group.bytes,
            calculated(source, group.formula),
            inside=False,
        )
        for group in terms.weights.groups
    ]
    out.append(
        _entry(
            Owner.WEIGHTS, "rearranged up-projections of latents", ALL_PHASES, terms.absorbed_bytes,
            calculated(source, "kept beside the projections they are made of"), inside=False,
        )
    )  # fmt: skip
    if terms.draft is not None:
        out.append(
            _entry(
                Owner.WEIGHTS, "draft model", ALL_PHASES, terms.draft.total_bytes,
                calculated(source, _parts(terms.draft)), inside=False,
            )
        )  # fmt: skip
    out.append(
        _entry(
            Owner.ADAPTERS, "LoRA cache", AFTER_LOAD, terms.adapters,
            calculated(
                "tensorrt-llm PeftCacheConfig.device_cache_percent",
                f"{settings.flags.lora_device_cache_percent:g} of what is free after loading",
            ),
            inside=False,
        )
    )  # fmt: skip
    return out


def _parts(weights: HeldWeights) -> str:
    return " + ".join(f"{group.name} {group.bytes} B" for group in weights.groups)


def _pools(settings: Settings, ends: tuple[RankPools, RankPools, RankPools]) -> list[Entry]:
    low, middle, high = ends
    source = f"tensorrt-llm {settings.version} KV cache manager"
    size = settings.tokens_per_block
    out = []
    for position, pool in enumerate(middle.pools):
        alone = len(middle.pools) == 1
        name = "KV pool" if alone else f"KV pool of window {pool.window}"
        at = [item.pools[position] if position < len(item.pools) else None for item in (low, middle, high)]
        idle = [_stranded(settings, item, found) for item, found in zip((low, middle, high), at, strict=True)]
        held = [
            (found.blocks * found.block_bytes(size) if found else 0) - lost
            for found, lost in zip(at, idle, strict=True)
        ]
        out.append(
            _entry(
                Owner.KV_CACHE, name, AFTER_LOAD, _sorted(held),
                calculated(
                    source,
                    f"{pool.blocks} blocks x {size} tokens x {pool.token_bytes} B ({pool.num_layers} layers)",
                ),
                is_remainder=alone and settings.flags.max_tokens is None,
            )
        )  # fmt: skip
        if any(idle):
            holding = window_blocks(pool.window, size)
            out.append(
                _entry(
                    Owner.KV_CACHE, f"stranded in the pool of window {pool.window}", AFTER_LOAD, _sorted(idle),
                    calculated(
                        source,
                        f"{pool.blocks} blocks, of which {settings.max_batch} sequences of {holding} blocks never hold "
                        f"{stranded_blocks(middle, settings, pool)}: every window gets an equal share of the bytes",
                    ),
                )
            )  # fmt: skip
    states = [item.states_bytes for item in (low, middle, high)]
    out.append(
        _entry(
            Owner.KV_CACHE, "recurrent states", AFTER_LOAD, _sorted(states),
            calculated(source, f"{middle.state_slots} states x {middle.state_bytes} B"),
        )
    )  # fmt: skip
    return out


def _stranded(settings: Settings, pools: RankPools, pool: WindowPool | None) -> int:
    if pool is None:
        return 0
    return stranded_blocks(pools, settings, pool) * pool.block_bytes(pools.tokens_per_block)


def _step(model: Model, settings: Settings, terms: RankTerms) -> list[Entry]:
    rows = settings.max_batch * settings.flags.max_beam_width
    logits = rows * model.vocab_size * 4
    width = "a model of the widest layer's tensors, within 0.5 to 2.5 of its middle"
    wide = assumed(width, terms.step.formula)
    sampler = _entry(
        Owner.ACTIVATION, "logits of a full batch", _DECODE, ByteRange(0, logits, 2 * logits),
        calculated(
            "float32 rows of every sequence in a step, sampled from a copy at most",
            f"{rows} rows x {model.vocab_size} x 4 B",
        ),
        lifetime=Lifetime.ITERATION, inside=False,
    )  # fmt: skip
    if not settings.is_pytorch:
        return [
            _entry(
                Owner.WORKSPACE, "execution context", AFTER_LOAD, terms.step.bytes,
                reported("1.73 and 1.97 times the widest layer's tensors in 2 logs", terms.step.formula), inside=False,
            ),
            _entry(
                Owner.WORKSPACE, "runtime buffers", AFTER_LOAD, terms.runtime_buffers,
                reported("43 MiB for a 7B model in the engine's documentation; grows with batch and length"), inside=False,
            ),
            _entry(
                Owner.WORKSPACE, "decoder buffers", AFTER_LOAD, terms.decoder_bytes,
                assumed("two 4-byte rows of the vocabulary a sequence, and its tokens"), inside=False,
            ),
            _entry(
                Owner.WORKSPACE, "attention workspace, on first use", AFTER_LOAD, ATTENTION_WORKSPACE,
                reported("about 100 MB in the engine's documentation"), inside=False,
            ),
        ]  # fmt: skip
    sizes = graph_sizes(settings)
    counted = f"{len(sizes)} graphs up to a batch of {sizes[-1]}" if sizes else "none"
    return [
        _entry(
            Owner.ACTIVATION, "activation of a full step", _BATCH, terms.step.bytes, wide, lifetime=Lifetime.ITERATION,
            inside=False,
        ),
        _entry(
            Owner.ACTIVATION, "activation of a decode step", _DECODE, terms.decode_step.bytes,
            assumed(width, terms.decode_step.formula), lifetime=Lifetime.ITERATION, inside=False,
        ),
        sampler,
        _entry(
            Owner.GRAPH_POOL, "CUDA graphs, captured after the pool is made", AFTER_LOAD, terms.graphs,
            assumed("100 to 340 KiB a graph and layer in other engines' logs", counted), inside=False,
        ),
        _entry(
            Owner.WORKSPACE, "attention workspace", AFTER_LOAD, ATTENTION_WORKSPACE,
            reported("grown in steps at run time: 'Attention workspace size is not enough'"), inside=False,
        ),
    ]  # fmt: skip


def _around(settings: Settings, terms: RankTerms) -> list[Entry]:
    air = terms.available.expected - int(terms.available.expected * settings.fraction)
    out = [
        _entry(
            Owner.RUNTIME_CONTEXT, "driver context and libraries", ALL_PHASES, terms.context.bytes,
            assumed(terms.context.source), inside=False,
        ),
        _entry(
            Owner.ALLOCATOR, "beside the weights", ALL_PHASES, SLACK,
            assumed("rests of the allocator's segments, an engine's own alignment"), inside=False,
        ),
        _entry(
            Owner.HEADROOM, "above free_gpu_memory_fraction", frozenset(), air,
            calculated(
                "free_gpu_memory_fraction",
                f"{terms.available.expected} B left x (1 - {settings.fraction:g}); graphs and sampling live in it",
            ),
            inside=False,
        ),
    ]  # fmt: skip
    if terms.communicators is not None:
        out.append(
            _entry(
                Owner.COLLECTIVES, "communicators and all-reduce buffers", ALL_PHASES, terms.communicators.bytes,
                assumed(terms.communicators.source), inside=False,
            )
        )  # fmt: skip
    return out


def host_entries(settings: Settings, pools: Sequence[tuple[int, RankPools]]) -> tuple[Entry, ...]:
    """What all ranks keep in host memory; `pools` are the pools of each kind with how many ranks are of it."""
    ranks = sum(count for count, _ in pools)
    offloaded = sum(count * item.host_bytes for count, item in pools)
    blocks = max(sum(pool.host_blocks for pool in item.pools) for _, item in pools)
    out = [
        _entry(
            Owner.RUNTIME_CONTEXT, "Python, torch and libraries", ALL_PHASES,
            ByteRange(2 * ranks * GIB, 3 * ranks * GIB, 6 * ranks * GIB),
            assumed("a worker with CUDA libraries: 2 to 6 GiB resident"),
        ),
        _entry(
            Owner.KV_CACHE, "secondary pool (pinned)", AFTER_LOAD, offloaded,
            calculated("tensorrt-llm KvCacheConfig.host_cache_size", f"{ranks} ranks x {blocks} whole blocks"),
        ),
    ]  # fmt: skip
    if settings.flags.enable_lora:
        out.append(
            _entry(
                Owner.ADAPTERS, "LoRA cache", AFTER_LOAD, ranks * settings.flags.lora_host_cache_size,
                calculated("tensorrt-llm PeftCacheConfig.host_cache_size", f"{ranks} ranks"),
            )
        )  # fmt: skip
    return tuple(entry for entry in out if entry.bytes.high)


def _sorted(sizes: Sequence[int]) -> ByteRange:
    return ByteRange(*sorted(sizes))
