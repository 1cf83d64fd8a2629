"""`vramledger simulate` and `capacity`: pages, documents, files, exit codes, refusals, on a small pool whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import jsonschema
import msgspec
import pyarrow.parquet as parquet
import pytest

from five_kinds import DENSE, MIXTURE, write_config
from vramledger.cli import main
from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout
from vramledger.report.capacity_document import CapacityDocument
from vramledger.report.schema import schema_of
from vramledger.report.simulation_document import SimulationDocument
from vramledger.simulation.run import check
from vramledger.simulation.settings import SchedulerSettings, Scheduling, SimulationSettings
from vramledger.simulation.step_file import step_json
from vramledger.simulation.step_model import StepModel

MS = 10**9
# 10 ms a step and 0.1 ms a token: a prompt of 100 and an answer of 9 take one step of 20 ms and eight of 10 ms.
STEP = StepModel(
    overhead_ps=0, floor_ps=10 * MS, token_ps=MS // 5, decode_seq_ps=0, kv_token_ps=0, evidence=assumed("a test's own")
)  # fmt: skip
BARE = (
    "--block-size",
    "10",
    "--max-model-len",
    "200",
    "--max-num-seqs",
    "8",
    "--max-num-batched-tokens",
    "200",
)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    rows = [f"{number * 0.5},{100},{9}" for number in range(40)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def bare(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "step.json"
    path.write_bytes(step_json(STEP))
    return (*BARE, "--step-model", str(path))


def document(capsys: pytest.CaptureFixture[str], name: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([name, *arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    kind = "simulation" if name == "simulate" else name
    jsonschema.Draft202012Validator(schema_of(kind)).validate(found)
    types = {"simulation": SimulationDocument, "capacity": CapacityDocument}
    assert msgspec.json.decode(json.dumps(found), type=types[kind]).kind == kind
    return code, found


def test_a_run_by_hand(trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(
        capsys, "simulate", "--blocks", "100", *bare, "--workload", trace, "--slo-ttft-ms", "25", "--slo-tpot-ms", "10"
    )  # fmt: skip
    assert code == 0
    assert found["verdict"]["holds"] is True
    requests = found["requests"]
    assert (requests["offered"], requests["finished"], requests["goodput"]) == (40, 40, 1.0)
    assert {requests["ttft_ms"][name] for name in ("mean", "p50", "p99", "max")} == {20.0}
    assert requests["tpot_ms"]["max"] == 10.0
    assert requests["latency_ms"]["mean"] == 100.0
    assert requests["offered_per_s"] == pytest.approx(2.0)
    # The prompt's ten blocks and one for what is generated.
    assert found["pool"]["used_blocks"]["max"] == 11
    assert [item["level"] for item in found["findings"]].count("untold") == 3
    assert found["conditions"]["step"]["evidence"]["kind"] == "assumed"


def test_a_trace_sent_faster_says_so(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--blocks", "100", *bare, "--workload", trace, "--scale-time", "0.25")
    _, found = document(capsys, "simulate", *asked)
    assert found["conditions"]["workload"]["arrival_scale"] == 4.0
    assert found["requests"]["offered_per_s"] == pytest.approx(8.0)


def test_exit_codes_say_what_was_found(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ("simulate", *bare, "--workload", trace)
    assert main([*asked, "--blocks", "100", "--slo-ttft-ms", "19"]) == 15
    assert main([*asked, "--blocks", "100", "--slo-ttft-ms", "19", "--exit-zero"]) == 0
    assert "missed" in capsys.readouterr().out
    assert main([*asked, "--blocks", "9"]) == 16
    page = capsys.readouterr().out
    assert "40 requests can never be served (numbers 0, 1, 2, 3, 4, 5, 6, 7, ...)" in " ".join(page.split())
    assert main([*asked, "--blocks", "9", "--exit-zero"]) == 0


def test_files_of_a_run(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, picture = tmp_path / "run", tmp_path / "pool.svg"
    asked = ("simulate", "--blocks", "100", *bare, "--workload", trace)
    assert main([*asked, "--output", str(out), "--picture", str(picture)]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80 + len(trace)
    rows = parquet.read_table(out / "requests.parquet").to_pylist()
    assert [row["number"] for row in rows] == list(range(40))
    assert {row["end_ps"] - row["sent_ps"] for row in rows} == {100 * MS}
    assert parquet.read_table(out / "pool.parquet").num_rows > 10
    assert Xml.parse(picture).getroot().tag.endswith("svg")
    assert not list(tmp_path.glob("**/*.part"))


def test_a_plan_brings_its_pool_and_its_phases(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_config(tmp_path / "dense", DENSE))
    asked = ("--device", "H100-80GB", "--max-model-len", "8K")
    code, found = document(capsys, "simulate", model, *asked, "--workload", trace)
    assert main(["plan", model, *asked, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["conditions"]["num_blocks"] == plan["kv_pool"]["num_blocks"]["expected"]
    assert found["conditions"]["max_model_len"] == 8192
    assert {item["level"] for item in found["findings"]} == {"clear"}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    code, again = document(capsys, "simulate", model, "--plan", str(file), "--workload", trace)
    assert (code, again["requests"]) == (0, found["requests"])
    other = str(write_config(tmp_path / "moe", MIXTURE))
    assert main(["simulate", other, "--plan", str(file), "--workload", trace]) == 2
    assert "MODEL is a Qwen3MoeForCausalLM, the plan is of dense" in capsys.readouterr().err
    beside = ("simulate", model, "--plan", str(file), "--workload", trace)
    for given, told in (("--engine", "sglang"), ("--engine", "vllm==0.19.0"), ("--device", "A100-80GB")):
        assert main([*beside, given, told]) == 2
        assert f"{given} {told} beside a plan of " in capsys.readouterr().err
    assert main([*beside, "--device", "H100-80GB", "--engine", "vllm"]) == 0


def test_ranks_of_data_parallelism_are_replicas(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_config(tmp_path / "dense", DENSE))
    asked = [
        "simulate",
        model,
        "--device",
        "H100-80GB",
        "--max-model-len",
        "8K",
        "--dp",
        "4",
        "--workload",
        trace,
    ]
    assert main(asked) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "1 replica of one rank serves all requests here; --replicas 4 is the whole instance" in page


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "MODEL and --device"),
        (("--blocks", "10"), "--block-size"),
        (("--blocks", "10", *BARE), "--step-model"),
        (("--blocks", "10", *BARE, "--step-model", "x.json", "--prefill-replicas", "1"), "x.json"),
        (("--device", "H100-80GB"), "MODEL and --device"),
        (("--blocks", "10", *BARE, "--kv-cache-dtype", "fp8"), "--kv-cache-dtype belongs to a plan"),
        (("--blocks", "10", *BARE, "--slo-ttft-ms", "nan"), "nan is no finite number"),
        (("--blocks", "10", *BARE, "--slo-tpot-ms", "inf"), "inf is no finite number"),
        (("--blocks", "10", *BARE, "--goodput", "nan"), "nan is no finite number"),
    ],
)
def test_what_is_missing_is_named(
    trace: str, arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--workload", trace, *arguments]) in (2, 4)
    assert named in capsys.readouterr().err


def test_fleets_that_contradict_themselves(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["simulate", "--blocks", "100", *bare, "--workload", trace, "--link", "50GB"]
    assert main(asked) == 2
    assert "give --prefill-replicas" in capsys.readouterr().err
    # Without a plan nobody knows a token's bytes: the link would take no time.
    assert main([*asked, "--replicas", "2", "--prefill-replicas", "1"]) == 2
    assert "needs a plan" in capsys.readouterr().err


def test_a_picture_never_takes_the_place_of_what_is_read(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(trace).read_bytes()
    for name in ("simulate", "capacity"):
        asked = [name, "--blocks", "100", *bare, "--workload", trace, "--slo-ttft-ms", "100"]
        for file in (trace, bare[-1]):
            assert main([*asked, "--picture", file]) == 2
            assert "--picture names the source" in capsys.readouterr().err
    assert Path(trace).read_bytes() == before


def test_one_moment_is_no_rate(
    bare: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n1,5,3\n", encoding="utf-8")
    asked = ["simulate", *bare, "--workload", str(file)]
    # What vLLM prints counts the null block, with a plan and without one.
    assert main([*asked, "--blocks", "1"]) == 2
    assert "null block" in capsys.readouterr().err
    assert main([*asked, "--blocks", "1", "--scheduling", "static-batch"]) == 0
    assert "1 usable block of 10 tokens" in " ".join(capsys.readouterr().out.split())
    assert main([*asked, "--blocks", "2", "--async-scheduling"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "offered 1, all at one time: 1 finished" in page
    assert "brings 1 request and" in page
    assert "1 usable block of 10 tokens" in page
    assert "prefix cache, async" in page


def test_an_overloaded_page_stays_within_80_columns(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = tmp_path / "slow.json"
    slow.write_bytes(step_json(msgspec.structs.replace(STEP, floor_ps=10**6 * MS)))
    asked = ["simulate", "--blocks", "100", *BARE, "--step-model", str(slow), "--workload", trace]
    assert main([*asked, "--slo-ttft-ms", "20", "--slo-latency-ms", "100"]) == 15
    page = [text for text in capsys.readouterr().out.splitlines() if str(tmp_path) not in text]
    assert max(map(len, page)) <= 80
    assert any("max" in text and "missed" in text for text in page)


def test_sglang_over_states_alone_is_not_simulated() -> None:
    settings = SimulationSettings(
        layout=PoolLayout(
            num_blocks=8,
            groups=(BlockGroup(kind=GroupKind.STATE, block_tokens=4096, state_blocks=1),),
        ),
        scheduler=SchedulerSettings(
            scheduling=Scheduling.SGLANG, max_num_seqs=8, max_num_batched_tokens=512, max_model_len=4096
        ),
        step=STEP,
    )
    with pytest.raises(InputError, match="a pool of states alone"):
        check(settings)


def test_no_rate_is_none_to_scale(
    bare: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("prompt_tokens,output_tokens\n" + "100,9\n" * 30, encoding="utf-8")
    asked = ["capacity", "--blocks", "100", *bare, "--workload", str(file), "--slo-ttft-ms", "100"]
    assert main(asked) == 2
    assert "no rate to scale: --rate" in capsys.readouterr().err


def test_a_step_model_that_is_none_is_refused(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.json"
    good = json.loads(step_json(STEP))
    for change in (
        {"floor_ps": -1},
        {"floor_ps": 0, "token_ps": 0},
        {"evidence": None},
        {"token_ps": 10**16},
    ):
        file.write_text(json.dumps(good | change), encoding="utf-8")
        assert main(["simulate", "--blocks", "9", *BARE, "--step-model", str(file), "--workload", trace]) == 2
        assert "bad.json" in capsys.readouterr().err


def test_the_largest_rate_of_a_server_of_known_speed(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Evenly spaced requests of 100 ms each alone: two share steps from 10 a second on, and a prefill between decodes
    makes a step of 20 ms; TPOT within 10 ms is met only while none overlap."""
    picture = tmp_path / "load.svg"
    asked = ("--blocks", "100", *bare, "--workload", trace, "--slo-tpot-ms", "10", "--picture", str(picture))
    code, found = document(capsys, "capacity", *asked, "--no-sensitivity", "--at", "2026-11-30T00:00:00Z")
    assert code == 0
    assert found["requests_per_s"] == pytest.approx(10.0, rel=0.021)
    assert set(found["binds"]) <= {"latency"}
    assert {item["resource"] for item in found["reliefs"]} == {
        "pool",
        "activation",
        "max_num_seqs",
        "latency",
    }
    # 39 gaps at 8 a second are 5 s: too short for bursts of 5 s and for outages.
    assert found["bursts"] == found["restarts"] == []
    assert found["capacity_results"][0]["requests_per_s"] == found["requests_per_s"]
    assert Xml.parse(picture).getroot().tag.endswith("svg")


