"""`vramledger adapters`: pages, documents, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter_files import lora, write_adapter
from support import LLAMA_3_1_8B, QWEN3_32B_AWQ
from vramledger.cli import main
from vramledger.report.adapters_document import break_even
from vramledger.report.schema import schema_of

QV = {"self_attn.q_proj": (4096, 4096), "self_attn.v_proj": (1024, 4096)}
ALL = QV | {
    "self_attn.k_proj": (1024, 4096), "self_attn.o_proj": (4096, 4096), "mlp.gate_proj": (14336, 4096),
    "mlp.up_proj": (14336, 4096), "mlp.down_proj": (4096, 14336),
}  # fmt: skip


@pytest.fixture
def llama(tmp_path: Path) -> str:
    folder = tmp_path / "llama"
    folder.mkdir()
    config = LLAMA_3_1_8B | {"architectures": ["LlamaForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def adapter(folder: Path, name: str, modules: dict[str, tuple[int, int]], rank: int, **config: Any) -> str:
    written = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj"]} | config
    return str(write_adapter(folder / name, written, lora(modules, rank, layers=range(32))))


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["adapters", *arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    if "adapters" in found:
        jsonschema.Draft202012Validator(schema_of("adapters")).validate(found)
    return code, found


def test_adapters_alone_need_no_device(
    llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = document(capsys, llama, adapter(tmp_path, "a", QV, 8))
    assert code == 0
    (one,) = found["adapters"]
    assert one["parameters"] == 3_407_872
    assert one["disk_bytes"] == 2 * 3_407_872
    assert one["merged"]["bytes"] == 2 * 32 * 4096 * (4096 + 1024)
    assert found["cost"] is None and one["served"] is None


def test_hot_and_cold_adapters_under_an_engine(
    llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, large = adapter(tmp_path, "small", QV, 8), adapter(tmp_path, "large", ALL, 16)
    code, found = document(
        capsys, llama, small, large, "--device", "H100-80GB", "--hot", "1", "--max-model-len", "8192"
    )
    assert code == 0
    assert (found["slots"], found["slot_rank"]) == (1, 16)
    first, second = (item["served"] for item in found["adapters"])
    assert (first["place"], second["place"]) == ("device", "host")
    linears, ends = 1_310_720 * 2 * 32, 2 * 16 * (128_256 + 4096) * 2
    assert first["slot_bytes"] == second["slot_bytes"] == linears + ends
    assert first["own_bytes"] + first["padding_bytes"] == first["slot_bytes"]
    assert second["own_bytes"] == second["host_bytes"] == 2 * 41_943_040
    assert found["cost"]["host_bytes"] == first["host_bytes"] + second["host_bytes"]
    assert found["cost"]["tokens_with"] < found["cost"]["tokens_without"]
    assert "at most 1 of 2 adapters" in found["sharing"][0]


def test_a_refused_adapter_takes_no_slot_and_ends_with_10(
    llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = adapter(tmp_path, "plain", QV, 8)
    dora, huge = adapter(tmp_path, "dora", QV, 64, use_dora=True), adapter(tmp_path, "huge", QV, 513)
    arguments = (llama, dora, huge, plain, "--device", "H100-80GB", "--max-model-len", "8192")
    code, found = document(capsys, *arguments)
    assert code == 10
    assert (found["slots"], found["slot_rank"]) == (1, 8)
    assert [item["served"]["place"] for item in found["adapters"]] == ["refused", "refused", "device"]
    refusals = [item["served"]["refusals"] for item in found["adapters"]]
    assert refusals == [
        ["is weight-decomposed (DoRA)"],
        ["has rank 513, above --max-lora-rank 512"],
        [],
    ]
    assert main(["adapters", *arguments]) == 10
    page = capsys.readouterr().out
    assert "refused: dora is weight-decomposed (DoRA)" in page
    assert "needs a merged copy in an engine of its own" in page
    assert max(map(len, page.splitlines())) <= 80


def test_a_quantised_base_is_not_merged_without_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "awq"
    folder.mkdir()
    config = QWEN3_32B_AWQ | {"architectures": ["Qwen3ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    written = adapter(tmp_path, "a", {"mlp.up_proj": (25600, 5120)}, 8)
    assert main(["adapters", str(folder), written]) == 0
    assert "A merge into INT4 group 128 (awq) has to be requantised" in " ".join(
        capsys.readouterr().out.split()
    )


def test_another_model_s_adapter_ends_with_10(
    llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = adapter(tmp_path, "wrong", {"self_attn.q_proj": (2048, 2048)}, 8)
    code, found = document(capsys, llama, wrong)
    assert code == 10
    assert "is adapted as [2048 x 2048]" in found["adapters"][0]["mismatches"][0]
    assert main(["adapters", llama, wrong]) == 10
    assert "misfit: wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--hot", "1"), "need --device"),
        (("--device", "H100-80GB", "--hot", "2"), "not between 1 and the 1 adapters"),
        (("--device", "H100-80GB", "--engine", "transformers"), "is not described"),
    ],
)
def test_questions_that_make_no_sense(
    arguments: tuple[str, ...], told: str, llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adapters", llama, adapter(tmp_path, "a", QV, 8), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_the_plan_takes_adapters_from_the_command_line(
    llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = [adapter(tmp_path, name, QV, rank) for name, rank in (("a", 8), ("b", 32))]
    flags = [part for place in served for part in ("--adapter", place)]
    assert main(["plan", llama, "--device", "H100-80GB", "--max-model-len", "8192", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    settings = found["inputs"]["settings"]
    assert (settings["max_loras"], settings["max_lora_rank"], settings["adapter"]) == (2, 32, "a, b")
    assert any(entry["owner"] == "adapters" for entry in found["host"])


@given(st.integers(0, 10**10), st.integers(0, 10**9), st.integers(0, 10**9))
def test_slots_take_less_from_the_break_even_on_and_not_before(fixed: int, slot: int, copy: int) -> None:
    count = break_even(fixed, slot, copy)
    if count is None:
        assert copy <= slot
        return
    assert fixed + count * slot < count * copy
    assert count == 1 or fixed + (count - 1) * slot >= (count - 1) * copy


def test_the_exit_code_tells_whether_the_plan_holds_with_them(
    llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [llama, adapter(tmp_path, "a", QV, 8), "--device", "custom:10GiB"]
    code, found = document(capsys, *asked)
    assert code == 10
    assert found["cost"]["holds"] is False
    assert main(["adapters", *asked]) == 10
    page = " ".join(capsys.readouterr().out.split())
    assert f"with adapters: {found['cost']['verdict']}" in page
    assert main(["adapters", *asked, "--exit-zero"]) == 0
