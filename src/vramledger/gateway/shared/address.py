"""Where the shared store is and how it is entered. The URL holds a password, so it comes from a file or the environment and is never shown."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from vramledger.errors import InputError

PORT = 6379
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
FORM = "valkey://[USER:PASSWORD@]HOST[:PORT][/DATABASE], valkeys:// with TLS (redis:// and rediss:// mean the same), or unix:///PATH"


class StoreAddress:
    """A Valkey or Redis server. What it prints as has neither user nor password."""

    __slots__ = (
        "database",
        "host",
        "password",
        "path",
        "port",
        "ssl_ca_certs",
        "ssl_certfile",
        "ssl_keyfile",
        "tls",
        "user",
    )

    def __init__(
        self,
        *,
        host: str = "",
        port: int = PORT,
        path: str = "",
        database: int = 0,
        tls: bool = False,
        user: str | None = None,
        password: str | None = None,
        ssl_ca_certs: str | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        self.host, self.port, self.path, self.database, self.tls = host, port, path, database, tls
        self.user, self.password = user, password
        self.ssl_ca_certs, self.ssl_certfile, self.ssl_keyfile = ssl_ca_certs, ssl_certfile, ssl_keyfile

    def __repr__(self) -> str:
        if self.path:
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'valkeys' if self.tls else 'valkey'}://{host}:{self.port}/{self.database}"


def store_address(url: str) -> StoreAddress:
    """An InputError says what is wrong with the URL without a word of it: whatever is unclear may be the password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        refuse("it cannot be read as a URL")
    scheme = parts.scheme.lower()
    if scheme not in ("valkey", "valkeys", "redis", "rediss", "unix"):
        refuse("its scheme is another one")
    tls = scheme in ("valkeys", "rediss")
    database = options.pop("db", None) or (parts.path.strip("/") if scheme != "unix" else "") or "0"
    if not (database.isascii() and database.isdigit() and len(database) < 6):
        refuse("its database is not a number")
    files = {name: options.pop(name) for name in TLS_FILES if name in options}
    if options:
        refuse(f"of options it knows db, and with TLS {', '.join(TLS_FILES)}")
    if files and not tls:
        refuse("it names files of TLS and is not of the form valkeys://")
    for name, file in files.items():
        if not Path(file).is_file():
            raise InputError(f"{name} of the shared store's URL is not a file: {file}", name=name, file=file)
    if bool(host) == (scheme == "unix"):
        refuse("it needs a host" if scheme != "unix" else "a socket's path has no host")
    if scheme == "unix" and not parts.path:
        refuse("it needs the path of a socket")
    if parts.fragment:
        refuse("it has a fragment ('#' within a password is written %23)")
    return StoreAddress(
        host=host,
        port=port or PORT,
        path=unquote(parts.path) if scheme == "unix" else "",
        database=int(database),
        tls=tls,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        **files,
    )


def refuse(what: str) -> NoReturn:
    raise InputError(f"the shared store's URL is not of the form {FORM}: {what}")
