"""What a draft model adds to a rank: weights, KV layers, buffers.

Source: vllm v1/spec_decode/eagle.py and llm_base_proposer.py (`_maybe_share_embeddings`, `_maybe_share_lm_head`),
v1/worker/gpu/spec_decode (V2 runner), v1/spec_decode/draft_model.py, config/speculative.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vramledger.engines.vllm.activation import activation_peak
from vramledger.engines.vllm.flags import Speculation, VllmFlags
from vramledger.engines.vllm.kv_budget import capacity
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.kv_specs import KvKind, LayerSpec, layer_specs
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.engines.vllm.weights import RankWeights, rank_weights
from vramledger.errors import FlagError
from vramledger.formats.kv import KvFormat, kv_format
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import RECURRENT
from vramledger.models.model import Model, Rope
from vramledger.models.tensors import Component, Role
from vramledger.pool import KvPool

WITHOUT_LAYERS = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator")
HEADS_ON_TARGET = ("eagle", "eagle3")  # drafts that read the target's hidden states and embedding
AUXILIARY_STATES = {"eagle3": 3}
POSITIONS_FOLLOW_TARGET = 27  # an EAGLE draft's rope table is raised to the target's max_model_len


MTP_APART = ("gemma4", "minimax_m3")
"""Models whose MTP layers the config does not state: a checkpoint of their own, or no description here."""


def check(settings: Settings, target: Model) -> None:
    """Raises FlagError for a draft that this version or plan refuses."""
    speculation = settings.flags.speculative
    if speculation is None:
        return
    version, method, draft = settings.version, speculation.method, speculation.draft
    if method == "mtp" and not (target.draft_layers or target.model_type.startswith(MTP_APART)):
        raise _refused(f"asks for mtp, and the config of {target.id} has no layers for it", method)
    if method in ("medusa", "mlp_speculator") and version.since(33):
        raise _refused(f"asks for {method}, which vllm has no more since 0.33", method)
    if settings.v1 and method == "mlp_speculator":
        raise _refused("asks for mlp_speculator, which only the V0 engine has", method)
    if settings.v1 and method == "draft_model" and not version.since(16):
        raise _refused(f"asks for a draft model, which the V1 engine of {version} has not", method)
    wanted = speculation.draft_tensor_parallel_size
    if wanted is not None and wanted not in (1, settings.plan.tp):
        raise _refused(
            f"has draft_tensor_parallel_size {wanted}, neither 1 nor --tp {settings.plan.tp}", wanted
        )
    if settings.v1 and method == "draft_model" and wanted not in (None, settings.plan.tp):
        raise _refused(
            f"has draft_tensor_parallel_size {wanted}; a draft model runs at --tp {settings.plan.tp}", wanted
        )
    if draft is not None and method in HEADS_ON_TARGET and draft.model.vocab_size != target.vocab_size:
        raise _refused(
            f"has a head for {draft.model.vocab_size} tokens; {target.id} has {target.vocab_size}", method
        )


def draft_of(settings: Settings) -> Checkpoint | None:
    """The draft's own checkpoint, if there is one."""
    return settings.flags.speculative.draft if settings.flags.speculative is not None else None


def draft_settings(settings: Settings) -> Settings:
    """The settings that the draft model is built with: the target's parallelism, type and kernels, its own format.

    The V1 engine cuts every draft by the target's ranks, whatever `draft_tensor_parallel_size` says: the layers read
    the size of the group they are in. V0 gives a smaller draft to the first ranks alone; such a rank is described.
    """
    speculation = _speculation(settings)
    flags, plan = settings.flags, settings.plan
    tp = plan.tp if settings.v1 else speculation.draft_tensor_parallel_size or plan.tp
    return replace(
        settings,
        model_type=_draft(settings).model.model_type,
        plan=replace(plan, tp=tp, pp=1, dcp=plan.dcp if tp == plan.tp else 1),
        flags=VllmFlags(
            dtype=flags.dtype,
            quantization=speculation.quantization,
            kv_cache_dtype=flags.kv_cache_dtype,
            num_redundant_experts=flags.num_redundant_experts,
            mamba_cache_dtype=flags.mamba_cache_dtype,
            mamba_ssm_cache_dtype=flags.mamba_ssm_cache_dtype,
            mamba_cache_mode=flags.mamba_cache_mode,
            attention_backend=speculation.attention_backend,
            moe_backend=speculation.moe_backend or flags.moe_backend,
        ),
        notes=(),
    )


