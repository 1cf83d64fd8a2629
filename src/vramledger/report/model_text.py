"""A model as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.models.checkpoint import Checkpoint
from vramledger.report.model_facts import ModelFacts, describe_part, model_facts
from vramledger.report.text import Line, billions, columns, gib, line, runs_text, wrapped

_MOST_KINDS = 16


def model_lines(
    checkpoint: Checkpoint, *, width: int = 80, facts: ModelFacts | None = None
) -> Iterator[Line]:
    """The page, no line longer than `width` where no single word is."""
    facts = facts or model_facts(checkpoint)
    model = checkpoint.model
    title = f"{model.id} · {model.architecture} ({model.model_type}) · {checkpoint.quantization}"
    yield from wrapped(title, width, rest="  ", style="head")
    shape = (
        f"{model.num_layers} layers, hidden {model.hidden_size:,}, vocabulary {model.vocab_size:,}, "
        f"positions {model.max_position_embeddings:,}, "
        f"embeddings {'tied' if model.tie_word_embeddings else 'untied'}, {model.dtype.value}"
    )
    yield from wrapped(shape, width, first="  ", rest="  ")
    yield line()
    yield from _layers(facts, width)
    yield line()
    yield from _parameters(facts, width)
    yield line()
    yield from _formats(checkpoint, facts, width)
    yield line()
    yield from _cache(checkpoint, facts, width)
    yield from _rest(checkpoint, width)


def _layers(facts: ModelFacts, width: int) -> Iterator[Line]:
    yield line("layers", "head")
    for kind in facts.layers[:_MOST_KINDS]:
        where = f"{kind.num_layers} {kind.stack}: {runs_text(kind.runs)}"
        yield from wrapped(where, width, first="  ", rest="    ")
        for part in kind.token_mixers:
            yield from wrapped(describe_part(part), width, first="    ", rest="      ")
        if not kind.token_mixers:
            yield line("    no token mixer")
        mixer = describe_part(kind.channel_mixer) if kind.channel_mixer is not None else "no channel mixer"
        yield from wrapped(mixer, width, first="    ", rest="      ")
    if len(facts.layers) > _MOST_KINDS:
        yield line(f"  and {len(facts.layers) - _MOST_KINDS} more kinds (--json lists all)", "dim")


def _parameters(facts: ModelFacts, width: int) -> Iterator[Line]:
    counts = facts.parameters
    yield from wrapped(
        f"parameters: {counts.total:,} ({billions(counts.total)}), active {counts.active:,} "
        f"({billions(counts.active)})",
        width,
        style="head",
    )
    rows = [(f"  {name}", f"{size:,}") for name, size in counts.by_group]
    if counts.draft:
        rows.append(("  draft (not in the total)", f"{counts.draft:,}"))
    yield from columns(rows, right=(1,))


def _formats(checkpoint: Checkpoint, facts: ModelFacts, width: int) -> Iterator[Line]:
    yield from wrapped(
        f"checkpoint: {gib(checkpoint.disk_bytes)} GiB ({checkpoint.disk_evidence.kind.value}: "
        f"{checkpoint.disk_evidence.source})",
        width,
        style="head",
    )
    rows = [("  part", "format", "elements", "GiB")]
    rows += [(f"  {s.group}", s.format, f"{s.elements:,}", gib(s.stored_bytes)) for s in facts.formats]
    yield from columns(rows, right=(2, 3), styles=("dim",), width=width, wrap_column=1)


def _cache(checkpoint: Checkpoint, facts: ModelFacts, width: int) -> Iterator[Line]:
    if not facts.kv_costs:
        yield line("KV cache: none that grows with tokens", "head")
    else:
        yield line("KV cache, bytes a token over all layers", "head")
        rows = [("  type", "a token", "of it windowed")]
        rows += [(f"  {c.dtype}", f"{c.bytes_per_token:,}", f"{c.windowed_bytes:,}") for c in facts.kv_costs]
        yield from columns(rows, right=(1, 2), styles=("dim",))
    if facts.state_bytes_per_sequence is None:
        yield line("  constant state a sequence: not sized")
    elif facts.state_bytes_per_sequence:
        yield line(f"  constant state a sequence: {facts.state_bytes_per_sequence:,} bytes")
    if checkpoint.declared_kv_dtype:
        text = f"the checkpoint asks for {checkpoint.declared_kv_dtype} ({checkpoint.declared_kv_source})"
        yield from wrapped(text, width, first="  ", rest="    ")


def _rest(checkpoint: Checkpoint, width: int) -> Iterator[Line]:
    model = checkpoint.model
    for rope in model.rope:
        text = f"{rope.rotary_dim} of a head, {rope.max_positions:,} positions, {rope.scaling}"
        if rope.scaling != "default":
            text += f" x {rope.factor:g}"
        yield from wrapped(text, width, first="rope: ", rest="  ")
    for tower in model.towers:
        text = f"{tower.num_layers} layers, hidden {tower.hidden_size:,}, {tower.num_heads} heads"
        if tower.max_item_tokens:
            text += f", at most {tower.max_item_tokens:,} tokens an item"
        yield from wrapped(text, width, first=f"{tower.modality} tower: ", rest="  ")
    for text in checkpoint.differences:
        yield from wrapped(text, width, first="config and headers differ: ", rest="  ", style="unsure")
    for note in model.notes:
        yield from wrapped(note, width, first="note: ", rest="  ", style="dim")
