"""Commands are carried out here: steps and items go to the queue, sub-flows begin, jobs are withdrawn or asked after.

Each may be carried out again, and after a later decision: the job of a try has an id that follows from it, rows say
whether it is still wanted, and a body looks once more before it begins (`steps`). `tests/flows/world.py` says of each
what it does to the rows. A store that is away leaves the rest to whoever comes next (`runtime.relay`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Protocol

from django.db import Error as DatabaseError
from django.db import transaction
from django.db.models import F

from flows import commands, models, reports, watchdog
from flows.definition import StepDefinition
from flows.errors import InvalidValue, RunBusy, UnknownFlow
from flows.inputs import arguments, job_key, job_ms
from flows.outputs import Outputs, items_of
from flows.rows import News, Seen, new_lock
from flows.snapshot import (
    ITEMS_PER_PAGE,
    Command,
    Ending,
    Enqueue,
    Finish,
    Inquire,
    IssueItems,
    ListItems,
    Recount,
    SetTimer,
    StepRun,
    Tier,
    Wake,
    Withdraw,
)
from flows.targets import task_of
from flows.values import Absent, Json
from flows.waking import wake
from queueapp.conf import settings
from queueapp.errors import DuctorError, StoreError, UnknownTask
from queueapp.producer.discovery import find
from queueapp.producer.handover import Order, hand_over, is_watched, standing, withdraw
from queueapp.producer.task import BoundTask

logger = logging.getLogger(__name__)

WRAPPER = "flows"
LATER = (StoreError, DatabaseError, RunBusy, UnknownTask, UnknownFlow)
"""What says nothing against a command: the store, the database or the code is not there, or others were first."""
WAITING, ISSUED, COUNTED = models.ItemRun.State.WAITING, models.ItemRun.State.ISSUED, models.ItemRun.State.COUNTED


class SubFlows(Protocol):
    """What becomes of the runs of sub-flows, and of a run that has ended (`subflows`)."""

    def begin(
        self,
        parent: models.Run,
        step: StepDefinition,
        attempt: int,
        index: int,
        args: Sequence[Json],
        kwargs: Mapping[str, Json],
    ) -> None: ...

    def inquire(self, parent: models.Run, step: StepDefinition, page: Sequence[tuple[int, int]]) -> None: ...

    def cancel(self, parent: models.Run, step: StepDefinition, page: Sequence[tuple[int, int]]) -> None: ...

    def finished(self, run_id: str, round: int) -> None: ...


class Carrier:
    """Carries out the commands of one run."""

    def __init__(self, seen: Seen, subflows: SubFlows, *, anew: bool) -> None:
        self._news = News(seen, monotonic()) if seen.is_whole and not anew else None
        """Until the first step is handed over: when the next one is, that one may have cancelled the run."""
        self._row = seen.row
        self._definition = seen.definition
        self._run = seen.snapshot.run
        self._steps = seen.snapshot.steps
        self._outputs = Outputs(self._run, self._steps)
        self._subflows = subflows
        self._anew = anew
        """Somebody may have done it before: nothing begins in this process, and what was marked is looked at again."""
        self._given: dict[str, tuple[list[Json], dict[str, Json]]] = {}
        self.more = False
        """The run is to be looked at again at once."""
        self._acts: Mapping[type[Command], Callable[[Any], None]] = {
            Enqueue: self._enqueue,
            ListItems: self._list,
            IssueItems: self._issue,
            Recount: self._recount,
            Inquire: self._inquire,
            Withdraw: self._withdraw,
            SetTimer: self._set_timer,
            Wake: self._wake,
            Finish: self._finish,
        }

    def do(self, command: Command) -> None:
        """Raises one of LATER for what is to be done again. Whatever else is raised ends here, or a run would stand at
        this command for ever: the step fails with it; what belongs to no step the watchdog makes good."""
        try:
            self._acts[type(command)](command)
        except LATER:
            raise
        except Exception as error:
            logger.exception("A command of a run cannot be carried out", extra={"run": self._run.id})
            if isinstance(command, (Enqueue, ListItems, IssueItems)):
                self._fail(command.step, command.attempt, error)

    # -- one step --------------------------------------------------------------------------------------------------

    def _enqueue(self, command: Enqueue) -> None:
        row = self._steps.get(command.step)
        if row is None or row.attempt != command.attempt or row.state != "running" or row.report is not None:
            return
        step = self._definition.step(command.step)
        try:
            args, kwargs = arguments(step, self._outputs)
            if step.kind == "flow":
                self._subflows.begin(self._row, step, command.attempt, -1, args, kwargs)
                return
            order = self._order(step, row, command.tier, args, kwargs)
            order, self._news = replace(order, local=self._news), None
        except LATER:
            raise
        except (Absent, DuctorError) as error:
            self._fail(command.step, command.attempt, error)
            return
        [error_found] = hand_over([order])
        if isinstance(error_found, StoreError):
            raise error_found
        if error_found is not None:
            self._fail(command.step, command.attempt, error_found)

    def _order(
        self,
        step: StepDefinition,
        row: StepRun,
        tier: Tier,
        args: Sequence[Json],
        kwargs: Mapping[str, Json],
        index: int = -1,
        attempt: int | None = None,
    ) -> Order:
        own = row.attempt if attempt is None else attempt
        key, at_ms = self._job(step, row, own, index)
        return Order(
            job=self._bound(step, args, kwargs),
            key=key,
            at_ms=at_ms,
            tier=tier,
            wrapper=WRAPPER,
            facts=[self._run.id, step.name, own, index],
            trace=self._row.trace,
            queued=self._anew,
        )

    def _bound(self, step: StepDefinition, args: Sequence[Json], kwargs: Mapping[str, Json]) -> BoundTask:
        task = task_of(step, step.tenant or self._run.tenant)
        return BoundTask(task=task, args=list(args), kwargs=dict(kwargs))

    def _fail(self, step: str, attempt: int, error: Exception) -> None:
        """What can never be handed over has failed."""
        self._tell(step, attempt, "failed", error=str(error) or type(error).__name__)
        self.more = True

    # -- maps ------------------------------------------------------------------------------------------------------

    def _list(self, command: ListItems) -> None:
        step = self._definition.step(command.step)
        row = self._steps[command.step]
        try:
            listed = items_of(self._run, self._definition, step, command.attempt, self._outputs)
        except (Absent, InvalidValue) as error:
            self._fail(command.step, command.attempt, error)
            return
        end = min(len(listed), command.start + ITEMS_PER_PAGE)
        steps = models.StepRun.objects.filter(run_id=self._run.id, step=row.step)
        with transaction.atomic(using=settings.database):
            self._step_on()
            told = steps.filter(listed=command.start, attempt=command.attempt, total=None).update(
                listed=end, total=len(listed) if end == len(listed) else None
            )
            if told:
                [step_id] = steps.values_list("id", flat=True)
                models.ItemRun.objects.bulk_create(
                    [models.ItemRun(step_run_id=step_id, index=index) for index in range(command.start, end)],
                    ignore_conflicts=True,
                )
        self.more = True

    def _issue(self, command: IssueItems) -> None:
        """Marked first, then handed over: what lies between is found by a relay, or by an inquiry."""
        step, row = self._definition.step(command.step), self._steps[command.step]
        if self._anew and row.state == "running" and row.attempt == command.attempt:
            for page in self._outstanding(step, row):
                self._issue_page(step, row, command, page)
        while page := self._marked(command):
            self._issue_page(step, row, command, page)

    def _marked(self, command: IssueItems) -> list[tuple[int, int]]:
        """A page of items that wait, (index, attempt), which are with the queue from now on."""
        steps = models.StepRun.objects.filter(
            run_id=self._run.id, step=command.step, state="running", attempt=command.attempt
        )
        while found := steps.values_list("id", "issued", "marked").first():
            step_id, issued, marked = found
            number = min(issued - marked, ITEMS_PER_PAGE)
            if number <= 0:
                break
            with transaction.atomic(using=settings.database):
                # Who marks has seen nobody else's mark: the same item is not handed over by two.
                if steps.filter(issued=issued, marked=marked).update(marked=marked + number):
                    items = models.ItemRun.objects.filter(step_run_id=step_id, state=WAITING)
                    page = list(items.order_by("index").values_list("index", "attempt")[:number])
                    items.filter(index__in=[index for index, _ in page]).update(state=ISSUED)
                    return page
        return []

    def _issue_page(
        self, step: StepDefinition, row: StepRun, command: IssueItems, page: Sequence[tuple[int, int]]
    ) -> None:
        orders, places = [], []
        for index, attempt in page:
            try:
                values = items_of(self._run, self._definition, step, command.attempt, self._outputs)
                args, kwargs = self._rest(step)
                given = [values[index], *args]
                if step.runs_flow:
                    self._subflows.begin(self._row, step, attempt, index, given, kwargs)
                    continue
                orders.append(self._order(step, row, command.tier, given, kwargs, index, attempt))
                places.append((index, attempt))
            except LATER:
                raise
            except Exception as error:
                self._fail_item(step.name, index, attempt, error)
        away = None
        for (index, attempt), error_found in zip(places, hand_over(orders), strict=True):
            if isinstance(error_found, StoreError):
                away = error_found
            elif error_found is not None:
                self._fail_item(step.name, index, attempt, error_found)
        if away is not None:
            raise away

    def _rest(self, step: StepDefinition) -> tuple[list[Json], dict[str, Json]]:
        """What each item of a map is given beside itself."""
        if step.name not in self._given:
            self._given[step.name] = arguments(step, self._outputs)
        return self._given[step.name]

    def _fail_item(self, step: str, index: int, attempt: int, error: Exception) -> None:
        text = str(error) or type(error).__name__
        self._tell(step, attempt, "failed", index=index, error=text)
        self.more = True

    def _recount(self, command: Recount) -> None:
        steps = models.StepRun.objects.filter(run_id=self._run.id, step=command.step, attempt=command.attempt)
        with transaction.atomic(using=settings.database):
            self._step_on()
            # The step first, then its items, as everybody who writes both.
            if steps.filter(recounted__lt=command.attempt).update(recounted=command.attempt):
                [step_id] = steps.values_list("id", flat=True)
                items = models.ItemRun.objects.filter(step_run_id=step_id)
                items.filter(ending="completed").update(state=COUNTED)
                others = items.exclude(ending="completed")
                others.exclude(state=WAITING).update(attempt=F("attempt") + 1)
                others.update(state=WAITING, ending="", error="")
                done = items.filter(state=COUNTED).count()
                steps.update(completed=done, failed=0, issued=done, marked=done)
        self.more = True

    def _tell(self, step: str, attempt: int, ending: Ending, *, index: int = -1, error: str = "") -> None:
        reports.write(
            reports.End(run_id=self._run.id, step=step, attempt=attempt, index=index, ending=ending, error=error)
        )

    def _step_on(self) -> None:
        """What was read of the run before is no longer how it is. The first thing written, as ever."""
        models.Run.objects.filter(pk=self._run.id).update(lock=new_lock())

    # -- jobs that are there ---------------------------------------------------------------------------------------

    def _inquire(self, command: Inquire) -> None:
        """What the store knows nothing of was lost; what has ended, and was not heard of, is heard of now."""
        row = self._steps.get(command.step)
        if row is None or row.state != "running" or row.attempt != command.attempt:
            return
        step = self._definition.step(command.step)
        for page in self._outstanding(step, row):
            if step.kind == "flow" or step.runs_flow:
                self._subflows.inquire(self._row, step, page)
                continue
            jobs = [self._job(step, row, attempt, index) for index, attempt in page]
            for (index, attempt), (how, error) in zip(page, standing(self._pool(step), jobs), strict=True):
                if how != "there":
                    # One that completed without a report has found that it was not wanted, or its report was lost.
                    told = "lost" if how == "completed" or how == "gone" else how
                    self._tell(step.name, attempt, told, index=index, error=error)
        self.more = True

    def _withdraw(self, command: Withdraw) -> None:
        row = self._steps.get(command.step)
        if row is None or row.attempt != command.attempt:
            return
        step = self._definition.step(command.step)
        for page in self._outstanding(step, row):
            if step.kind == "flow" or step.runs_flow:
                if command.all:
                    self._subflows.cancel(self._row, step, page)
                continue
            jobs = [self._job(step, row, attempt, index) for index, attempt in page]
            taken = withdraw(self._pool(step), jobs, running=command.all)
            for (index, attempt), will_not_run in zip(page, taken, strict=True):
                if will_not_run:
                    self._tell(step.name, attempt, "cancelled", index=index)
                    self.more = True

    def _outstanding(self, step: StepDefinition, row: StepRun) -> Iterator[list[tuple[int, int]]]:
        """(index, attempt) of the jobs of a step that have not reported, in pages."""
        if step.kind != "map":
            if row.report is None:
                yield [(-1, row.attempt)]
            return
        last = -1
        while True:
            items = models.ItemRun.objects.filter(
                step_run__run_id=self._run.id, step_run__step=step.name, state=ISSUED, index__gt=last
            )
            page = list(items.order_by("index").values_list("index", "attempt")[:ITEMS_PER_PAGE])
            if not page:
                return
            last = page[-1][0]
            yield page

    def _pool(self, step: StepDefinition) -> str:
        """Where its jobs are. Of a task that is gone from the code nobody can say: where the run is at home."""
        try:
            return pool_of(step)
        except UnknownTask:
            return self._row.pool

    def _job(self, step: StepDefinition, row: StepRun, attempt: int, index: int) -> tuple[str, int]:
        """(key, moment) by which the queue knows it."""
        key = job_key(self._run.id, step.name, attempt, None if index < 0 else index)
        return key, job_ms(row.started_ms or self._run.started_ms, attempt)

    # -- the run ---------------------------------------------------------------------------------------------------

    def _set_timer(self, command: SetTimer) -> None:
        if command.reason == watchdog.REASON and is_watched():
            return  # a drain that goes on in time would wake it for ever (tests/flows/test_testing.py)
        wake(self._run.id, self._row.pool, reason=command.reason, requeues=command.requeues, at_ms=command.at_ms)

    def _wake(self, command: Wake) -> None:
        self.more = True

    def _finish(self, command: Finish) -> None:
        self._subflows.finished(self._row.id, command.round)


def pool_of(step: StepDefinition) -> str:
    """Where the jobs of a step go."""
    return step.pool or find(step.target).queue_name


def carry_out(seen: Seen, listed: Sequence[tuple[int, Command]], subflows: SubFlows, *, anew: bool) -> bool:
    """Carries out commands in their order; `seen` is the run as it stands with them. True: it is to be looked at again
    at once."""
    carrier, through = Carrier(seen, subflows, anew=anew), []
    try:
        for row_id, command in listed:
            carrier.do(command)
            through.append(row_id)
    except LATER as error:
        logger.warning("Part of a run's commands waits: %s", error, extra={"run": seen.row.id})
    finally:
        if through:
            commands.done(through)
    return carrier.more
