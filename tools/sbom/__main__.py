"""Write the bills of materials (CycloneDX 1.6) into a folder: `python -m tools.sbom build/sbom`; `--page FILE` writes the licences page."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.sbom.bill import SUBJECTS, bill
from tools.sbom.page import licences_page


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--page"]:
        Path(arguments[1]).write_text(licences_page(), encoding="utf-8")
        return
    folder = Path(arguments[0] if arguments else "build/sbom")
    folder.mkdir(parents=True, exist_ok=True)
    for subject in SUBJECTS:
        path = folder / f"vramledger-{subject}.cdx.json"
        path.write_text(bill(subject), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
