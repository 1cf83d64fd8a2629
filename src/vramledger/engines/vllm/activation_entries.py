"""The activation peak as entries: what binds, and the workspaces within it by name.

The sums are the peak's own, so that a workspace that is switched shows its bytes where they count and nowhere else.
"""

from __future__ import annotations

from vramledger.engines.entry import entry
from vramledger.engines.vllm.activation import ActivationPeak, spread
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import Evidence, calculated
from vramledger.ledger import ByteRange, Entry, Lifetime, Owner, Phase

PREFILL = frozenset({Phase.WARMUP, Phase.PREFILL, Phase.RECOVERY})
DECODE = frozenset({Phase.DECODE})
SOURCE = "vllm profile_run; a model of its peak, within 0.92 to 1.15 of the logs that print it"
_SOURCES = {
    "unpacked matrix": "vllm layers/quantization: the largest matrix unpacked for its product",
    "Marlin's partial sums": "vllm csrc/quantization/gptq_marlin/gptq_marlin.cu, one product's fp32 sums",
    "expert routing": "vllm fused_moe/moe_align_block_size.py, router logits and ids",
    "experts' kernels": "vllm fused_moe/modular_kernel.py",
    "tokens of other ranks": "vllm distributed/device_communicators/all2all.py, gathered for the experts",
    "MLA up-projection": "vllm layers/attention/mla_attention.py, chunked prefill",
    "LoRA products": "vllm lora/punica_wrapper/punica_gpu.py add_lora_linear, fp32",
    "LoRA products of experts": "vllm lora/ops/triton_ops/fused_moe_lora_op.py, moe_lora_align_block_size",
    "index logits": "vllm model_executor/layers/sparse_attn_indexer.py",
}


def activation_entries(settings: Settings, activation: ActivationPeak) -> list[Entry]:
    """The peak of a prefill and of a decode step. A decode step is the sampler's, or a forward of as many rows."""
    binding, path = activation.binding, activation.sampler
    rest = spread(activation.peak_bytes)
    out: list[Entry] = []
    apart: list[str] = []
    if binding == "forward":
        for name, size in activation.transient:
            part = spread(size)
            rest = _less(rest, part)
            apart.append(name)
            out.append(_workspace(name, PREFILL, part, calculated(_SOURCES[name], f"{size} B")))
    forward = activation.forward_bytes * settings.max_rows // max(settings.max_tokens, 1)
    decode = spread(max(forward, activation.sampler_bytes))
    phases: frozenset[Phase] = PREFILL if binding == "sampler" else frozenset()
    if activation.sampler_bytes >= forward:
        phases |= DECODE
    if phases and activation.scratch_bytes:
        part = spread(activation.scratch_bytes)
        name = f"top-k and top-p scratch ({path.name})"
        formula = f"{path.formula}: {path.scratch} B x R x V"
        out.append(
            _workspace(name, phases, part, calculated("vllm v1/sample/ops/topk_topp_sampler.py", formula))
        )
        if phases >= PREFILL:
            rest = _less(rest, part)
            apart.append(name)
        decode = _less(decode, part) if phases >= DECODE else decode
    out.append(
        entry(
            Owner.ACTIVATION, f"activation peak ({binding})", PREFILL, rest,
            calculated(SOURCE, _formula(activation, apart)), lifetime=Lifetime.ITERATION,
        )
    )  # fmt: skip
    out.append(
        entry(
            Owner.ACTIVATION, "activation of a decode step", DECODE, decode,
            calculated(SOURCE, f"max(forward of {settings.max_rows} rows, sampler)"), lifetime=Lifetime.ITERATION,
        )
    )  # fmt: skip
    return out


def _formula(activation: ActivationPeak, apart: list[str]) -> str:
    """The peak's, and which of its terms have entries of their own."""
    return activation.formula + (f"; on lines of their own: {', '.join(apart)}" if apart else "")


def _less(whole: ByteRange, part: ByteRange) -> ByteRange:
    """End by end: the part varies with the whole."""
    return ByteRange(whole.low - part.low, whole.expected - part.expected, whole.high - part.high)


def _workspace(name: str, phases: frozenset[Phase], size: ByteRange, evidence: Evidence) -> Entry:
    return entry(Owner.WORKSPACE, name, phases, size, evidence, lifetime=Lifetime.ITERATION)
