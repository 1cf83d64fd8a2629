"""API keys: made here, kept as hashes, compared in constant time. Pure but for the randomness of a new key.

A key is `vl_ID_SECRET`, where ID is public (it names the hash to compare with) and SECRET has 256 random bits. What is kept is the SHA-256
of the whole key. A slow hash protects what people choose, because that can be guessed; 256 random bits cannot, and a slow hash at every
request would only help whoever wants the gateway to stand still. So nothing but this form is ever taken for a key, whatever its hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping

import msgspec

from vramledger.errors import InputError, shorter

ID_BYTES = 6
SECRET_BYTES = 32
_KEY = re.compile(rb"vl_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_LINE = re.compile(r"([0-9a-f]{12}):([0-9a-f]{64})")
_NOBODYS = bytes(hashlib.sha256().digest_size)
MOST_BYTES = 128
"""Of what is presented as a key more is not looked at."""


class KeyHash(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration holds of a key: its public id and the SHA-256 of the whole."""

    id: str
    digest: bytes

    @property
    def line(self) -> str:
        return f"{self.id}:{self.digest.hex()}"


def new_key() -> tuple[str, KeyHash]:
    """A key from the operating system's randomness, to be shown once, and what to keep of it."""
    name = secrets.token_hex(ID_BYTES)
    key = f"vl_{name}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return key, KeyHash(id=name, digest=hashlib.sha256(key.encode("ascii")).digest())


def read_key_hash(line: str) -> KeyHash:
    """`ID:SHA256` as `new_key` wrote it. An InputError never repeats what stands there if it may be a key itself."""
    found = _LINE.fullmatch(line)
    if found is None:
        shown = "a key itself, not its hash" if line.startswith("vl_") else "not of the form ID:SHA256"
        raise InputError(f"a key's line is {shown}; `vramledger gateway-key` makes both")
    return KeyHash(id=found[1], digest=bytes.fromhex(found[2]))


class KeyRing:
    """Owners by the hashes of their keys. An unknown key costs the same work as a known one: one hash and one comparison."""

    def __init__(
        self,
        hashes: Mapping[str, Iterable[KeyHash]],
        *,
        digest: Callable[[bytes], bytes] = lambda key: hashlib.sha256(key).digest(),
        equal: Callable[[bytes, bytes], bool] = hmac.compare_digest,
    ) -> None:
        """`hashes` by owner; `digest` and `equal` are there to be counted. Raises InputError where two keys have one id."""
        self._known: dict[bytes, tuple[bytes, str]] = {}
        self._digest = digest
        self._equal = equal
        for owner, own in hashes.items():
            for known in own:
                name = known.id.encode("ascii")
                if name in self._known:
                    raise InputError(
                        f"the key {known.id} belongs to {shorter(self._known[name][1])} and to {shorter(owner)}",
                        key_id=known.id,
                    )
                self._known[name] = known.digest, owner

    def __len__(self) -> int:
        return len(self._known)

    def owner(self, presented: bytes) -> str | None:
        """Whose key it is; None for one that nobody has."""
        presented = presented[:MOST_BYTES]
        form = _KEY.fullmatch(presented)
        expected, owner = self._known.get(form[1] if form is not None else b"", (_NOBODYS, ""))
        matches = self._equal(self._digest(presented), expected)
        return owner if matches and form is not None and owner else None
