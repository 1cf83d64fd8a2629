"""What requests ask for beside tokens: log-probabilities, penalties, grammars, beams. All of it lies outside the static
part, which SGLang sizes without running a step.

Source: sglang srt/layers/logits_processor.py (logprob_processor.py since 0.5.18), sampler.py,
sampling/sampling_batch_info.py, sampling/penaltylib, constrained/, beam_search/, read from 0.2.13 to 0.5.23.
"""

from __future__ import annotations

from vramledger.engines.logits import bitmask_bytes
from vramledger.engines.requests import NO_REQUESTS, WHOLE_VOCABULARY
from vramledger.engines.sglang.budget import RankTerms, Sized
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.spikes import BEYOND
from vramledger.errors import FlagError
from vramledger.evidence import calculated
from vramledger.ledger import SERVING, ByteRange, Entry, Lifetime, Owner, Phase
from vramledger.models.model import Model

PREFILL = frozenset({Phase.PREFILL, Phase.RECOVERY})
DECODE = frozenset({Phase.DECODE})
PENALTIES, GRAMMARS, BEAMS = "penalties of requests", "grammar bitmask", "logits of beams"
ASKED_FOR = (PENALTIES, GRAMMARS, BEAMS)
SIZED_WITHOUT = "outside the static part, which is sized without it"

CHUNKS_SINCE, CHUNKED_SINCE, CHUNK_ROWS = (5, 6), (5, 18), 2048  # SGLANG_LOGPROB_CHUNK_SIZE
BORROWED_SINCE = (5, 21)  # input log-probabilities may lie in the graphs' pool while no graph runs
BEAMS_SINCE = (5, 19)
BITMASK_SINCE = (4, 5)  # xgrammar is the default; outlines before it has a Boolean a token
NORMALIZED_SINCE, NORMALIZED_UNTIL = (4, 0), (4, 7)
REPETITION_LEFT, REPETITION_BACK = (4, 0), (5, 10)


def check_requests(settings: Settings) -> None:
    """Raises FlagError for what the version or its flags have no way to do."""
    asked, version = settings.flags.requests, settings.version
    chunk = settings.flags.logprob_chunk_size
    if chunk is not None and not version.since(*CHUNKS_SINCE):
        raise FlagError(
            f"--logprob-chunk-size: sglang {version} computes a step's log-probabilities at once; 0.5.6 has chunks",
            flag="logprob_chunk_size",
            value=chunk,
        )
    if asked.beams > 1 and not version.since(*BEAMS_SINCE):
        raise FlagError(
            f"--beams is {asked.beams}; sglang {version} has no beam search, 0.5.19 does",
            flag="beams",
            value=asked.beams,
        )
    if asked.beams > 1 and settings.flags.speculative_algorithm is not None:
        raise FlagError(
            f"--beams is {asked.beams}; sglang does not select beams under speculation",
            flag="beams",
            value=asked.beams,
        )
    if asked.held_contexts and settings.flags.disable_radix_cache:
        raise FlagError(
            "--held-contexts: without a radix cache sglang frees a context with its request; "
            "leave out --disable-radix-cache",
            flag="held_contexts",
            value=asked.held_contexts,
        )


def request_entries(model: Model, settings: Settings, terms: RankTerms, sized: Sized) -> tuple[Entry, ...]:
    """What the ranks that make logits hold for what is asked; nothing where nothing is."""
    if settings.flags.requests == NO_REQUESTS or not terms.kind.is_last or model.is_pooling:
        return ()
    rows = _rows(settings, sized)
    found = (
        _prompt(model, settings, terms),
        _sampled(model, settings, terms, rows),
        _penalties(model, settings, rows),
        _bitmask(model, settings, rows),
        _beams(model, settings, rows),
    )
    return tuple(entry for entry in found if entry is not None and entry.bytes.high)


def _rows(settings: Settings, sized: Sized) -> ByteRange:
    """Requests that ask: one, the largest batch that the engine prepares for, and all that may run."""
    most = settings.chunk.decode_max_bs
    expected, high = sized.expected.max_running_requests, sized.high.max_running_requests
    return ByteRange(min(1, expected), min(most, expected), max(min(most, expected), high))


def _entry(
    owner: Owner,
    name: str,
    phases: frozenset[Phase],
    size: ByteRange,
    source: str,
    formula: str,
    *,
    kept: bool = False,
) -> Entry:
    return Entry(
        owner=owner,
        name=name,
        lifetime=Lifetime.REQUEST if kept else Lifetime.ITERATION,
        phases=phases,
        bytes=size,
        evidence=calculated(f"sglang {source}", formula),
        inside_budget=False,
    )  # fmt: skip


def _prompt(model: Model, settings: Settings, terms: RankTerms) -> Entry | None:
    """fp32 logits of every prompt token of a step or a chunk, and as many bytes again: the rows picked from them, then
    the log-softmax of those. Under DP attention with a head cut over all ranks, the rows of all groups are gathered in
    one piece."""
    count = settings.flags.requests.prompt_logprobs
    if count is None:
        return None
    flags, element, vocab = settings.flags, settings.dtype.bits // 8, model.vocab_size
    tokens = min(settings.step_tokens, settings.context_len)
    gathered = flags.attn_dp > 1 and flags.tp_size > 1 and not flags.enable_dp_lm_head
    rows = tokens if gathered else min(tokens, chunk_rows(settings) or tokens)
    per_logit = 8
    if rows < tokens and not settings.version.since(*CHUNKED_SINCE):
        per_logit += element + 4  # the chunk before stays until the next one's logits are there
    if gathered:
        per_logit = max(per_logit, 3 * element * flags.attn_dp, element * flags.attn_dp + element + 4)
    columns = vocab if count == WHOLE_VOCABULARY else count
    hidden = 2 * tokens * model.hidden_size * element
    size = hidden + per_logit * rows * vocab + 12 * rows * columns + 4 * tokens
    excess = max(size - terms.activation.prefill.expected, 0)
    borrowed = settings.version.since(*BORROWED_SINCE) and bool(settings.decode_sizes) and not gathered
    return _entry(
        Owner.ACTIVATION, f"log-probabilities of a prompt{BEYOND}", PREFILL,
        ByteRange(0 if borrowed else excess, excess, excess),
        "layers/logits_processor.py" + (", borrowing of the graphs' pool where it has room" if borrowed else ""),
        f"hidden states {hidden} + {per_logit} B x {rows} of {tokens} prompt tokens x V {vocab} + {columns} largest of "
        f"each x 12 B - activation {terms.activation.prefill.expected}",
    )  # fmt: skip


