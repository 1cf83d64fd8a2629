"""What keeps tenants from sharing blocks of an engine's prefix cache: a member of the body that goes into the hash of each first block.

vLLM (entrypoints/openai/protocol.py and its successors) has `cache_salt` in chat since 0.9.0, in completions and responses since 0.10.0,
in embeddings since 0.16 or a little earlier, in Anthropic's messages since 0.27; at most 128 characters without `@`, `/`, `\\`. Before 0.11 its
old engine (V0) refuses a body that has it. SGLang (managers/io_struct.py) has `extra_key` in chat, completions, responses and its own
/generate; a client's `cache_salt`, which SGLang takes apart from it or puts before it, stays as it is. Some releases up to
spring 2026 read both and dropped them on the way (sgl-project/sglang#23300). TensorRT-LLM (serve/openai_protocol.py) has
`cache_salt` in chat since 1.1 (NVIDIA/TensorRT-LLM#7106) and refuses members that it does not know. llama.cpp has none: slots are given to
whoever shares the longest prefix.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import msgspec

from vramledger.gateway.admitter import Kind

Members = Mapping[Kind, str]
_GENERATING = (Kind.CHAT, Kind.COMPLETION, Kind.RESPONSE)
_VLLM = ((Kind.CHAT, (0, 9)), (Kind.COMPLETION, (0, 10)), (Kind.RESPONSE, (0, 10)), (Kind.EMBEDDING, (0, 16)), (Kind.MESSAGE, (0, 27)))  # fmt: skip


class Salting(msgspec.Struct, frozen=True, kw_only=True):
    """Which member of a body separates prefixes, by kind of request, and what there is to say of it."""

    members: Members = {}
    note: str = ""


class BadSalt(ValueError):
    """A client's own salt that is neither text nor a list of texts."""


def salting_for(engine: str | None, version: str | None) -> Salting:
    """By the engine's name here (vllm, sglang, tensorrt-llm, llamacpp) and the version that it told, if it did."""
    release = _release(version)
    if engine == "vllm":
        kinds = [kind for kind, since in _VLLM if release is None or release >= since]
        return Salting(
            members=dict.fromkeys(kinds, "cache_salt"), note=_said("vLLM", "cache_salt", kinds, version)
        )
    if engine == "sglang":
        return Salting(
            members=dict.fromkeys(_GENERATING, "extra_key"),
            note=_said("SGLang", "extra_key", _GENERATING, version),
        )
    if engine == "tensorrt-llm":
        kinds = [Kind.CHAT] if release is not None and release >= (1, 1) else []
        return Salting(
            members=dict.fromkeys(kinds, "cache_salt"),
            note=_said("TensorRT-LLM", "cache_salt", kinds, version),
        )
    if engine == "llamacpp":
        return Salting(
            note="llama.cpp has no cache salt: tenants may find each other's prefixes in its slots, by time"
        )
    return Salting(
        note="the engine is not known, so no cache salt is set: tenants may share its prefix cache"
    )


def together(saltings: list[Salting]) -> Salting:
    """For requests that may go to any of several engines: a kind is salted where all of them take the same member."""
    if not saltings:
        return salting_for(None, None)
    first, *others = saltings
    members = {
        kind: name
        for kind, name in first.members.items()
        if all(other.members.get(kind) == name for other in others)
    }
    return Salting(members=members, note="; ".join(dict.fromkeys(salting.note for salting in saltings)))


def tenants_salt(secret: bytes, tenant: str, clients: object) -> str | list[str]:
    """Stable for a tenant under one secret, and another for each salt of the client's own. A list (SGLang, a batch) stays one.

    Raises BadSalt.
    """
    if clients is None or clients == "":
        return _keyed(secret, tenant, None)
    if isinstance(clients, str):
        return _keyed(secret, tenant, clients)
    if isinstance(clients, list):
        salts = [tenants_salt(secret, tenant, one) for one in clients if one is None or isinstance(one, str)]
        if len(salts) == len(clients):
            return [salt for salt in salts if isinstance(salt, str)]
    raise BadSalt("it is neither a text nor a list of texts")


def _keyed(secret: bytes, tenant: str, clients: str | None) -> str:
    name = tenant.encode("utf-8")
    own = b"" if clients is None else b"\x01" + clients.encode("utf-8", "surrogatepass")
    return hmac.new(secret, b"%d:%b%b" % (len(name), name, own), hashlib.sha256).hexdigest()


def _release(version: str | None) -> tuple[int, int] | None:
    words = (version or "").split(".")
    if len(words) < 2 or not words[0].isdecimal() or not words[1].isdecimal():
        return None
    return int(words[0]), int(words[1])


def _said(engine: str, member: str, kinds: object, version: str | None) -> str:
    names = ", ".join(kind.value for kind in Kind if isinstance(kinds, list | tuple) and kind in kinds)
    told = f"{engine} {version}" if version else f"{engine} (its version is not known)"
    others = ", ".join(kind.value for kind in Kind if isinstance(kinds, list | tuple) and kind not in kinds)
    if not names:
        return f"{told}: no cache salt is set, so tenants may share its prefix cache"
    return f"{told}: {member} is set per tenant for {names}" + (f"; not for {others}" if others else "")
