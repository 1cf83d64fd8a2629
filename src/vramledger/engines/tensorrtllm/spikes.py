"""What requests ask for beside tokens: logits of prompts, log-probabilities, penalties, grammars, beams.

Source: tensorrt_llm/_torch/pyexecutor/llm_request.py (LogitsStorage), model_engine.py (cache_indirection_attention),
guided_decoder.py, sampler/penalties.py, sampler/beam_search.py, sampler/logprobs.py; executor/result.py
(compute_logprobs), of 1.0 to the newest main. The dummy workload that sizes the pool asks for none of it.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.engines.logits import bitmask_bytes, top_entries_bytes
from vramledger.engines.requests import NO_REQUESTS, WHOLE_VOCABULARY
from vramledger.engines.spikes import BEYOND
from vramledger.engines.tensorrtllm.budget import RankTerms
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.errors import FlagError
from vramledger.evidence import Evidence, assumed, calculated
from vramledger.ledger import SERVING, ByteRange, Entry, Lifetime, Owner, Phase
from vramledger.models.model import Model

PREFILL = frozenset({Phase.PREFILL, Phase.RECOVERY})
DECODE = frozenset({Phase.DECODE})
LOGPROBS, PENALTIES, GRAMMARS = "log-probabilities of sampled tokens", "penalty counts", "grammar bitmask"
ASKED_FOR = (LOGPROBS, PENALTIES, GRAMMARS)
SIZED_WITHOUT = "that the pool is sized without"
TORCH_PENALTIES_SINCE = (1, 3)


def check_requests(settings: Settings) -> None:
    """Raises FlagError for what the flags leave no room for."""
    flags = settings.flags
    asked = flags.requests
    if asked.beams > flags.max_beam_width:
        raise FlagError(
            f"--beams is {asked.beams}; tensorrt-llm takes at most --max-beam-width {flags.max_beam_width} of a request",
            flag="beams",
            value=asked.beams,
        )
    if asked.held_contexts and not flags.enable_block_reuse:
        raise FlagError(
            "--held-contexts: without block reuse tensorrt-llm frees a context with its request; "
            "leave out --no-enable-block-reuse",
            flag="held_contexts",
            value=asked.held_contexts,
        )


def request_entries(model: Model, settings: Settings, terms: RankTerms) -> tuple[Entry, ...]:
    """What the ranks that make logits hold for what is asked; nothing where nothing is."""
    if settings.flags.requests == NO_REQUESTS or not terms.kind.stage.is_last or model.is_pooling:
        return ()
    found = (
        _prompt(model, settings, terms),
        _sampled(model, settings),
        _penalties(model, settings),
        _bitmask(model, settings, ranks=1),
    )
    return tuple(entry for entry in found if entry is not None and entry.bytes.high)


def request_host_entries(model: Model, settings: Settings) -> tuple[Entry, ...]:
    """What the host keeps for the same requests: logits of prompts in the TRT back end, and mirrors of bitmasks."""
    asked, out = settings.flags.requests, []
    mask = _bitmask(model, settings, ranks=settings.flags.tp_size)
    if mask is not None:
        out.append(mask)
    if asked.prompt_logprobs is not None and not settings.is_pytorch:
        tokens = _prompt_tokens(settings)
        out.append(
            _entry(
                Owner.WORKSPACE, "logits of a prompt (pinned)", PREFILL, ByteRange.exact(tokens * model.vocab_size * 4),
                calculated(
                    "tensorrt-llm cpp/tensorrt_llm/batch_manager: context logits of a request lie on the host",
                    f"{tokens} tokens x V {model.vocab_size} x 4 B",
                ),
            )
        )  # fmt: skip
    return tuple(replace(entry, inside_budget=True) for entry in out)


def _entry(
    owner: Owner,
    name: str,
    phases: frozenset[Phase],
    size: ByteRange,
    evidence: Evidence,
    *,
    kept: bool = False,
) -> Entry:
    return Entry(
        owner=owner,
        name=name,
        lifetime=Lifetime.WORKER if kept else Lifetime.ITERATION,
        phases=phases,
        bytes=size,
        evidence=evidence,
        inside_budget=False,
    )  # fmt: skip


def _prompt_tokens(settings: Settings) -> int:
    """A prompt is computed in one step, unless chunked prefill is on."""
    return min(settings.max_tokens_a_step, settings.asked_len)


def _prompt(model: Model, settings: Settings, terms: RankTerms) -> Entry | None:
    """The logits of every prompt token in the model's type and in fp32, and the request's own fp32 copy of them; later
    a log-softmax of that copy. The TRT back end has a row of output for every token of a step, and copies to the host."""
    count = settings.flags.requests.prompt_logprobs
    if count is None:
        return None
    tokens, vocab, element = _prompt_tokens(settings), model.vocab_size, settings.element_bytes
    columns = vocab if count == WHOLE_VOCABULARY else count
    returned = top_entries_bytes(tokens, columns, index_bytes=8)
    hidden = tokens * model.hidden_size * element
    per_logit = element + 4 + 4
    rows = tokens
    if not settings.is_pytorch:
        per_logit, rows = 4 + 4, settings.max_tokens_a_step
    excess = max(hidden + per_logit * rows * vocab + returned - terms.step.bytes.expected, 0)
    return _entry(
        Owner.ACTIVATION, f"logits of a prompt{BEYOND}", PREFILL, ByteRange.exact(excess),
        calculated(
            "tensorrt-llm _torch/pyexecutor/llm_request.py LogitsStorage, executor/result.py compute_logprobs"
            if settings.is_pytorch
            else "tensorrt-llm cpp/tensorrt_llm/batch_manager/runtimeBuffers.cpp, an engine built with gather_context_logits",
            f"hidden states {hidden} + {per_logit} B x {rows} tokens x V {vocab} + returned {returned} - activation "
            f"{terms.step.bytes.expected}",
        ),
    )  # fmt: skip


def _rows(settings: Settings) -> int:
    return settings.max_batch * settings.flags.max_beam_width


def _sampled(model: Model, settings: Settings) -> Entry | None:
    """One more fp32 row of the vocabulary for each sequence that is sampled, and what is picked of it."""
    count = settings.flags.requests.logprobs
    if count is None:
        return None
    vocab, rows = model.vocab_size, _rows(settings) * (1 + settings.drafted)
    columns = vocab if count == WHOLE_VOCABULARY else count
    each = 4 * vocab + top_entries_bytes(1, columns, index_bytes=8)
    return _entry(
        Owner.ACTIVATION, LOGPROBS, DECODE, ByteRange(each, each * rows, each * rows),
        calculated(
            "tensorrt-llm _torch/pyexecutor/sampler/logprobs.py: log_softmax in fp32",
            f"(V {vocab} x 4 B + {columns} largest) x up to {rows} rows",
        ),
    )  # fmt: skip


def _penalties(model: Model, settings: Settings) -> Entry | None:
    """int32 counts of every token for every slot and beam, made when the first request with a penalty comes and never
    given back; a Boolean a token too where part of a prompt is not to count. The TRT back end's decoder has its own."""
    if not settings.flags.requests.penalties or not settings.is_pytorch:
        return None
    vocab, slots = model.vocab_size, settings.max_batch * settings.flags.pp_size
    counts = slots * settings.flags.max_beam_width * vocab * 4
    mask = slots * vocab
    formula = (
        f"{slots} slots x {settings.flags.max_beam_width} beams x V {vocab} x 4 B, a mask of {mask} B at most"
    )
    if not settings.version.since(*TORCH_PENALTIES_SINCE):
        return _entry(
            Owner.WORKSPACE, PENALTIES, SERVING, ByteRange(0, counts, 2 * counts),
            assumed(f"sampler of {settings.version}: read from 1.3 on, the C++ decoder's workspace before", formula),
            kept=True,
        )  # fmt: skip
    return _entry(
        Owner.WORKSPACE, PENALTIES, SERVING, ByteRange(counts, counts, counts + mask),
        calculated("tensorrt-llm _torch/pyexecutor/sampler/penalties.py PenaltyStore", formula),
        kept=True,
    )  # fmt: skip


def _bitmask(model: Model, settings: Settings, *, ranks: int) -> Entry | None:
    """A bit a token for every sequence and draft, and an int32 that says whether a row is masked; the host has it too."""
    if not settings.flags.requests.grammars:
        return None
    rows = settings.max_batch * settings.flags.pp_size * (1 + settings.drafted)
    return _entry(
        Owner.WORKSPACE, GRAMMARS, SERVING, ByteRange.exact(ranks * (bitmask_bytes(rows, model.vocab_size) + 4 * rows)),
        calculated(
            "tensorrt-llm _torch/pyexecutor/guided_decoder.py",
            f"{ranks} x {rows} rows x (ceil({model.vocab_size} / 32) + 1) x 4 B",
        ),
        kept=True,
    )  # fmt: skip
