"""Which model and which engine build a manifest speaks of, as values that do not move."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.errors import FlagError, shorter
from vramledger.manifest.canonical import content_digest

Coverage = Literal["content", "header", "size"]

_COMMIT = re.compile(r"(?:git:|commit:)?([0-9a-f]{40})")
_SHA256 = re.compile(r"(wheel:|file:|image:)?sha256:([0-9a-f]{64})")
_IMAGE = re.compile(r"([a-z0-9][a-z0-9._/:-]{0,254})@sha256:([0-9a-f]{64})")


class FileIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a model. `covers` says what `sha256` is of: the whole content, or a weight file's header; where it is
    the size alone there is none."""

    name: str
    size_bytes: int
    covers: Coverage
    sha256: str | None


class ModelIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The model's revision and what it rests on.

    `scheme` is "hub-commit", "content" (a digest over every file's content), "layout" (the same, but of weight files only
    headers and sizes were read, or none was there, so that two sets of weights of one shape are not told apart) or "unpinned".
    """

    id: str
    revision: str
    scheme: Literal["hub-commit", "content", "layout", "unpinned"]
    files: tuple[FileIdentity, ...]
    tokenizer_sha256: Annotated[
        str | None, Meta(description="Digest over the tokenizer's files; null where none was seen.")
    ] = None
    template_sha256: Annotated[
        str | None, Meta(description="Digest of the chat template's file; null where none was seen.")
    ] = None


class EngineIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's package version and the build: a commit, a wheel's or file's hash, a container's digest."""

    name: str
    version: str
    revision: str | None
    scheme: Literal["commit", "file", "container", "unpinned"]

    @property
    def text(self) -> str:
        return f"{self.name} {self.version} {self.revision or 'unpinned'}"


def hub_identity(model_id: str, commit: str, files: tuple[FileIdentity, ...]) -> ModelIdentity:
    """A repository of the hub at a commit of 40 hexadecimal digits."""
    return ModelIdentity(
        id=model_id,
        revision=f"hub:{model_id}@{commit}",
        scheme="hub-commit",
        files=files,
        tokenizer_sha256=tokenizer_digest(files),
        template_sha256=template_digest(files),
    )


def files_identity(model_id: str, files: tuple[FileIdentity, ...]) -> ModelIdentity:
    """A local model: the digest over its files in order of their names. It is of the content where there are weight files
    and every file was hashed whole, else of the layout."""
    ordered = tuple(sorted(files, key=lambda file: file.name))
    whole = all(file.covers == "content" for file in ordered) and any(
        is_weights(file.name) for file in ordered
    )
    return ModelIdentity(
        id=model_id,
        revision=("content-" if whole else "layout-") + files_digest(ordered),
        scheme="content" if whole else "layout",
        files=ordered,
        tokenizer_sha256=tokenizer_digest(ordered),
        template_sha256=template_digest(ordered),
    )


def is_weights(name: str) -> bool:
    """Whether a file of this name holds weights."""
    return name.endswith((".safetensors", ".gguf", ".bin", ".pt", ".pth"))


def unpinned_identity(model_id: str) -> ModelIdentity:
    """A model that nothing identifies."""
    return ModelIdentity(id=model_id, revision=f"unpinned:{model_id}", scheme="unpinned", files=())


def files_digest(files: tuple[FileIdentity, ...]) -> str:
    """ "sha256:" and the hash over names, sizes and hashes of files, in the canonical form."""
    return content_digest(
        {
            "files": [
                [file.name, file.size_bytes, file.covers, file.sha256]
                for file in sorted(files, key=lambda file: file.name)
            ]
        }
    )


_TOKENIZER = re.compile(
    r"(tokenizer\.(json|model)|vocab\.(json|txt)|merges\.txt|spiece\.model|.{1,80}\.tiktoken)"
)
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")


def tokenizer_digest(files: tuple[FileIdentity, ...]) -> str | None:
    """Over the files that decide token ids; None where there is none."""
    found = tuple(file for file in files if file.covers == "content" and _TOKENIZER.fullmatch(file.name))
    return files_digest(found) if found else None


def template_digest(files: tuple[FileIdentity, ...]) -> str | None:
    """Of the first file that may hold the chat template, as transformers looks for it."""
    for name in _TEMPLATES:
        for file in files:
            if file.name == name and file.sha256 is not None and file.covers == "content":
                return f"sha256:{file.sha256}"
    return None


def engine_identity(name: str, version: str, revision: str | None, *, allow_unpinned: bool) -> EngineIdentity:
    """What `--engine-revision` says: a commit of 40 hexadecimal digits, "sha256:..." of a wheel or of the binary, or a
    container image with its digest.

    Raises FlagError for another text, and for none unless `allow_unpinned`.
    """
    if revision is None:
        if allow_unpinned:
            return EngineIdentity(name=name, version=version, revision=None, scheme="unpinned")
        raise FlagError(
            f"the build of {name} {version} is not known: give --engine-revision COMMIT (40 hexadecimal digits), "
            "sha256:... of the wheel or binary, or image@sha256:...; --allow-unpinned marks it as unknown",
            flag="engine_revision",
        )
    text = revision.strip()
    scheme: Literal["commit", "file", "container"]
    if match := _COMMIT.fullmatch(text):
        scheme, kept = "commit", f"commit:{match.group(1)}"
    elif match := _SHA256.fullmatch(text):
        kind = match.group(1) or "file:"
        scheme, kept = ("container" if kind == "image:" else "file"), f"{kind}sha256:{match.group(2)}"
    elif _IMAGE.fullmatch(text):
        scheme, kept = "container", text
    else:
        raise FlagError(
            f"--engine-revision {shorter(revision)} moves or is no revision; give a commit of 40 hexadecimal digits, "
            "sha256:... of the wheel or binary, or image@sha256:...",
            flag="engine_revision",
            value=shorter(revision),
        )
    return EngineIdentity(name=name, version=version, revision=kept, scheme=scheme)
