"""An extra that is not installed is named by whoever needs it, with the command that installs it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from msgspec import Struct
from tools.distributions import Distributions

from clean_install import CleanInstall, copy_distributions, required_by

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
MODEL = "builtin:Qwen3-0.6B"
CARD = ("--device", "H100-80GB")
COHORTS = ROOT / "examples" / "workloads" / "short-qa.toml"
GATEWAY = """
listen = "127.0.0.1:0"
[[upstream]]
url = "http://127.0.0.1:9"
[admin]
listen = ""
"""


class Asked(Struct, frozen=True, kw_only=True):
    """A command that needs the extra, its exit code, and where it tells; of a gateway, more of its configuration."""

    command: tuple[str | Path, ...] = ()
    module: str = ""
    more: str = ""
    code: int = 2
    told: str = "stderr"


ASKED = {
    "hub": Asked(command=("model", "org/name"), code=4),
    "parquet": Asked(command=("sweep", MODEL, *CARD, "--out", "table.parquet")),
    "distributed": Asked(command=("sweep", MODEL, *CARD, "--ray", "local")),
    "llamacpp": Asked(module="vramledger.release.xllamacpp_server", command=("-m", "model.gguf")),
    "nvml": Asked(command=("measure", "--nvml"), code=0, told="stdout"),
    "simulation": Asked(command=("simulate", MODEL, *CARD, "--workload", COHORTS)),
    "gateway": Asked(command=("gateway", "--upstream", "http://127.0.0.1:9")),
    "experiment": Asked(command=("experiment", "--target", "http://127.0.0.1:9", "--out", "found")),
    "otel": Asked(more='[telemetry]\ntraces_endpoint = "http://127.0.0.1:9/v1/traces"\n'),
    "envoy": Asked(more='[envoy]\nlisten = "127.0.0.1:0"\n'),
    "shared": Asked(more='[shared]\nurl_file = "store-url"\n'),
    "web": Asked(command=("ui",)),
    "tokenizers": Asked(more='[tokens]\ntokenizer = "tokenizer.json"\n'),
}


@pytest.fixture(scope="module")
def gateway_parts(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the extra `gateway` brings, in a folder beside the environment."""
    folder = tmp_path_factory.mktemp("gateway-parts")
    copy_distributions(required_by(built.wheel, "gateway") - required_by(built.wheel), folder)
    return folder


def test_every_extra_is_asked_for_here() -> None:
    assert ASKED.keys() == EXTRAS.keys()


@pytest.mark.parametrize("extra", ASKED)
def test_its_absence_is_said_in_one_line(
    installed: CleanInstall, gateway_parts: Path, tmp_path: Path, extra: str
) -> None:
    asked = ASKED[extra]
    if asked.module:
        done = installed.python_run("-I", "-m", asked.module, *asked.command, cwd=tmp_path)
    elif asked.more:
        (tmp_path / "gateway.toml").write_text(GATEWAY + asked.more, encoding="utf-8")
        (tmp_path / "store-url").write_text("valkey://127.0.0.1:9/0\n", encoding="utf-8")
        (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
        done = installed.run("gateway", "--config", "gateway.toml", cwd=tmp_path, extra_path=gateway_parts)
    else:
        done = installed.run(*asked.command, cwd=tmp_path)
    assert done.returncode == asked.code, done.stdout + done.stderr
    said: str = getattr(done, asked.told)
    assert f"pip install 'vramledger[{extra}]'" in " ".join(said.split())
    assert "Traceback" not in done.stderr
    if asked.code:
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""
