"""What commands share: options under one name, exit codes with one meaning."""

from __future__ import annotations

import importlib

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.cli.app import _COMMANDS
from vramledger.cli.exit_codes import verdict_code
from vramledger.cli.token_counts import token_counts
from vramledger.errors import FlagError

VERDICTS = ("plan", "rollout", "compare", "fit", "sweep", "layout", "adapters")


def options(name: str) -> dict[str, click.Option]:
    module = importlib.import_module(f"vramledger.cli.{name.replace('-', '_')}_command")
    command: click.Command = module.command
    return {param.name or "": param for param in command.params if isinstance(param, click.Option)}


@given(st.lists(st.sampled_from((True, False, None))))
def test_what_holds_hides_what_does_not_and_what_cannot_be_told_hides_what_fails(
    verdicts: list[bool | None],
) -> None:
    code = verdict_code(iter(verdicts), exit_zero=False)
    assert code == (0 if True in verdicts else 11 if None in verdicts else 10)
    assert verdict_code(verdicts, exit_zero=True) == 0


@pytest.mark.parametrize("name", VERDICTS)
def test_every_command_with_a_verdict_can_be_told_to_end_with_zero(name: str) -> None:
    assert options(name)["exit_zero"].opts == ["--exit-zero"]


@pytest.mark.parametrize("name", [name for name in _COMMANDS if name not in ("schema", "completion", "ui")])
def test_every_answer_is_also_a_document(name: str) -> None:
    assert options(name)["as_json"].opts == ["--json"]


def test_one_device_is_asked_for_in_one_way() -> None:
    asked = [options(name)["device"] for name in ("plan", "rollout", "compare", "layout", "adapters")]
    assert {(*item.opts, item.metavar, item.help) for item in asked} == {
        (*asked[0].opts, asked[0].metavar, asked[0].help)
    }
    for name in ("fit", "sweep"):
        several = options(name).get("devices") or options(name)["device"]
        assert {"--device", "--devices", "-d"} == set(several.opts)


def test_lists_of_tokens() -> None:
    assert token_counts("context", "8K, 1k,8K") == (8192, 1000, 8192)
    for wrong in ("", "1,", "0", "3G", "-1", "many"):
        with pytest.raises(FlagError, match="--context"):
            token_counts("context", wrong)
