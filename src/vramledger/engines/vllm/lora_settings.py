"""vLLM's LoRA flags, defaults filled in, and what a version allows of them.

Source: vllm config/lora.py (`LoRAConfig`; config.py before 0.10) and engine/arg_utils.py of 0.6 to 0.33.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from vramledger.engines.adapter_slots import smallest_allowed
from vramledger.engines.vllm.flags import LORA_RANKS, VllmFlags
from vramledger.engines.vllm.version import VllmVersion
from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType
from vramledger.units import round_up

if TYPE_CHECKING:
    from vramledger.models.adapters.adapter import Adapter

DEFAULT_RANK = 16
EXTRA_VOCAB = 256
HEAD_PADDING = 256
"""Rows that a head with adapters is padded to up to 0.11 (`lora_vocab_padding_size`)."""

RANKS_ABOVE_256_SINCE = 8
RANK_1_SINCE = (11, 1)
NO_EXTRA_VOCAB_SINCE = 12
SEPARATE_GRAPHS_SINCE = (11, 1)
_DTYPES = {"float16": DType.F16, "bfloat16": DType.BF16, "float32": DType.F32}


class LoraSettings(Struct, frozen=True, kw_only=True):
    """What the engine reserves for adapters. `slots` are adapters in one batch, `rank` that of every slot,
    `cpu_slots` adapters kept in host memory; `extra_vocab` rows a slot may add to the vocabulary.

    `graph_sets` is how often every batch size is captured: with and without adapters, or for some numbers of
    them. `targets` are the modules that get slots, None for all.
    """

    slots: int
    rank: int
    cpu_slots: int
    dtype: DType
    extra_vocab: int
    fully_sharded: bool
    graph_sets: int
    targets: tuple[str, ...] | None
    adapters: tuple[Adapter, ...]


def lora_settings(flags: VllmFlags, version: VllmVersion, dtype: DType) -> LoraSettings | None:
    """The settings, None where adapters are not enabled; adapters that are named enable them, and set the slots
    and the rank where no flag does.

    Raises FlagError for what the version's own check refuses, and for an adapter that no slot holds.
    """
    adapters = flags.adapter
    if not flags.enable_lora and not adapters:
        return None
    allowed = allowed_ranks(version)
    slots = flags.max_loras if flags.max_loras is not None else max(len(adapters), 1)
    rank = _rank(flags, adapters, allowed, version)
    cpu = flags.max_cpu_loras if flags.max_cpu_loras is not None else max(slots, len(adapters))
    if cpu < slots:
        raise FlagError(
            f"--max-cpu-loras {cpu} is below --max-loras {slots}; host memory holds every adapter that a slot does",
            flag="max_cpu_loras",
            value=cpu,
        )
    return LoraSettings(
        slots=slots,
        rank=rank,
        cpu_slots=cpu,
        dtype=dtype if flags.lora_dtype == "auto" else _DTYPES[flags.lora_dtype],
        extra_vocab=_extra_vocab(flags, version),
        fully_sharded=flags.fully_sharded_loras,
        graph_sets=_graph_sets(flags, version, slots),
        targets=flags.lora_target_modules,
        adapters=adapters,
    )


def allowed_ranks(version: VllmVersion) -> tuple[int, ...]:
    """Ranks that `--max-lora-rank` takes: 1 since 0.11.1, above 256 since 0.8."""
    least = 1 if version.since(*RANK_1_SINCE) else 8
    most = 512 if version.since(RANKS_ABOVE_256_SINCE) else 256
    return tuple(rank for rank in LORA_RANKS if least <= rank <= most)


def _rank(
    flags: VllmFlags, adapters: tuple[Adapter, ...], allowed: tuple[int, ...], version: VllmVersion
) -> int:
    needed = max((adapter.config.largest_rank for adapter in adapters), default=0)
    rank = flags.max_lora_rank
    if rank is None:
        if not adapters:
            return DEFAULT_RANK
        fitting = smallest_allowed(needed, allowed)
        if fitting is None:
            raise _too_large(adapters, allowed[-1], f"the largest --max-lora-rank of vllm {version}")
        return fitting
    if rank not in allowed:
        raise FlagError(
            f"--max-lora-rank {rank} is not one that vllm {version} takes: {', '.join(map(str, allowed))}",
            flag="max_lora_rank",
            value=rank,
        )
    if needed > rank:
        raise _too_large(adapters, rank, "--max-lora-rank")
    return rank


def _too_large(adapters: tuple[Adapter, ...], rank: int, what: str) -> FlagError:
    named = [
        f"{adapter.id} (rank {adapter.config.largest_rank})"
        for adapter in adapters
        if adapter.config.largest_rank > rank
    ]
    return FlagError(
        f"{what} is {rank}, below the rank of {', '.join(named[:8])}", flag="max_lora_rank", value=rank
    )


def _extra_vocab(flags: VllmFlags, version: VllmVersion) -> int:
    if version.since(NO_EXTRA_VOCAB_SINCE):
        return 0
    size = EXTRA_VOCAB if flags.lora_extra_vocab_size is None else flags.lora_extra_vocab_size
    allowed = (256, 512) if version.since(8) else (0, 256, 512)
    if size not in allowed:
        raise FlagError(
            f"--lora-extra-vocab-size {size} is not one of {', '.join(map(str, allowed))}",
            flag="lora_extra_vocab_size",
            value=size,
        )
    return size


def _graph_sets(flags: VllmFlags, version: VllmVersion, slots: int) -> int:
    """Captured variants of each batch size: only with adapters up to 0.11.0, then also without (the default of
    `cudagraph_specialize_lora`); with `--specialize-active-lora` one for each power of two of adapters and for
    all slots beside requests without one (lora/utils.py, get_captured_lora_counts)."""
    if not version.since(*SEPARATE_GRAPHS_SINCE):
        return 1
    if not flags.specialize_active_lora:
        return 2
    powers = (slots + 1).bit_length()
    is_power = (slots + 1) & slots == 0
    return 1 + powers + (0 if is_power else 1)


def embedding_rows(vocab: int, lora: LoraSettings) -> int:
    """Rows of an embedding's A in one slot."""
    return vocab + lora.extra_vocab


def head_rows(vocab: int, lora: LoraSettings, version: VllmVersion) -> int:
    """Rows of a head's B in one slot; padded up to 0.11."""
    if version.since(NO_EXTRA_VOCAB_SINCE):
        return vocab
    return round_up(vocab + lora.extra_vocab, HEAD_PADDING)
