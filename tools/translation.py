"""Whether README.ko.md still says what README.md says, section by section.

    python -m tools.translation [--looked-at]

Both have the same headings in the same order, and in each section the same blocks of code, links, inline code, tables of
numbers and numbers of the prose. Each Korean section names the digest of the English prose that it was translated from, so a change there
is told until somebody looked at the Korean; `--looked-at` then writes the new digests. Output of commands is made in both by `tools.readme`.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct, field

ROOT = Path(__file__).resolve().parents[1]
ENGLISH, KOREAN = ROOT / "README.md", ROOT / "README.ko.md"
_FROM = re.compile(r"<!-- from ([0-9a-f]{12}) -->")
_MADE = re.compile(r"<!-- (?:\$ .+|[a-z]+) -->\s*\Z")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SHOWN = 60


class Section(Struct, kw_only=True):
    """A heading and what stands under it; `prose` leaves out what tools make."""

    level: int
    title: str
    line: int
    origin: str = ""
    prose: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    spans: Counter[str] = field(default_factory=Counter)
    links: Counter[str] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)
    columns: list[int] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """Of the prose, however it is wrapped."""
        text = "\n".join(" ".join(part.split()) for part in self.prose)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def sections(text: str) -> list[Section]:
    """A page by its headings. Raises ValueError where something stands before the first."""
    found: list[Section] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    is_made = False
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            line = token.map[0] + 1 if token.map else 0
            found.append(Section(level=int(token.tag[1]), title=tokens[index + 1].content, line=line))
        if not found:
            raise ValueError(f"{token.type} before the first heading")
        now = found[-1]
        if token.type == "html_block":
            comment = token.content.strip()
            is_made = bool(_MADE.fullmatch(comment)) and comment != "<!-- end -->"
            if origin := _FROM.fullmatch(comment):
                now.origin = origin[1]
        elif token.type in ("fence", "code_block"):
            now.code.append(f"{token.info}\n{token.content}")
        elif token.type == "tr_open":
            now.columns.append(0)
        elif token.type in ("td_open", "th_open"):
            now.columns[-1] += 1
        elif token.type == "inline":
            _read(now, token, is_made=is_made)
    places = {f"#{_anchor(item.title)}": f"section {number}" for number, item in enumerate(found, 1)}
    for item in found:
        item.links = Counter({places.get(link, link): count for link, count in item.links.items()})
    return found


def _anchor(title: str) -> str:
    """What a code host makes of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _read(section: Section, token: Token, *, is_made: bool) -> None:
    if not is_made:
        section.prose.append(token.content)
    for child in token.children or ():
        if child.type == "link_open":
            link = str(child.attrGet("href"))
            section.links["the other language" if link in (ENGLISH.name, KOREAN.name) else unquote(link)] += 1
        elif child.type == "code_inline":
            section.spans[child.content] += 1
        elif child.type == "text":
            section.numbers.update(_NUMBER.findall(child.content))


def problems(english: str, korean: str) -> Iterator[str]:
    """What keeps two pages from being equal, a sentence each that begins with the Korean page's line."""
    ours, theirs = sections(english), sections(korean)
    if [item.level for item in ours] != [item.level for item in theirs]:
        yield (
            f"1: the headings are {_outline(theirs)}, those of the English page {_outline(ours)}: levels and order must be equal"
        )
        return
    for one, other in zip(ours, theirs, strict=True):
        where = f"{other.line}: {other.title!r}"
        if other.origin != one.digest:
            yield (
                f"{where} was translated from another text than that of {one.title!r} (line {one.line}): look at it, "
                "then run python -m tools.translation --looked-at"
            )
        if one.code != other.code:
            yield f"{where} has other blocks of code than {one.title!r}"
        if one.columns != other.columns:
            yield f"{where} has tables of another shape than {one.title!r}"
        for what in ("links", "spans", "numbers"):
            mine, yours = getattr(one, what), getattr(other, what)
            if mine != yours:
                lacks, more = list((mine - yours).elements()), list((yours - mine).elements())
                yield f"{where}: of the {what} it lacks {lacks} and has besides {more}"


def _outline(found: list[Section]) -> str:
    return " ".join(f"{'#' * item.level} {item.title[:_SHOWN]}" for item in found)


def looked_at(english: str, korean: str) -> str:
    """The Korean page with the digests of the present English one. Raises ValueError where headings differ."""
    ours, theirs = sections(english), sections(korean)
    if [item.level for item in ours] != [item.level for item in theirs]:
        raise ValueError("the headings differ: make them equal first")
    lines = korean.splitlines()
    for one, other in reversed(list(zip(ours, theirs, strict=True))):
        mark = f"<!-- from {one.digest} -->"
        if lines[other.line : other.line + 2] and _FROM.fullmatch(
            "".join(lines[other.line : other.line + 2]).strip()
        ):
            lines[other.line : other.line + 2] = ["", mark]
        else:
            lines[other.line : other.line] = ["", mark]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--looked-at", action="store_true", help="the Korean sections say what the English ones now say"
    )
    options = parser.parse_args()
    english, korean = (path.read_text(encoding="utf-8") for path in (ENGLISH, KOREAN))
    if options.looked_at:
        korean = looked_at(english, korean)
        KOREAN.write_text(korean, encoding="utf-8")
    found = list(problems(english, korean))
    print(
        "\n".join(f"{KOREAN.name}:{problem}" for problem in found)
        or f"{KOREAN.name} says what {ENGLISH.name} says"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
