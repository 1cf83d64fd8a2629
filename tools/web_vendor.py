"""The libraries that the page ships, compared with the published packages or taken from them anew.

`vendored.json` beside them names package, version and path of every file, and its SHA-256.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parents[1] / "src" / "vramledger" / "web" / "static" / "vendor"
LIST = FOLDER / "vendored.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="take the files of the versions that the list names"
    )
    write = parser.parse_args().write
    rows = json.loads(LIST.read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        packages = {(row["package"], row["version"]) for row in rows}
        published = {package: _published(*package, Path(folder)) for package in sorted(packages)}
        differ = 0
        for row in rows:
            with tarfile.open(published[row["package"], row["version"]]) as package:
                member = package.extractfile(f"package/{row['path']}")
                assert member is not None
                data = member.read()
            if write:
                (FOLDER / row["file"]).write_bytes(data)
                row["sha256"] = sha256(data).hexdigest()
            is_equal = (FOLDER / row["file"]).read_bytes() == data
            differ += not is_equal
            print(
                f"{'equal  ' if is_equal else 'DIFFERS'} {row['file']:20} {row['package']} {row['version']} {row['path']}"
            )
    if write:
        LIST.write_text(
            "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]\n", encoding="utf-8"
        )
    return 1 if differ else 0


def _published(name: str, version: str, folder: Path) -> Path:
    done = subprocess.run(
        ["npm", "pack", "--silent", f"{name}@{version}"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return folder / done.stdout.split()[-1]


if __name__ == "__main__":
    sys.exit(main())
