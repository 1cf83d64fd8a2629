"""What llama.cpp's server schedules by: slots.

Source: llama.cpp tools/server/server-context.cpp (update_slots): a request takes a free slot or waits in order, nothing is
reserved for its answer, every generating slot has a token in each batch and prompts fill what is left of n_batch. A slot
keeps its last conversation's cells; nothing is shared between slots.
"""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.engines.scheduling import EngineScheduling, Planned


def scheduling(plan: Plan) -> EngineScheduling:
    planned = Planned(plan)
    return EngineScheduling(
        rules="llama.cpp",
        max_num_seqs=planned.count("parallel"),
        max_num_batched_tokens=planned.count("batch_size"),
        max_model_len=planned.count("n_ctx_seq"),
        reserve_full_prompt=False,
    )