def draft_weights(target: Model, settings: Settings, kind: RankKind, device: Device) -> RankWeights | None:
    """The draft's weights on a rank of the last stage, without what it shares with the target; None elsewhere."""
    if draft_of(settings) is None or not kind.is_last:
        return None
    loaded = _as_loaded(target, settings)
    return rank_weights(loaded, draft_settings(settings), draft_kind(settings, kind), device)


def draft_kind(settings: Settings, kind: RankKind) -> RankKind:
    """A last-stage rank seen by the draft, whose layers are all there."""
    count = _draft(settings).model.num_layers
    return replace(kind, stage=0, layers=range(count), is_first=True, is_last=True)


def _as_loaded(target: Model, settings: Settings) -> Checkpoint:
    """The draft without what it shares. Rope tables are shared where base, scaling and length are equal: those of
    a model of the target's own family; a head's base and scaling are its training's, not the target's."""
    draft, speculation = _draft(settings), _speculation(settings)
    shared = shared_roles(target, settings)
    stored = [item for item in draft.stored if item.tensor.role not in shared]
    rope = tuple(_table(rope, settings, speculation) for rope in draft.model.rope)
    if speculation.method not in HEADS_ON_TARGET and draft.model.model_type == target.model_type:
        rope = tuple(table for table in rope if table not in target.rope)
    return replace(draft, stored=tuple(stored), model=replace(draft.model, rope=rope))


def shared_roles(target: Model, settings: Settings) -> frozenset[Role]:
    """Tables that an EAGLE head takes from the target instead of keeping its own.

    The embedding without pipeline stages (a later stage has none to share), the output head always, each where the
    shapes are equal; since 0.12 the engine also compares the values of tables that the head's checkpoint has.
    """
    speculation = _speculation(settings)
    if speculation.method not in HEADS_ON_TARGET:
        return frozenset()
    shapes = {role: _shape(target, role) for role in (Role.EMBEDDING, Role.LM_HEAD)}
    if target.tie_word_embeddings:
        shapes[Role.LM_HEAD] = shapes[Role.EMBEDDING]
    out = set()
    for item in _draft(settings).stored:
        tensor = item.tensor
        if tensor.role in shapes and tensor.shape == shapes[tensor.role]:
            out.add(tensor.role)
    if settings.plan.pp > 1:
        out.discard(Role.EMBEDDING)
    return frozenset(out)


def _shape(model: Model, role: Role) -> tuple[int, ...]:
    for tensor in model.tensors:
        if tensor.role is role and tensor.component is Component.DECODER:
            return tensor.shape
    return ()


def _table(rope: Rope, settings: Settings, speculation: Speculation) -> Rope:
    """The draft's rope table as it is sized (config/speculative.py, _maybe_override_draft_max_position_embeddings)."""
    follows = settings.version.since(POSITIONS_FOLLOW_TARGET) and speculation.method in HEADS_ON_TARGET
    return replace(rope, max_positions=max(rope.max_positions, settings.context_len)) if follows else rope


def with_draft_specs(
    specs: tuple[LayerSpec, ...], target: Model, settings: Settings, device: Device, target_format: KvFormat
) -> tuple[LayerSpec, ...]:
    """The target's specs and those of the draft's layers after them, in the target's block size."""
    if draft_of(settings) is None:
        return specs
    draft = _draft(settings).model
    if not draft.layers:
        return specs
    own = draft_settings(settings)
    blocks = [item.spec.block_size for item in specs if item.spec.kind is not KvKind.RECURRENT]
    if blocks:
        own = replace(own, flags=replace(own.flags, block_size=max(blocks)))
    found = layer_specs(draft, own, device, draft_format(settings, target_format))
    first = target.num_layers + len(target.draft_layers)
    return (*specs, *(replace(item, layer=first + item.layer) for item in found))


