"""What stands around every run in a worker: a context of its own, log fields, spans.

`Worker` calls `run` and `arun`. A body may change what it likes of the context it runs in: the language that
`translation.activate` sets, the time zone, whatever its libraries keep there. The next body in the same thread begins
with the thread's own context again, in which nothing was ever set. Coroutines have one each by being tasks of their
own.
"""

from __future__ import annotations

import json
from contextvars import copy_context

from queueapp import telemetry
from queueapp.log_fields import running
from queueapp.store.records import Failed
from queueapp.worker.attempt import arun_one, run_one, run_overdue
from queueapp.worker.faults import Faults
from queueapp.worker.limits import Limits
from queueapp.worker.slots import Held, Outcome


def run(held: Held, faults: Faults, limits: Limits) -> Outcome:
    """Runs one job in this thread, or says of one whose time is over that it failed."""
    return copy_context().run(_run, held, faults, limits)


def _run(held: Held, faults: Faults, limits: Limits) -> Outcome:
    running.set(held)
    if held.overdue is not None:
        return run_overdue(held)
    if not telemetry.active():
        return run_one(held, faults, limits=limits)
    with telemetry.consumed(_delivery(held)) as told:
        outcome = run_one(held, faults, limits=limits)
        told(_fault(held, outcome))
    return outcome


async def arun(held: Held, faults: Faults, limits: Limits) -> Outcome:
    """`run` for a coroutine, in a task of its own."""
    running.set(held)
    if not telemetry.active():
        return await arun_one(held, faults, limits=limits)
    with telemetry.consumed(_delivery(held)) as told:
        outcome = await arun_one(held, faults, limits=limits)
        told(_fault(held, outcome))
    return outcome


def _delivery(held: Held) -> telemetry.Delivery:
    job, line = held.job, held.line
    return telemetry.Delivery(
        task=job.task,
        pool=line.pool,
        job_id=held.public_id,
        tenant=job.tenant,
        attempt=job.errors + job.crashes + 1,
        worker=line.worker,
        waited_ms=max(0, job.leased_ms - job.ready_ms),
        carrier=telemetry.carried(job.payload),
    )


def _fault(held: Held, outcome: Outcome) -> str:
    """The class of what a body raised, "" when nothing is wrong. Never its message: it may quote arguments."""
    if not isinstance(outcome, Failed) or held.cancelled:
        return ""
    return str(json.loads(outcome.error)["class"])
