"""Whatever a client with a key sends, the whole gateway (door, counting, policy) answers it, and never with its own failure."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.client import read_answer
from gateway.engine import Call, Engine
from gateway.services import KEY_A, Says, service_of, text

PATHS = st.sampled_from(
    ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/completion", "/generate", "/tokenize"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["model", "messages", "prompt", "input", "input_ids", "text", "system", "tools", "max_tokens", "max_completion_tokens", "n_predict", "n", "best_of",
     "stream", "cache_salt", "extra_key", "background", "lora_path", "kv_transfer_params", "sampling_params", "max_new_tokens", "truncate_prompt_tokens",
     "min_tokens", "stop", "content", "previous_response_id", "priority", "suffix", "chat_template", "chat_template_kwargs", "documents"]
)  # fmt: skip
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6), st.sampled_from(["user", "text", "image_url", "", "\x00"]),
)  # fmt: skip
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(NAMES | st.sampled_from(["role", "type", "content", "text"]), inner, max_size=4)
    ),
    max_leaves=12,
)
BODIES = st.one_of(
    st.dictionaries(NAMES, VALUES, max_size=6).map(lambda asked: json.dumps(asked).encode()),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
)
HEADERS = st.dictionaries(
    st.sampled_from(["X-Request-Deadline-Ms", "X-First-Token-Deadline-Ms", "X-Request-Priority", "Content-Type", "traceparent", "Accept"]),
    st.sampled_from(["1", "0", "-5", "60000", "x", "", "application/json", "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "9" * 40]),
)  # fmt: skip
OWN_FAILURES = {"policy-failed"}


async def script(call: Call) -> None:
    if call.head.startswith(b"POST"):
        await call.whole()
    else:
        await call.whole(b"not here", b"404 Not Found")


@settings(max_examples=10)
@given(st.lists(st.tuples(PATHS, HEADERS, BODIES), min_size=15, max_size=15))
def test_every_request_has_its_answer(requests: list[tuple[str, dict[str, str], bytes]]) -> None:
    async def story() -> list[tuple[int, Any]]:
        answers = []
        async with Engine(script) as engine:
            says = Says(
                text(engine.port, "safety_tokens = 1\nquantile = 0.9").replace(
                    'ask = "never"', 'ask = "unsure"'
                )
            )
            async with service_of(says) as service:
                for path, headers, body in requests:
                    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                    reader, writer = await asyncio.open_connection("127.0.0.1", service.gateway.port)
                    writer.write(
                        f"POST {path} HTTP/1.1\r\nHost: g\r\nx-api-key: {KEY_A}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode()
                        + body
                    )
                    answer = await read_answer(reader)
                    writer.transport.abort()
                    code = None if answer.status == 200 else json.loads(answer.body)["error"]["code"]
                    answers.append((answer.status, code))
                assert service.gateway.counters.policy_failures == 0
                observers = service.gateway.observers
                assert observers is not None
                assert observers.failures == 0
        return answers

    for status, code in asyncio.run(story()):
        assert status == 200 or 400 <= status < 500 or code in ("engine-opening",), (status, code)
        assert code not in OWN_FAILURES
