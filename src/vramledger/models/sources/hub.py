"""Models on the Hugging Face hub: small files by download, tensor headers by byte range, weights never.

huggingface_hub does the talking (endpoint, token, retries, cache). Without a network, or with
HF_HUB_OFFLINE=1, what its cache holds is read instead.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from vramledger.errors import SourceError
from vramledger.models.sources.bounded_file import open_for_headers, quote
from vramledger.models.sources.header_table import HeaderTable
from vramledger.models.sources.index_file import INDEX_LIMIT_BYTES
from vramledger.models.sources.json_file import CONFIG_LIMIT_BYTES
from vramledger.models.sources.listing import MAX_FILES, Listing, folder_listing
from vramledger.models.sources.safetensors import HeaderTableBuilder, read_header

PARALLEL_REQUESTS = 8
MAX_RETRIES = 3
HEADER_DEADLINE_S = 120.0


def hub_listing(
    text: str, *, endpoint: str | None = None, cache_dir: Path | None = None, main_file: str = "config.json"
) -> Listing:
    """The files of the repository `text` (`org/name` or `org/name@revision`) at one commit.

    `main_file` is what a snapshot in the local cache is found by.

    Raises SourceError that says what to do: where huggingface_hub is not installed, the repository is gated
    or not there, or the hub cannot be reached and the cache does not have it.
    """
    hub = _import_hub()
    repo, _, revision = text.partition("@")
    request = _Request(
        hub=hub,
        repo=repo,
        revision=revision or "main",
        endpoint=endpoint,
        cache_dir=cache_dir,
        main_file=main_file,
    )
    if hub.constants.HF_HUB_OFFLINE:
        cached = request.cached("HF_HUB_OFFLINE is set: only the local cache was read")
        if cached is None:
            raise SourceError(
                f"{text} is not in the local hub cache and HF_HUB_OFFLINE is set; unset it, or download {main_file} first",
                repo=repo,
            )
        return cached
    try:
        info = hub.HfApi(endpoint=endpoint, library_name="vramledger").model_info(
            repo,
            revision=request.revision,
            files_metadata=True,
            timeout=hub.constants.HF_HUB_DOWNLOAD_TIMEOUT,
        )
        return _online_listing(request, info)
    except hub_errors(hub) as problem:
        cached = request.cached(f"the hub was not used ({_first_line(problem)}); the local cache was read")
        if cached is not None:
            return cached
        raise explain(hub, problem, text) from None
    except (TypeError, AttributeError, LookupError):
        raise SourceError(
            f"{text}: the endpoint's answer is not that of a hub; check HF_ENDPOINT", repo=repo
        ) from None


def _online_listing(request: _Request, info: Any) -> Listing:
    sizes: dict[str, int | None] = {}
    for sibling in (info.siblings or [])[: MAX_FILES + 1]:
        name, size = sibling.rfilename, sibling.size
        if isinstance(name, str) and "/" not in name:
            sizes[name] = size if type(size) is int and size >= 0 else None
    if len(sizes) > MAX_FILES:
        raise SourceError(f"{request.repo} has more than {MAX_FILES} files", repo=request.repo)
    commit = info.sha if isinstance(info.sha, str) else ""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise SourceError(
            f"{request.repo}: the hub states no commit for {request.revision}", repo=request.repo
        )

    def fetch(name: str) -> Path:
        return request.download(name, commit, sizes.get(name))

    def read_headers(names: list[str]) -> HeaderTable:
        return request.read_headers(names, commit, sizes)

    return Listing(
        id=request.repo,
        where=f"{request.repo}@{commit[:12]}",
        sizes=sizes,
        fetch=fetch,
        read_headers=read_headers,
        size_source=f"sizes the hub states at commit {commit[:12]}",
        is_local=False,
    )


class _Request(Struct, frozen=True, kw_only=True):
    """One repository at one revision, and the library it is asked with."""

    hub: Any
    repo: str
    revision: str
    endpoint: str | None
    cache_dir: Path | None
    main_file: str

    def cached(self, note: str) -> Listing | None:
        """The snapshot in the local cache, None where it has no `main_file`."""
        path = self._cached_file(self.main_file, self.revision)
        return None if path is None else folder_listing(path.parent, model_id=self.repo, notes=(note,))

    def download(self, name: str, commit: str, size_bytes: int | None) -> Path:
        """A small file, through the library's own cache."""
        limit_bytes = INDEX_LIMIT_BYTES if name.endswith(".index.json") else CONFIG_LIMIT_BYTES
        if size_bytes is None or size_bytes > limit_bytes:
            raise SourceError(f"{self.repo}: {name} has {size_bytes} bytes, too many to download", file=name)
        cached = self._cached_file(name, self.revision)
        if cached is not None and cached.parent.name == commit:
            return cached
        try:
            with _no_progress_bars(self.hub):
                # Asked for by the revision's own name, so that the cache can answer to that name offline.
                path = self._download(name, self.revision)
                return path if path.parent.name == commit else self._download(name, commit)
        except hub_errors(self.hub) as problem:
            raise explain(self.hub, problem, f"{self.repo}/{name}") from None

    def _download(self, name: str, revision: str) -> Path:
        return Path(
            self.hub.hf_hub_download(
                self.repo, name, revision=revision, endpoint=self.endpoint, cache_dir=self.cache_dir
            )
        )

    def read_headers(self, names: list[str], commit: str, sizes: dict[str, int | None]) -> HeaderTable:
        """Headers of safetensors files, a few at a time, so that few are held at once."""
        builder = HeaderTableBuilder()
        with ThreadPoolExecutor(max_workers=PARALLEL_REQUESTS) as pool:
            for start in range(0, len(names), PARALLEL_REQUESTS):
                group = names[start : start + PARALLEL_REQUESTS]
                headers = pool.map(lambda name: self._header(name, commit, sizes.get(name)), group)
                for name, header in zip(group, headers, strict=True):
                    builder.add(name, f"{self.repo}/{name}", header, sizes.get(name))
        return builder.build()

    def _header(self, name: str, commit: str, size_bytes: int | None) -> bytes:
        where = f"{self.repo}/{name}"
        local = self._cached_file(name, commit)
        if local is not None:
            with open_for_headers(local) as (read_at, local_bytes):
                return read_header(read_at, local_bytes, where)
        url = self.hub.hf_hub_url(self.repo, name, revision=commit, endpoint=self.endpoint)
        return read_header(lambda offset, size: self._range(url, where, offset, size), size_bytes, where)

    def _range(self, url: str, where: str, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`; the connection is closed once they are there."""
        utils = self.hub.utils
        headers = utils.build_hf_headers(library_name="vramledger") | {
            "Range": f"bytes={offset}-{offset + size - 1}",
            "Accept-Encoding": "identity",
        }
        if size == 0:
            return b""
        deadline = time.monotonic() + HEADER_DEADLINE_S
        out = bytearray()
        try:
            with utils.http_stream_backoff(
                "GET",
                url,
                headers=headers,
                timeout=self.hub.constants.HF_HUB_DOWNLOAD_TIMEOUT,
                max_retries=MAX_RETRIES,
            ) as response:
                utils.hf_raise_for_status(response)
                if response.status_code != 206:
                    raise SourceError(
                        f"{where}: the server ignores byte ranges (status {response.status_code}), so the header cannot be"
                        " read without the weights; download config.json and the index file instead",
                        file=where,
                    )
                for chunk in response.iter_raw():
                    out += chunk
                    if len(out) >= size:
                        break
                    if time.monotonic() > deadline:
                        raise SourceError(
                            f"{where}: the header did not arrive in {HEADER_DEADLINE_S:.0f} s", file=where
                        )
        except hub_errors(self.hub) as problem:
            raise explain(self.hub, problem, where) from None
        return bytes(out[:size])

    def _cached_file(self, name: str, revision: str) -> Path | None:
        try:
            path = self.hub.try_to_load_from_cache(
                self.repo, name, cache_dir=self.cache_dir, revision=revision
            )
        except (OSError, ValueError):
            return None
        return Path(path) if isinstance(path, str) else None


def _import_hub() -> Any:
    """huggingface_hub, which is an extra and takes long to import."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError:
        raise SourceError(
            "reading from the hub needs huggingface_hub: pip install 'vramledger[hub]' (or give a local folder)",
        ) from None
    return huggingface_hub


def hub_errors(hub: Any) -> tuple[type[Exception], ...]:
    """What the library raises for a request that failed: its own errors and those of its HTTP client."""
    client_error = next(base for base in hub.errors.HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")
    return (OSError, ValueError, RuntimeError, client_error)


def explain(hub: Any, problem: Exception, what: str) -> SourceError:
    """The library's error as one sentence that says what to do."""
    errors = hub.errors
    if isinstance(problem, errors.GatedRepoError):
        text = "is gated; accept its terms on the hub's page, then `hf auth login` or set HF_TOKEN"
    elif isinstance(problem, errors.RepositoryNotFoundError):
        text = "is not on the hub, or is private; check the name, then `hf auth login` or set HF_TOKEN"
    elif isinstance(problem, errors.RevisionNotFoundError):
        text = "has no such revision; check the part after @"
    elif isinstance(problem, errors.RemoteEntryNotFoundError):
        text = "is not in the repository"
    elif isinstance(problem, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        text = "is not in the local hub cache and the hub cannot be reached; connect, or give a local folder"
    elif isinstance(problem, errors.HfHubHTTPError):
        text = f"could not be read from the hub: {_first_line(problem)}"
    else:
        text = f"could not be read, the hub cannot be reached ({_first_line(problem)}); connect, or give a local folder"
    return SourceError(f"{what} {text}", what=what, cause=type(problem).__name__)


def _first_line(problem: Exception) -> str:
    text = str(problem).strip().splitlines()
    return quote(text[0], 160)[1:-1] if text else type(problem).__name__


@contextmanager
def _no_progress_bars(hub: Any) -> Iterator[None]:
    """Quiet while a file of a few kilobytes is fetched; the caller's own setting comes back after it."""
    if hub.utils.are_progress_bars_disabled():
        yield
        return
    hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        hub.utils.enable_progress_bars()
