"""Runs that are steps of other runs, and the end of any run: its parent hears of it, and whoever waits.

A sub-run is known by parent, step, index and attempt, of which there is one row at most; so that to begin it twice
comes to the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from django.db import IntegrityError

from flows import models, operations, reports, versions
from flows.definition import Definition, StepDefinition
from flows.errors import RunRefused, UnknownFlow, UnknownRun
from flows.rows import new_lock
from flows.signals import run_finished
from flows.snapshot import Decision, Ending, Snapshot
from flows.values import Json
from queueapp.producer.tenancy import belonging_to

logger = logging.getLogger(__name__)

_ENDINGS: dict[str, Ending] = {"completed": "completed", "cancelled": "cancelled"}
_listeners: list[Callable[[str], None]] = []


class SubFlows:
    """See `dispatch.SubFlows`."""

    def __init__(
        self,
        start: Callable[..., models.Run],
        act: Callable[..., Decision],
        report_and_advance: Callable[[reports.End], bool],
    ) -> None:
        self._start = start
        self._act = act
        self._report_and_advance = report_and_advance

    def begin(
        self,
        parent: models.Run,
        step: StepDefinition,
        attempt: int,
        index: int,
        args: Sequence[Json],
        kwargs: Mapping[str, Json],
    ) -> None:
        """The sub-run of an earlier try that is under way goes on for this one, and one that failed or was cancelled is
        resumed: what completed in it is kept. Raises what `Definition.bind` raises for arguments that the flow does not
        take today."""
        where = {"parent_run": parent.id, "parent_step": step.name, "parent_index": index}
        if models.Run.objects.filter(**where, parent_attempt=attempt).exists():
            return
        for earlier in models.Run.objects.filter(**where, parent_attempt__lt=attempt).order_by("-parent_attempt")[:1]:
            if self._goes_on(earlier, attempt):
                return
        definition = versions.current(step.target).definition

        def require_wanted() -> None:
            if not reports.hold(parent.id, step.name, attempt, index):
                raise _Unwanted

        try:
            self._start(
                definition,
                definition.bind(tuple(args), kwargs),
                tenant=step.tenant or parent.tenant,
                check=require_wanted,
                trace=parent.trace,
                parent_attempt=attempt,
                **where,
            )
        except _Unwanted:
            logger.debug("A sub-flow was called off before it began", extra={"run": parent.id, "step": step.name})
        except IntegrityError:
            logger.debug("A sub-flow was begun by another process", extra={"run": parent.id, "step": step.name})

    def _goes_on(self, sub: models.Run, attempt: int) -> bool:
        """Whether it is the sub-run of this try from now on."""
        try:
            if sub.state == models.Run.State.RUNNING:
                runs = models.Run.objects.filter(pk=sub.id, state=models.Run.State.RUNNING)
                return bool(runs.update(parent_attempt=attempt, lock=new_lock()))
            if sub.state in operations.RESUMABLE:
                self._act(sub.id, operations.resume, also={"parent_attempt": attempt})
                return True
        except (RunRefused, UnknownRun, UnknownFlow):
            logger.info("A sub-run cannot be resumed: another begins", extra={"run": sub.id, "parent": sub.parent_run})
        return False

    def inquire(self, parent: models.Run, step: StepDefinition, page: Sequence[tuple[int, int]]) -> None:
        """Sub-runs that ended unheard are heard; one that is gone was lost."""
        for index, attempt in page:
            sub = _sub_run(parent, step, index, attempt)
            if sub is None:
                reports.write(
                    reports.End(run_id=parent.id, step=step.name, attempt=attempt, ending="lost", index=index)
                )
            elif sub.has_ended:
                self._tell_parent(sub)

    def cancel(self, parent: models.Run, step: StepDefinition, page: Sequence[tuple[int, int]]) -> None:
        for index, attempt in page:
            sub = _sub_run(parent, step, index, attempt)
            if sub is not None and not sub.has_ended:
                with suppress(UnknownRun):
                    self._act(sub.id, _cancel)

    def finished(self, run_id: str, round: int) -> None:
        """A round of the run has ended: its parent is told, and the signal is sent. Perhaps again."""
        run = models.Run.objects.filter(pk=run_id).first()
        if run is None or run.round != round or not run.has_ended:
            return
        self._tell_parent(run)
        for heard in [*_listeners]:
            heard(run_id)
        with belonging_to(run.tenant):
            run_finished.send_robust(sender=models.Run, run=run)

    def _tell_parent(self, run: models.Run) -> None:
        if run.parent_run is None:
            return
        how = _ENDINGS.get(run.state, "failed")
        error = "" if how != "failed" else f"run {run.id} of flow {run.flow} is {run.state}, by its step {run.cause}"
        self._report_and_advance(
            reports.End(
                run_id=run.parent_run,
                step=run.parent_step,
                attempt=run.parent_attempt,
                ending=how,
                index=run.parent_index,
                output=run.output if how == "completed" else None,
                error=error,
            )
        )


class _Unwanted(Exception):
    """The step was called off before its sub-run was there."""


def _cancel(definition: Definition, snapshot: Snapshot, now_ms: int, gone: frozenset[str]) -> Decision:
    return operations.cancel(definition, snapshot, now_ms, "The run that it is a step of was cancelled.")


def listen(heard: Callable[[str], None]) -> None:
    """`heard` is called with the id of each run that ends by this process."""
    _listeners.append(heard)


def unlisten(heard: Callable[[str], None]) -> None:
    """No more of that."""
    _listeners.remove(heard)


def _sub_run(parent: models.Run, step: StepDefinition, index: int, attempt: int) -> models.Run | None:
    return models.Run.objects.filter(
        parent_run=parent.id, parent_step=step.name, parent_index=index, parent_attempt=attempt
    ).first()
