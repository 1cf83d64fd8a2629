"""The part of Envoy's API that an admission needs, on the wire: protobuf's own runtime reads and writes it by descriptors built here.

Field numbers are those of `envoy/service/ext_proc/v3/external_processor.proto` and of what it imports, from Envoy's published API. The
descriptors live in a pool of their own, so other copies of that API in one process are not disturbed; fields that are not
named here are skipped, as protobuf does with any it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, struct_pb2
from google.protobuf.message import DecodeError

from vramledger.gateway.envoy.messages import NO_CHANGE, HeaderChange, Modes, Part, Said
from vramledger.gateway.envoy.picking import PICKED, SUBSET_KEY, SUBSET_SPACE
from vramledger.gateway.replies import Headers, Reply

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
_FILTER = "envoy.filters.http.ext_proc"
_OVERWRITE = 2
"""`OVERWRITE_IF_EXISTS_OR_ADD`. To append, the filter wants the older `append`: its default is not the action's."""
_SEND = 1

_STRUCT, _DURATION = "google.protobuf.Struct", "google.protobuf.Duration"
# Message -> fields as NAME NUMBER TYPE; `*` repeats, `|` belongs to the message's one choice, `map<string, T>` is written @T.
_SUBSET: Mapping[str, str] = {
    "ProcessingRequest": "request_headers 2 |HttpHeaders, response_headers 3 |HttpHeaders, request_body 4 |HttpBody, "
    "response_body 5 |HttpBody, request_trailers 6 |HttpTrailers, response_trailers 7 |HttpTrailers, "
    f"metadata_context 8 Metadata, attributes 9 @{_STRUCT}, observability_mode 10 bool, protocol_config 11 ProtocolConfiguration",
    "ProcessingMode": "response_body_mode 4 int32, response_trailer_mode 6 int32",
    "ProtocolConfiguration": "request_body_mode 1 int32, response_body_mode 2 int32",
    "ProcessingResponse": "request_headers 1 |PartResponse, response_headers 2 |PartResponse, request_body 3 |PartResponse, "
    "response_body 4 |PartResponse, request_trailers 5 |TrailersResponse, response_trailers 6 |TrailersResponse, "
    f"immediate_response 7 |ImmediateResponse, dynamic_metadata 8 {_STRUCT}, mode_override 9 ProcessingMode, "
    f"override_message_timeout 10 {_DURATION}",
    "HttpHeaders": "headers 1 HeaderMap, end_of_stream 3 bool",
    "HttpBody": "body 1 bytes, end_of_stream 2 bool",
    "HttpTrailers": "trailers 1 HeaderMap",
    "PartResponse": "response 1 CommonResponse",  # HeadersResponse and BodyResponse are alike
    "TrailersResponse": "header_mutation 1 HeaderMutation",
    "CommonResponse": "status 1 int32, header_mutation 2 HeaderMutation, body_mutation 3 BodyMutation, clear_route_cache 5 bool",
    "ImmediateResponse": "status 1 HttpStatus, headers 2 HeaderMutation, body 3 bytes, details 5 string",
    "HttpStatus": "code 1 int32",
    "HeaderMutation": "set_headers 1 *HeaderValueOption, remove_headers 2 *string",
    "BodyMutation": "body 1 |bytes, clear_body 2 |bool, streamed_response 3 |StreamedBodyResponse",
    "StreamedBodyResponse": "body 1 bytes, end_of_stream 2 bool",
    "HeaderMap": "headers 1 *HeaderValue",
    "HeaderValue": "key 1 string, value 2 string, raw_value 3 bytes",
    "HeaderValueOption": "header 1 HeaderValue, append 2 BoolValue, append_action 3 int32",
    "BoolValue": "value 1 bool",  # as google.protobuf.BoolValue
    "Metadata": f"filter_metadata 1 @{_STRUCT}",
}
_PACKAGE = "vramledger.envoy"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
}


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in (struct_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="vramledger/envoy.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[struct_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name],
    )
    for name, fields in _SUBSET.items():
        message = file.message_type.add(name=name)
        if "|" in fields:
            message.oneof_decl.add(name="choice")
        for field in fields.split(", "):
            _add_field(message, *field.split(" "))
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _SUBSET
    }


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: str, kind: str) -> None:
    field = message.field.add(
        name=name,
        number=int(number),
        label=_Field.LABEL_REPEATED if kind[0] in "*@" else _Field.LABEL_OPTIONAL,
    )
    if kind[0] == "|":
        field.oneof_index = 0
    word = kind.lstrip("*|@")
    if kind[0] == "@":
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", "1", "string")
        _add_field(entry, "value", "2", word)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{message.name}.{entry.name}"
    elif word in _SCALARS:
        field.type = _SCALARS[word]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{word if '.' in word else f'{_PACKAGE}.{word}'}"


_CLASSES = _classes()
_Request, _Response = _CLASSES["ProcessingRequest"], _CLASSES["ProcessingResponse"]
_PARTS = {part.value: part for part in Part if part.value}


