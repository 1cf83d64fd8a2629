"""Sections of a gateway's configuration that stand for parts of their own. Secrets are named, not held."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_address

import msgspec

from vramledger.engines import engine_name, engine_names
from vramledger.errors import InputError, shorter
from vramledger.gateway.shared.settings import SharingSettings, WhenLost
from vramledger.gateway.tokens.settings import Ask
from vramledger.gateway.tracing.settings import TraceSettings


class UpstreamSection(msgspec.Struct, frozen=True, kw_only=True):
    """`[[upstream]]`: one engine."""

    url: str
    """http(s)://HOST:PORT."""
    name: str = ""
    """What metrics and logs call it; its address where it is not given."""
    engine: str = ""
    """vllm, sglang, llamacpp or tensorrt-llm, where it cannot be asked."""
    key_env: str = ""
    """The environment variable with the key that the engine wants (its --api-key). Clients' keys never reach it then."""
    key_file: str = ""
    """A file with that key, in the place of key_env."""
    pool_tokens: int | None = None
    """KV tokens of its pool, where the engine does not say."""
    max_model_len: int | None = None
    """The longest context, prompt and output, where the engine does not say."""
    max_running: int | None = None
    """The most requests that it runs at once, where it does not say."""
    kv_unified: bool | None = None
    """Of llama.cpp: whether its slots share one pool (--kv-unified), which its server does not say."""

    def __post_init__(self) -> None:
        if self.engine and engine_name(self.engine) not in engine_names():
            raise InputError(
                f"upstream.engine is {shorter(self.engine)}, which is none of {', '.join(engine_names())}",
                key="upstream.engine",
                value=self.engine,
            )

    @property
    def label(self) -> str:
        """What it is called wherever something is told of it."""
        return self.name or self.url


class Salt(StrEnum):
    AUTO = "auto"
    """Wherever the engine reads one."""
    OFF = "off"
    """Never: tenants share the engine's prefix cache."""


class SaltSection(msgspec.Struct, frozen=True, kw_only=True):
    """`[salt]`: what keeps tenants from sharing prefixes in an engine."""

    mode: Salt = Salt.AUTO
    """auto (wherever the engine reads one) or off (tenants share the engine's prefix cache)."""
    secret_env: str = ""
    """The environment variable with the secret that salts are made with: at least 16 bytes, the same on all gateways of an engine. A new
    one at every start where there is none."""
    secret_file: str = ""
    """A file with that secret, in the place of secret_env."""


class AdminSection(msgspec.Struct, frozen=True, kw_only=True):
    """`[admin]`: metrics, health, state, draining and reloading, on a port of its own."""

    listen: str = "127.0.0.1:8099"
    """HOST:PORT; "" for none."""
    token_env: str = ""
    """The environment variable with the token that it asks for. Needed where it listens on anything but this machine's own address."""
    token_file: str = ""
    """A file with that token, in the place of token_env."""


class TokensSection(msgspec.Struct, frozen=True, kw_only=True):
    """`[tokens]`: how prompts are counted before the engine has them."""

    tokenizer: str = ""
    """The model's tokenizer.json, or the folder that has it, for counting beside the gateway."""
    chat_template: str = ""
    """A file with its chat template, where it does not lie beside the tokenizer."""
    ask: Ask = Ask.UNSURE
    """When the engine's own endpoint is asked: never, unsure (when the estimate leaves much open, or rests on too little) or always."""
    unsure_tokens: int = 256
    """How much an estimate may leave open."""
    within_ms: int = 250
    """How long the engine's count is waited for."""


class TelemetrySection(msgspec.Struct, frozen=True, kw_only=True):
    """`[telemetry]`: what the gateway tells beside its metrics."""

    models: tuple[str, ...] = ()
    """Names of models that metrics tell apart; those of completed requests where there are none."""
    traces_endpoint: str = ""
    """Where traces go, OTLP over HTTP (http://HOST:4318/v1/traces); none are made without it."""
    traces_ratio: float = 0.1
    """The share of requests that begin a trace; one that continues a client's trace follows the client's choice."""
    request_log: str = ""
    """A file that gets a line of JSON for each priced request; nothing of prompts, outputs or keys. POST /reload and SIGHUP open it anew."""

    def __post_init__(self) -> None:
        _ = self.traces

    @property
    def traces(self) -> TraceSettings | None:
        if not self.traces_endpoint:
            return None
        return TraceSettings(endpoint=self.traces_endpoint, ratio=self.traces_ratio)


class EnvoySection(msgspec.Struct, frozen=True, kw_only=True):
    """`[envoy]`: the same admission for an Envoy that stands before the engines, as its external processor (gRPC)."""

    listen: str = ""
    """HOST:PORT or unix:PATH, where Envoy's ext_proc filter asks; nothing listens for it without it."""
    endpoints: tuple[str, ...] = ()
    """The engines as Envoy knows them, IP:PORT each, in the order of the upstreams; the upstreams' own addresses where none are given."""
    watch_streams: bool = True
    """Whether pieces of streams are seen: lengths and errors inside them are learned from, at some 0.2 ms of a core for each piece."""
    tls_cert: str = ""
    """A file with the certificate that Envoy is shown; gRPC is plain without one."""
    tls_key: str = ""
    """The certificate's key, where it is not in the same file."""
    client_ca: str = ""
    """A file with the certificates that sign Envoy's own; with it, nobody without one is served."""

    def __post_init__(self) -> None:
        if (self.tls_key or self.client_ca) and not self.tls_cert:
            raise InputError("envoy.tls_cert is needed with envoy.tls_key and envoy.client_ca")
        for endpoint in self.endpoints:
            endpoint_of(endpoint, "envoy.endpoints")


class SharedSection(msgspec.Struct, frozen=True, kw_only=True):
    """`[shared]`: several gateways before the same engines, which keep what each may use in Valkey or Redis."""

    url_env: str = ""
    """The environment variable with the store's URL, valkey://[USER:PASSWORD@]HOST[:PORT][/DATABASE]. Without it or url_file nothing is
    shared."""
    url_file: str = ""
    """A file with that URL, in the place of url_env."""
    namespace: str = "vramledger"
    """What the store's keys begin with."""
    lease_ms: int = 10_000
    """How long what a gateway holds is kept for it when it is not heard of."""
    when_lost: WhenLost = WhenLost.STOP
    """What is admitted while the store does not answer: stop (nothing), grant (as granted last) or share (a fixed part)."""
    share: float = 0.0
    """For when_lost = "share": this gateway's part of each engine, above 0 and up to 1."""

    def __post_init__(self) -> None:
        if self.url_env and self.url_file:
            raise InputError("shared.url_env and shared.url_file are both given")
        _ = self.settings

    @property
    def settings(self) -> SharingSettings:
        return SharingSettings.of_lease(
            self.lease_ms, namespace=self.namespace, when_lost=self.when_lost, share=self.share
        )


def endpoint_of(text: str, name: str) -> str:
    """IP:PORT, an IPv6 address in brackets. Raises InputError."""
    host, _, port = text.rpartition(":")
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
        if not port.isdecimal() or not port.isascii() or not 0 < int(port) < 1 << 16:
            raise ValueError(port)
    except ValueError:
        raise InputError(f"{name} has {shorter(text)}: IP:PORT is needed", value=text) from None
    return f"[{address}]:{int(port)}" if address.version == 6 else f"{address}:{int(port)}"
