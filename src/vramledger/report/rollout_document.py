"""The published rollout: what `vramledger rollout --json` writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.answer import Plan
from vramledger.documents.plan import (
    SCHEMA_VERSION,
    ByteCount,
    ByteInterval,
    PlanDocument,
    SchemaVersion,
    byte_interval,
    plan_document,
)
from vramledger.lifecycle.rollout import Rollout, Step, Way


class StepDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of an update."""

    name: str
    device_bytes: Annotated[ByteInterval, Meta(description="What the fullest device holds.")]
    device_total_bytes: ByteCount
    host_bytes: Annotated[ByteInterval, Meta(description="Host memory of both instances.")]
    tokens: Annotated[int, Meta(description="Tokens of the pools in service, over all replicas.")]
    devices: Annotated[int, Meta(description="Devices in use, over all replicas.")]


class RolloutDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One way to replace the old instance by the new one."""

    way: Way
    level: Annotated[str, Meta(description="The sleep level, where the old instance sleeps.")]
    holds: bool | None
    shortfall_bytes: Annotated[int, Meta(description="Missing on the fullest device, at least.")]
    host_shortfall_bytes: Annotated[int, Meta(description="Missing on the host, at least.")]
    tokens_lost: Annotated[int, Meta(description="Tokens of pool out of service at worst.")]
    devices: Annotated[int, Meta(description="Devices needed at most.")]
    conditions: tuple[str, ...]
    steps: tuple[StepDocument, ...]


class RolloutsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every way to update, and the two plans they are made of."""

    schema_version: SchemaVersion
    kind: Literal["rollout"]
    replicas: int
    rollouts: tuple[RolloutDocument, ...]
    old: PlanDocument
    new: PlanDocument


def rollouts_document(old: Plan, new: Plan, found: Iterable[Rollout], *, replicas: int) -> RolloutsDocument:
    """The ways to update as they are published."""
    return RolloutsDocument(
        schema_version=SCHEMA_VERSION,
        kind="rollout",
        replicas=replicas,
        rollouts=tuple(_rollout(item) for item in found),
        old=plan_document(old),
        new=plan_document(new),
    )


def _rollout(item: Rollout) -> RolloutDocument:
    return RolloutDocument(
        way=item.way,
        level=item.level,
        holds=item.holds,
        shortfall_bytes=item.shortfall_bytes,
        host_shortfall_bytes=item.host_shortfall_bytes,
        tokens_lost=item.tokens_lost,
        devices=item.devices,
        conditions=item.conditions,
        steps=tuple(_step(step) for step in item.steps),
    )


def _step(step: Step) -> StepDocument:
    return StepDocument(
        name=step.name,
        device_bytes=byte_interval(step.device_bytes),
        device_total_bytes=step.device_total_bytes,
        host_bytes=byte_interval(step.host_bytes),
        tokens=step.tokens,
        devices=step.devices,
    )
