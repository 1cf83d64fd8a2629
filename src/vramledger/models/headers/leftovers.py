"""Tensors of a checkpoint that no description claims: second copies, buffers, draft layers, strangers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from vramledger.formats.weights import Shape
from vramledger.models.headers.findings import Findings, short
from vramledger.models.headers.findings import tensors as counted
from vramledger.models.headers.parts import plain_shape
from vramledger.models.sources.header_table import HeaderRow
from vramledger.units import format_bytes

_BUFFERS: dict[str, str] = {
    "inv_freq": "rotary tables", "cos_cached": "rotary tables", "sin_cached": "rotary tables",
    "rotary_pos_emb": "rotary tables", "freqs_cis": "rotary tables", "rope_freqs": "rotary tables",
    "rope_factors_long": "rotary tables", "rope_factors_short": "rotary tables",
    "masked_bias": "attention masks", "causal_mask": "attention masks",
    "position_ids": "position numbers", "num_batches_tracked": "counters of batch normalisation",
    "k_scale": "scales of a quantised KV cache", "v_scale": "scales of a quantised KV cache",
    "q_scale": "scales of a quantised KV cache", "prob_scale": "scales of a quantised KV cache",
    "output_scale": "scales of a quantised KV cache",
}  # fmt: skip
# Scales of activations that no weight format here counts.
_ACTIVATION_PARTS = (".input_scale", ".input_global_scale", ".pre_quant_scale", ".weight_g_idx", ".g_idx")
_HEADS = frozenset({
    "lm_head", "output", "embed_out", "head", "embed_tokens", "wte", "word_embeddings", "tok_embeddings", "shared",
    "embedding", "token_embd", "embed_in",
})  # fmt: skip
_MASKED = ("attn", "attention", "self_attention")
_DRAFT_PARTS = frozenset({"mtp", "nextn", "mtp_layers", "mtp_block"})


class Leftover(Struct, frozen=True):
    """`count` tensors of a row under first indices that nothing claims."""

    row: HeaderRow
    count: int
    indices: frozenset[int]

    @property
    def size_bytes(self) -> int:
        return self.count * self.row.tensor_bytes


def leftovers(rows: Iterable[HeaderRow], used: Mapping[HeaderRow, set[int] | None]) -> list[Leftover]:
    """What is left of every row."""
    out = []
    for row in rows:
        claimed = used.get(row, set())
        if claimed is None:
            continue
        if not row.layers:
            if row not in used:
                out.append(Leftover(row, row.count, frozenset()))
            continue
        rest = frozenset(index for run in row.layers for index in run if index not in claimed)
        if rest:
            out.append(Leftover(row, row.count * len(rest) // row.num_layers, rest))
    return out


def is_copy_of(row: HeaderRow, shapes: Iterable[Shape]) -> bool:
    """Whether a row looks like an embedding or head of one of these shapes, by its name and its own shape."""
    name = row.template.removesuffix(".weight").rpartition(".")[2]
    return name in _HEADS and plain_shape(row.shape) in {plain_shape(shape) for shape in shapes}


def tell(items: Iterable[Leftover], embeddings: Iterable[Shape], num_layers: int, findings: Findings) -> None:
    """One sentence for each kind of known surplus, one for each unknown template."""
    shapes = tuple(embeddings)
    for item in items:
        row = item.row
        what = ""
        if is_copy_of(row, shapes):
            what = "the embedding once more, which takes no device memory"
        elif kind := _buffer_kind(row.template):
            what = f"{kind}, not parameters"
        elif _is_draft(item, num_layers):
            what = "draft (MTP) layers that the config does not describe"
        elif row.template.endswith(_ACTIVATION_PARTS):
            what = "quantisation parts beyond what the format needs"
        if what:
            findings.group(what, row.template, item.count, item.size_bytes)
        else:
            findings.add(
                f"in the file and not described: {short(row.template)}, {short(row.dtype)}"
                f" {list(row.shape[:8])}, {counted(item.count)}, {format_bytes(item.size_bytes)}",
                item.size_bytes,
            )


def _buffer_kind(template: str) -> str:
    parts = template.removesuffix(".weight").split(".")
    if parts[-1] == "bias" and len(parts) > 1 and parts[-2] in _MASKED:
        return "attention masks"  # GPT-2 and GPT-NeoX keep the causal mask under this name
    return _BUFFERS.get(parts[-1], "")


def _is_draft(item: Leftover, num_layers: int) -> bool:
    parts = item.row.template.split(".")
    if _DRAFT_PARTS.intersection(parts):
        return True
    inside = any(
        parts[at] in ("layers", "h", "blk") and parts[at + 1] == "{}" for at in range(len(parts) - 1)
    )
    return inside and bool(item.indices) and min(item.indices) >= num_layers > 0 and _is_decoder(parts)


def _is_decoder(parts: list[str]) -> bool:
    """Whether the first index is a decoder layer's: nothing but heads of text models stands before it."""
    before = parts[: parts.index("{}") - 1]
    return all(
        part in ("model", "language_model", "text_model", "transformer", "backbone") for part in before
    )
