"""Runs move on here: a run is read, `coordinator` or `operations` decides, and that is written and carried out.

`advance` is one tick, whoever wants it: the worker whose body has just ended, a wake-up, the sweep. What a tick decides
is written in one transaction with the commands that follow from it, under the run's lock; afterwards `dispatch` carries
the commands out, and each leaves its row when that is done. Whoever dies in between leaves rows, which the next wake-up
of the run carries out, and the sweep sees to it that there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError, connections, transaction

from flows import coordinator, dispatch, models, operations, reports, statements, versions
from flows.commands import left, stored
from flows.definition import Definition
from flows.errors import InvalidValue, RunBusy, UnknownFlow, UnknownRun
from flows.inputs import result
from flows.outputs import Outputs
from flows.rows import Seen, new_lock, new_run
from flows.snapshot import Command, Decision, Snapshot, Timer
from flows.subflows import SubFlows
from flows.turns import Turns
from flows.values import Json
from flows.waking import leave_word
from flows.watchdog import WATCH_MS
from queueapp import telemetry
from queueapp.conf import DEFAULT_POOL, settings
from queueapp.moments import now_ms
from queueapp.producer import transactions
from queueapp.producer.discovery import find
from queueapp.producer.handover import new_id

logger = logging.getLogger(__name__)

TRIES = 4
"""So often a decision is made anew when somebody else wrote first; then a wake-up is left."""
TICKS = 50
"""So many one thread makes in a row, because others wait for what it was doing; then a wake-up is left, too."""

NOTHING_ELSE: Mapping[str, Any] = {}

Decide = Callable[[Definition, Snapshot, int, frozenset[str]], Decision]
"""(definition, snapshot, now, tasks that are gone) → what is to be written and done; as `coordinator.tick`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A decision that has been written, and what is left to do of it."""

    seen: Seen
    """The run as it stands with it."""
    decision: Decision
    commands: Sequence[tuple[int, Command]] = ()
    """(row, command)"""


_turns = Turns()


def start(
    definition: Definition,
    given: Mapping[str, Json],
    *,
    tenant: str,
    check: Callable[[], None] = lambda: None,
    **more: Any,
) -> models.Run:
    """A new run, whose first steps are with the queue when this returns; inside a transaction, after its commit.

    `given` comes from `bind`; `more` are further columns. `check` is called in its transaction: what it raises undoes
    it, and is raised here. Raises IntegrityError for a run that is there already.
    """
    versions.keep(definition)
    run, decision = operations.start(
        definition, run_id=_new_run_id(), input=given, tenant=tenant, now_ms=now_ms(), gone=versions.gone(definition)
    )
    row = new_run(run, **{"pool": _pool_of(definition), "trace": telemetry.carrier(), **more})
    seen = Seen.new(row, definition)
    with transaction.atomic(using=settings.database):
        row.save(force_insert=True)
        written = _written(seen, decision, _returned(seen, decision))
        check()
    assert written is not None, "nobody else knows of it"
    if not transactions.defer(lambda _: _begin(written), True, settings.database):
        _begin(written)
    return row


def advance(run_id: str) -> None:
    """A tick of this run, and of what follows from it at once. A run that is gone is left alone."""
    if _turns.take(run_id):
        _serve(run_id)


def look(run_id: str, timer: Timer | None = None, at_ms: int = 0) -> None:
    """What is left of earlier decisions, then a tick: that which this timer wakes, set for `at_ms`, or any."""
    try:
        relay(run_id)
        if timer is None:
            advance(run_id)
        else:
            fire(run_id, timer, at_ms)
    except UnknownRun:
        logger.debug("A wake-up of a run that is gone", extra={"run": run_id})
    except UnknownFlow as error:
        _hold(run_id, error)


def fire(run_id: str, timer: Timer, at_ms: int) -> None:
    """The tick that this timer wakes, at `at_ms` or later: the store says it is due, whatever a clock here says."""

    def decide(definition: Definition, snapshot: Snapshot, now_ms: int, gone: frozenset[str]) -> Decision:
        return coordinator.tick(definition, snapshot, max(now_ms, at_ms), gone)

    act(run_id, decide, fired=timer)


def report_and_advance(end: reports.End, seen: Seen | None = None) -> bool:
    """Writes how a try ended; with the tick that follows, in one transaction, if nobody is at it already.

    `seen` is the run as it stood when the try began, where that is known. False when this try is not the current one,
    or its end is known. What was told stands, whatever becomes of the tick: nothing is raised once it is written.
    """
    run_id = end.run_id
    if not _turns.take(run_id):
        told = reports.write(end)
        if told and _turns.take(run_id):  # who is at it may have read before this was written
            _serve_all(run_id)
        return told
    try:
        told, written = _tell(end, seen)
    except BaseException:
        _turns.leave(run_id)
        leave_word(run_id)  # for whoever came meanwhile
        raise
    if told or _turns.again(run_id, more=False):
        _serve_all(run_id, written)
    return told


def act(run_id: str, decide: Decide, *, fired: Timer | None = None, also: Mapping[str, Any] = NOTHING_ELSE) -> Decision:
    """One decision about a run: what somebody does to it, or a timer's tick. What follows is carried out; inside a
    transaction, after its commit. `also` are further columns that change with it.

    Raises what `decide` raises, UnknownRun, and RunBusy when others were first each time.
    """
    written = _decide(run_id, decide, fired, also)
    if not transactions.defer(lambda _: _begin(written), True, settings.database):
        _begin(written)
    return written.decision


def relay(run_id: str) -> None:
    """Carries out what is left of earlier decisions, by whoever did not come to it."""
    commands = left(run_id)
    if commands and _carry_out(Written(seen=_read(run_id), decision=Decision(), commands=commands), anew=True):
        advance(run_id)


def _new_run_id() -> str:
    """As a job's, but for its first character: a terminal takes what begins with a dash for an option."""
    return f"r{new_id()[1:]}"


