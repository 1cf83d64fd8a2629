"""The command line in this process: pages, documents, exit codes, refusals."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner

from five_kinds import DENSE, FIVE, MIXTURE, RECURRENT, write_config
from vramledger.cli import main
from vramledger.cli.app import cli
from vramledger.engines.vllm.options import OPTIONS
from vramledger.report.schema import schema_of


@pytest.fixture
def dense(tmp_path: Path) -> str:
    return str(write_config(tmp_path / "dense", DENSE))


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


@pytest.mark.parametrize("kind", FIVE)
def test_json_of_each_kind_follows_the_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    config = str(write_config(tmp_path / kind, FIVE[kind]))
    code, plan = as_json(capsys, "plan", config, "--device", "H200-141GB", "--tp", "2")
    jsonschema.Draft202012Validator(schema_of("plan")).validate(plan)
    assert code == 0
    assert plan["verdict"]["holds"] is True
    assert plan["inputs"]["model"] == kind
    code, model = as_json(capsys, "model", config)
    jsonschema.Draft202012Validator(schema_of("model")).validate(model)
    assert code == 0


def test_the_catalogue_and_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    code, catalogue = as_json(capsys, "devices")
    assert code == 0
    assert {"H100 SXM 80GB", "L40S"} <= {device["name"] for device in catalogue["devices"]}
    for name in ("plan", "model", "devices", "error"):
        assert main(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out) == schema_of(name)
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("plan")


def test_pages_have_no_colour_and_80_columns_without_a_terminal(
    dense: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for arguments in (["plan", dense, "-d", "H100-80GB", "--explain"], ["model", dense], ["devices"]):
        assert main(arguments) == 0
        page = capsys.readouterr().out
        assert "\x1b" not in page
        assert max(map(len, page.splitlines())) <= 80


def test_exit_codes_tell_the_verdict(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", dense, "-d", "H100-80GB"]) == 0
    assert main(["plan", dense, "-d", "custom:16GiB"]) == 10
    assert main(["plan", dense, "-d", "custom:16GiB", "--exit-zero"]) == 0
    capsys.readouterr()
    codes = set()
    for mib in range(33_500, 36_500, 100):
        size = f"custom:{mib}MiB"
        code, plan = as_json(capsys, "plan", dense, "-d", size)
        codes.add(code)
        assert {True: 0, False: 10, None: 11}[plan["verdict"]["holds"]] == code
    assert codes >= {10, 11}


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "says"),
    [
        (["--device", "H1000"], 2, "device", "H1000"),
        (["--device", "H100-80GB", "--max-model-len", "long"], 2, "flag", "max-model-len"),
        (["--device", "H100-80GB", "--engine", "tgi"], 2, "flag", "tgi"),
        (["--device", "H100-80GB", "--engine", "vllm==99"], 2, "flag", "99"),
        (["--device", "H100-80GB", "--tp", "3"], 2, "flag", "3"),
        (["--device", "H100-80GB", "--kv-cache-dtype", "int3"], 2, "flag", "--kv-cache-dtype int3"),
        (["--device", "H100-80GB", "--speculative-config", "{"], 2, "flag", "not JSON"),
        (["--device", "H100-80GB", "--max-num-seq", "4"], 2, "usage", "--max-num-seqs"),
        ([], 2, "usage", "--device"),
    ],
)
def test_errors_have_one_line_and_one_object(
    dense: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, kind: str, says: str
) -> None:
    assert main(["plan", dense, *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert says in shown.err
    assert "Traceback" not in shown.err
    assert main(["plan", dense, *arguments, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("error")).validate(document)
    error = document["error"]
    assert set(error) == {"code", "message", "facts"}
    assert error["code"] == kind
    assert says in error["message"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", 2),
        ("{", 2),
        ("[]", 2),
        ('{"model_type": "llama"}', 2),
        (json.dumps(DENSE | {"num_key_value_heads": 0}), 2),
        (json.dumps(DENSE | {"hidden_size": -4096}), 2),
        (json.dumps(DENSE | {"num_hidden_layers": 1e99}), 2),
        (json.dumps(DENSE | {"vocab_size": float("nan")}), 2),
        (json.dumps(DENSE | {"torch_dtype": "complex64"}), 3),
        (json.dumps(DENSE | {"model_type": "nothing_like_it", "architectures": ["NothingLikeIt"]}), 3),
        (json.dumps(DENSE | {"quantization_config": {"quant_method": "magic"}}), 3),
        ("[" * 100_000, 2),
    ],
)
@pytest.mark.parametrize("command", ["plan", "model"])
def test_wrong_configs_are_refused_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, content: str, code: int
) -> None:
    path = tmp_path / "config.json"
    path.write_text(content, encoding="utf-8")
    arguments = [command, str(path)] + (["--device", "H100-80GB"] if command == "plan" else [])
    assert main(arguments) == code
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1
    assert "Traceback" not in shown.err


def test_a_source_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "./no/such/folder"]) == 4
    assert "no/such/folder" in capsys.readouterr().err


def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """A file with a true header and a body of zeros."""
    header: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


def test_an_unknown_architecture_is_named_and_its_headers_still_speak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path, {"model_type": "novel", "architectures": ["NovelForCausalLM"]})
    tensors = {f"layers.{i}.mix.weight": ("BF16", [5, 7], 70) for i in range(3)} | {
        "scale": ("F32", [11], 44)
    }
    write_safetensors(tmp_path / "model.safetensors", tensors)
    assert main(["plan", str(tmp_path), "--device", "H100-80GB"]) == 3
    shown = capsys.readouterr()
    assert "novel" in shown.err
    assert "NovelForCausalLM" in shown.err
    assert "4 tensors" in shown.out
    assert main(["model", str(tmp_path)]) == 3
    assert capsys.readouterr().out == shown.out
    code, body = as_json(capsys, "model", str(tmp_path))
    assert code == 3
    jsonschema.Draft202012Validator(schema_of("error")).validate(body)
    headers = body["error"]["facts"]["headers"]
    assert (headers["tensor_count"], headers["total_bytes"]) == (4, 254)
    assert headers["bytes_by_dtype"] == {"BF16": 210, "F32": 44}
    assert sorted(row["count"] for row in headers["patterns"]) == [1, 3]
    assert main(["model", str(tmp_path), "--no-headers"]) == 3
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("wrong", [
    {"model_type": "novel", "architectures": ["NovelForCausalLM"]}, {"quantization_config": {"quant_method": "magic"}},
])  # fmt: skip
@pytest.mark.parametrize("command", [["plan", "--device", "H100-80GB"], ["model"]])
def test_an_index_still_speaks_where_there_is_no_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: dict[str, Any], command: list[str]
) -> None:
    config = write_config(tmp_path, DENSE | wrong)
    names = {f"layers.{i}.mix.weight": "model-1.safetensors" for i in range(7)} | {
        "scale": "model-1.safetensors"
    }
    index = {"metadata": {"total_size": 3 * 2**30}, "weight_map": names}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert main([*command, str(tmp_path)]) == 3
    shown = capsys.readouterr()
    assert shown.err.count(str(config)) == 1
    assert "the index says: 8 tensors, 3.00 GiB, 7 layers" in shown.out
    code, body = as_json(capsys, *command, str(tmp_path))
    headers = body["error"]["facts"]["headers"]
    assert (code, headers["from"], headers["total_bytes"]) == (3, "index", 3 * 2**30)
    assert headers["patterns"][0] == {
        "template": "layers.{}.mix.weight", "dtype": None, "shape": None, "count": 7, "bytes": None,
    }  # fmt: skip


def write_gguf(path: Path, architecture: str) -> None:
    """A GGUF file of one F32 tensor of 3 x 5, general.architecture as given."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    key = text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    tensor = text("novel.weight") + struct.pack("<IQQIQ", 2, 5, 3, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + key + tensor
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(64))


