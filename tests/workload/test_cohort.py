from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import structs

from vramledger.errors import InputError
from vramledger.workload.agents import Agent, Branches, Retrieval
from vramledger.workload.cohort import Cohort, check_cohorts, with_rate
from vramledger.workload.cohort_file import read_cohorts, write_cohorts
from vramledger.workload.quantiles import Quantiles
from vramledger.workload.request import Boundary

EXAMPLES = Path(__file__).parents[2] / "examples" / "workloads"
PLAIN = Cohort(
    name="a",
    prompt_tokens=Quantiles(p50=100, p95=200, p99=300),
    output_tokens=20,
    rate_per_s=2.5,
    tenant='quoted " \\ \x7f é' + " 1.2" * 40,
    boundary=Boundary(adapter="support-v2"),
    prefix_hit="medium",
    cancel_probability=0.125,
    cancel_after_ms=Quantiles(p50=1000, p95=5000, p99=9000),
)
FULL = Cohort(
    name="agents",
    prompt_tokens=Quantiles(p50=4096, p95=12288, p99=24576, min=2048),
    output_tokens=100,
    concurrency="medium",
    retrieval=Retrieval(top_k=4, chunk_tokens=256, corpus_chunks=1000),
    agent=Agent(
        turns=Quantiles(p50=10, p95=40, p99=80),
        tool_tokens=1024,
        system_tokens=512,
        revision_every_s=3600.0,
        branches=Branches(count=3, probability=0.125, kind="forks"),
    ),
)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cohorts{suffix}"
    write_cohorts((PLAIN, FULL), path, heading=("two kinds", "of \x1b[31mrequests"))
    assert "\x1b" not in path.read_text(encoding="utf-8")
    assert read_cohorts(path) == (PLAIN, FULL)


def test_the_shipped_cohorts_are_those_of_the_field() -> None:
    found = {cohort.name: cohort for path in EXAMPLES.glob("*.toml") for cohort in read_cohorts(path)}
    quantiles = {
        name: [(of.p50, of.p95, of.p99) for of in (cohort.prompts, cohort.outputs)]
        for name, cohort in found.items()
    }
    k = 1024
    assert quantiles["short-qa"] == [(k, 2 * k, 4 * k), (80, 200, 500)]
    assert quantiles["reports"] == [(8 * k, 20 * k, 40 * k), (k, 3 * k, 8 * k)]
    assert quantiles["agent-tools"] == [(4 * k, 12 * k, 24 * k), (100, 400, k)]
    assert found["agent-tools"].users == 32
    assert (found["short-qa"].users, found["short-qa"].hit_share) == (128, 0.5)
    assert (found["reports"].users, found["reports"].hit_share) == (8, 0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[cohort]]\nname = "a"\noutput_tokens = 1\n', r"missing required field `prompt_tokens` - at `\$.cohort\[0\]`"),
        ('[[cohort]]\nname = "a"\nprompt_tokens = 0\noutput_tokens = 1\n', "prompt_tokens is 0"),
        ('[[cohort]]\nname = "a"\nprompt_tokens = "many"\noutput_tokens = 1\n', r"got `str` - at `\$.cohort\[0\].prompt_tokens`"),
        (
            '[[cohort]]\nname = "a"\nprompt_tokens = 5\noutput_tokens = {p50 = 3, p95 = 2, p99 = 4}\n',
            r"p95 is 2, less than p50, 3: quantiles do not fall - at `\$.cohort\[0\].output_tokens`",
        ),
        ('[[cohort]]\nname = "a"\nprompt_tokens = 1\noutput_tokens = 1\nprompt_token = 3\n', "unknown field `prompt_token`"),
        ('[[cohort]]\nname = "a"\nprompt_tokens = 1\noutput_tokens = 1\nprefix_hit = "huge"\n', "Invalid enum value 'huge'"),
        ('[[cohort]]\nname = "a"\nprompt_tokens = 1\noutput_tokens = 1\nrate_per_s = nan\n', "rate_per_s is nan"),
        ('[[cohort]]\nname = "a"\nprompt_tokens = 1\noutput_tokens = 1\nrate_per_s = 1\nweight = 2\n', "rate_per_s and weight"),
        ("[[cohort]\n", "Expected"),
        ("cohort = []\n", "0 cohorts"),
        ("\xff", "unterminated|Invalid|invalid|Expected"),
    ],
)  # fmt: skip
def test_errors_name_file_key_and_value(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "cohorts.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words) as raised:
        read_cohorts(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a." * 100_000 + "b = 1",
        "[" + "a . " * 100_000 + "b]",
        'x = 1.5\ny = {"a".' + "'a'." * 100_000 + "b = 1}",
    ],
)
def test_a_file_that_nests_without_end_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cohorts.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"cohorts\.toml"):
        read_cohorts(path)


def test_an_agents_head_must_fit_its_shortest_prompt() -> None:
    with pytest.raises(ValueError, match="not less than the shortest prompt"):
        structs.replace(FULL, prompt_tokens=1000)


def test_a_rate_for_all_keeps_the_ratio_of_rates_or_follows_the_weights() -> None:
    one, two = structs.replace(PLAIN, rate_per_s=1.0), structs.replace(PLAIN, name="b", rate_per_s=3.0)
    assert [cohort.rate_per_s for cohort in with_rate((one, two), 8.0)] == [2.0, 6.0]
    heavy = structs.replace(PLAIN, name="c", rate_per_s=None, weight=4.0)
    assert [cohort.rate_per_s for cohort in with_rate((FULL, heavy), 10.0)] == [2.0, 8.0]


def test_a_cohort_that_never_comes_and_one_that_is_named_twice_are_refused() -> None:
    with pytest.raises(InputError, match="no rate_per_s and no concurrency"):
        check_cohorts((structs.replace(PLAIN, rate_per_s=None),))
    with pytest.raises(InputError, match="two cohorts are named 'a'"):
        check_cohorts((PLAIN, PLAIN))
    with pytest.raises(InputError, match="no cohort"):
        check_cohorts(())


def test_the_page_names_every_key() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "cohorts.md").read_text(encoding="utf-8")
    inline = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", inline))))
    for kind in (Cohort, Agent, Retrieval, Branches, Quantiles, Boundary):
        assert {field.name for field in structs.fields(kind)} <= named