def test_no_load_is_an_answer(trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("capacity", *bare, "--workload", trace, "--no-sensitivity", "--no-headroom")
    assert main([*asked, "--blocks", "100", "--slo-ttft-ms", "19"]) == 15
    page = capsys.readouterr().out
    assert "no load serves 99.00% of what is offered within TTFT 19 ms" in " ".join(page.split())
    assert main([*asked, "--blocks", "9", "--slo-ttft-ms", "19"]) == 15
    assert main([*asked, "--blocks", "100"]) == 2
    assert "--slo-ttft-ms" in capsys.readouterr().err


def test_sensitivity_names_what_changes(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--blocks", "100", *bare, "--workload", trace, "--requests", "12", "--slo-tpot-ms", "10")
    code, found = document(capsys, "capacity", *asked, "--no-headroom", "--resolution", "0.1")
    assert code == 0
    rows = {(item["factor"], item["change"]): item["relative"] for item in found["sensitivity"]}
    assert {factor for factor, _ in rows} >= {
        "output length",
        "prefix hit",
        "block size",
        "watermark",
        "pool",
        "step time",
    }
    assert rows[("output length", "x 1.25")] < 0 < rows[("output length", "x 0.8")]
    assert rows[("pool", "x 1.1")] == pytest.approx(0, abs=0.1)


def test_waits_between_turns_are_compared(bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    sessions = (
        Path(__file__).parents[2] / "data/traces/agentic-coding-claude-code/sessions.first-30-small.jsonl.gz"
    )
    asked = (
        "--blocks",
        "20000",
        *bare,
        "--workload",
        str(sessions),
        "--requests",
        "20",
        "--compare-tool-waits",
    )
    code, found = document(capsys, "simulate", *asked, "--max-model-len", "200K", "--exit-zero")
    assert code == 0
    rows = {row["policy"]: row["waste_token_s"] for row in found["tool_waits"]}
    assert rows["least in hindsight"] == min(rows.values())
    assert {"preserve", "discard"} <= set(rows)
    code, found = document(capsys, "simulate", *asked[:-1], "--host-link", "1GB", "--exit-zero")
    assert found["tool_waits"] is None
    assert main(["simulate", *asked, "--host-link", "1GB", "--exit-zero"]) == 0
    assert "swap is left out: it needs --host-link and a plan" in " ".join(capsys.readouterr().out.split())


def test_a_plans_own_interval_is_among_the_changes(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_config(tmp_path / "dense", DENSE))
    asked = (
        "--device",
        "RTX 4090",
        "--max-model-len",
        "4K",
        "--workload",
        trace,
        "--how",
        "reference",
        "--sensitivity",
    )
    code, found = document(
        capsys, "capacity", model, *asked, "--slo-tpot-ms", "19.5", "--no-headroom", "--resolution", "0.3"
    )
    assert code == 0
    assert found["conditions"]["step"]["evidence"]["kind"] == "assumed"
    factors = [item["change"] for item in found["sensitivity"] if item["factor"] in ("pool", "KV format")]
    assert any(text.startswith("plan's low") for text in factors)
    assert any(text.startswith("plan's high") for text in factors)


def overload(tmp_path: Path) -> str:
    """Sixty requests in 6 s for a pool that holds five of them, of which ten a second of service each."""
    rows = [f"{number * 0.1},{100},{40}" for number in range(60)]
    path = tmp_path / "overload.csv"
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n", encoding="utf-8")
    return str(path)


def test_a_policy_in_front_of_the_engine_refuses_who_would_be_late(
    tmp_path: Path, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--blocks", "40", *bare, "--workload", overload(tmp_path), "--slo-ttft-ms", "500", "--exit-zero")
    _, alone = document(capsys, "simulate", *asked)
    _, found = document(capsys, "simulate", *asked, "--admission", "default")
    assert alone["admission"] is None
    decided = found["admission"]
    assert (decided["policy"], decided["reservation"]) == ("default", "quantile")
    assert decided["let_in_at_once"] + decided["waited"] + sum(decided["refused"].values()) >= 60
    assert decided["refused"] == {"first-token-deadline": found["requests"]["rejected"]}
    assert found["requests"]["goodput"] > 2 * alone["requests"]["goodput"]
    assert found["requests"]["missed_ttft"] == found["requests"]["rejected"]
    assert found["notes"] == [
        "run by the readable simulator: the compiled one does not cover admission policies"
    ]
    main(["simulate", *asked, "--admission", "default"])
    page = " ".join(capsys.readouterr().out.split())
    assert (
        f"admission by default, which reserves by quantile: {decided['let_in_at_once']} let in at once"
        in page
    )


def test_a_default_follows_what_the_engine_does_when_its_pool_is_full(
    tmp_path: Path, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--blocks", "40", *bare, "--workload", overload(tmp_path), "--slo-ttft-ms", "500", "--exit-zero")
    _, alone = document(capsys, "simulate", *asked, "--scheduling", "llama.cpp")
    _, found = document(capsys, "simulate", *asked, "--scheduling", "llama.cpp", "--admission", "default")
    assert alone["requests"]["failed"] > 0
    assert (found["requests"]["failed"], found["admission"]["reservation"]) == (0, "no-evict")
    assert found["requests"]["goodput"] > alone["requests"]["goodput"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--how", "compiled", "--admission", "default"), "the compiled simulator does not cover admission policies"),
        (("--admission", "risk", "--max-num-seqs", "500"), "reservation is risk and pace.step_tokens 200"),
    ],
)  # fmt: skip
def test_what_a_policy_cannot_do_is_said(
    more: tuple[str, ...], told: str, trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--blocks", "40", *bare, "--workload", trace, *more]) == 2
    assert told in capsys.readouterr().err


def test_curves_are_the_quantities_percentiles(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = document(
        capsys, "simulate", "--blocks", "30", *bare, "--workload", trace, "--scale-time", "0.1"
    )
    curves = found["curves"]
    assert curves["percent"] == sorted(set(curves["percent"]))
    for name in ("ttft_ms", "tpot_ms", "latency_ms", "queue_ms"):
        at = dict(zip(curves["percent"], curves[name], strict=True))
        assert list(at.values()) == sorted(at.values())
        for percent in (50, 90, 95, 99):
            assert at[percent] == found["requests"][name][f"p{percent}"]
        assert at[100] == found["requests"][name]["max"]
    assert curves["ttft_ms"][0] < curves["ttft_ms"][-1]


def test_percentiles_of_every_load(
    trace: str, bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = document(
        capsys, "capacity", "--blocks", "100", *bare, "--workload", trace, "--slo-ttft-ms", "200", "--no-sensitivity", "--no-headroom"
    )  # fmt: skip
    for load in found["loads"]:
        assert load["ttft_ms"]["p50"] <= load["ttft_ms"]["p95"] <= load["ttft_ms"]["p99"]
        assert (load["ttft_ms"]["p99"], load["tpot_ms"]["p99"]) == (load["ttft_p99_ms"], load["tpot_p99_ms"])
        assert load["latency_ms"]["p50"] >= load["ttft_ms"]["p50"]
    at = next(load for load in found["loads"] if load["load"] == found["load"])
    assert at["latency_ms"]["p99"] == found["at"]["latency_ms"]["p99"]


def test_a_built_in_workload_is_told_by_its_name(
    bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = document(
        capsys, "simulate", "--blocks", "2000", *bare, "--max-model-len", "16K", "--workload", "builtin:azure-chat", "--requests", "50"
    )  # fmt: skip
    workload = found["conditions"]["workload"]
    assert (workload["name"], workload["source"], workload["requests"]) == (
        "builtin:azure-chat",
        "builtin:azure-chat",
        50,
    )
    assert any("CC-BY 4.0" in note for note in workload["notes"])
    assert main(["simulate", "--blocks", "2000", *bare, "--workload", "builtin:azur"]) == 4
    assert "did you mean azure-chat?" in capsys.readouterr().err
