"""Build the site of docs/, warnings being errors, and follow every link and anchor in it.

    python -m tools.site [--output build/site]

Needs no network, and the built site asks for none: open index.html.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main
from tools.site.links import broken

ROOT = Path(__file__).resolve().parents[2]


def build(output: Path) -> int:
    """Make the site in `output`, which is emptied first where a site was made there before; 0, or 1 with what is wrong on stderr."""
    if (output / ".buildinfo").is_file():
        shutil.rmtree(output)
    work = output.with_name(f"{output.name}.doctrees")
    shutil.rmtree(work, ignore_errors=True)
    arguments = [
        "--builder",
        "html",
        "--fail-on-warning",
        "--quiet",
        "--fresh-env",
        "--conf-dir",
        str(Path(__file__).parent),
    ]
    if build_main([*arguments, "--doctree-dir", str(work), str(ROOT / "docs"), str(output)]):
        return 1
    shutil.rmtree(work)
    found = list(broken(output))
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", metavar="FOLDER")
    options = parser.parse_args()
    code = build(options.output.resolve())
    if not code:
        print(f"{options.output / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
