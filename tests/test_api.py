"""The public names, and what asking through them does and does not do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import vramledger
from five_kinds import DENSE, MIXTURE, write_config
from vramledger import (
    BlockGroup,
    BlockPool,
    Checkpoint,
    DeviceError,
    FlagError,
    InputError,
    Plan,
    PoolLayout,
    SimulationSettings,
    Slo,
    SourceError,
    UnknownArchitecture,
    find_device,
    layout_of,
    load_model,
    plan,
    read_workload,
    roofline_step,
    scheduler_of,
    simulate,
    summary_of,
)

PUBLIC = {
    "BlockGroup", "BlockPool", "ByteRange", "Checkpoint", "Cohort", "ConfigError", "Device",
    "DeviceError", "Entry", "Evidence", "EvidenceKind", "FlagError", "FloatRange", "GroupKind",
    "HeaderError", "InputError", "IntRange", "KvGroup", "KvPool", "Lifetime", "Model", "Owner", "Peak",
    "Phase", "Plan", "PlanInputs", "PoolLayout", "RankLedger", "Request", "SchedulerSettings",
    "Scheduling", "SimulationSettings", "Slo", "SourceError", "StepModel", "UnknownArchitecture",
    "UnknownFormat", "Verdict", "VramledgerError", "WeightFigures", "__version__", "compare", "devices",
    "find_device", "fit", "layout_of", "load_model", "plan", "read_cohorts", "read_workload",
    "roofline_step", "sample_workload", "scheduler_of", "simulate", "summary_of", "sweep",
}  # fmt: skip


def test_the_exported_names() -> None:
    assert set(vramledger.__all__) == PUBLIC
    assert set(dir(vramledger)) == PUBLIC
    for name in PUBLIC:
        assert getattr(vramledger, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        _ = vramledger.plans


def test_importing_loads_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import vramledger; "
        "print(sorted(name for name in set(sys.modules) - before if name != 'vramledger'))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"'(\w+)", out)) <= {"__future__", "typing", "collections", "functools", "re", "copyreg",
                                               "contextlib", "operator", "keyword", "reprlib", "types", "enum",
                                               "warnings", "_collections", "_functools", "_operator", "_sre",
                                               "_typing", "itertools"}  # fmt: skip
    assert "vramledger." not in out


def test_planning_imports_no_heavy_library(tmp_path: Path) -> None:
    config = write_config(tmp_path, DENSE)
    code = (
        f"import sys; from vramledger import plan; plan({str(config)!r}, 'H100-80GB'); "
        "print([n for n in ('torch', 'numpy', 'huggingface_hub', 'rich', 'click') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_a_workload_over_the_pool_that_a_plan_leaves(tmp_path: Path) -> None:
    model = load_model(write_config(tmp_path, DENSE).parent)
    made = plan(model, "H100-80GB", max_model_len=32000)
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_ms,prompt_tokens,output_tokens\n0,1000,50\n20,400,10\n")
    slo = Slo(ttft_ms=60_000)
    settings = SimulationSettings(
        layout=layout_of(made),
        scheduler=scheduler_of(made),
        step=roofline_step(made, model, find_device("H100-80GB")),
        slo=slo,
    )
    run, outcomes = simulate(read_workload(trace), settings)
    assert outcomes is not None
    assert summary_of(outcomes, slo).all.goodput == 1
    assert sum(counters.computed_tokens for counters in run.counters) == 1000 + 49 + 400 + 9


def test_a_pool_by_itself() -> None:
    pool = BlockPool(PoolLayout(num_blocks=4, groups=(BlockGroup(block_tokens=16),)))
    assert pool.open("a", keys=(1, 2), boundary=0, hit_tokens=0, tokens=40)
    assert (pool.free_blocks, pool.used_blocks) == (1, 3)


def test_a_name_that_needs_an_extra_says_which() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "try:\n    from vramledger import read_workload\n"
        "except ImportError as problem:\n    print(problem)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == (
        "vramledger.read_workload needs numpy, which is not installed: pip install 'vramledger[simulation]'"
    )


def test_a_path_a_checkpoint_and_a_device_value_give_the_same_plan(tmp_path: Path) -> None:
    config = write_config(tmp_path, DENSE)
    checkpoint = load_model(config.parent)
    first = plan(config.parent, "H100-80GB", max_model_len=32000)
    second = plan(checkpoint, find_device("h100 sxm 80gb"), max_model_len="32k")
    assert isinstance(checkpoint, Checkpoint)
    assert isinstance(first, Plan)
    assert first == second
    assert hash(first) == hash(second)
    assert plan(checkpoint, "H100-80GB") != first


def test_short_and_long_names_of_one_flag_agree_or_are_refused(tmp_path: Path) -> None:
    checkpoint = load_model(write_config(tmp_path, MIXTURE).parent)
    short = plan(checkpoint, "H100-80GB", tp=2, ep=True)
    long = plan(checkpoint, "H100-80GB", tensor_parallel_size=2, enable_expert_parallel=True)
    assert short == long
    assert (short.inputs.tp, short.inputs.ep) == (2, 2)
    with pytest.raises(FlagError, match="given as 2 and as 4"):
        plan(checkpoint, "H100-80GB", tp=2, tensor_parallel_size=4)


def test_engine_versions_are_chosen_by_name(tmp_path: Path) -> None:
    checkpoint = load_model(write_config(tmp_path, DENSE).parent)
    assert plan(checkpoint, "H100-80GB", engine="vllm==0.11.0").inputs.engine_version == "0.11.0"
    for engine in ("tgi", "vllm==", "vllm==latest"):
        with pytest.raises(FlagError):
            plan(checkpoint, "H100-80GB", engine=engine)


def test_an_unknown_flag_is_refused_with_the_closest_names(tmp_path: Path) -> None:
    checkpoint = load_model(write_config(tmp_path, DENSE).parent)
    with pytest.raises(FlagError, match="max_num_seqs") as caught:
        plan(checkpoint, "H100-80GB", max_num_seq=5)
    assert caught.value.facts["closest"][0] == "max_num_seqs"  # type: ignore[index]


def test_other_refusals_are_of_the_tree(tmp_path: Path) -> None:
    config = write_config(tmp_path, DENSE)
    with pytest.raises(DeviceError):
        plan(config.parent, "H1000")
    with pytest.raises(SourceError):
        load_model(tmp_path / "nothing" / "here.json")
    other = tmp_path / "other.json"
    other.write_text(json.dumps(DENSE | {"model_type": "no_such_model", "architectures": ["NoSuchModel"]}))
    with pytest.raises(UnknownArchitecture, match="no_such_model"):
        load_model(other)


class NamedBytes:
    """A path as bytes, which os.fspath allows."""

    def __fspath__(self) -> bytes:
        return b"config.json"


@pytest.mark.parametrize("model", [None, 123, b"x", NamedBytes(), 1.5, ["a"], object()])
def test_what_is_no_model_is_refused_by_name(model: Any) -> None:
    for ask in (lambda: plan(model, "H100-80GB"), lambda: load_model(model)):
        with pytest.raises(InputError, match="model must be") as caught:
            ask()
        assert repr(model)[:20] in caught.value.message
        assert caught.value.facts["argument"] == "model"
    with pytest.raises(InputError, match="empty"):
        load_model("")


@pytest.mark.parametrize("device", [None, 123, b"H100", 80.5, ["H100"]])
def test_what_is_no_device_is_refused_by_name(tmp_path: Path, device: Any) -> None:
    with pytest.raises(DeviceError, match="device must be") as caught:
        plan(write_config(tmp_path, DENSE), device)
    assert repr(device) in caught.value.message
    with pytest.raises(DeviceError, match="device must be"):
        find_device(device)


@pytest.mark.parametrize(
    ("flags", "name", "says"),
    [
        ({"engine": None}, "engine", "None"),
        ({"engine": 7}, "engine", "7"),
        ({"tp": True}, "tensor_parallel_size", "True"),
        ({"pp": 1.0}, "pipeline_parallel_size", "1.0"),
        ({"dp": "two"}, "data_parallel_size", "'two'"),
        ({"tp": 2**70}, "tensor_parallel_size", "out of range"),
        ({"tp": 0}, "tp", "is 0"),
        ({"tp": 10**5000}, "tensor_parallel_size", "out of range"),
        ({"gpu_memory_utilization": 10**400}, "gpu_memory_utilization", "out of range"),
        ({"gpu_memory_utilization": float("nan")}, "gpu_memory_utilization", "nan"),
        ({"speculative_config": {1: 2}}, "speculative_config", "{1: 2}"),
        ({"ep": "maybe"}, "enable_expert_parallel", "'maybe'"),
        ({"ep": 2}, "enable_expert_parallel", "2"),
        ({"concurrency": 0}, "concurrency", "0"),
        ({"concurrency": None}, "concurrency", "None"),
        ({"concurrency": True}, "concurrency", "True"),
        ({"concurrency": "5"}, "concurrency", "'5'"),
    ],
)
def test_wrong_values_are_refused_by_name_and_value(
    tmp_path: Path, flags: dict[str, Any], name: str, says: str
) -> None:
    with pytest.raises(FlagError) as caught:
        plan(write_config(tmp_path, DENSE), "H100-80GB", **flags)
    assert name in caught.value.message.replace("-", "_")
    assert says in caught.value.message


def test_none_stands_for_a_flag_not_given(tmp_path: Path) -> None:
    config = write_config(tmp_path, MIXTURE)
    unset: dict[str, Any] = {"tp": None, "ep": None, "max_model_len": None}
    assert plan(config, "H100-80GB", **unset) == plan(config, "H100-80GB")
    as_text: dict[str, Any] = {"tp": "2", "ep": "false"}
    assert plan(config, "H100-80GB", **as_text) == plan(config, "H100-80GB", tp=2)


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(vramledger.__file__).parent / "py.typed").is_file()


def test_a_built_wheel_has_every_file_that_is_no_module(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    root = Path(__file__).parents[1]
    code = f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = root / "src" / "vramledger"
    wanted = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "vramledger/py.typed" in wanted
    assert wanted <= names
    assert {name.partition("/")[0] for name in names} == {
        "vramledger",
        f"vramledger-{vramledger.__version__}.dist-info",
    }
