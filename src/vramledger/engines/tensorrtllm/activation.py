"""What a step holds beside weights and cache: activations, graphs, buffers.

The PyTorch back end measures its peak with a dummy workload; the TRT back end fixes it when the engine is built. Both are
modelled here from the widths of a layer, within wide ends.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.ledger import ByteRange
from vramledger.models.mixers import DenseMlp, FullAttention, LatentAttention, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.units import KIB, MIB

MEASURED_PERCENT = (50, 100, 250)
"""Ends of what the PyTorch back end measures, in percent of the widest layer's tensors; one log prints 107."""
BUILT_PERCENT = (130, 185, 240)
"""The same for an engine's execution context, where TensorRT lays out all of a step at once: 173 for a 7B model in fp8
(0.11) and 197 for a 1.5B one (0.17), in logs that are no part of the reported start-ups."""
DEFAULT_GRAPH_BATCH = 128
# A captured graph adds 100 to 340 KiB a layer in start-up logs of other engines on the same runtime.
GRAPH_BYTES = ByteRange(20 * KIB, 250 * KIB, 340 * KIB)
ATTENTION_WORKSPACE = ByteRange(0, 100 * MIB, 400 * MIB)
RUNTIME_BUFFERS = ByteRange(8 * MIB, 43 * MIB, 400 * MIB)


SHORTER_PROMPTS = 4
"""An engine of up to 0.7 was built for batches of whole prompts: it may have been built for 512 tokens instead of the
default's 2048."""


class StepBytes(Struct, frozen=True, kw_only=True):
    """A range and the arithmetic of its middle."""

    bytes: ByteRange
    formula: str


def step_bytes(model: Model, settings: Settings, layers: range) -> tuple[StepBytes, StepBytes]:
    """Activations of a step of max_num_tokens and of one that decodes a full batch: the residual twice, and the widest
    of attention and MLP."""
    tp = settings.flags.tp_size
    ways = 1 if settings.flags.enable_attention_dp else tp
    width, what = 0, "nothing"
    for layer in model.layers[layers.start : layers.stop]:
        for mixer in layer.token_mixers:
            if isinstance(mixer, FullAttention):
                found = (2 * mixer.q_heads * mixer.head_dim + mixer.kv_elements_per_token) // ways
                if found > width:
                    width, what = found, f"attention {found}"
            elif isinstance(mixer, LatentAttention):
                heads = mixer.q_heads // ways
                found = heads * (2 * (mixer.nope_dim + mixer.rope_dim) + 2 * mixer.v_head_dim)
                if found > width:
                    width, what = found, f"latent attention {found}"
        inner = _inner(layer.channel_mixer, model.hidden_size, ways, tp)
        if inner > width:
            width, what = inner, f"MLP {inner}"
    tokens = settings.max_tokens_a_step
    each = (2 * model.hidden_size + width) * settings.element_bytes
    formula = f"(2 x {model.hidden_size} + {what}) x {settings.element_bytes} B"
    decoded = min(settings.max_batch * settings.flags.max_beam_width, tokens)
    return _step(tokens, each, formula, settings), _step(decoded, each, formula, settings)


def _step(tokens: int, each_bytes: int, formula: str, settings: Settings) -> StepBytes:
    size = tokens * each_bytes
    percent = MEASURED_PERCENT if settings.is_pytorch else BUILT_PERCENT
    scale = "" if settings.is_pytorch else f" x {percent[1] / 100:g}"
    ends = [size * end // 100 for end in percent]
    if settings.prompts_unstated:
        ends[0] //= SHORTER_PROMPTS
    return StepBytes(
        bytes=ByteRange(*ends),
        formula=f"{tokens} tokens x {formula}{scale}",
    )


def _inner(mixer: object, hidden: int, ways: int, tp: int) -> int:
    if isinstance(mixer, DenseMlp):
        return (3 if mixer.gated else 2) * mixer.intermediate // ways
    if isinstance(mixer, MixtureOfExperts):
        each = (3 if mixer.gated else 2) * mixer.intermediate // tp + hidden
        return mixer.top_k * each
    return 0


def graph_sizes(settings: Settings) -> tuple[int, ...]:
    """Batches that are captured: none in the TRT back end."""
    flags = settings.flags
    if not settings.is_pytorch or not flags.cuda_graph:
        return ()
    if flags.cuda_graph_batch_sizes is not None:
        return tuple(sorted({size for size in flags.cuda_graph_batch_sizes if size <= settings.max_batch}))
    largest = flags.cuda_graph_max_batch_size or DEFAULT_GRAPH_BATCH
    if flags.cuda_graph_enable_padding:
        sizes = [1, 2, 4, *range(8, min(largest, DEFAULT_GRAPH_BATCH) + 1, 8)]
    else:
        sizes = [*range(1, 32), 32, 64, 128]
    size = 2 * DEFAULT_GRAPH_BATCH
    while size < largest:
        sizes.append(size)
        size *= 2
    return tuple(sorted({size for size in [*sizes, largest] if size <= min(largest, settings.max_batch)}))


def graph_bytes(settings: Settings, layers: int) -> ByteRange:
    scale = len(graph_sizes(settings)) * layers
    return ByteRange(scale * GRAPH_BYTES.low, scale * GRAPH_BYTES.expected, scale * GRAPH_BYTES.high)


def estimation_tokens(settings: Settings, affordable_tokens: int) -> int:
    """Tokens of the temporary cache that the dummy workload runs in: whole context requests that fill a step."""
    size, drafted = settings.tokens_per_block, settings.drafted
    each = min(settings.max_tokens_a_step, max(settings.asked_len - 1, 1))
    count, rest = divmod(settings.max_tokens_a_step, each)
    extra = 1 + 2 * drafted
    blocks = count * -(-(each + extra) // size) + (-(-(rest + extra) // size) if rest else 0)
    if settings.version.since(1, 2):
        graphs = max(graph_sizes(settings), default=0)
        blocks = max(
            blocks,
            -(-(settings.asked_len + 1) // size) + min(settings.max_batch, graphs) - 1,
            settings.max_batch,
        )
    blocks *= settings.flags.max_beam_width
    return min(blocks * size, affordable_tokens // size * size)
