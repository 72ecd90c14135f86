"""What code holds of a run: `flow.start(…)` gives a handle, and so does `flows.get_run(id)`.

A handle has the run's id and its row as it was last read; `refresh` reads it again. What is done to a run is decided
under its lock (`operations`), so that two who do the same at once do it once.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import IntegrityError

from flows import models, operations, runtime, subflows
from flows.declaring import Flow
from flows.definition import Definition
from flows.errors import RunFailed, UnknownRun
from flows.snapshot import Decision, Event, Snapshot
from flows.values import Json, to_json
from queueapp.conf import settings
from queueapp.errors import InvalidOption, WaitTimeout
from queueapp.producer.handover import is_in_memory, new_id
from queueapp.producer.tenancy import resolve_tenant, tenant_id
from queueapp.producer.transactions import open_transactions
from queueapp.producer.waiting import Deadline

KEY_MAX = 255
LOOK_S, LOOK_MAX_S = 0.005, 0.25
"""A run that ends in another process is seen by looking at its row: soon at first, then seldom."""


class RunHandle:
    """A run. `row` is what the database had when it was last asked."""

    def __init__(self, row: models.Run, *, existed: bool = False) -> None:
        self.row = row
        self.existed = existed
        """`start` was given a `key` of which there was a run: this one."""

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.row.flow}: {self.state}>"

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def state(self) -> str:
        """running, compensating, completed, failed, compensated or cancelled, as last read."""
        return self.row.state

    @property
    def output(self) -> Json:
        """What the flow returned. Raises RunFailed unless it completed."""
        if self.row.state != models.Run.State.COMPLETED:
            raise RunFailed(_why(self.row))
        return self.row.output

    def refresh(self) -> RunHandle:
        """Reads the run again. Raises UnknownRun when it is gone."""
        self.row = _row(self.id)
        return self

    def wait(self, timeout: float | timedelta | None = None) -> Json:
        """Waits until the run has ended, and gives its output. Raises RunFailed unless it completed, and WaitTimeout.

        Not inside a transaction on the database of the runs: its start would wait for the commit.
        """
        deadline = Deadline(timeout)
        if any(connection.alias == settings.database for connection in open_transactions()):
            raise InvalidOption(
                f"run {self.id}: wait() was called inside a transaction, in which its end is not seen, and its start "
                "perhaps not made: wait after the commit."
            )
        ended = threading.Event()
        pause_s = LOOK_S

        def heard(run_id: str) -> None:
            if run_id == self.id:
                ended.set()

        subflows.listen(heard)
        try:
            while not self.refresh().row.has_ended:
                _require_moving(self.row)
                ended.wait(min(pause_s, deadline.left_s()))
                pause_s = min(LOOK_MAX_S, pause_s * 1.5)
                if not deadline.left_s() and not self.refresh().row.has_ended:
                    deadline.check(f"Run {self.id}")
        finally:
            subflows.unlisten(heard)
        return self.output

    async def await_(self, timeout: float | timedelta | None = None) -> Json:
        """See `wait`; the event loop goes on meanwhile."""
        deadline = Deadline(timeout)
        pause_s = LOOK_S
        while not (await sync_to_async(self.refresh)()).row.has_ended:
            _require_moving(self.row)
            deadline.check(f"Run {self.id}")
            await asyncio.sleep(min(pause_s, deadline.left_s()))
            pause_s = min(LOOK_MAX_S, pause_s * 1.5)
        return self.output

    def cancel(self, reason: str = "") -> bool:
        """Nothing of it starts any more; bodies that run are told. False when it had ended already."""

        def decide(definition: Definition, snapshot: Snapshot, now_ms: int, gone: frozenset[str]) -> Decision:
            return operations.cancel(definition, snapshot, now_ms, reason)

        return self._act(decide)

    def resume(self) -> bool:
        """What failed, was cut off or was never reached runs; what completed is kept. Raises RunRefused."""
        return self._act(operations.resume)

    def retry_step(self, step: str) -> bool:
        """One step that failed or was cut off runs again, and what it had cut off may follow. Raises RunRefused."""

        def decide(definition: Definition, snapshot: Snapshot, now_ms: int, gone: frozenset[str]) -> Decision:
            return operations.retry_step(definition, snapshot, step, now_ms, gone)

        return self._act(decide)

    def send_event(self, name: str, payload: object = None, *, event_id: str = "") -> bool:
        """Something that `wait_for(name)` of the run waits for, or will. False for an `event_id` that was sent before.

        Raises RunRefused when the run has ended.
        """
        return send_event(self.id, name, payload, event_id=event_id)

    def _act(self, decide: runtime.Decide) -> bool:
        done = bool(runtime.act(self.id, decide))
        self.refresh()
        return done


class Starter:
    """A flow with options for one run."""

    def __init__(self, flow: Flow[...], *, tenant: object = None, key: str | None = None) -> None:
        given: object = key
        if key is not None and not (isinstance(given, str) and 0 < len(given) <= KEY_MAX):
            raise InvalidOption(f"flow {flow.name}: key is {key!r}: it must be a text of 1 to {KEY_MAX} characters.")
        self._flow = flow
        self._tenant = None if tenant is None else tenant_id(tenant)
        self._key = key

    def start(self, *args: Any, **kwargs: Any) -> RunHandle:
        """See `Flow.start`. With a `key` of which there is a run of this flow and tenant, that one."""
        given = self._flow.bind(*args, **kwargs)
        tenant = resolve_tenant(self._tenant, f"flow {self._flow.name}")
        if self._key is not None:
            there = models.Run.objects.filter(tenant=tenant, flow=self._flow.name, key=self._key).first()
            if there is not None:
                return RunHandle(there, existed=True)
        try:
            return RunHandle(runtime.start(self._flow.definition, given, tenant=tenant, key=self._key))
        except IntegrityError:
            there = models.Run.objects.filter(tenant=tenant, flow=self._flow.name, key=self._key).first()
            if self._key is None or there is None:
                raise
            return RunHandle(there, existed=True)

    async def astart(self, *args: Any, **kwargs: Any) -> RunHandle:
        """See `start`."""
        return await sync_to_async(self.start)(*args, **kwargs)


def get_run(run_id: str) -> RunHandle:
    """The run of this id. Raises UnknownRun."""
    return RunHandle(_row(run_id))


def send_event(run_id: str, name: str, payload: object = None, *, event_id: str = "") -> bool:
    """See `RunHandle.send_event`."""
    event = Event(id=event_id or new_id(), name=name, payload=to_json(payload, "payload"))
    if event_id and models.Event.objects.filter(run_id=run_id, event_id=event_id).exists():
        return False

    def decide(definition: Definition, snapshot: Snapshot, now_ms: int, gone: frozenset[str]) -> Decision:
        return operations.send_event(snapshot, event)

    return bool(runtime.act(run_id, decide))


def _row(run_id: str) -> models.Run:
    row = models.Run.objects.filter(pk=run_id).first()
    if row is None:
        raise UnknownRun(f"There is no run {run_id!r}: the id is wrong, or retention has removed it.")
    return row


def _why(row: models.Run) -> str:
    if not row.has_ended:
        return f"Run {row.id} of flow {row.flow} is {row.state}: wait() for its end."
    where = f", by its step {row.cause}" if row.cause else ""
    error = models.StepRun.objects.filter(run_id=row.id, step=row.cause).values_list("error", flat=True).first()
    said = f": {error.strip().splitlines()[-1]}" if error and error.strip() else ""
    return f"Run {row.id} of flow {row.flow} is {row.state}{where}{said}"


def _require_moving(row: models.Run) -> None:
    """Jobs in memory (`queueapp.testing`) run in nobody's process but this one, which would wait for itself."""
    if is_in_memory():
        raise WaitTimeout(
            f"Run {row.id} does not get on while you wait: recorded() runs nothing, and immediate() waits for no time "
            "and no event. Run what is left with queueapp.testing.drain(), or send the event first."
        )
