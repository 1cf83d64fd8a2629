"""The three questions through the package's own names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from five_kinds import DENSE, MIXTURE, write_config
from vramledger import DeviceError, FlagError, compare, fit, load_model, sweep
from vramledger.engines.vllm.version import NEWEST
from vramledger.search.evaluation import Status
from vramledger.search.fit import Limits
from vramledger.search.sweep import over_processes


def test_models_devices_and_engines_by_any_of_their_names(tmp_path: Path) -> None:
    model = write_config(tmp_path, DENSE)
    found = compare(
        model, "h100", ("vllm==0.11.0", "vllm"), context_tokens=8192, flags={"vllm": {"max_num_seqs": 9}}
    )
    assert [column.label for column in found.columns] == ["vllm 0.11.0", f"vllm {NEWEST}"]
    settings = [dict(column.plan.inputs.settings) for column in found.columns if column.plan is not None]
    assert settings[1]["max_num_seqs"] == 9
    assert settings[0]["max_num_seqs"] != 9


def test_what_holds_within_the_limits(tmp_path: Path) -> None:
    model = load_model(write_config(tmp_path, MIXTURE))
    found = fit(
        model,
        ("l40s", "H100-80GB"),
        context_tokens=8192,
        ep=(False, True),
        limits=Limits(max_devices=4),
        order="tokens-per-price",
        prices={"L40S": 1.0, "h100": 2.5},
    )
    assert {item.row.devices for item in found.holding} == {1, 2, 4}
    assert found.points == 2 * 3 * 3 * 2
    rate = [item.cost.tokens / (item.cost.price or 1) for item in found.holding]
    assert rate == sorted(rate, reverse=True)
    with pytest.raises(FlagError, match="H100 SXM 80GB"):
        fit(model, ("H100-80GB",), order="price")
    with pytest.raises(FlagError, match="no number of at least 0"):
        fit(model, ("L4",), prices={"L4": -1.0})
    with pytest.raises(DeviceError):
        fit(model, ("none",))


def test_rows_come_in_the_order_of_the_axes_wherever_they_are_made(tmp_path: Path) -> None:
    model = load_model(write_config(tmp_path, DENSE))
    rows = list(sweep([model], ["T4", "L40S"], tp=(1, 2), contexts=(4096, 8192)))
    assert [(row.device, row.tp, row.context_tokens) for row in rows] == [
        (device, tp, length) for device in ("T4", "L40S") for tp in (1, 2) for length in (4096, 8192)
    ]
    assert {row.status for row in rows} == {Status.HOLDS, Status.FAILS}
    again = sweep([model], ["T4", "L40S"], tp=(1, 2), contexts=(4096, 8192), run=over_processes(1))
    assert list(again) == rows


@pytest.mark.parametrize(
    ("ask", "asked", "says"),
    [
        (compare, {"device": "L4", "engines": "vllm"}, "engines is a list"),
        (compare, {"device": "L4", "tp": "2"}, "tp '2' is not a whole number"),
        (compare, {"device": "L4", "tp": True}, "tp True"),
        (compare, {"device": "L4", "ep": 1}, "ep 1 is not True or False"),
        (compare, {"device": "L4", "context_tokens": "32K"}, "'32K'"),
        (compare, {"device": "L4", "concurrency": 10**5000}, "concurrency <int object"),
        (compare, {"device": "L4", "engines": (None,)}, "engines None"),
        (compare, {"device": "L4", "flags": [1]}, "by engine"),
        (compare, {"device": "L4", "flags": {"vllm==0.11.0": {}}}, "'vllm==0.11.0', which is not asked"),
        (compare, {"device": "L4", "flags": {"vllm": {"max_num_seq": 1}}}, "did you mean max_num_seqs"),
        (fit, {"devices": "L4"}, "devices is a list, not 'L4'"),
        (fit, {"devices": ("L4",), "tp": 2}, "tp is a list, not 2"),
        (fit, {"devices": ("L4",), "weights": "all"}, "weights is a list"),
        (fit, {"devices": ("L4",), "order": "cheapest"}, "'cheapest' is not one of devices, price"),
        (fit, {"devices": ("L4",), "prices": {"L4": "1"}}, "price of L4 is '1'"),
        (sweep, {"devices": ("L4",), "contexts": ("8K",)}, "contexts '8K'"),
    ],
)
def test_arguments_of_another_kind_are_named(
    tmp_path: Path, ask: Callable[..., object], asked: dict[str, object], says: str
) -> None:
    model = load_model(write_config(tmp_path, DENSE))
    with pytest.raises(FlagError, match=re.escape(says)):
        ask([model] if ask is sweep else model, **asked)


def test_one_model_is_no_list_of_models(tmp_path: Path) -> None:
    with pytest.raises(FlagError, match="models is a list"):
        sweep(str(write_config(tmp_path, DENSE)), ["L4"])
