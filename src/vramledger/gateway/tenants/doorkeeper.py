"""The gateway's door: who is there, whether the path passes, and what the engine is sent instead of what came."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vramledger.gateway.admitter import Kind
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.replies import Headers, Reply, error_reply
from vramledger.gateway.stages import Asked, Visitor
from vramledger.gateway.tenants.cache_salt import BadSalt, Salting, tenants_salt
from vramledger.gateway.tenants.json_members import with_member
from vramledger.gateway.tenants.keys import KeyRing
from vramledger.gateway.tenants.paths import Unpriced, is_open, read_allowed, refusal_of
from vramledger.gateway.tenants.request_headers import (
    KEY_HEADERS,
    WISH_HEADERS,
    BadHeader,
    presented_key,
    wishes,
)
from vramledger.gateway.tenants.tenant import ANY_TENANT, EVERYBODY, Tenant, Tenants

ELSEWHERE = (
    "kv_transfer_params", "ec_transfer_params", "disaggregated_params", "bootstrap_host", "bootstrap_port", "bootstrap_room",
)  # fmt: skip
"""Members that make an engine open connections to where the client says. A router of disaggregated serving sets them, no client does."""
EXTRA = "vllm_xargs"
"""Members of this one vLLM takes for arguments of its own, those above among them."""
ADAPTERS = ("lora_path", "lora", "lora_request")
"""Members that name an adapter beside the model's name."""


class DoorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the door goes by. Secrets are bytes here and nowhere else.

    `keeps_keys`: the engines have keys of their own, so no client's is passed on even where there are no tenants. `salt_secret` None sets
    no cache salts.
    """

    tenants: Mapping[str, Tenant] = {}
    allow_paths: tuple[str, ...] = ()
    unpriced: Unpriced = Unpriced.REFUSE
    elsewhere: bool = False
    """Whether bodies may make the engine connect to where they say."""
    keeps_keys: bool = False
    salt_secret: bytes | None = None

    def __repr__(self) -> str:
        return f"DoorSettings({len(self.tenants)} tenants)"


class Door:
    """A `Doorkeeper`. Without tenants everybody is one tenant and headers pass as they are."""

    def __init__(self, settings: DoorSettings, salting: Salting | None = None) -> None:
        self.salting = salting or Salting()
        self.tenants = Tenants({})
        self.adopt(settings)

    def tenants_by_number(self, number: int) -> Tenant | None:
        """As they are now; None for one that is no more."""
        return self.tenants.get(number)

    def adopt(self, settings: DoorSettings) -> dict[int, int]:
        """Goes by other settings from now on; gives tenants' weights by number. Raises InputError, and then nothing has changed."""
        tenants = Tenants(settings.tenants, self.tenants)
        ring = KeyRing(tenants.hashes)
        allowed = tuple(map(read_allowed, settings.allow_paths))
        own = {
            name: tuple(map(read_allowed, tenant.allow_paths)) for name, tenant in settings.tenants.items()
        }
        self._salts: dict[str, str | list[str]] = {}
        self.settings, self.tenants, self._ring, self._allowed, self._own = (
            settings,
            tenants,
            ring,
            allowed,
            own,
        )
        return tenants.weights

    # Doorkeeper

    def visitor(self, head: RequestHead, kind: Kind | None) -> Visitor | Reply:
        name, tenant = "", ANY_TENANT
        if self.tenants:
            presented = presented_key(head.headers)
            owner = self._ring.owner(presented) if presented is not None else None
            if owner is None:
                if is_open(head.method, head.target):
                    return Visitor()
                return NO_KEY if presented is None else WRONG_KEY
            name, tenant = owner, self.tenants.by_name[owner]
        if kind is None:
            refused = refusal_of(
                head.method,
                head.target,
                (*self._allowed, *self._own.get(name, ())),
                unpriced=Unpriced.REFUSE if tenant.models else self.settings.unpriced,
                tenants_apart=len(self.tenants) > 1,
            )
            if refused is not None:
                return refused
        try:
            wished = wishes(head.headers)
        except BadHeader as problem:
            return error_reply(400, "bad-header", str(problem))
        return Visitor(
            tenant=self.tenants.number(name) if name else EVERYBODY,
            name=name,
            priority=tenant.priority if wished.priority is None else max(tenant.priority, wished.priority),
            first_token_within_ms=wished.first_token_within_ms or tenant.first_token_within_ms,
            within_ms=wished.within_ms or tenant.within_ms,
        )

    def outgoing(
        self, visitor: Visitor, head: RequestHead, kind: Kind | None, body: bytes, asked: Asked | None
    ) -> tuple[RequestHead, bytes] | Reply:
        if kind is not None and asked is not None:
            refused = self._refused(visitor, kind, asked)
            if refused is not None:
                return refused
            member = self.salting.members.get(kind)
            secret = self.settings.salt_secret
            if member is not None and secret is not None and visitor.name:
                try:
                    salt = self._salt(secret, visitor.name, asked.get(member))
                except BadSalt as problem:
                    return error_reply(400, "bad-salt", f"{member}: {problem}")
                body = with_member(body, member, salt, is_there=member in asked, is_empty=not asked)
        sent = RequestHead(
            method=head.method,
            target=head.target,
            headers=self._headers(head.headers),
            http_11=head.http_11,
            keep_alive=head.keep_alive,
        )
        return sent, body

    def _may_read(self, name: str, asked: Asked) -> bool:
        """Whether a tenant may go on from the stored answer that its request names, if it does: where it may read it by its path."""
        stored = asked.get("previous_response_id")
        if stored is None:
            return True
        words = [b"responses", str(stored).encode("utf-8", "replace")]
        return any(one.passes(b"GET", words) for one in (*self._allowed, *self._own.get(name, ())))

    def _salt(self, secret: bytes, tenant: str, clients: object) -> str | list[str]:
        """Raises BadSalt."""
        if clients is not None:
            return tenants_salt(secret, tenant, clients)
        salt = self._salts.get(tenant)
        if salt is None:
            salt = self._salts[tenant] = tenants_salt(secret, tenant, None)
        return salt

    def _headers(self, headers: Headers) -> Headers:
        """Keys are taken away where they were for us, or where the engine gets its own."""
        keeps = self.settings.keeps_keys or len(self.tenants) > 0
        dropped = WISH_HEADERS | KEY_HEADERS if keeps else WISH_HEADERS
        return [pair for pair in headers if pair[0] not in dropped]

    def _refused(self, visitor: Visitor, kind: Kind, asked: Asked) -> Reply | None:
        tenant = self.tenants.get(visitor.tenant)
        if tenant is None:  # it went while its request was read
            return WRONG_KEY
        if not self.settings.elsewhere:
            extra = asked.get(EXTRA)
            there = _there(asked, ELSEWHERE) or (
                _there(extra, ELSEWHERE) if isinstance(extra, dict) else None
            )
            if there:
                return error_reply(
                    400, "member-refused", f"{there} is not passed on: it names where the engine connects to"
                )
        if kind is Kind.RESPONSE and len(self.tenants) > 1 and not self._may_read(visitor.name, asked):
            return error_reply(
                400,
                "member-refused",
                "previous_response_id is not passed on: whose stored answer it is cannot be told; allow_paths with /responses/* lets it through",
            )
        if (
            kind is Kind.RESPONSE
            and asked.get("background") is True
            and self.settings.unpriced is Unpriced.REFUSE
        ):
            return error_reply(
                400, "background-refused", "a response in the background ends where the gateway cannot see it"
            )
        if tenant.models:
            if asked.get("model") not in tenant.models:
                return error_reply(404, "model-not-found", "the model is none that this key may ask for")
            if there := _there(asked, ADAPTERS):
                return error_reply(403, "adapter-refused", f"{there}: this key may name models alone")
        return None


def _there(asked: Asked, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if asked.get(name) is not None), None)


_CHALLENGE = [(b"www-authenticate", b'Bearer realm="vramledger"')]
_CODE = "invalid_api_key"  # as OpenAI spells it, whose clients look for it
NO_KEY = error_reply(
    401, _CODE, "no API key was given; send Authorization: Bearer KEY or x-api-key: KEY", headers=_CHALLENGE
)
WRONG_KEY = error_reply(401, _CODE, "the API key is none of this gateway's", headers=_CHALLENGE)
