"""CUDA graphs: which sizes are captured, and what that takes.

Source: vllm config/vllm.py (capture sizes by version), v1/worker/gpu_model_runner.py
(profile_cudagraph_memory); bytes a graph from start-up logs, see GRAPH_BYTES.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.vllm.settings import Settings
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange
from vramledger.models.model import Model
from vramledger.units import KIB

# Bytes one captured graph adds for one layer. Seven logs with an estimate (0.19 to 0.29; 0.5B to 30B models)
# give 225 to 300 KiB in six and 23 KiB in one (unified memory, where the driver's free figure drifts).
GRAPH_BYTES_PER_LAYER = ByteRange(100 * KIB, 250 * KIB, 340 * KIB)
GRAPH_OBSERVATIONS = "7 start-up logs: 225 to 300 KiB a graph and layer in six, 23 KiB in one"


class GraphPlan(Struct, frozen=True, kw_only=True):
    """Captured sizes by mode, each in `sets` variants (with adapters, without)."""

    piecewise: tuple[int, ...]
    full: tuple[int, ...]
    sets: int = 1

    @property
    def count(self) -> int:
        return (len(self.piecewise) + len(self.full)) * self.sets

    @property
    def text(self) -> str:
        """How many graphs of each mode, up to which size."""
        modes = (("piecewise", self.piecewise), ("full", self.full))
        text = " + ".join(f"{len(sizes)} {mode} graphs up to {sizes[-1]}" for mode, sizes in modes if sizes)
        return f"({text}) x {self.sets} for adapters" if text and self.sets > 1 else text


def capture_plan(settings: Settings, device: Device) -> GraphPlan:
    """Sizes a start-up captures; none with enforce_eager or on V0's successor-less CPU back end."""
    version, flags = settings.version, settings.flags
    if flags.enforce_eager or device.vendor == "cpu":
        return GraphPlan(piecewise=(), full=())
    sizes = _sizes(settings, device)
    if not settings.v1:
        return GraphPlan(piecewise=(), full=sizes)
    if not version.since(11):
        return GraphPlan(piecewise=sizes, full=())
    sets = settings.lora.graph_sets if settings.lora is not None else 1
    decode = settings.max_num_seqs * (1 + settings.num_speculative_tokens)
    return GraphPlan(piecewise=sizes, full=tuple(size for size in sizes if size <= decode), sets=sets)


def _sizes(settings: Settings, device: Device) -> tuple[int, ...]:
    version, tokens, seqs = settings.version, settings.max_tokens, settings.max_num_seqs
    limit = settings.flags.max_cudagraph_capture_size
    if not settings.v1:
        top = min(limit or 256, 256)
        eights = list(range(8, top + 1, 8))
        wanted = [1, 2, 4, *eights]
        end = next((index for index, size in enumerate(wanted) if size >= seqs), len(wanted) - 1)
        return tuple(wanted[: end + 1])
    if not version.since(10):
        top = limit if limit is not None else 512
        return tuple(size for size in [1, 2, 4, *range(8, top + 1, 8)] if size <= tokens)
    if not version.since(11, 1):
        top = limit if limit is not None else min(2 * seqs, 512)
        return tuple(size for size in [1, 2, 4, *range(8, top + 1, 8)] if size <= tokens)
    speculative = 1 + settings.num_speculative_tokens if version.since(13) else 1
    wide = device.architecture == "blackwell" or settings.model_type == "gpt_oss"
    cap = 1024 if version.since(28) and wide else 512
    top = limit if limit is not None else min(2 * seqs * speculative, cap)
    sizes = {1, 2, 4, *range(8, min(top, 248) + 1, 8), *range(256, top + 1, 16)}
    if version.since(29):
        sizes |= {size for size in (seqs, tokens) if size <= top}
    return tuple(sorted(size for size in sizes if size <= min(tokens, top)))


def graph_bytes(model: Model, settings: Settings, plan: GraphPlan) -> ByteRange:
    """What the captured graphs hold after start-up."""
    layers = max(model.num_layers // settings.plan.pp, 1)
    scale = plan.count * layers
    per = GRAPH_BYTES_PER_LAYER
    return ByteRange(scale * per.low, scale * per.expected, scale * per.high)


def estimate_is_subtracted(settings: Settings, device: Device) -> bool:
    """Whether this version takes a graph estimate from the KV budget: 0.20 and newer on CUDA, except on the
    V2 runner up to 0.28, whose estimate is 0."""
    if not settings.version.since(20) or settings.flags.enforce_eager:
        return False
    if settings.v2_runner and not settings.version.since(29):
        return False
    return device.vendor == "nvidia" or (device.vendor == "amd" and settings.version.since(26))
