"""Items about the KV cache: heads, format, tokens, who may share prefixes."""

from __future__ import annotations

from vramledger.manifest.derived import BOUNDARIES
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.finding import Cited, Finding, failed, not_evidenced, of_model, of_plan, passed

_PREFIXES_OFF = (
    ("enable_prefix_caching", False),
    ("disable_radix_cache", True),
    ("enable_block_reuse", False),
    ("allow_block_sharing", False),
)


def by_heads(document: ManifestDocument) -> Finding:
    """Bytes of a token are those of KV heads, cut or repeated over ranks, not of query heads."""
    kv, stated = document.kv, document.kv_bytes_per_token_per_rank
    if kv is None or stated is None:
        return not_evidenced("the heads or the bytes of a token are not in it; give MODEL beside --plan")
    told = tuple(
        of_model(
            document,
            f"{item.kind}: {item.num_layers} layers, {item.q_heads} query heads, {item.kv_heads} KV heads, "
            f"{item.kv_heads_per_rank} a rank",
        )
        for item in kv.heads
    )
    right, wide = kv.by_heads_bytes_per_token, kv.by_query_heads_bytes_per_token
    if right is None:
        return not_evidenced(f"the arithmetic of {kv.dtype} by heads is not known here", *told)
    if stated == right:
        return passed(*told, of_plan(document, f"{stated:,} bytes a token on a rank, as KV heads give"))
    if wide is not None and stated >= wide:
        return failed(
            f"{stated:,} bytes a token on a rank; KV heads give {right:,}, query heads {wide:,}", *told
        )
    low = right // max(document.pp, 1)
    if stated < low:
        return failed(f"{stated:,} bytes a token on a rank; KV heads give {low:,} at least", *told)
    if document.pp > 1 and stated <= right:
        return passed(
            *told,
            of_plan(document, f"{stated:,} bytes a token on a rank of {document.pp} stages of {right:,}"),
        )
    return not_evidenced(
        f"{stated:,} bytes a token on a rank, KV heads alone give {right:,}; the manifest does not say what the rest is",
        *told,
    )


def dtype_scales_residual(document: ManifestDocument) -> Finding:
    """The elements' format, the scales beside them and what stays in full precision."""
    kv = document.kv
    if kv is None or document.kv_format is None:
        return not_evidenced("the cache's format is not in it; give MODEL beside --plan")
    told = of_plan(
        document,
        f"{kv.dtype}: {_count(kv.element_bytes_per_token)} bytes of elements and {_count(kv.scale_bytes_per_token)} of "
        f"scales a token, {_count(kv.residual_tokens)} tokens in full precision",
    )
    if kv.dtype != document.kv_format:
        return failed(f"kv_format is {document.kv_format}, the heads are of {kv.dtype}", told)
    if kv.element_bytes_per_token is None or kv.scale_bytes_per_token is None or kv.residual_tokens is None:
        return not_evidenced("elements, scales or residual of this cache are not known here", told)
    total = kv.element_bytes_per_token + kv.scale_bytes_per_token
    if kv.by_heads_bytes_per_token is not None and total != kv.by_heads_bytes_per_token:
        return failed(f"elements and scales are {total:,} bytes, heads {kv.by_heads_bytes_per_token:,}", told)
    return passed(told)


def logical_and_physical(document: ManifestDocument) -> Finding:
    """Tokens as printed and slots of the pool are two counts."""
    tokens = document.kv_tokens
    if tokens is None:
        return not_evidenced("there is no pool in it")
    told = of_plan(
        document,
        f"{tokens.logical:,} tokens printed ({tokens.rule}); {tokens.physical:,} slots in {tokens.num_blocks:,} blocks of "
        f"{tokens.block_size}",
    )
    if tokens.physical != tokens.num_blocks * tokens.block_size:
        return failed("the slots are not blocks times tokens a block", told)
    if not tokens.rule:
        return not_evidenced("the rule from blocks to printed tokens is not in it", told)
    return passed(told)


def prefix_boundary(document: ManifestDocument) -> Finding:
    """Between which tenants, models, tokenizers, templates and adapters prefixes may be shared."""
    settings = document.plan.inputs.settings
    for name, value in _PREFIXES_OFF:
        if settings.get(name) is value:
            return passed(of_plan(document, f"no prefixes are kept: {name} is {str(value).lower()}"))
    boundary = document.prefix_sharing_boundary
    if boundary is None:
        return not_evidenced("nobody declared it")
    declared = {name: getattr(boundary, name) for name in BOUNDARIES}
    told = Cited(
        text="; ".join(f"{name}: {text}" for name, text in declared.items() if text is not None) or "empty",
        source=boundary.source or "facts",
        at=boundary.at,
    )
    for name, known in (
        ("tokenizer", document.model.tokenizer_sha256),
        ("template", document.model.template_sha256),
        ("model", document.model_revision),
    ):
        text = declared[name]
        if text is not None and known is not None and _is_revision(text) and text != known:
            return failed(f"the boundary names the {name} {text}, the manifest's is {known}", told)
    missing = [name for name, text in declared.items() if text is None]
    if missing:
        return not_evidenced(f"not declared for {', '.join(missing)}", told)
    return passed(told)


def _is_revision(text: str) -> bool:
    return text.startswith(("sha256:", "content-sha256:", "layout-sha256:", "hub:"))


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
