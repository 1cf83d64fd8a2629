"""What a vLLM instance keeps in host memory: files while they load, tables of requests, grammars.

Source: vllm v1/worker/gpu/states.py and buffer_utils.py (pinned memory that the device reads, V2 runner);
v1/worker/gpu_input_batch.py, block_table.py (V1); v1/structured_output/ (xgrammar's compiler and its cache of
VLLM_XGRAMMAR_CACHE_MB). Over all processes of the instance, as on one host.
"""

from __future__ import annotations

from vramledger.engines.checkpoint_reading import Reading
from vramledger.engines.entry import entry
from vramledger.engines.logits import bitmask_bytes, top_entries_bytes
from vramledger.engines.requests import WHOLE_VOCABULARY
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.load_peak import host_entries
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import Evidence, EvidenceKind, calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ALL_PHASES, SERVING, ByteRange, Entry, Lifetime, Owner
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import MIB, ceil_div

GRAMMAR_BYTES = ByteRange(35_612, 96_132, 1_297_964)
GRAMMAR_SOURCE = (
    "xgrammar 0.2.8, CompiledGrammar.memory_size_bytes with a real vocabulary of 131,072 tokens: a regular expression "
    "35,612 B, an enumeration of 500 68,220 B, a flat schema 87,644 B, patterns 96,132 B, any JSON 214,424 B, 8 x 8 nested fields "
    "385,056 B, 30 tools of 6 arguments 1,297,964 B"
)
GRAMMAR_CACHE_BYTES = 512 * MIB  # VLLM_XGRAMMAR_CACHE_MB
TOKEN_KINDS_SINCE = 11


def host_memory(
    checkpoint: Checkpoint, settings: Settings, device: Device, layout: Layout, read: Reading
) -> tuple[Entry, ...]:
    """Host entries of one instance with all its replicas."""
    out = host_entries(settings, read, is_size_known=bool(checkpoint.largest_file_bytes))
    if settings.v1:
        out += _tables(settings, device, layout)
        out += _grammars(checkpoint, settings)
        out += _prompt_logprobs(checkpoint, settings)
        out += _prompt_embeds(checkpoint, settings)
    return tuple(item for item in out if item.bytes.high)


def _tables(settings: Settings, device: Device, layout: Layout) -> list[Entry]:
    """Token ids of every slot, and the V1 runner's host halves of its block tables."""
    plan, seqs = settings.plan, settings.max_num_seqs
    processes = plan.world_size * plan.dp
    ids = seqs * settings.context_len
    formula = f"{processes} workers x max_num_seqs {seqs} x max_model_len {settings.context_len} x "
    if settings.v2_runner and device.vendor != "cpu":
        size = ByteRange.exact(processes * ids * 4)
        return [
            entry(
                Owner.WORKSPACE, "token ids of requests (pinned)", ALL_PHASES, size,
                calculated("vllm v1/worker/gpu/states.py all_token_ids, read by the device in place", formula + "4 B"),
            )
        ]  # fmt: skip
    width = 5 if settings.version.since(TOKEN_KINDS_SINCE) else 4
    blocks = sum(ceil_div(settings.context_len, group.spec.block_size) for group in layout.groups)
    return [
        entry(
            Owner.WORKSPACE, "token ids of requests", ALL_PHASES, ByteRange(0, 0, processes * ids * width),
            calculated(
                "vllm v1/worker/gpu_input_batch.py: zeroed pages, taken as tokens are written", formula + f"{width} B"
            ),
        ),
        entry(
            Owner.WORKSPACE, "block tables (pinned)", ALL_PHASES, processes * seqs * blocks * 4,
            calculated(
                "vllm v1/worker/block_table.py", f"{processes} workers x max_num_seqs {seqs} x {blocks} blocks x 4 B"
            ),
        ),
    ]  # fmt: skip


def _grammars(checkpoint: Checkpoint, settings: Settings) -> list[Entry]:
    """The scheduler's bitmask and compiled grammars, of each replica; nothing before a request has one."""
    count, vocab = settings.flags.requests.grammars, checkpoint.model.vocab_size
    if not count:
        return []
    dp = settings.plan.dp
    rows = settings.max_num_seqs * (1 + settings.num_speculative_tokens)
    bits = bitmask_bytes(rows, vocab)
    low, expected, high = (
        dp * min(count * each, GRAMMAR_CACHE_BYTES)
        for each in (GRAMMAR_BYTES.low, GRAMMAR_BYTES.expected, GRAMMAR_BYTES.high)
    )
    return [
        entry(
            Owner.WORKSPACE, "grammar bitmask of the scheduler", SERVING, dp * bits,
            calculated(
                "vllm v1/structured_output/__init__.py allocate_token_bitmask",
                f"{dp} replicas x {rows} rows x ceil({vocab} / 32) x 4 B",
            ),
        ),
        entry(
            Owner.WORKSPACE, "compiled grammars", SERVING, ByteRange(low, expected, high),
            Evidence(
                kind=EvidenceKind.MEASURED, source=GRAMMAR_SOURCE,
                formula=f"{dp} replicas x {count} grammars, at most {GRAMMAR_CACHE_BYTES} B of cache",
            ),
            lifetime=Lifetime.REQUEST,
        ),
    ]  # fmt: skip


def _prompt_logprobs(checkpoint: Checkpoint, settings: Settings) -> list[Entry]:
    """The V1 runner copies a prompt's log-probabilities to the host as it goes."""
    count = settings.flags.requests.prompt_logprobs
    if count is None or settings.v2_runner:
        return []
    columns = checkpoint.model.vocab_size if count == WHOLE_VOCABULARY else count
    rows = settings.context_len - 1
    return [
        entry(
            Owner.WORKSPACE, "log-probabilities of a prompt", SERVING, top_entries_bytes(rows, columns, index_bytes=4),
            calculated(
                "vllm v1/worker/gpu_model_runner.py LogprobsTensors.empty_cpu",
                f"{rows} prompt tokens x ({columns} + 1) x 8 B and ranks",
            ),
            lifetime=Lifetime.REQUEST,
        )
    ]  # fmt: skip


def _prompt_embeds(checkpoint: Checkpoint, settings: Settings) -> list[Entry]:
    """The V1 runner keeps a request's embeddings on the host, in the type they came in."""
    count = settings.flags.requests.prompt_embeds
    if not count or settings.v2_runner:
        return []
    elements = count * settings.context_len * checkpoint.model.hidden_size
    own = settings.dtype.bits // 8
    return [
        entry(
            Owner.WORKSPACE, "embeddings of prompts", SERVING,
            ByteRange(elements * own, elements * own, elements * max(own, 4)),
            calculated(
                "vllm v1/worker/gpu_input_batch.py req_prompt_embeds",
                f"{count} requests x {settings.context_len} tokens x {checkpoint.model.hidden_size} x {own} to 4 B",
            ),
            lifetime=Lifetime.REQUEST,
        )
    ]  # fmt: skip
