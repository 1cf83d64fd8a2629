"""Parameter counts of every published config against counts from elsewhere.

The reference is what transformers' own class has on paper; where there is none, the number of elements in the
published files. Every difference is listed in `KNOWN` with its exact size and its reason; nothing else may differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct
from tools.accuracy.data import ModelSet

from vramledger.errors import VramledgerError
from vramledger.models.architectures import describe

DATA = Path(__file__).resolve().parents[2] / "data"

_T5_HEAD = "the reference ties the head, and the published file stores one of vocab x d_model"
_TOWERS = "the reference counts the text model only; the vision and audio towers are counted here"
_UNTIED = "the reference ties the head; the config states tie_word_embeddings false for its text model"

KNOWN: dict[str, tuple[int, str]] = {
    "google__flan-t5-base": (24_674_304, _T5_HEAD),
    "google__flan-t5-xl": (65_798_144, _T5_HEAD),
    "google__flan-t5-xxl": (131_596_288, _T5_HEAD),
    "google__umt5-xxl": (1_050_148_864, _T5_HEAD),
    "google__gemma-3n-E2B-it": (983_281_504, _TOWERS),
    "google__gemma-3n-E4B-it": (983_281_504, _TOWERS),
    "meituan-longcat__LongCat-Flash-Chat": (
        -180_388_626_432,
        "the reference gives gate and up weights to the 256 zero experts, which have none: 28 x 256 x 4096 x 6144",
    ),
    "mistralai__Ministral-3-14B-Instruct-2512": (671_088_640, _UNTIED),
    "mistralai__Ministral-3-8B-Instruct-2512": (536_870_912, _UNTIED),
    "MiniMaxAI__MiniMax-M3": (
        -865_574_528,
        "the published count has the vision tower (631185920), its projector (234381312) and 57 x 128 router biases",
    ),
    "nvidia__LocateAnything-3B": (
        -312_690_688,
        "the published file stores the tied head a second time: 152681 x 2048",
    ),
    "Qwen__Qwen-VL-Chat-Int4": (
        -966_656,
        "the published count has the zero biases that AutoGPTQ stores for linears without one: 32 x 30208",
    ),
    "RWKV__rwkv-5-world-3b": (
        1_485_244_416,
        "the published figure is that of the 1.5B model of the same series (24 layers of 2048)",
    ),
}
"""By model: our total less the reference's, in elements, and why."""

REFERENCES = {"params": "transformers' class", "published": "elements of the published files"}


class ParameterRow(Struct, frozen=True, kw_only=True):
    """One model. `reference` is None where nothing is known; `compared_with` is a key of REFERENCES or "";
    `refused` says why a model could not be described."""

    name: str
    total: int
    reference: int | None
    compared_with: str
    refused: str = ""

    @property
    def difference(self) -> int:
        """Ours less the reference's; 0 without a reference."""
        return 0 if self.reference is None else self.total - self.reference

    @property
    def reason(self) -> str:
        """Why the difference is right, "" for one that nobody has explained or that has changed."""
        known, reason = KNOWN.get(self.name, (0, ""))
        return reason if known == self.difference else ""


def parameter_rows(models: ModelSet) -> tuple[ParameterRow, ...]:
    """Every model of the set."""
    return tuple(_row(models, name) for name in models.names())


def _row(models: ModelSet, name: str) -> ParameterRow:
    try:
        source = models.source(name)
        total = describe(source.config_view(), source.id).parameter_counts().total
    except VramledgerError as error:
        return ParameterRow(name=name, total=0, reference=None, compared_with="", refused=str(error))
    known = models.reference(name)
    key = next((key for key in REFERENCES if key in known), "")
    return ParameterRow(name=name, total=total, reference=known[key] if key else None, compared_with=key)


def report(rows: Iterable[ParameterRow] | None = None) -> str:
    """How many models are equal to their reference, and each that is not with its reason."""
    head, lines = _listed(tuple(parameter_rows(ModelSet(DATA)) if rows is None else rows))
    return "\n".join([head, *(f"  {line}" for line in lines)])


def markdown(rows: Iterable[ParameterRow]) -> str:
    """The same as a section of the accuracy page."""
    head, lines = _listed(tuple(rows))
    return "\n".join(["", "## Parameters", "", head + ".", "", *(f"- {line}" for line in lines)]) + "\n"


def sentence(rows: Iterable[ParameterRow]) -> str:
    """The outcome for the README."""
    compared = [row for row in rows if row.reference is not None]
    equal = sum(row.difference == 0 for row in compared)
    explained = sum(bool(row.difference and row.reason) for row in compared)
    text = (
        f"Parameter totals from `config.json` alone equal independent counts for {equal} of {len(compared)} published "
        f"configs"
    )
    if explained == len(compared) - equal:
        return f"{text}; the other {explained} are listed with their reasons in [docs/accuracy.md](docs/accuracy.md)."
    return f"{text}; {explained} of the others are explained in [docs/accuracy.md](docs/accuracy.md)."


def _listed(rows: tuple[ParameterRow, ...]) -> tuple[str, list[str]]:
    compared = [row for row in rows if row.reference is not None]
    equal = sum(row.difference == 0 for row in compared)
    differing = sorted(
        (row for row in compared if row.difference), key=lambda row: (-abs(row.difference), row.name)
    )
    refused = [row for row in rows if row.refused]
    without = len(rows) - len(compared) - len(refused)
    head = (
        f"parameters: {equal} of {len(compared)} models equal their reference to the unit "
        f"({without} more have none, {len(refused)} could not be described)"
    )
    lines = [
        f"{row.name.replace('__', '/', 1)}: {row.difference:+,d}; {row.reason or 'UNEXPLAINED'}"
        for row in differing
    ]
    return head, lines + [f"{row.name.replace('__', '/', 1)}: {row.refused}" for row in refused]
