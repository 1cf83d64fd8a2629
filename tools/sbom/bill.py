"""The bill of materials of the package or of an image, as CycloneDX."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.sbom import locks
from tools.sbom.licences import NOT_TOLD, licence_of
from tools.sbom.locks import Pinned

import vramledger

SUBJECTS = ("package", "gateway", "ui")
"""The wheel with all its extras, and the two images."""

VENDOR = locks.ROOT / "src" / "vramledger" / "web" / "static" / "vendor"


def bill(subject: str) -> str:
    """The JSON of one of SUBJECTS; the same sources and SOURCE_DATE_EPOCH give the same text."""
    bom = Bom()
    own = _own(subject)
    bom.metadata = BomMetaData(component=own, timestamp=_time())
    found = _package_parts() if subject == "package" else _image_parts(subject)
    for component in found.values():
        bom.components.add(component)
    vendored = list(_vendored())
    for component in vendored:
        bom.components.add(component)
    if subject != "package":
        bom.components.add(_base())
    bom.register_dependency(
        own, [*(found[name] for name in sorted(_asked(subject) & found.keys())), *vendored]
    )
    for name, component in found.items():
        bom.register_dependency(component, [found[other] for other in locks.direct(name) if other in found])
    bom.serial_number = uuid5(NAMESPACE_URL, _digest(subject, bom))
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return text + "\n"


def vendored_licences() -> list[tuple[str, str]]:
    """Names of the page's libraries with their licences."""
    return sorted((name, licence) for (name, _), (licence, _) in _vendored_files().items())


def needed_by() -> dict[str, tuple[str, ...]]:
    """Names of distributions with the extras that bring them; none for those that every install has."""
    always = locks.wanted(locks.project()["dependencies"])
    found: dict[str, tuple[str, ...]] = dict.fromkeys(always, ())
    for extra, lines in locks.extras().items():
        for name in locks.wanted(lines) - always:
            found[name] = (*found.get(name, ()), extra)
    return dict(sorted(found.items()))


def _asked(subject: str) -> set[str]:
    """Names that the package asks for itself, with the extras that the subject has."""
    declared = locks.extras()
    chosen = declared if subject == "package" else locks.image_extras(subject)
    lines = [*locks.project()["dependencies"], *(line for extra in chosen for line in declared[extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def _package_parts() -> dict[str, Component]:
    """What every install has is required, what an extra brings optional. What no lock has is without a version."""
    pinned = locks.lock("dev")
    return {
        name: _component(pinned.get(name, Pinned(name=name, version="", sha256=())), by)
        for name, by in needed_by().items()
    }


def _image_parts(image: str) -> dict[str, Component]:
    return {name: _component(item, ()) for name, item in locks.lock(image).items()}


def _component(item: Pinned, extras: tuple[str, ...]) -> Component:
    version = item.version or None
    purl = PackageURL(type="pypi", name=item.name.lower(), version=version)
    return Component(
        type=ComponentType.LIBRARY,
        name=item.name,
        version=version,
        bom_ref=purl.to_string(),
        purl=purl,
        scope=ComponentScope.OPTIONAL if extras else ComponentScope.REQUIRED,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content) for content in item.sha256],
        licenses=_licences(licence_of(item.name)),
        properties=[Property(name="vramledger:extra", value=extra) for extra in extras],
    )


def _licences(stated: str) -> list[License]:
    return [] if stated == NOT_TOLD else [LicenseFactory().make_from_string(stated)]


def _vendored_files() -> dict[tuple[str, str], tuple[str, dict[str, str]]]:
    """By library and version: its licences, and its files of code with their SHA-256."""
    entries: dict[tuple[str, str], list[dict[str, str]]] = {}
    for entry in json.loads((VENDOR / "vendored.json").read_text(encoding="utf-8")):
        entries.setdefault((entry["package"], entry["version"]), []).append(entry)
    return {
        key: (
            " AND ".join(sorted({entry["licence"] for entry in found})),
            {entry["file"]: entry["sha256"] for entry in found if entry["file"].endswith(".js")},
        )
        for key, found in entries.items()
    }


def _vendored() -> Iterator[Component]:
    """Libraries of the page, in the package as files: hashed as they lie there."""
    for (name, version), (licence, files) in _vendored_files().items():
        purl = PackageURL(type="npm", name=name, version=version)
        yield Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=version,
            bom_ref=purl.to_string(),
            purl=purl,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content) for content in files.values()],
            licenses=_licences(licence),
            properties=[Property(name="vramledger:file", value=file) for file in files],
        )


def _base() -> Component:
    name, _, version = locks.base_image().rpartition("/")[2].partition(":")
    purl = PackageURL(type="docker", namespace="library", name=name, version=version)
    return Component(
        type=ComponentType.CONTAINER, name=name, version=version, bom_ref=purl.to_string(), purl=purl
    )


def _own(subject: str) -> Component:
    is_package = subject == "package"
    purl = PackageURL(type="pypi", name="vramledger", version=vramledger.__version__)
    return Component(
        type=ComponentType.APPLICATION if is_package else ComponentType.CONTAINER,
        name="vramledger" if is_package else f"vramledger-{subject}",
        version=vramledger.__version__,
        bom_ref=purl.to_string() if is_package else f"vramledger-{subject}",
        purl=purl if is_package else None,
        licenses=_licences(locks.project()["license"]),
    )


def _digest(subject: str, bom: Bom) -> str:
    parts = sorted(f"{item.purl} {sorted(each.content for each in item.hashes)}" for item in bom.components)
    return hashlib.sha256("\n".join((subject, vramledger.__version__, *parts)).encode()).hexdigest()


def _time() -> datetime:
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(stated), UTC) if stated.isdecimal() else datetime.now(UTC)
