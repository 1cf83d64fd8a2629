"""The public names, and what asking through them does and does not do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import vramledger
from five_kinds import DENSE, MIXTURE, write_config
from vramledger import (
    Checkpoint,
    DeviceError,
    FlagError,
    Plan,
    SourceError,
    UnknownArchitecture,
    find_device,
    load_model,
    plan,
)

PUBLIC = {
    "ByteRange", "Checkpoint", "ConfigError", "Device", "DeviceError", "Entry", "Evidence", "EvidenceKind",
    "FlagError", "FloatRange", "HeaderError", "InputError", "IntRange", "KvGroup", "KvPool", "Lifetime",
    "Model", "Owner", "Peak", "Phase", "Plan", "PlanInputs", "RankLedger", "SourceError",
    "UnknownArchitecture", "UnknownFormat", "Verdict", "VramledgerError", "WeightFigures", "__version__",
    "devices", "find_device", "load_model", "plan",
}  # fmt: skip


def test_the_exported_names() -> None:
    assert set(vramledger.__all__) == PUBLIC
    assert set(dir(vramledger)) == PUBLIC
    for name in PUBLIC:
        assert getattr(vramledger, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        _ = vramledger.plans


def test_the_version_is_that_of_the_package() -> None:
    path = Path(__file__).parents[1] / "pyproject.toml"
    assert tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"] == vramledger.__version__


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
