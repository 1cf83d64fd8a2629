"""How engines are asked for the tokens of a prompt. Pure: questions come out, answers go in.

- vLLM: `POST /tokenize` with `prompt` or `messages` (read in 0.6.6 to 0.33.0; tools are rendered since 0.9.0, older ones ignore them),
  `POST /v1/messages/count_tokens` (0.32.0). What a chat's rendering depends on and `/tokenize` has no field for goes by
  `chat_template_kwargs`, as `ChatCompletionRequest.build_chat_params` does itself (0.32.0). `POST /v1/responses/render` (0.31.0 and later, where it is
  started with `--enable-scale-out`; 403 otherwise).
- SGLang: `POST /tokenize` with a text or a list of texts, or with `messages` and any field of a chat (read in a build of 2026; earlier ones
  refuse `messages` with 400), and `POST /v1/messages/count_tokens`.
- llama.cpp: `POST /apply-template`, then `POST /tokenize` with its special tokens as its own routes do; for what is not a chat in OpenAI's form
  `/v1/responses/input_tokens` and `/v1/messages/count_tokens` (asked of build 11549).
- TensorRT-LLM: `POST /_internal/tokenize` with a text, and no chats (main of 2026; releases before have no such endpoint).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

import msgspec

from vramledger.gateway.admitter import Kind
from vramledger.gateway.request_facts import prompt_of
from vramledger.gateway.tokens.prompt_shape import texts_of

PROMPTS = 8
"""More prompts in one request than this are not asked for one by one."""
CHAT_FIELDS = (
    "model", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens",
    "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs",
)  # fmt: skip
GENERATION_ONLY = frozenset(
    ("stream", "stream_options", "prompt", "add_special_tokens", "add_generation_prompt")
)
"""Fields that SGLang's chats do not render by, and that mean something else to its `/tokenize`."""


class Question(NamedTuple):
    target: bytes
    body: bytes


class Counted(NamedTuple):
    """`ids` are the tokens themselves where the engine told them, of the only prompt."""

    tokens: int
    ids: list[int] | None


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Rendered(msgspec.Struct):
    token_ids: list[int]


_TOKENS = msgspec.json.Decoder(_Tokens)
_RENDERED = msgspec.json.Decoder(_Rendered)


class Unreadable(ValueError):
    """The engine's answer has another form than its releases' that were read."""


Dialogue = Generator[Question, bytes, Counted]


def dialogue(engine: str, kind: Kind, asked: Mapping[str, object]) -> Dialogue | None:
    """What to ask, in order; each body that comes back with 200 is sent in. None where this engine cannot be asked.

    The generator raises Unreadable, and ValueError or RecursionError where the request cannot be written as JSON.
    """
    form = _FORMS.get((engine, kind))
    if form is None:
        return None
    if kind in (Kind.COMPLETION, Kind.EMBEDDING):
        prompts = _prompts(engine, prompt_of(asked))
        return None if prompts is None else form({**asked, "prompt": prompts})
    return form(asked)


def _prompts(engine: str, prompt: object) -> list[object] | None:
    if engine == "llamacpp" and isinstance(prompt, list) and any(isinstance(piece, int) for piece in prompt):
        return [prompt]  # text and tokens mixed
    texts = texts_of(prompt)
    return list(texts) if texts is not None and len(texts) <= PROMPTS else None


def _vllm_chat(asked: Mapping[str, object]) -> Dialogue:
    body = {name: asked[name] for name in CHAT_FIELDS if asked.get(name) is not None}
    effort, documents = asked.get("reasoning_effort"), asked.get("documents")
    own = asked.get("chat_template_kwargs")
    template = dict(own) if isinstance(own, dict) else {}
    if documents is not None:
        template["documents"] = documents
    if effort is not None:
        template["reasoning_effort"] = effort
        template.setdefault("enable_thinking", effort != "none")
    if template:
        body["chat_template_kwargs"] = template
    return _ids((yield _question(b"/tokenize", body)))


def _vllm_prompts(asked: Mapping[str, object]) -> Dialogue:
    special = asked.get("add_special_tokens")
    parts = []
    for text in _list(asked["prompt"]):
        body = {"prompt": text, "add_special_tokens": special is not False}
        if isinstance(asked.get("model"), str):
            body["model"] = asked["model"]
        parts.append(_ids((yield _question(b"/tokenize", body))))
    return _longest(parts)


