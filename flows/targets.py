"""The task of a step with the step's options, as it is enqueued."""

from __future__ import annotations

from typing import Any

from flows.definition import StepDefinition
from queueapp.producer.discovery import find
from queueapp.producer.task import DuctorTask

_kept: dict[tuple[int, int, str | None], tuple[DuctorTask[..., Any], StepDefinition, DuctorTask[..., Any]]] = {}
"""By the identity of task and step, which are held here, so that no others can have it."""
KEPT_MOST = 4_096


def task_of(step: StepDefinition, tenant: str | None) -> DuctorTask[..., Any]:
    """Checking options takes long: it is done once for a step and tenant. Raises UnknownTask, and InvalidOption."""
    task = find(step.target)
    key = id(task), id(step), tenant
    if key in _kept:
        return _kept[key][2]
    made = task.using(
        queue_name=step.pool,
        tenant=tenant,
        cost=step.cost,
        priority=step.priority,
        max_attempts=None if step.retries is None else step.retries + 1,
        timeout=None if step.timeout_ms is None else step.timeout_ms / 1000,
    )
    if len(_kept) >= KEPT_MOST:
        _kept.clear()
    _kept[key] = task, step, made
    return made
