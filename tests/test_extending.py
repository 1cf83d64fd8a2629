"""The pages on adding an engine, an architecture and a device are true: their steps, done on a copy of the source, give what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import extending


@pytest.mark.parametrize("page", extending.PAGES, ids=lambda page: page.stem)
def test_the_steps_of_a_page_give_what_it_shows(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert extending.filled(text, extending.copied(tmp_path)) == text, "run `make docs`"
    code = len(re.findall(r"^```(?:python|json)$", text, re.MULTILINE))
    steps = len(re.findall(r"^<!-- (?:file|into): ", text, re.MULTILINE))
    assert code == steps > 0, "code on the page that no step puts anywhere"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("<!-- file: ../x.py -->\n```python\npass\n```\n", "outside"),
        ("<!-- into: src/a.py after: twice -->\n```python\npass\n```\n", "2 lines contain 'twice'"),
        ("<!-- $ rm -r src -->\n<!-- end -->", "not a command of ours"),
        ("<!-- $ vramledger plan nothing --device L4 -->\n<!-- end -->", "prints nothing"),
    ],
)
def test_a_step_that_cannot_be_done_is_refused(step: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("# twice\n# twice\n")
    with pytest.raises(SystemExit, match=said):
        extending.filled(step, tmp_path)
