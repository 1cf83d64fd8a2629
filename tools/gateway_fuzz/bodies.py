"""Bodies of requests: what a client may send, and then what none would. Everything by a seeded `Random`."""

from __future__ import annotations

import json
from random import Random
from typing import Any

CANARY = "canary-of-a-prompt"
"""In every prompt, so that it can be looked for where no prompt belongs."""
FIELDS = (
    "model", "messages", "prompt", "input", "text", "input_ids", "content", "system", "instructions", "tools", "max_tokens",
    "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict", "n", "best_of", "n_cmpl", "stream", "stream_options",
    "sampling_params", "cache_salt", "extra_key", "response_format", "truncate_prompt_tokens", "previous_response_id", "background",
    "kv_transfer_params", "bootstrap_host", "vllm_xargs", "lora", "lora_path", "chat_template", "chat_template_kwargs", "documents",
    "reasoning_effort", "continue_final_message", "add_special_tokens", "image_data", "id_slot", "session_params", "priority", "stop",
)  # fmt: skip
"""Members that the gateway or an engine reads."""
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": CANARY}]},
    "/v1/completions": {"model": "m", "prompt": CANARY, "max_tokens": 4},
    "/v1/responses": {"model": "m", "input": CANARY, "max_output_tokens": 4},
    "/v1/messages": {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": CANARY}]}],
        "max_tokens": 4,
    },
    "/v1/embeddings": {"model": "m", "input": [CANARY, CANARY]},
    "/completion": {"prompt": CANARY, "n_predict": 4},
    "/embedding": {"content": CANARY},
    "/generate": {"text": CANARY, "sampling_params": {"max_new_tokens": 4}},
}
TEXTS = (
    '"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"a\\r\\nx-evil: 1"', '""', '"' + "x" * 300 + '"', '"16"', '"-1"', '"../../etc/passwd"',
    '"http://169.254.169.254/"', '"é\U0001f600"',
)  # fmt: skip
NUMBERS = (
    "0", "-0", "-1", "1", "-2", "true", "1.5", "-1.0", "16.0", "1e3", "1e308", "1e400", "-1e400", "4294967296", "9223372036854775807",
    "9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "1099511627776", "9" * 400, "0.1e-400",
)  # fmt: skip
NOT_JSON = (
    "NaN",
    "Infinity",
    "-Infinity",
    "01",
    "+1",
    "0x10",
    "'a'",
    "nul",
    "",
    "{",
    "]",
    '"',
    "\x00",
    "//",
    '{"a":1,}',
)


def body(random: Random, path: str) -> bytes:
    """A body for a path; by and by further from what it should be."""
    members = {name: json.dumps(value) for name, value in PATHS.get(path, PATHS["/v1/completions"]).items()}
    for _ in range(random.choice((0, 0, 1, 1, 2, 4))):
        members[random.choice(FIELDS)] = value(random)
    parts = [f"{json.dumps(name)}:{text}" for name, text in members.items()]
    if random.random() < 0.15:  # a member twice, once by another spelling
        name = random.choice(list(members))
        parts.append(f'"\\u{ord(name[0]):04x}{name[1:]}":{value(random)}')
    text = "{" + ",".join(parts) + "}"
    data = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.15:
        data = damaged(random, data)
    if random.random() < 0.03:
        data = random.choice(
            (b"\xef\xbb\xbf" + data, data.decode("utf-8", "replace").encode("utf-16"), data + b"\n" + data)
        )
    return data


def value(random: Random, depth: int = 0) -> str:
    """The text of a JSON value, or of what looks like one."""
    kind = random.randrange(12 if depth < 4 else 6)
    if kind < 2:
        return random.choice(NUMBERS)
    if kind < 4:
        return random.choice(TEXTS)
    if kind == 4:
        return random.choice(("null", "true", "false", "[]", "{}", '[""]', "[null]", "[[]]", "[0]", "[-1]"))
    if kind == 5:
        return random.choice(NOT_JSON) if random.random() < 0.3 else "null"
    if kind == 6:  # deeper than anybody reads
        many = random.choice((10, 500, 1500, 20_000))
        return random.choice(("[" * many + "]" * many, '{"a":' * many + "1" + "}" * many, "[" * many))
    if kind in (7, 8):
        return "[" + ",".join(value(random, depth + 1) for _ in range(random.randrange(4))) + "]"
    if kind == 9:
        return "[" + ",".join([random.choice(NUMBERS[:5])] * random.choice((3, 400))) + "]"
    names = random.choices((*FIELDS, "role", "type", "text", "content", "usage", "image_url", "a"), k=3)
    return "{" + ",".join(f"{json.dumps(name)}:{value(random, depth + 1)}" for name in names) + "}"


def damaged(random: Random, data: bytes) -> bytes:
    """A few bytes taken out, put in or changed."""
    piece = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(piece) + 1)
        match random.randrange(4):
            case 0:
                del piece[at : at + random.choice((1, 1, 7))]
            case 1:
                piece[at:at] = random.choice(
                    (b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"\xff", b"\xc0\xaf", b"0", b"\r\n\r\n")
                )
            case 2:
                piece[at : at + 1] = bytes([random.randrange(256)])
            case _:
                piece[at:at] = piece[at : at + random.choice((1, 9, 40))]
    return bytes(piece)