def chunk_rows(settings: Settings) -> int | None:
    """Prompt tokens whose log-probabilities are computed at once, None for all of a step."""
    given = settings.flags.logprob_chunk_size
    if given is not None:
        return given if given > 0 else None
    return CHUNK_ROWS if settings.version.since(*CHUNKED_SINCE) else None


def _sampled(model: Model, settings: Settings, terms: RankTerms, rows: ByteRange) -> Entry | None:
    """A second fp32 tensor beside logits or probabilities; 0.4.0 to 0.4.6 sort the probabilities for it (values, int64
    positions, a running sum, its difference and a mask), and before 0.4 it lasts through the softmax."""
    count = settings.flags.requests.logprobs
    if count is None:
        return None
    version, element, vocab = settings.version, settings.dtype.bits // 8, model.vocab_size
    if not version.since(*NORMALIZED_SINCE):
        per_logit = 4 + 4 + 4
    elif not version.since(*NORMALIZED_UNTIL):
        per_logit = 4 + (4 + 8) + 4 + 4 + 1
    else:
        per_logit = 4 + 4
    columns = vocab if count == WHOLE_VOCABULARY else count
    each = per_logit * vocab + 12 * columns + model.hidden_size * element
    drafts = max(settings.flags.draft_tokens, 1)
    there = terms.activation.decode.expected
    low, expected, high = (
        max(each * count * drafts - there, 0) for count in (rows.low, rows.expected, rows.high)
    )
    return _entry(
        Owner.ACTIVATION, f"log-probabilities{BEYOND}", DECODE, ByteRange(low, expected, high),
        "layers/sampler.py",
        f"R {rows.expected} to {rows.high} x {drafts} x ({per_logit} B x V {vocab} + {columns} largest x 12 B + hidden "
        f"states) - activation {there}",
    )  # fmt: skip


def _penalties(model: Model, settings: Settings, rows: ByteRange) -> Entry | None:
    """fp32 of batch x vocabulary for each kind of penalty that a request of the batch has, kept between steps, and
    where steps overlap the sums that each of two steps in flight carries."""
    if not settings.flags.requests.penalties:
        return None
    version, vocab, flags = settings.version, model.vocab_size, settings.flags
    scaling = not version.since(*REPETITION_LEFT) or version.since(*REPETITION_BACK)
    kinds = 3 if scaling else 2
    sums = 0
    if flags.overlap and version.since(3, 4):
        sums = 2 if version.since(*REPETITION_BACK) else 1
    drafts = flags.draft_tokens
    low = 4 * (1 + min(sums, 1)) * rows.low * vocab
    held = 4 * (kinds + 2 * sums + drafts)
    # A batch that others join is copied kind by kind.
    return _entry(
        Owner.WORKSPACE, PENALTIES, SERVING,
        ByteRange(low, held * rows.expected * vocab, (held + 4) * rows.high * vocab),
        "sampling/penaltylib, sampling_batch_info.py update_penalties",
        f"4 B x ({kinds} kinds + 2 steps x {sums} sums + {drafts} drafts) x R {rows.expected} to {rows.high} x V {vocab}; "
        "one kind and one request at least",
        kept=True,
    )  # fmt: skip


def _bitmask(model: Model, settings: Settings, rows: ByteRange) -> Entry | None:
    if not settings.flags.requests.grammars:
        return None
    drafts, vocab = max(settings.flags.draft_tokens, 1), model.vocab_size
    bits = settings.version.since(*BITMASK_SINCE)
    sizes = [
        bitmask_bytes(count * drafts, vocab) if bits else count * drafts * vocab
        for count in (rows.low, rows.expected, rows.high)
    ]
    return _entry(
        Owner.WORKSPACE, GRAMMARS, SERVING, ByteRange(*sizes),
        "constrained/xgrammar_backend.py" if bits else "constrained/outlines_backend.py",
        f"R {rows.expected} to {rows.high} x {drafts} rows x "
        + (f"ceil({vocab} / 32) x 4 B" if bits else f"{vocab} x 1 B"),
    )  # fmt: skip


def _beams(model: Model, settings: Settings, rows: ByteRange) -> Entry | None:
    """Raw logits of the first beam of each request, kept past sampling, and those of one request's beams with their
    log-softmax while they are chosen from."""
    width, vocab = settings.flags.requests.beams, model.vocab_size
    if width == 1:
        return None
    sizes = [
        4 * vocab * -(-count // width) + 8 * vocab * width for count in (rows.low, rows.expected, rows.high)
    ]
    return _entry(
        Owner.ACTIVATION, BEAMS, DECODE, ByteRange(*sizes),
        "beam_search/logits_capture.py, coordinator.py",
        f"4 B x R {rows.expected} to {rows.high} / {width} x V {vocab} + 8 B x {width} beams x V {vocab}",
    )  # fmt: skip
