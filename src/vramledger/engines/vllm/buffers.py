"""Buffers of a step's inputs, which a model runner keeps from its construction on.

Source: vllm v1/worker/gpu (V2 runner) and v1/worker/gpu_input_batch.py, gpu_model_runner.py (V1).
"""

from __future__ import annotations

from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.engines.vllm.speculation import draft_buffers
from vramledger.models.model import Model


def runner_buffers(model: Model, settings: Settings, kind: RankKind) -> tuple[int, str]:
    """Bytes of persistent input buffers on one rank and their formula, some 40 bytes a token in both runners; tables of
    per-request state apart (`request_state`)."""
    element = settings.dtype.bits // 8
    tokens = settings.max_tokens
    inputs = tokens * 40
    formula = f"inputs {tokens} x 40 B"
    if (model.towers and not settings.flags.language_model_only) or settings.flags.enable_prompt_embeds:
        inputs += element * tokens * model.hidden_size
        formula += f" + embeddings {tokens} x {model.hidden_size} x {element} B"
    drafting, draft_formula = draft_buffers(model, settings, kind)
    if drafting:
        inputs, formula = inputs + drafting, f"{formula} + {draft_formula}"
    return inputs, formula
