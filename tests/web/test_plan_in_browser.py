"""The tab Plan: what it shows is what its command prints, whatever is moved, dropped, shared."""

from __future__ import annotations

from typing import Any

import pytest

from web_page import Page, printed

pytestmark = pytest.mark.timeout(600)
_KV_TOKENS = ".facts div:first-child .value"


def _answered(page: Page, part: str) -> dict[str, Any]:
    """The document of the shown command once it has `part`, with what is on the page compared with it."""
    page.waits_for("part => document.querySelector('section.command code')?.innerText.includes(part)", part)
    plan = printed(page.command())
    assert page.says(".verdict .said") == plan["verdict"]["summary"]
    if plan["kv_pool"] is not None:
        assert page.says(_KV_TOKENS) == f"{plan['kv_pool']['tokens']['expected']:,}"
    return plan


def _step(page: Page, label: str, keys: str = "ArrowRight") -> None:
    slider = page.here.get_by_role("slider", name=label)
    slider.press(keys)


def test_each_move_of_a_slider_ends_in_the_numbers_of_its_command(page: Page) -> None:
    page.tab("plan")
    first = _answered(page, "--max-model-len 32768")
    _step(page, "Context")
    longer = _answered(page, "--max-model-len 49152")
    assert longer["kv_pool"]["max_concurrency"] != first["kv_pool"]["max_concurrency"]
    _step(page, "Share of the device", "ArrowLeft")
    smaller = _answered(page, "--gpu-memory-utilization 0.91")
    assert smaller["budget_bytes"] < longer["budget_bytes"]
    _step(page, "Concurrency", "End")
    many = _answered(page, "--concurrency 1024")
    assert many["verdict"]["holds"] is False
    assert page.here.is_visible(".verdict.bad")
    page.shot("plan-fails")
