"""The manifest that an experiment was given, with what the experiment measured and found."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.experiment.result import Experiment
from vramledger.manifest.build import Given, build, sealed
from vramledger.manifest.declared import Facts
from vramledger.manifest.derived import missing
from vramledger.manifest.document import ManifestDocument, SourceRecord
from vramledger.manifest.experiment_facts import facts_of, with_experiment
from vramledger.manifest.measured import utc
from vramledger.measurement import Measurement
from vramledger.reconciliation.result import Reconciliation


def renewed_manifest(
    before: ManifestDocument,
    plan: Plan,
    experiment: Experiment,
    measurement: Measurement | None,
    reconciliation: Reconciliation | None,
    *,
    sources: tuple[SourceRecord, ...] = (),
) -> ManifestDocument:
    """The same model, engine, plan and declarations; measured anew. What only the model's files tell is as it was.

    Raises InputError where the experiment or the measurement is of another engine than the plan.
    """
    found = facts_of(experiment)
    ended_s = max((stage.ended_s for stage in experiment.stages), default=experiment.began_s)
    document = build(
        Given(
            plan=plan,
            model=before.model,
            engine=before.engine,
            at=utc(ended_s) or before.created_at,
            made_by=experiment.made_by,
            measurement=measurement,
            reconciliation=reconciliation,
            facts=with_experiment(_declared(before), found),
            experiment=found.result,
            sources=(*before.sources, *sources),
        )
    )
    document = replace(document, quantization=before.quantization, parameters=before.parameters, kv=before.kv)
    return sealed(replace(document, not_evidenced=missing(document)))


def _declared(before: ManifestDocument) -> Facts:
    """Operating points of earlier experiments go: they are of what was measured then."""
    return Facts(
        schema_version="1.0",
        kind="facts",
        prefix_sharing_boundary=before.prefix_sharing_boundary,
        tool_wait_policy=before.tool_wait_policy,
        admission=before.admission,
        communication_overlap=before.communication_overlap,
        adapters=before.adapters,
        tests=before.tests,
        capacity_results=() if before.experiment is not None else before.capacity_results,
    )
