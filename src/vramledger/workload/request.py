"""One request of a workload, and what a workload says about all of its requests.

Times are whole nanoseconds since the workload's start. A prompt's beginning is told by block identities: number
`i` stands for the content of tokens `[0, (i + 1) * block_tokens)` (each identity is chained to those before
it), so two requests share cached tokens over their longest common leading run of identities and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """A request as a client sends it.

    `output_tokens` is what was really generated, `max_output_tokens` the bound that the client asked for (None
    where it is not known). `blocks` are the identities above; they may reach beyond the prompt, and then name what the output
    became part of in a later turn. Requests of different `boundary` never share blocks, whatever their identities
    (see `Boundary`). A request with a `parent` (the position of another request in the workload) is sent `pause_ns` after
    the parent's end; its `arrival_ns` is when it came in the recorded trace. `branches` is the number of sequences that
    continue its prompt. `cancel_ns`, `first_token_deadline_ns` and `deadline_ns` count from the arrival.
    """

    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    boundary: int = 0
    tenant: int = 0
    conversation: int | None = None
    parent: int | None = None
    pause_ns: int = 0
    branches: int = 1
    cancel_ns: int | None = None
    first_token_deadline_ns: int | None = None
    deadline_ns: int | None = None
    priority: int = 0


class Boundary(Struct, frozen=True, kw_only=True):
    """What has to be equal for two requests to share blocks of equal text."""

    tenant: str = ""
    model_revision: str = ""
    tokenizer: str = ""
    chat_template: str = ""
    adapter: str = ""


class WorkloadHeader(Struct, frozen=True, kw_only=True):
    """What holds for a whole workload.

    `block_tokens` is the tokens of one block identity, None where the source names no blocks. `tenants` and
    `boundaries` are what the requests' numbers point at. `notes` say what a reader found, assumed or mended.
    """

    name: str
    source: str
    block_tokens: int | None = None
    tenants: tuple[str, ...] = ("",)
    boundaries: tuple[Boundary, ...] = (Boundary(),)
    notes: tuple[str, ...] = ()


def engine_block_ids(
    blocks: Sequence[int], block_tokens: int, *, engine_block_tokens: int, tokens: int
) -> list[int]:
    """Identities of the full blocks of `engine_block_tokens` among the first `tokens` tokens, as far as `blocks` know them.

    A block of the engine is named after its last token: the identity that covers it, and the place in it. So
    traces of any block length serve engines of any block length, and what is chained stays chained.
    """
    last = min(tokens // engine_block_tokens, len(blocks) * block_tokens // engine_block_tokens)
    ends = range(engine_block_tokens - 1, last * engine_block_tokens, engine_block_tokens)
    return [blocks[end // block_tokens] * block_tokens + end % block_tokens for end in ends]
