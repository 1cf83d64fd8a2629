"""A request of a workload in the words of the engine that is asked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vramledger.gateway.settings import Upstream
from vramledger.workload.request import Request

FORCES_LENGTH = frozenset({"vllm", "sglang", "llamacpp", "tensorrt-llm", "tensorrtllm"})
"""Engines that go on past an end of sequence when told to (`ignore_eos`), so that an output is as long as the workload wants it."""
TELLS_IDS = frozenset({"vllm", "llamacpp"})
"""Engines that tell the token ids of an output: vLLM since 0.10.2 (`return_token_ids`), llama.cpp's own /completion (`return_tokens`)."""


LAST_FIELDS = ("content", "tokens", "stop", "tokens_predicted", "tokens_evaluated", "timings")
"""Of llama.cpp's last event, which else repeats the prompt and all settings."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, and what is known of the engine there. `engine` is its name as `vramledger.engines` has it, None where it is not
    known: then nothing is asked that not every OpenAI-compatible server knows, and answers may end before they are as long as wanted."""

    upstream: Upstream
    model: str
    engine: str | None = None
    vocab_size: int | None = None
    context_len: int | None = None

    @property
    def forces_length(self) -> bool:
        """Whether outputs are exactly as long as they are asked to be."""
        return self.engine in FORCES_LENGTH

    @property
    def tells_ids(self) -> bool:
        """Whether what an answer says is known token by token."""
        return self.engine in TELLS_IDS


def path_of(server: Server, *, keeps_output: bool) -> str:
    """Where a completion is asked for."""
    return "/completion" if keeps_output and server.engine == "llamacpp" else "/v1/completions"


def body_of(server: Server, request: Request, prompt: Sequence[int] | str, *, keeps_output: bool) -> bytes:
    """The request as JSON. An output that is forced has its own length as its bound; else the client's bound is sent."""
    bound = (
        request.output_tokens if server.forces_length else request.max_output_tokens or request.output_tokens
    )
    body: dict[str, object] = {
        "model": server.model,
        "prompt": prompt,
        "max_tokens": bound,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if server.forces_length:
        body["ignore_eos"] = True
    if request.branches > 1:
        body["n"] = request.branches
    if keeps_output and server.engine == "vllm":
        body["return_token_ids"] = True
    if keeps_output and server.engine == "llamacpp":
        body |= {"n_predict": bound, "return_tokens": True, "response_fields": LAST_FIELDS}
    return msgspec.json.encode(body)
