"""HTTP/1.1 as nobody should write it: by a grammar of oddities, and by damage. Everything by a seeded `Random`."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tools.gateway_fuzz.bodies import PATHS, body, damaged

GUARDED = frozenset(
    ("metrics", "slots", "props", "server_info", "get_server_info", "sleep", "wake_up", "reset_prefix_cache", "flush_cache", "abort_request",
     "load_lora_adapter", "collective_rpc", "state", "drain", "reload")
)  # fmt: skip
"""First words of paths that no client's request may reach on an engine by default (the last three are the admin port's)."""
OTHER_PATHS = (
    "/", "*", "/health", "/version", "/v1/models", "/v1/models/a%2fb", "/tokenize", "/metrics", "/v1/metrics", "//metrics", "/%6detrics",
    "/metrics%00", "/metrics;a=1", "/METRICS", "/metrics/", "/metrics?x", "/metrics#x", "/health/../metrics", "/health/%2e%2e/metrics",
    "/health%2f..%2fmetrics", "/models/..%252fmetrics", "/models/%2e%2e%2fslots", "/slots?fail_on_no_slot=1", "/slots/0?action=save",
    "/%73lots", "/\u017flots", "/slots%3f", "/props%20", "/v1/v1/slots", "/v1/%2e/slots", "/models\\..\\slots", "/state", "/drain",
    "/reload", "/admin/reload", "/server_info", "/v1/../server_info", "/v1/audio/speech", "/v1/responses/resp_1",
    "http://127.0.0.1/metrics", "http://169.254.169.254/", "https://a/", "//169.254.169.254/latest", "169.254.169.254:80", "/a b",
    "/%", "/%zz", "/" + "a" * 3000, "/" + "%41" * 500, "/\xff\xfe", "/\t", "",
)  # fmt: skip
METHODS = ("POST",) * 12 + (
    "GET", "GET", "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE", "PRI", "post", "POST\t", "G\x00T", "", "SEARCH",
)  # fmt: skip
VERSIONS = ("HTTP/1.1",) * 24 + (
    "HTTP/1.0", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "HTTP/1.10", "HTTP/11", "http/1.1", "HTP/1.1", "", "HTTP/1.1 ",
)  # fmt: skip
ENDS = ("\r\n",) * 30 + ("\n", "\r", "\r\r\n", "\n\r", "\r\n ")
HEADERS = (
    "Host: other", "Host:", "hOST: a, b", "Connection: close", "Connection: keep-alive", "Connection: keep-alive, close",
    "Connection: content-length, host, authorization", "Connection: transfer-encoding", "Connection: upgrade", "Connection: x-api-key",
    "Keep-Alive: timeout=999", "Proxy-Connection: keep-alive", "Upgrade: websocket", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__",
    "Expect: 100-continue", "Expect: 200-ok", "Expect: 100-continue, 100-continue", "TE: trailers", "Trailer: content-length",
    "Content-Length: 0", "Content-Length: 5", "Content-Length: +5", "Content-Length: -1", "Content-Length: 0x5", "Content-Length: 5, 5",
    "Content-Length: 99999999999999999999999", "Content-Length : 5", " Content-Length: 5", "Content-Length:\t5", "Content_Length: 5",
    "Content-Length: 5\x00", "Content-Length: \u0665", "Transfer-Encoding: chunked", "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: xchunked", "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding : chunked", "Transfer_Encoding: chunked", "transfer-encoding: CHUNKED", "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding:", "Content-Encoding: gzip", "Content-Type: application/json; charset=utf-16", "Content-Type: multipart/form-data",
    "x-request-priority: -999999", "x-request-priority: 1e9", "x-request-priority: 5", "x-request-deadline-ms: 0",
    "x-request-deadline-ms: 99999999999999999999", "x-first-token-deadline-ms: \u0661", "x-first-token-deadline-ms: 1",
    "x-http-method-override: GET", "x-original-url: /metrics", "x-forwarded-for: 127.0.0.1", "x-forwarded-host: a", "forwarded: for=127.0.0.1",
    "via: 1.1 vramledger", "x-vramledger-rule: fits", "Authorization: Basic YTpi", "Authorization: Bearer", "Authorization: Bearer vl_0",
    "api-key: x", "x-api-key: x", "traceparent: 00-00000000000000000000000000000000-0000000000000000-00", "traceparent: x",
    "tracestate: " + "a=b," * 40, "X: a\x00b", "X: a\rb", "X: a\nb", "X\x00: a", "X Y: a", ": empty", "no colon", "X:", "\xe9: \xe9", "X: \xff\xfe",
    "Cookie: a=b", "Origin: null", "Accept-Encoding: gzip", "X: " + "y" * 4000,
)  # fmt: skip
PREFACES = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40,
    b"GET /health\r\n",
    b"\r\n\r\n\r\n",
    b"\0",
    b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
    b"SSH-2.0-x\r\n",
    b"\xff" * 60,
    b"{}",
)
LAST = b"GET /v1/models HTTP/1.1\r\nHost: g\r\nConnection: close\r\n%b\r\n"


def conversation(random: Random, keys: Sequence[str]) -> list[bytes]:
    """What one client writes, in the pieces in which it does: a few requests after one another, and one that ends the connection."""
    key = random.choice(keys) if keys and random.random() < 0.9 else ""
    header = random.choice((f"Authorization: Bearer {key}", f"x-api-key: {key}")) if key else ""
    is_plain = random.random() < 0.5  # what it says may be hostile all the same
    requests = [
        plain_request(random, header) if is_plain else request(random, header)
        for _ in range(random.choice((1, 1, 1, 2, 3)))
    ]
    data = b"".join(requests)
    if not is_plain and random.random() < 0.1:
        data = random.choice(PREFACES) + data
    if not is_plain and random.random() < 0.3:
        data = damaged(random, data)
    data += LAST % (header.encode("ascii") + b"\r\n" if header else b"")
    return pieces(random, data)


def plain_request(random: Random, key: str) -> bytes:
    """A request of a priced path that is right as HTTP, whatever its body."""
    path = random.choice(list(PATHS))
    content = body(random, path)
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: g",
        f"Content-Length: {len(content)}",
        *([key] * bool(key)),
        "",
        "",
    )
    return "\r\n".join(lines).encode("ascii") + content


def request(random: Random, key: str) -> bytes:
    """One request, right in most of its parts."""
    is_priced = random.random() < 0.7
    path = random.choice(list(PATHS) if is_priced else OTHER_PATHS)
    method, version = random.choice(METHODS), random.choice(VERSIONS)
    if not is_priced and random.random() < 0.6:
        method = "GET"
    content = body(random, path) if method not in ("GET", "HEAD") or random.random() < 0.1 else b""
    headers = ["Host: g"] * random.choice((1,) * 20 + (0, 2)) + [key] * bool(key)
    headers += random.choices(HEADERS, k=random.choice((0, 0, 0, 1, 1, 2, 3)))
    is_chunked = random.random() < 0.25
    if content and random.random() < 0.97:
        headers.append("Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(content)}")
    random.shuffle(headers)
    end = random.choice(ENDS)
    lines = end.join((f"{method} {path} {version}", *headers, "", ""))
    return lines.encode("utf-8", "surrogatepass") + (chunked(random, content) if is_chunked else content)


def chunked(random: Random, content: bytes) -> bytes:
    """The body in chunks, most of them as they should be."""
    parts = []
    at = 0
    while at < len(content):
        size = min(random.choice((1, 3, 50, 1000, 10**6)), len(content) - at)
        written = b"%x" % size
        match random.randrange(30):
            case 0:
                written = written.upper() + b";ext=" + b"v" * random.choice((1, 200))
            case 1:
                written = random.choice((b"0x", b"+", b"-", b" ", b"0" * 30)) + written
            case 2:
                written = b"f" * random.choice((8, 16, 17))
            case 3:
                written += random.choice((b" ", b"\t", b";", b";\n", b"\r", b'; a="\r\n"'))
        end = b"\r\n" if random.random() < 0.97 else random.choice((b"\n", b"", b"\r\n\r\n", b"xx"))
        parts.append(written + b"\r\n" + content[at : at + size] + end)
        at += size
    trailers = random.choice(
        (b"",) * 6 + (b"X: y\r\n", b"Content-Length: 5\r\n", b"Host: a\r\n", b"bad\r\n", b": \r\n")
    )
    parts.append(random.choice((b"0",) * 8 + (b"00", b"0;a=b", b"-0")) + b"\r\n" + trailers + b"\r\n")
    return b"".join(parts)


def pieces(random: Random, data: bytes) -> list[bytes]:
    """The bytes as they are written: in one, in a few, or one by one."""
    match random.randrange(6):
        case 0 if len(data) < 3000:
            return [data[at : at + 1] for at in range(len(data))]
        case 1:
            size = random.choice((2, 17, 1000))
            return (
                [data[at : at + size] for at in range(0, len(data), size)] if len(data) < 60_000 else [data]
            )
        case 2:
            at = random.randrange(len(data))
            return [data[:at], data[at:]]
    return [data]