def _vllm_response(asked: Mapping[str, object]) -> Dialogue:
    body = yield _question(b"/v1/responses/render", {**asked, "stream": False})
    try:
        ids = _RENDERED.decode(body).token_ids
    except (msgspec.DecodeError, RecursionError):
        raise Unreadable("no token_ids") from None
    return Counted(len(ids), ids)


def _sglang_chat(asked: Mapping[str, object]) -> Dialogue:
    body = {name: value for name, value in asked.items() if name not in GENERATION_ONLY}
    return _ids((yield _question(b"/tokenize", body)))


def _sglang_prompts(asked: Mapping[str, object]) -> Dialogue:
    parts = []
    for text in _list(asked["prompt"]):
        parts.append(_ids((yield _question(b"/tokenize", {"prompt": text}))))
    return _longest(parts)


def _tensorrt_prompts(asked: Mapping[str, object]) -> Dialogue:
    if asked.get("add_special_tokens") is False:
        raise ValueError("it adds special tokens")
    parts = []
    for text in _list(asked["prompt"]):
        parts.append(_ids((yield _question(b"/_internal/tokenize", {"prompt": text}))))
    return _longest(parts)


def _llamacpp_chat(asked: Mapping[str, object]) -> Dialogue:
    answer = _object((yield _question(b"/apply-template", {**asked, "stream": False})))
    text = answer.get("prompt")
    if not isinstance(text, str):
        raise Unreadable("no prompt")
    return (yield from _llamacpp_tokens(text))


def _llamacpp_prompts(asked: Mapping[str, object]) -> Dialogue:
    parts = []
    for prompt in _list(asked["prompt"]):
        parts.append((yield from _llamacpp_tokens(prompt)))
    return _longest(parts)


def _llamacpp_tokens(content: object) -> Dialogue:
    body = {"content": content, "add_special": True, "parse_special": True}
    return _ids((yield _question(b"/tokenize", body)))


def _counted_by(target: bytes) -> Callable[[Mapping[str, object]], Dialogue]:
    """Endpoints that count a whole request and tell no tokens."""

    def form(asked: Mapping[str, object]) -> Dialogue:
        answer = _object((yield _question(target, {**asked, "stream": False})))
        tokens = answer.get("input_tokens")
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
            raise Unreadable("no input_tokens")
        return Counted(tokens, None)

    return form


_FORMS: Mapping[tuple[str, Kind], Callable[[Mapping[str, object]], Dialogue]] = {
    ("vllm", Kind.CHAT): _vllm_chat,
    ("vllm", Kind.COMPLETION): _vllm_prompts,
    ("vllm", Kind.EMBEDDING): _vllm_prompts,
    ("vllm", Kind.RESPONSE): _vllm_response,
    ("vllm", Kind.MESSAGE): _counted_by(b"/v1/messages/count_tokens"),
    ("sglang", Kind.CHAT): _sglang_chat,
    ("sglang", Kind.COMPLETION): _sglang_prompts,
    ("sglang", Kind.EMBEDDING): _sglang_prompts,
    ("sglang", Kind.MESSAGE): _counted_by(b"/v1/messages/count_tokens"),
    ("tensorrt-llm", Kind.COMPLETION): _tensorrt_prompts,
    ("tensorrt-llm", Kind.EMBEDDING): _tensorrt_prompts,
    ("llamacpp", Kind.CHAT): _llamacpp_chat,
    ("llamacpp", Kind.COMPLETION): _llamacpp_prompts,
    ("llamacpp", Kind.EMBEDDING): _llamacpp_prompts,
    ("llamacpp", Kind.RESPONSE): _counted_by(b"/v1/responses/input_tokens"),
    ("llamacpp", Kind.MESSAGE): _counted_by(b"/v1/messages/count_tokens"),
}


def _question(target: bytes, body: Mapping[str, object]) -> Question:
    return Question(target, msgspec.json.encode(body))


def _object(body: bytes) -> dict[str, object]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise Unreadable("not JSON") from None
    if not isinstance(answer, dict):
        raise Unreadable("not an object")
    return answer


def _ids(body: bytes) -> Counted:
    try:
        ids = _TOKENS.decode(body).tokens
    except (msgspec.DecodeError, RecursionError):
        raise Unreadable("no tokens") from None
    return Counted(len(ids), ids)


def _longest(parts: list[Counted]) -> Counted:
    if len(parts) == 1:
        return parts[0]
    return Counted(max(part.tokens for part in parts), None)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