def draft_format(settings: Settings, target_format: KvFormat) -> KvFormat:
    """The element format of the draft's cache: its own flag's, else the target's."""
    name = _speculation(settings).kv_cache_dtype
    return target_format if name is None else kv_format(name, settings.dtype)


# Backends whose pages cannot be read with a stride between blocks (no get_kv_cache_stride_order of their own, or one
# with the layers outermost); the others index by the block's stride. Specs carried this from 0.24 to 0.28.
_WITHOUT_STRIDE = ("ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "TURBOQUANT", "CPU_ATTN")


def set_apart(specs: tuple[LayerSpec, ...], target: Model, settings: Settings) -> tuple[LayerSpec, ...]:
    """Draft layers marked as unequal to the target's where the engine compares something that sizes do not show.

    The draft of the V1 runner never takes over `--attention-backend`; from 0.24 to 0.28 a spec says whether its
    backend indexes pages by the block's stride (attention/backend.py, indexes_kv_by_block_stride), and two layers that
    differ in this are never of one group. Another `kv_cache_dtype` of the draft's shows in no size where both have
    one byte an element, and separates too.
    """
    speculation = settings.flags.speculative
    if speculation is None:
        return specs
    version = settings.version
    ours, theirs = settings.flags.attention_backend, speculation.attention_backend
    strided = [backend is None or backend.upper() not in _WITHOUT_STRIDE for backend in (ours, theirs)]
    apart = (
        version.since(24) and not version.since(29) and not settings.v2_runner and strided[0] != strided[1]
    )
    dtype = speculation.kv_cache_dtype
    apart = apart or (dtype is not None and dtype != settings.flags.kv_cache_dtype)
    return marked(specs, target) if apart else specs


def marked(specs: Sequence[LayerSpec], target: Model) -> tuple[LayerSpec, ...]:
    """`specs` with those after the target's layers in buckets of their own."""
    return tuple(
        replace(item, spec=replace(item.spec, variant="draft")) if item.layer >= target.num_layers else item
        for item in specs
    )


def draft_forward_bytes(target: Model, settings: Settings, kind: RankKind) -> int:
    """Activations of the draft's forward in the profile run, beside the hidden states it reads: the target's last,
    and for EAGLE-3 those of three layers and their concatenation. 0 without a draft of layers."""
    if draft_of(settings) is None or not kind.is_last or not _draft(settings).model.layers:
        return 0
    own, draft = draft_settings(settings), _draft(settings).model
    width = settings.max_tokens * target.hidden_size * settings.dtype.bits // 8
    states = 1 + 2 * AUXILIARY_STATES.get(_speculation(settings).method, 0)
    return activation_peak(draft, own, draft_kind(settings, kind)).forward_bytes + states * width


def draft_buffers(target: Model, settings: Settings, kind: RankKind) -> tuple[int, str]:
    """Buffers of the drafter on a rank of the last stage and their formula.

    Heads that follow the target keep a hidden state of every batched token; the V1 runner's drafters also an
    embedding of each. The V2 runner keeps the drafts' logits where they are sampled.
    """
    speculation = settings.flags.speculative
    if speculation is None or not kind.is_last:
        return 0, ""
    element, tokens = settings.dtype.bits // 8, settings.max_tokens
    model = target if speculation.draft is None else speculation.draft.model
    size, formula = 0, []
    copies = 0
    if speculation.method in ("mtp", *HEADS_ON_TARGET):
        copies = 1 if settings.v2_runner else 2
    elif speculation.method == "draft_model" and settings.v1:
        copies = 0 if settings.v2_runner else 2
    if settings.v1 and copies:
        size += copies * element * tokens * model.hidden_size
        formula.append(f"draft inputs {copies} x {tokens} x {model.hidden_size} x {element} B")
    if settings.v2_runner and speculation.probabilistic:
        logits = settings.max_num_seqs * settings.num_speculative_tokens * target.vocab_size * element
        size += logits
        formula.append(f"draft logits {logits} B")
    return size, " + ".join(formula)


def is_grouping_open(target: Model, settings: Settings) -> bool:
    """Whether a draft layer equal to the target's in every size may still form a bucket of its own.

    A published start of a hybrid with one MTP layer on 0.27.1 printed 278,230 tokens, which only 65 groups of one layer
    give, though no field that its flags show differs; the same kind on 0.25.1 has the draft among the target's layers.
    """
    speculation = settings.flags.speculative
    if speculation is None or settings.v2_runner or settings.plan.pp > 1:
        return False
    if not settings.version.since(27) or settings.version.since(29):
        return False
    layers = target.draft_layers if speculation.draft is None else speculation.draft.model.layers
    drafts = speculation.method not in WITHOUT_LAYERS and bool(layers)
    return drafts and any(
        isinstance(mixer, RECURRENT) for layer in target.layers for mixer in layer.token_mixers
    )


def widened(pool: KvPool, other: Layout, settings: Settings, available: Sequence[ByteRange]) -> KvPool:
    """`pool` with ranges of its printed figures that also hold what `other` would give of the same memory."""
    per_block = other.bytes_per_block()
    override = settings.flags.num_gpu_blocks_override
    ends = [
        min(end) for end in zip(*((room.low, room.expected, room.high) for room in available), strict=True)
    ]
    counts = [max(end, 0) // per_block if override is None else override for end in ends]
    lines = [capacity(other, count, settings) for count in counts]
    tokens = [line.tokens for line in lines]
    ratio = [line.max_concurrency for line in lines]
    return replace(
        pool,
        tokens=replace(pool.tokens, low=min(pool.tokens.low, *tokens), high=max(pool.tokens.high, *tokens)),
        max_concurrency=replace(
            pool.max_concurrency,
            low=min(pool.max_concurrency.low, *ratio),
            high=max(pool.max_concurrency.high, *ratio),
        ),
    )


def notes_on_draft(target: Model, settings: Settings, apart: Layout | None) -> tuple[str, ...]:
    """What a reader should know of the draft; `apart` is the other grouping that its layers may get."""
    speculation = settings.flags.speculative
    if speculation is None:
        return ()
    out = []
    draft = speculation.draft
    if speculation.method == "mtp" and not target.draft_layers:
        out.append(
            f"{target.id} describes no draft layers: weights and KV cache of its MTP draft are not counted"
        )
    if draft is not None:
        out += [f"draft {draft.model.id}: {text}" for text in (*draft.model.notes, *draft.differences)]
        shared = shared_roles(target, settings)
        if shared:
            names = " and ".join(sorted(role.value for role in shared))
            out.append(
                f"draft {draft.model.id}: its {names} are taken for the target's, which it then shares"
            )
        if settings.v1 and speculation.draft_tensor_parallel_size not in (None, settings.plan.tp):
            out.append(
                "draft_tensor_parallel_size: the V1 engine cuts the draft by the target's ranks all the same"
            )
    if settings.version.since(18) and speculation.method == "draft_model":
        left = settings.max_tokens - settings.max_num_seqs
        out.append(f"a step schedules at most {left} tokens: one slot a sequence is left to the draft model")
    if apart is not None:
        out.append(
            f"the draft's layers may form groups of their own in vllm {settings.version}: {len(apart.groups)} groups of "
            f"{apart.bytes_per_block()} B a block instead, about the same tokens from many more blocks"
        )
    return tuple(out)


def condition(settings: Settings) -> str:
    """The draft as a condition of the verdict."""
    speculation = _speculation(settings)
    draft = speculation.draft
    if draft is None:
        return f"drafts by {speculation.method}, {speculation.num_speculative_tokens} tokens a step"
    return (
        f"drafts by {speculation.method} of {draft.model.id} ({draft.quantization}), "
        f"{speculation.num_speculative_tokens} tokens a step"
    )


def _speculation(settings: Settings) -> Speculation:
    speculation = settings.flags.speculative
    if speculation is None:
        raise FlagError("no speculation is configured", flag="speculative_config")
    return speculation


def _draft(settings: Settings) -> Checkpoint:
    draft = draft_of(settings)
    if draft is None:
        raise FlagError("the speculative method has no model of its own", flag="speculative_config")
    return draft


def _refused(why: str, value: object) -> FlagError:
    return FlagError(f"--speculative-config {why}", flag="speculative_config", value=value)
