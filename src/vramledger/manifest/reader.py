"""Reading a manifest, and refusing one that was changed, is of a later kind or does not agree with itself."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from vramledger.errors import InputError
from vramledger.manifest.build import plain
from vramledger.manifest.canonical import content_digest
from vramledger.manifest.derived import disagreements
from vramledger.manifest.document import SCHEMA_VERSION, ManifestDocument
from vramledger.models.sources.bounded_file import quote
from vramledger.models.sources.json_file import parse_json_object

SHOWN = 8


class Reading(Struct, frozen=True, kw_only=True):
    """A manifest that holds what its digest says; `notes` tell what of it this version does not know."""

    document: ManifestDocument
    notes: tuple[str, ...]


def is_manifest(raw: dict[str, Any]) -> bool:
    """Whether a JSON object says that it is a manifest."""
    return raw.get("kind") == "manifest"


def read_manifest(data: bytes, where: str) -> Reading:
    """The manifest in `data`; `where` names it in messages.

    A newer minor version is read with a note, and so are fields that this version does not know: the digest covers
    them, nothing here uses them. Raises InputError for what is no manifest, is of a newer major version, was changed
    after it was written (naming both digests and the figures that disagree) or disagrees with itself.
    """
    return manifest_of(parse_json_object(data, where, InputError), where)


def manifest_of(raw: dict[str, Any], where: str) -> Reading:
    """`read_manifest` of a JSON object. Raises the same."""
    if not is_manifest(raw):
        raise InputError(
            f"{where} is no manifest: its kind is {quote(raw.get('kind'))}; write one with vramledger manifest MODEL",
            file=where,
            key="kind",
            value=quote(raw.get("kind")),
        )
    notes = _version_notes(raw.get("schema_version"), where)
    stated = raw.get("digest")
    try:
        content = content_digest(raw)
    except (ValueError, RecursionError) as problem:
        raise InputError(
            f"{where} is no sound manifest: {problem}", file=where, reason=str(problem)
        ) from None
    document, problem_text = _typed(raw)
    found = disagreements(document) if document is not None else ()
    if stated != content:
        told = problem_text or _listed(found) or "no figure disagrees with another"
        raise InputError(
            f"{where} was changed after it was written: digest says {quote(stated, 90)}, content is {content}; {told}. "
            "Write it anew with vramledger manifest",
            file=where,
            digest=quote(stated, 90),
            content=content,
            disagreements=list(found),
        )
    if document is None:
        raise InputError(
            f"{where} is not a manifest of version 1: {problem_text}", file=where, reason=problem_text
        )
    if found:
        raise InputError(
            f"{where} disagrees with itself although its digest is right: {_listed(found)}",
            file=where,
            disagreements=list(found),
        )
    unknown = tuple(_unknown(raw, plain(document), ""))
    if unknown:
        more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
        notes.append(
            f"fields this version does not know, covered by the digest and not used: {', '.join(unknown[:SHOWN])}{more}"
        )
    return Reading(document=document, notes=tuple(notes))


def _version_notes(version: Any, where: str) -> list[str]:
    major, _, minor = version.partition(".") if isinstance(version, str) else ("", "", "")
    own_major, _, own_minor = SCHEMA_VERSION.partition(".")
    if not (_is_count(major) and _is_count(minor)):
        raise InputError(
            f"{where}: schema_version is {quote(version)}, not a version such as {SCHEMA_VERSION}",
            file=where,
            key="schema_version",
            value=quote(version),
        )
    if int(major) != int(own_major):
        newer = "newer" if int(major) > int(own_major) else "older"
        raise InputError(
            f"{where} is of schema version {version}, {newer} than {SCHEMA_VERSION}, which this vramledger reads; "
            "use the vramledger that wrote it or a later one",
            file=where,
            key="schema_version",
            value=version,
        )
    if int(minor) > int(own_minor):
        return [f"written under schema version {version}; this vramledger knows {SCHEMA_VERSION}"]
    return []


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 6


def _typed(raw: dict[str, Any]) -> tuple[ManifestDocument | None, str]:
    try:
        return msgspec.convert(raw, ManifestDocument), ""
    except (msgspec.ValidationError, RecursionError) as problem:
        return None, str(problem)


def _listed(found: tuple[str, ...]) -> str:
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def _unknown(raw: Any, known: Any, path: str) -> list[str]:
    """Paths of keys that came in and went nowhere."""
    found: list[str] = []
    if isinstance(raw, dict) and isinstance(known, dict):
        for name, value in raw.items():
            place = f"{path}.{name}" if path else str(name)
            if name not in known:
                found.append(quote(place, 120)[1:-1])
            else:
                found += _unknown(value, known[name], place)
    elif isinstance(raw, list) and isinstance(known, list | tuple):
        for number, (item, other) in enumerate(zip(raw, known, strict=False)):
            found += _unknown(item, other, f"{path}[{number}]")
    return found