def _begin(written: Written) -> None:
    """Never raises: what is written stands, and somebody does what is left of it."""
    run_id = written.seen.row.id
    try:
        more = _carry_out(written)
    except Exception:
        logger.exception("What follows for a run waits for a wake-up", extra={"run": run_id})
        leave_word(run_id)
        return
    if more and _turns.take(run_id):
        _serve_all(run_id)


def _pool_of(definition: Definition) -> str:
    """Where workers are that run its steps."""
    for step in definition.steps:
        if step.pool:
            return step.pool
    targets = [step.target for step in definition.steps if step.runs_task]
    return find(targets[0]).queue_name if targets and targets[0] not in versions.gone(definition) else DEFAULT_POOL


# -- parts -----------------------------------------------------------------------------------------------------------


def _serve_all(run_id: str, written: Written | None = None) -> None:
    """See `_serve`. Never raises: a wake-up does it again."""
    try:
        _serve(run_id, written)
    except Exception:
        logger.exception("A run waits for a wake-up", extra={"run": run_id})
        leave_word(run_id)


def _serve(run_id: str, written: Written | None = None) -> None:
    """Ticks of a run whose turn was taken, until nothing follows at once and nobody came meanwhile.

    `written` was decided by whoever took the turn, and is carried out first.
    """
    try:
        for _ in range(TICKS):
            if not _turns.again(run_id, _carry_out(written or _decide(run_id, coordinator.tick))):
                return
            written = None
    except UnknownRun:
        _turns.leave(run_id)
        return
    except UnknownFlow as error:
        _turns.leave(run_id)
        _hold(run_id, error)
        return
    except RunBusy:
        logger.debug("Others are at the run", extra={"run": run_id})
    except BaseException:
        _turns.leave(run_id)
        raise
    _turns.leave(run_id)
    leave_word(run_id)


def _hold(run_id: str, error: UnknownFlow) -> None:
    """This process cannot read the definition of the run. It says so; who can finds it when its watchdog is due."""
    rows = models.Run.objects.filter(pk=run_id, state__in=("running", "compensating"))
    rows.update(note=str(error), watch_ms=now_ms() + WATCH_MS, lock=new_lock())


def _decide(run_id: str, decide: Decide, fired: Timer | None = None, also: Mapping[str, Any] = NOTHING_ELSE) -> Written:
    for _ in range(TRIES):
        # Read outside of the transaction, which so begins by writing: SQLite lets no reader become a writer.
        seen = _read(run_id, fired)
        decision = _made(seen, decide)
        columns = {**also, **_returned(seen, decision)}
        with transaction.atomic(using=settings.database):
            written = _written(seen, decision, columns)
        if written is not None:
            return written
    raise RunBusy(f"Run {run_id} was changed by others {TRIES} times while this was to be decided: try it again.")