def test_a_gguf_file_of_an_unknown_architecture_still_speaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_gguf(tmp_path / "novel.gguf", "novel")
    assert main(["model", str(tmp_path / "novel.gguf")]) == 3
    shown = capsys.readouterr()
    assert f"{tmp_path}/novel.gguf: the GGUF architecture 'novel'" in shown.err
    assert "1 tensor," in shown.out
    assert main(["plan", str(tmp_path / "novel.gguf"), "--device", "H100-80GB"]) == 3
    assert capsys.readouterr().out == shown.out


def test_flags_in_the_engines_own_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(write_config(tmp_path, RECURRENT))
    device = ("--device", "H200-141GB")
    flags = "-tp 4 -ep --max-model-len 32k --no-enable-prefix-caching --no-async-scheduling --kv-cache-memory-bytes 8G"
    code, plan = as_json(capsys, "plan", config, *device, *flags.split())
    assert code == 0
    assert (plan["inputs"]["tp"], plan["inputs"]["ep"]) == (4, 4)
    assert plan["kv_pool"]["context_len"] == 32_000
    settings = plan["inputs"]["settings"]
    assert settings["enable_prefix_caching"] is settings["async_scheduling"] is False
    assert plan["kv_pool"]["bytes"]["expected"] <= 8 * 2**30
    code, other = as_json(
        capsys,
        "plan",
        config,
        *device,
        "--tensor-parallel-size=4",
        "--enable-expert-parallel",
        *flags.split()[3:],
    )
    assert other["ranks"] == plan["ranks"]


