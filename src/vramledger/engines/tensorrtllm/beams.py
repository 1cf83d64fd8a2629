"""Tables of beams: made at start-up for every sequence of a batch at the longest length, whether or not a request asks.

Source: tensorrt_llm/_torch/pyexecutor/model_engine.py (cache_indirection_attention), sampler/beam_search.py
(BeamSearchStore). The TRT back end's are among its decoder buffers.
"""

from __future__ import annotations

from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.evidence import calculated
from vramledger.ledger import AFTER_LOAD, ByteRange, Entry, Lifetime, Owner

OWN_TOKENS_SINCE = (1, 3)
"""The sampler keeps each beam's tokens beside the two tables of which beam's cache each position is in."""


def beam_bytes(settings: Settings) -> int:
    """int32 tables of [sequences, beams, longest length] on each rank: one of the runner, two or three of the sampler."""
    width = settings.flags.max_beam_width
    if width == 1 or not settings.is_pytorch:
        return 0
    return (
        4 * width * settings.asked_len * (settings.max_batch + _sampler_tables(settings) * _slots(settings))
    )


def _sampler_tables(settings: Settings) -> int:
    return 3 if settings.version.since(*OWN_TOKENS_SINCE) else 2


def _slots(settings: Settings) -> int:
    return settings.max_batch * settings.flags.pp_size


def beam_entries(settings: Settings) -> tuple[Entry, ...]:
    """The ledger's line, none without beams."""
    size = beam_bytes(settings)
    if not size:
        return ()
    return (
        Entry(
            owner=Owner.WORKSPACE,
            name="tables of beams",
            lifetime=Lifetime.WORKER,
            phases=AFTER_LOAD,
            bytes=ByteRange.exact(size),
            evidence=calculated(
                "tensorrt-llm _torch/pyexecutor/model_engine.py, sampler/beam_search.py",
                f"({settings.max_batch} requests + {_sampler_tables(settings)} x {_slots(settings)} slots) x "
                f"{settings.flags.max_beam_width} beams x {settings.asked_len} tokens x 4 B",
            ),
            inside_budget=False,
        ),
    )