def _tell(end: reports.End, seen: Seen | None) -> tuple[bool, Written | None]:
    """Whether this was the first to tell, and the tick that was written with it, if it could be."""
    try:
        if (written := _at_once(end, seen)) is not None:
            return True, written
        with transaction.atomic(using=settings.database):
            row = _locked(end.run_id)
            if not reports.write(end):
                return False, None
            seen = _read(end.run_id, row=row)
            decision = _made(seen, coordinator.tick)
            return True, _written(seen, decision, _returned(seen, decision))
    except UnknownRun:
        return False, None
    except Exception:
        logger.exception("A tick has failed: what was reported is written without it", extra={"run": end.run_id})
    return reports.write(end), None


def _locked(run_id: str) -> models.Run | None:
    """Takes the run first, as everybody who writes it and more: two who hold what the other waits for would both fall.
    The row as it is now, or None."""
    if connections[settings.database].features.has_select_for_update:
        return models.Run.objects.select_for_update().filter(pk=run_id).first()
    # A write that changes nothing: SQLite lets nobody who has read become a writer when somebody else wrote meanwhile.
    statements.update(models.Run, {"id": run_id}, {"id": run_id})
    return None


def _at_once(end: reports.End, seen: Seen | None) -> Written | None:
    """The end of a step's try with the tick that follows, as one change. None, and nothing is written: somebody wrote
    first, or it is not as simple as that."""
    if end.index >= 0:
        return None
    told = (seen or _read(end.run_id)).told(end)
    if told is None:
        return None
    decision = _made(told, coordinator.tick)
    if decision.changes is None or all(row.step != end.step for row in decision.changes.steps):
        return None  # nobody waits for it any more
    columns = _returned(told, decision)
    try:
        with transaction.atomic(using=settings.database):
            written = _written(told, decision, columns, end)
            if written is None:
                transaction.set_rollback(True, using=settings.database)
            return written
    except OperationalError:  # so does a database say it that keeps transactions wholly apart
        return None


def _read(run_id: str, fired: Timer | None = None, row: models.Run | None = None) -> Seen:
    """Raises UnknownRun, and UnknownFlow for a definition that is gone or of a later release."""
    row = row or statements.instance(models.Run, {"id": run_id}, without=("created", "updated", "output"))
    if row is None:
        raise UnknownRun(f"There is no run {run_id!r}: the id is wrong, or retention has removed it.")
    try:
        definition = versions.definition_of(row.flow, row.definition)
    except InvalidValue as error:
        raise UnknownFlow(str(error)) from error
    return Seen.read(row, definition, fired)


def _made(seen: Seen, decide: Decide) -> Decision:
    return decide(seen.definition, seen.snapshot, now_ms(), versions.gone(seen.definition))


def _returned(seen: Seen, decision: Decision) -> Mapping[str, Any]:
    """The column for what the run returns, if it completes with this decision. It may have to be read; so not within a
    transaction that has not written yet."""
    changes = decision.changes
    if changes is None or changes.run is None or changes.run.state != "completed":
        return NOTHING_ELSE
    steps = {**seen.snapshot.steps, **{row.step: row for row in changes.steps}}
    return {"output": result(seen.definition, Outputs(changes.run, steps))}


def _written(
    seen: Seen, decision: Decision, columns: Mapping[str, Any], end: reports.End | None = None
) -> Written | None:
    """Inside a transaction. None: somebody else wrote first, and the transaction is to be undone."""
    after = seen
    if decision.changes is not None:
        found = seen.write(decision.changes, now_ms(), columns, end)
        if found is None:
            return None
        after = found
    return Written(seen=after, decision=decision, commands=stored(seen.row.id, decision.commands, now_ms()))


def _carry_out(written: Written, *, anew: bool = False) -> bool:
    """True when the run is to be looked at again at once."""
    return bool(written.commands) and dispatch.carry_out(written.seen, written.commands, _subflows, anew=anew)


_subflows = SubFlows(start, act, report_and_advance)
