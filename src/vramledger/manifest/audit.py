"""The release checklist: every item passed, failed or not evidenced, with the evidence.

An item is a value with a pure check. What nobody evidenced is never passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from vramledger.errors import FlagError
from vramledger.manifest import checks_kv, checks_operation, checks_runtime, checks_weights
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.finding import Finding, State

Check = Callable[[ManifestDocument], Finding]
_FACTS = "--facts FILE (vramledger schema facts)"
_EXPERIMENT = "vramledger experiment (--experiment DIR)"


class Item(Struct, frozen=True, kw_only=True):
    """One line of the checklist. `evidenced_by` says what would evidence it, `of_release` whether a release must have it
    evidenced: all that a plan, the model's files and one start of the engine tell."""

    name: str
    title: str
    check: Check
    evidenced_by: str
    of_release: bool = False


ITEMS: tuple[Item, ...] = (
    Item(
        name="units",
        title="units and raw bytes kept",
        check=checks_weights.units,
        evidenced_by="a manifest with its bytes beside every GiB",
        of_release=True,
    ),
    Item(
        name="disk-and-runtime",
        title="disk and runtime weights apart",
        check=checks_weights.disk_and_runtime,
        evidenced_by="a start-up log or a probe of the loaded weights: --log or --measurement",
        of_release=True,
    ),
    Item(
        name="quantisation",
        title="quantisation metadata and unquantised layers in",
        check=checks_weights.quantisation,
        evidenced_by="the model's files: MODEL",
        of_release=True,
    ),
    Item(
        name="resident-experts",
        title="MoE by resident parameters",
        check=checks_weights.resident_experts,
        evidenced_by="the model's files: MODEL",
        of_release=True,
    ),
    Item(
        name="shards",
        title="per-rank shards and replicas checked",
        check=checks_weights.shards,
        evidenced_by="the weights of every kind of rank, by a log or a probe that names ranks",
        of_release=True,
    ),
    Item(
        name="adapters",
        title="adapters in",
        check=checks_weights.adapters,
        evidenced_by=f"a plan with adapters, or adapters [] in {_FACTS}",
        of_release=True,
    ),
    Item(
        name="kv-heads",
        title="KV by KV heads",
        check=checks_kv.by_heads,
        evidenced_by="the model's files: MODEL, and a cache format whose arithmetic is known",
        of_release=True,
    ),
    Item(
        name="kv-format",
        title="KV dtype, scales, residual",
        check=checks_kv.dtype_scales_residual,
        evidenced_by="the model's files: MODEL, and a cache format whose arithmetic is known",
        of_release=True,
    ),
    Item(
        name="tokens",
        title="logical and physical tokens apart",
        check=checks_kv.logical_and_physical,
        evidenced_by="a plan with a KV pool",
        of_release=True,
    ),
    Item(
        name="prefix-boundary",
        title="prefix-sharing boundary declared (tenant, model, tokenizer, template, adapter)",
        check=checks_kv.prefix_boundary,
        evidenced_by=f"prefix_sharing_boundary in {_FACTS}, all five of it",
        of_release=True,
    ),
    Item(
        name="activation",
        title="prefill activation and logits peak measured",
        check=checks_runtime.activation_and_logits,
        evidenced_by="an engine's profile of a prefill with its logits: --log or --measurement",
    ),
    Item(
        name="workspaces",
        title="workspaces measured",
        check=checks_runtime.workspaces,
        evidenced_by="a log or an allocator snapshot that tells workspaces: --log or --measurement",
    ),
    Item(
        name="collectives",
        title="collectives and overlap",
        check=checks_runtime.collectives,
        evidenced_by=f"a measured figure of collectives, and communication_overlap in {_FACTS}",
    ),
    Item(
        name="allocator",
        title="allocated, reserved and device free recorded",
        check=checks_runtime.allocator,
        evidenced_by="one reading with all three: vramledger measure, or a snapshot with device free",
    ),
    Item(
        name="graphs",
        title="before and after graph capture",
        check=checks_runtime.graph_capture,
        evidenced_by="a log of the capture, or readings before and after it",
    ),
    Item(
        name="admission",
        title="admission by free blocks and future growth",
        check=checks_operation.admission,
        evidenced_by=f"admission in {_FACTS}",
    ),
    Item(
        name="load",
        title="p95, p99 and burst tested",
        check=checks_operation.load_tested,
        evidenced_by=f"operating points with p95 and p99, one of them a burst: {_EXPERIMENT}, or --capacity FILE",
    ),
    Item(
        name="tool-wait",
        title="tool-wait policy",
        check=checks_operation.tool_wait,
        evidenced_by=f"tool_wait_policy in {_FACTS}",
    ),
    Item(
        name="cancellation",
        title="KV returned after cancellation verified",
        check=checks_operation.cancellation,
        evidenced_by=f"{_EXPERIMENT}, or the test kv_returned_after_cancellation in {_FACTS}",
    ),
    Item(
        name="update-and-recovery",
        title="rolling update and recovery headroom tested",
        check=checks_operation.update_and_recovery,
        evidenced_by=f"{_EXPERIMENT} that starts the engine, or the tests rolling_update and recovery_headroom in {_FACTS}",
    ),
    Item(
        name="revisions",
        title="revisions immutable, and the measured instance the planned one",
        check=checks_weights.revisions,
        evidenced_by="a hub commit or --hash-weights, --engine-revision, and a measurement of that instance",
        of_release=True,
    ),
    Item(
        name="verdict",
        title="the plan holds on its device",
        check=checks_runtime.verdict,
        evidenced_by="what the plan's verdict says is missing",
        of_release=True,
    ),
)


class Policy(StrEnum):
    """What an audit asks for: every item passed; nothing failed and what one start tells passed; nothing."""

    STRICT = "strict"
    RELEASE = "release"
    WARN = "warn"


class Audited(Struct, frozen=True, kw_only=True):
    """An item and what was found; `is_required` is whether the policy wants it passed."""

    item: Item
    finding: Finding
    is_required: bool


def audit(
    document: ManifestDocument, *, policy: Policy = Policy.RELEASE, required: Iterable[str] = ()
) -> tuple[Audited, ...]:
    """Every item of the checklist, in its order. `required` are names of items that must be passed whatever the policy.

    Raises FlagError for a name that no item has.
    """
    names = {item.name for item in ITEMS}
    wanted = tuple(required)
    for name in wanted:
        if name not in names:
            raise FlagError(
                f"--require {name!r} is no item; items are {', '.join(sorted(names))}",
                flag="require",
                value=name,
            )
    return tuple(
        Audited(
            item=item,
            finding=item.check(document),
            is_required=item.name in wanted
            or policy is Policy.STRICT
            or (policy is Policy.RELEASE and item.of_release),
        )
        for item in ITEMS
    )


def trips(found: Iterable[Audited], policy: Policy) -> tuple[Audited, ...]:
    """Items that the policy does not let through: required ones that are not passed, and under any but `warn` those that
    failed."""
    return tuple(
        item
        for item in found
        if (item.is_required and item.finding.state is not State.PASSED)
        or (policy is not Policy.WARN and item.finding.state is State.FAILED)
    )
