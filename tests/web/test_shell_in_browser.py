"""The page as a whole: every tab opens without a complaint, for everyone, on a phone, in the dark, in two languages."""

from __future__ import annotations

from typing import Any

import pytest

from web_page import SHOTS, Page, Ui, printed

TABS = ("plan", "compare", "fit", "capacity", "live", "diagnose")
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize(("width", "scheme", "language"), [(1280, "light", "en-US"), (390, "dark", "ko-KR")])
def test_a_tab_opens_for_everyone(
    browser: Any, ui: Ui, tab: str, width: int, scheme: str, language: str
) -> None:
    with Page.opened(browser, ui.address, shots=SHOTS, width=width, scheme=scheme, language=language) as page:
        page.tab(tab).rests()
        page.shot(f"{tab}-{width}-{scheme}")
        assert page.here.get_attribute("html", "lang") == language[:2]
        assert page.broken_rules() == []
        assert page.overflow_px() <= 0


def test_a_page_shows_what_its_command_prints(page: Page) -> None:
    page.tab("plan").here.wait_for_selector(".verdict")
    assert page.says(".verdict .said") == printed(page.command())["verdict"]["summary"]
