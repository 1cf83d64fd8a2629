"""What a release gate asks for, as a person writes it in TOML."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.errors import InputError
from vramledger.gateway.config_reading import read_struct, read_toml
from vramledger.manifest.audit import Policy as AuditPolicyName

DEFAULT_FILE = "gate_policy.toml"
MOST_RULES = 200
Weight = Literal["fail", "warn"]
Expression = Annotated[str, Meta(min_length=1, max_length=200)]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An expression with what becomes of it: `weight` where it is not kept, `untold` where that cannot be told (None: as the policy
    says). `why` is shown beside it."""

    expression: Expression
    weight: Weight = "fail"
    untold: Weight | None = None
    why: Annotated[str, Meta(max_length=400)] = ""


class AuditRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the checklist must say: a policy of `vramledger audit`, items that must be passed whatever it says, and whether an item that
    OLD passed may be lost."""

    policy: AuditPolicyName = AuditPolicyName.RELEASE
    require: tuple[str, ...] = ()
    losses: Weight = "fail"


class ExperimentRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an experiment must say. `required`: there has to be one. `ended`: the engine died or ran out of memory. `growing`: a quantity
    grew over the steady stretch and is not in `may_grow`. `steps`: a step of it failed."""

    required: bool = True
    ended: Weight = "fail"
    growing: Weight = "fail"
    may_grow: tuple[str, ...] = ()
    steps: Weight = "fail"


class GatePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a gate asks. `keep` are requirements of NEW alone, `fail_if` changes from OLD that are too much. `untold` is what becomes
    of what cannot be told, `confidence` that of a comparison of measured capacities."""

    untold: Weight = "fail"
    confidence: Annotated[float, Meta(ge=0.5, lt=1)] = 0.95
    keep: tuple[Expression | Rule, ...] = ()
    fail_if: tuple[Expression | Rule, ...] = ()
    audit: AuditRules | None = None
    experiment: ExperimentRules | None = None


def rule_of(item: str | Rule) -> Rule:
    """An expression that stands alone is a rule with nothing else said."""
    return item if isinstance(item, Rule) else Rule(expression=item)


def read_policy(data: bytes, where: str) -> GatePolicy:
    """The policy in `data`; `where` names the file in messages. Raises InputError with the key and value that are wrong."""
    found = read_struct(GatePolicy, read_toml(data, where), where)
    if len(found.keep) + len(found.fail_if) > MOST_RULES:
        raise InputError(f"{where} has more than {MOST_RULES} rules", source=where)
    if not (found.keep or found.fail_if or found.audit or found.experiment):
        raise InputError(
            f"{where} asks for nothing: give keep, fail_if, [audit] or [experiment]; vramledger gate --print-policy shows one",
            source=where,
        )
    return found


def default_policy_text() -> str:
    """The policy that is used unless one is given, with its comments."""
    return files("vramledger.manifest").joinpath(DEFAULT_FILE).read_text(encoding="utf-8")


def default_policy() -> GatePolicy:
    """The same as a value."""
    return read_policy(default_policy_text().encode(), DEFAULT_FILE)
