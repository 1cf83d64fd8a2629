"""What Envoy 1.40 sent for one streamed chat completion, message by message, on the configuration of deploy/envoy."""

from __future__ import annotations

REQUEST_HEADERS = (
    b"\x12\x87\x02\n\x84\x02\n\x15\n\n:authority\x1a\x07gateway\n\x1d\n\x05:path\x1a\x14/v1/chat/completions"
    b"\n\x0f\n\x07:method\x1a\x04POST\n\x0f\n\x07:scheme\x1a\x04http\n\x14\n\x0econtent-length\x1a\x0282"
    b"\n\x1c\n\x0fx-forwarded-for\x1a\t192.0.2.2\n\x19\n\x11x-forwarded-proto\x1a\x04http"
    b"\n%\n\x18x-envoy-external-address\x1a\t127.0.0.1\n4\n\x0cx-request-id\x1a$c515272e-d3fe-4838-be52-3ce65d72e201"
    b"B\x00Z\x04\x08\x02\x10\x01"
)
REQUEST_BODY = (
    b'"V\nR{"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": true}\x10\x01B\x00'
)
RESPONSE_HEADERS = (
    b"\x1aw\nu\n\x0e\n\x07:status\x1a\x03200\n!\n\x0ccontent-type\x1a\x11text/event-stream"
    b'\n\x1c\n\x11transfer-encoding\x1a\x07chunked\n"\n\x1dx-envoy-upstream-service-time\x1a\x010B\x00'
    b"JH\n\x1benvoy.filters.http.ext_proc\x12)\n'\n\x15response.code_details\x12\x0e\x1a\x0cvia_upstream"
)
RESPONSE_BODY = (
    b'*T\nPdata: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\ndata: [DONE]\n\n\x10\x01B\x00'
)
EXCHANGE = (REQUEST_HEADERS, REQUEST_BODY, RESPONSE_HEADERS, RESPONSE_BODY)