def read(data: bytes) -> Said:
    """One message of a stream. What is no such message has the part UNKNOWN."""
    try:
        message = _Request.FromString(data)
    except DecodeError:
        return Said(part=Part.UNKNOWN)
    part = _PARTS.get(message.WhichOneof("choice") or "", Part.UNKNOWN)
    headers: Headers = []
    body, ends = b"", False
    if part in (Part.REQUEST_BODY, Part.RESPONSE_BODY):
        held = message.request_body if part is Part.REQUEST_BODY else message.response_body
        body, ends = held.body, held.end_of_stream
        if part is Part.RESPONSE_BODY:
            return Said(part=part, body=body, ends=ends)
    elif part in (Part.REQUEST_HEADERS, Part.RESPONSE_HEADERS):
        held = message.request_headers if part is Part.REQUEST_HEADERS else message.response_headers
        headers = [(one.key.encode(), one.raw_value or one.value.encode()) for one in held.headers.headers]
        ends = held.end_of_stream
    modes = None
    if message.HasField("protocol_config"):
        told = message.protocol_config
        modes = Modes(request_body=told.request_body_mode, response_body=told.response_body_mode)
    return Said(
        part=part,
        headers=headers,
        body=body,
        ends=ends,
        modes=modes,
        observing=message.observability_mode,
        subset=_subset(message),
        details=_attribute(message, "response.code_details") if message.attributes else "",
        served_by=_attribute(message, "upstream.address") if message.attributes else "",
    )


def _subset(message: Any) -> tuple[str, ...] | None:
    if SUBSET_SPACE not in message.metadata_context.filter_metadata:
        return None
    fields = message.metadata_context.filter_metadata[SUBSET_SPACE].fields
    if SUBSET_KEY not in fields:
        return None
    value = fields[SUBSET_KEY]
    if value.WhichOneof("kind") == "list_value":
        return tuple(one.string_value for one in value.list_value.values)
    return tuple(word.strip() for word in value.string_value.split(",") if word.strip())


def _attribute(message: Any, name: str) -> str:
    if _FILTER not in message.attributes:
        return ""
    fields = message.attributes[_FILTER].fields
    return str(fields[name].string_value) if name in fields else ""


def go_on(
    part: Part,
    change: HeaderChange = NO_CHANGE,
    *,
    body: bytes | None = None,
    reroute: bool = False,
    picked: str | None = None,
) -> bytes:
    """CONTINUE for a part that was sent: with changed headers, another `body` in the place of a buffered one, the route looked
    up anew, the endpoint that was `picked` as dynamic metadata."""
    message = _Response()
    common = getattr(message, part.value).response
    common.SetInParent()
    _change(common.header_mutation, change)
    if body is not None:
        common.body_mutation.body = body
    if reroute:
        common.clear_route_cache = True
    if picked is not None:
        message.dynamic_metadata.update({"envoy.lb": {PICKED: picked}})
    data: bytes = message.SerializeToString()
    return data


def give_back(part: Part, body: bytes, *, ends: bool) -> bytes:
    """A piece of a body for FULL_DUPLEX_STREAMED, where what is not given back is gone."""
    message = _Response()
    streamed = getattr(message, part.value).response.body_mutation.streamed_response
    streamed.body, streamed.end_of_stream = body, ends
    data: bytes = message.SerializeToString()
    return data


def trailers_pass(part: Part) -> bytes:
    message = _Response()
    getattr(message, part.value).SetInParent()
    data: bytes = message.SerializeToString()
    return data


def refuse(reply: Reply, details: str) -> bytes:
    """An answer of our own in the place of the engine's. `details` is for Envoy's log, without spaces."""
    message = _Response()
    immediate = message.immediate_response
    immediate.status.code = reply.status
    immediate.body = reply.body
    immediate.details = details
    _change(immediate.headers, HeaderChange(put=reply.headers))
    data: bytes = message.SerializeToString()
    return data


def more_time(wait_ms: int) -> bytes:
    """Asks Envoy to wait so much longer for the answer that comes next; heeded once for each part, up to its `max_message_timeout`."""
    message = _Response()
    message.override_message_timeout.FromMilliseconds(wait_ms)
    data: bytes = message.SerializeToString()
    return data


def _change(mutation: Any, change: HeaderChange) -> None:
    seen = set()
    for name, value in change.put:
        option = mutation.set_headers.add(header={"key": name.decode("latin-1"), "raw_value": value})
        if name in seen:
            option.append.value = True
        else:
            option.append_action = _OVERWRITE
            seen.add(name)
    mutation.remove_headers.extend(name.decode("latin-1") for name in change.remove)


def unwatched(answer: bytes) -> bytes:
    """An answer to response headers that also asks Envoy to send no body: only trailers, which event streams have none of, so that the
    stream stays open as long as the client's. Envoy heeds it where the filter has `allow_mode_override`."""
    message = _Response.FromString(answer)
    message.mode_override.response_trailer_mode = _SEND
    data: bytes = message.SerializeToString()
    return data


SEEN = go_on(Part.RESPONSE_BODY)
"""A piece of an answer was seen and may pass, as STREAMED wants it for each."""
