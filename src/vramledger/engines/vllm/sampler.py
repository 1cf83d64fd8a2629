"""What sampling takes for each logit, by the path that runs.

Source: vllm v1/sample/sampler.py and ops/topk_topp_sampler.py, topk_topp_triton.py, v1/worker/gpu/sample/sampler.py, by
release; model_executor/layers/sampler.py for V0; flashinfer.sampling.top_k_top_p_sampling_from_logits.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.vllm.capability import capability
from vramledger.engines.vllm.extras import Extra, extra
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.evidence import calculated
from vramledger.hardware.catalogue import Device
from vramledger.ledger import AFTER_LOAD, Owner
from vramledger.models.model import Model

TRITON_SINCE = 17
FLASHINFER_SINCE = 21
SAMPLED_PROFILE_SINCE = 33
"""The V2 runner's dummy run is greedy before."""
USUAL_SMS = 108


class SamplerPath(Struct, frozen=True, kw_only=True):
    """Bytes of one path for each of rows x vocabulary: the logits themselves, and what filtering and drawing add.
    `has_row_buffer` is whether a row of fp32 logits stays for each program of the kernel."""

    name: str
    logits: int
    scratch: int
    formula: str
    has_row_buffer: bool = False

    @property
    def bytes_per_logit(self) -> int:
        return self.logits + self.scratch


SORT = SamplerPath(
    name="sort",
    logits=2,
    scratch=36,
    formula="fp32 copy 4 + sorted values 4 + their int64 indices 8 + the sort's own copies 20",
)
TRITON = SamplerPath(
    name="triton",
    logits=2,
    scratch=12,
    formula="fp32 copy 4 + softmax 4 + noise 4",
    has_row_buffer=True,
)
FLASHINFER = SamplerPath(
    name="flashinfer", logits=2, scratch=12, formula="fp32 copy 4 + top-k masked copy 4 + softmax 4"
)
GREEDY = SamplerPath(name="greedy", logits=2, scratch=0, formula="argmax of the logits")


def serving_path(settings: Settings, device: Device) -> SamplerPath:
    """How requests with top-k or top-p are sampled: torch's sort up to 0.16, the Triton kernel since, FlashInfer's
    sampler by default on CUDA since 0.21 and before where VLLM_USE_FLASHINFER_SAMPLER asks for it."""
    asked = settings.flags.use_flashinfer_sampler
    can = settings.v1 and device.vendor == "nvidia" and capability(device) >= 75
    if can and (settings.version.since(FLASHINFER_SINCE) if asked is None else asked):
        return FLASHINFER
    return TRITON if settings.v1 and settings.version.since(TRITON_SINCE) else SORT


def profiled_path(settings: Settings, device: Device) -> SamplerPath:
    """What the profile's dummy run takes; the V2 runner's is greedy up to 0.32."""
    if settings.v2_runner and not settings.version.since(SAMPLED_PROFILE_SINCE):
        return GREEDY
    return serving_path(settings, device)


def gathered_bytes(settings: Settings) -> int:
    """One more copy of the logits under tensor parallelism: what each rank gathered."""
    return 2 if settings.plan.tp > 1 else 0


def row_buffer(model: Model, settings: Settings, device: Device) -> tuple[int, str]:
    """The Triton kernel's lasting buffer and its formula: a row of fp32 logits for each of its programs, which are as
    many as the device has multiprocessors, and no more than the next power of two above the rows."""
    sms = device.sm_count or USUAL_SMS
    programs = min(sms, settings.max_rows)
    rows = min(1 << max(programs - 1, 0).bit_length(), sms)
    return rows * model.vocab_size * 4, f"{rows} programs x V {model.vocab_size} x 4 B"


def sampler_extras(model: Model, settings: Settings, kind: RankKind, device: Device) -> list[Extra]:
    """What a sampler keeps between steps: the Triton kernel's buffer, which the profile run makes where it samples."""
    path = serving_path(settings, device)
    if not path.has_row_buffer or not kind.is_last or model.is_pooling or device.vendor == "cpu":
        return []
    size, formula = row_buffer(model, settings, device)
    return [
        extra(
            Owner.WORKSPACE, "top-k and top-p buffer (triton)", AFTER_LOAD, size,
            calculated("vllm v1/sample/ops/topk_topp_triton.py", formula),
            charged=profiled_path(settings, device) is path,
        )
    ]  # fmt: skip
