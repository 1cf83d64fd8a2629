"""What requests ask of llama.cpp's samplers: all of it on the host, where logits are copied to and sampled.

Source: llama.cpp tools/server (get_token_probabilities, completion_token_output), src/llama-grammar.cpp
(llama_grammar_apply_impl), common/sampling.cpp. Penalties keep a ring of tokens, which is nothing.
"""

from __future__ import annotations

from vramledger.engines.llamacpp.measure import Measured
from vramledger.engines.requests import WHOLE_VOCABULARY
from vramledger.evidence import Evidence, assumed, calculated
from vramledger.ledger import SERVING, ByteRange, Entry, Lifetime, Owner

CANDIDATE_BYTES = 12  # llama_token_data: id, logit, probability
RETURNED_BYTES = 48  # prob_info: id, probability, a std::string of 32 B
DECODED_BYTES, GRAMMAR_BYTES = 32, 24
"""A token's code points (a vector and the rest of a character), and the candidate that refers to them."""
LEAST_HEAP_BYTES = 32


def sampling_entries(measured: Measured) -> list[Entry]:
    """Host entries of log-probabilities and grammars; nothing where nothing is asked."""
    settings, vocab = measured.settings, measured.vocab
    asked, out = settings.flags.requests, []
    if asked.logprobs is not None:
        columns = vocab if asked.logprobs == WHOLE_VOCABULARY else asked.logprobs
        sorting = vocab * CANDIDATE_BYTES
        most = settings.slots * settings.context_per_sequence * columns * RETURNED_BYTES
        out.append(
            _entry(
                "log-probabilities of sampled tokens",
                ByteRange(sorting, sorting + most, sorting + most),
                calculated(
                    "llama.cpp tools/server",
                    f"{vocab:,} candidates x {CANDIDATE_BYTES} B, and up to {settings.slots} slot(s) x "
                    f"{settings.context_per_sequence:,} tokens x {columns:,} returned x {RETURNED_BYTES} B until a request ends",
                ),
            )
        )
    if asked.grammars:
        each = DECODED_BYTES + GRAMMAR_BYTES
        out.append(
            _entry(
                "candidates of a grammar",
                ByteRange(0, vocab * each, vocab * (each + LEAST_HEAP_BYTES)),
                assumed(
                    "llama.cpp src/llama-grammar.cpp, of one slot at a time; nothing while the sampled token is allowed",
                    f"{vocab:,} candidates x ({DECODED_BYTES} + {GRAMMAR_BYTES}) B and their code points",
                ),
            )
        )
    return out


def _entry(name: str, size: ByteRange, evidence: Evidence) -> Entry:
    return Entry(
        owner=Owner.WORKSPACE,
        name=name,
        lifetime=Lifetime.REQUEST,
        phases=SERVING,
        bytes=size,
        evidence=evidence,
    )
