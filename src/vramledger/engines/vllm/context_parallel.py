"""Ranks that share the KV of a context: how tokens interleave, and what merging their attention takes.

Source: vllm v1/attention/ops/dcp.py (get_dcp_workspace_max_num_tokens, the direct workspaces of 0.29 and newer),
v1/attention/ops/common.py (cp_lse_ag_out_rs), config/vllm.py (block size and interleave).
"""

from __future__ import annotations

from vramledger.engines.vllm.attention_backends import latent_mixers
from vramledger.engines.vllm.attention_buffers import MLA_WORKSPACE_TOKENS
from vramledger.engines.vllm.extras import Extra
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.settings import Settings
from vramledger.errors import FlagError
from vramledger.evidence import calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import AFTER_LOAD, ByteRange, Lifetime, Owner, Phase
from vramledger.models.mixers import FullAttention
from vramledger.models.model import Model
from vramledger.units import MIB, round_up

DIRECT_SINCE = 29
_SYMMETRIC_PAGE = 2 * MIB
_ALL_TO_ALL_BY_DEFAULT = frozenset(("glm_moe_dsa",))


def check_interleave(layout: Layout, settings: Settings) -> None:
    """Raises FlagError for an interleave that does not divide the block, so that a token's rank would not be its
    block's."""
    flags = settings.flags
    size = flags.dcp_kv_cache_interleave_size or flags.cp_kv_cache_interleave_size or 1
    if settings.plan.dcp * settings.plan.pcp == 1 or size == 1:
        return
    wrong = [
        group.spec.block_size
        for group in layout.groups
        if size > group.spec.block_size or group.spec.block_size % size
    ]
    if wrong:
        raise FlagError(
            f"--cp-kv-cache-interleave-size {size} does not divide the block of {wrong[0]} tokens",
            flag="cp_kv_cache_interleave_size",
            value=size,
        )


def merged_tokens(settings: Settings) -> int:
    """Tokens whose attention the group merges in one step: those of a decode, at most the batch."""
    decode = settings.max_num_seqs * (1 + settings.num_speculative_tokens)
    captured = settings.flags.max_cudagraph_capture_size or 0
    return min(settings.max_tokens, max(decode, captured))


def context_extras(model: Model, settings: Settings, device: Device) -> tuple[Extra, ...]:
    """What sharing a context's KV takes on a rank: gathered queries and partial outputs of a step, and the symmetric
    buffers of latent attention on NVLink (0.29 and newer)."""
    dcp = settings.plan.dcp
    if dcp == 1 or not settings.v1:
        return ()
    element = settings.dtype.bits // 8
    tokens = merged_tokens(settings)
    latent = latent_mixers(model, settings)
    if latent:
        heads = latent[0].q_heads // settings.plan.tp
        output, query = latent[0].kv_lora_rank, latent[0].kv_lora_rank + latent[0].rope_dim
    else:
        found = [mixer for mixer in model.token_mixers if isinstance(mixer, FullAttention)]
        if not found:
            return ()
        widest = max(found, key=lambda mixer: mixer.q_heads * mixer.head_dim)
        heads, output, query = widest.q_heads // settings.plan.tp, widest.v_head_dim, widest.head_dim
    gathered = heads * dcp
    step = tokens * gathered * (element * (query + output) + 4 * (1 + dcp))
    out = [
        Extra(
            owner=Owner.ACTIVATION,
            name="attention merged over the context's ranks",
            bytes=ByteRange.exact(step),
            charged=False,
            phases=frozenset({Phase.DECODE}),
            lifetime=Lifetime.ITERATION,
            evidence=calculated(
                "vllm v1/attention/ops (cp_lse_ag_out_rs)",
                f"{tokens} tokens x {gathered} heads x ({element} B x (query {query} + output {output}) + log-sums of "
                f"{dcp} ranks)",
            ),
        )
    ]
    if (
        latent
        and settings.version.since(DIRECT_SINCE)
        and device.vendor == "nvidia"
        and device.link_bandwidth_bytes_per_s
    ):
        out += _direct(model, settings, heads=heads, output=output, query=query, tokens=tokens)
    return tuple(out)


def _direct(
    model: Model, settings: Settings, *, heads: int, output: int, query: int, tokens: int
) -> list[Extra]:
    """Persistent symmetric buffers: exchanged outputs (a2a), gathered queries, and gathered latents of prompts, the
    latter made with the metadata builder after the pool. Multicast decides whether the last two are there."""
    dcp, element = settings.plan.dcp, settings.dtype.bits // 8
    out = []
    asked = settings.flags.dcp_comm_backend
    if (asked or ("a2a" if model.model_type in _ALL_TO_ALL_BY_DEFAULT else "ag_rs")) == "a2a":
        size = 2 * dcp * tokens * heads * (output * element + 4)
        out.append(
            _symmetric(
                "exchanged outputs of the context's ranks", size, size,
                f"2 x {dcp} ranks x {tokens} tokens x {heads} heads x ({output} x {element} B + 4 B)", charged=True,
            )
        )  # fmt: skip
    if settings.plan.pcp == 1:
        size = tokens * dcp * heads * query * element
        out.append(
            _symmetric(
                "gathered queries of the context's ranks", 0, size,
                f"{tokens} tokens x {dcp * heads} heads x {query} x {element} B, with NVLink multicast", charged=True,
            )
        )  # fmt: skip
    size = 2 * MLA_WORKSPACE_TOKENS * query * element
    out.append(
        _symmetric(
            "gathered latents of the context's ranks", 0, size,
            f"2 x {MLA_WORKSPACE_TOKENS} tokens x {query} x {element} B, with NVLink multicast", charged=False,
        )
    )  # fmt: skip
    return out


def _symmetric(name: str, low: int, size: int, formula: str, *, charged: bool) -> Extra:
    held = round_up(size, _SYMMETRIC_PAGE)
    return Extra(
        owner=Owner.COLLECTIVES,
        name=name,
        bytes=ByteRange(round_up(low, _SYMMETRIC_PAGE), held, held),
        charged=charged,
        phases=AFTER_LOAD,
        evidence=calculated("vllm v1/attention/ops/dcp.py", formula),
    )