def test_every_flag_is_in_the_help_under_a_heading() -> None:
    page = CliRunner().invoke(cli, ["plan", "--help"]).output
    for option in OPTIONS:
        assert option.flag in page
        assert f"{option.group}:" in page
    assert page.index("Question:") < page.index("Parallelism:") < page.index("Output:")


def test_group_help_lists_commands_and_exit_codes() -> None:
    runner = CliRunner()
    page = runner.invoke(cli, ["--help"]).output
    for word in ("plan", "model", "devices", "schema", "Examples:", "Exit codes:", "--version"):
        assert word in page
    assert "0.1.0" in runner.invoke(cli, ["--version"]).output


def test_an_unknown_command_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plam"]) == 2
    known = capsys.readouterr().err.partition("commands are ")[2].strip().rstrip(".").split(", ")
    assert known == cli.list_commands(click.Context(cli))
    assert {"plan", "model", "devices", "schema"} <= set(known)


def test_explain_adds_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(write_config(tmp_path, MIXTURE))
    assert main(["plan", config, "-d", "H200-141GB", "--explain"]) == 0
    assert capsys.readouterr().out.count("source:") > 10


@pytest.mark.parametrize("value", [-1, 0, {}, [], True, 1.5, ["bfloat16"], {"": "bfloat16"}])
@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
@pytest.mark.parametrize("nested", [False, True])
def test_an_element_type_that_is_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: Any, key: str, nested: bool
) -> None:
    config = with_dtype(nested, key, value)
    path = write_config(tmp_path, config)
    assert main(["model", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert f"{'text_config: ' if nested else ''}{key} must be text, not {value!r}" in said


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
@pytest.mark.parametrize("nested", [False, True])
def test_an_element_type_nobody_knows_names_file_key_and_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, nested: bool
) -> None:
    path = write_config(tmp_path, with_dtype(nested, key, "x"))
    code, body = as_json(capsys, "model", str(path))
    assert code == 3
    error = body["error"]
    assert error["message"].startswith(f"{path}: {'text_config: ' if nested else ''}{key} 'x' is not")
    assert (error["facts"]["key"], error["facts"]["value"]) == (key, "x")


def with_dtype(nested: bool, key: str, value: Any) -> dict[str, Any]:
    """A config with one stated element type: of a text model, or of the one inside a model for images."""
    text = {name: item for name, item in DENSE.items() if name not in ("torch_dtype", "dtype")}
    if not nested:
        return text | {key: value}
    vision = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
              "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336, "patch_size": 14}  # fmt: skip
    return {
        "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
        "text_config": text | {key: value}, "vision_config": vision, "image_token_index": 32000,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["NaN", "[NaN]", "1" * 200, "1e999"])
def test_a_file_of_something_else_shows_what_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert main(["model", str(path)]) == 2
    said = capsys.readouterr().err
    assert text[:50] in said
    assert "object at" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "sglang", "--max-model-len", "5"], "sglang has no --max-model-len, a flag of vllm"),
        (["--mem-fraction-static", "0.5"], "vllm has no --mem-fraction-static, a flag of sglang"),
        (["--nonsense"], "No such option '--nonsense'"),
    ],
)
def test_a_flag_of_another_engine_names_that_engine(
    dense: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["plan", dense, "--device", "H100", *arguments]) == 2
    assert said in capsys.readouterr().err
