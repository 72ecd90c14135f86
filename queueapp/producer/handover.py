"""Jobs that a package hands over for itself (`extensions`): each has an id that follows from what it is, and a tier.

Handed over again it is the same job, so that whoever died in between may simply do it once more. Nothing is deferred:
such a package has committed what it decided before it acts on it. Nobody is there to be told of a refusal: what comes
above a rate is parked until its moment, and a full backlog refuses nothing that goes on with what was let in before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from queueapp import telemetry
from queueapp.errors import DuctorError, InvalidOption, StoreError
from queueapp.extensions import OPTION
from queueapp.names import SYSTEM_TENANT
from queueapp.producer import client, matching, rows
from queueapp.producer.client import announce, check, failed_late
from queueapp.producer.preparation import HandedOver, Prepared, prepare
from queueapp.producer.sending import Answer, send_each
from queueapp.producer.task import BoundTask, DuctorTask
from queueapp.states import Outcome, State
from queueapp.store import shards, transit
from queueapp.store.following import next_id, read_job
from queueapp.store.ids import fixed_id, new_id
from queueapp.store.records import Tier
from queueapp.store.views import JobRecord

__all__ = [
    "Order",
    "Standing",
    "hand_over",
    "is_in_memory",
    "is_watched",
    "new_id",
    "public_id",
    "standing",
    "withdraw",
]

STAND_IN_OPTIONS = ("debounce", "singleton", "idempotency_key")
"""With these another job may stand for the one that is handed over, and nobody would ever hear of that one's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job to hand over."""

    job: BoundTask
    key: str
    """What it is: two orders of one key and one moment are one job."""
    at_ms: int
    """When it was decided on, or is due: part of its id, by which the fences in a host's rows (`queueapp.fencing`) tell
    the younger job. Its place in line is the store's to give, as everybody's."""
    tier: Tier = "start"
    wrapper: str = ""
    """Who surrounds its body."""
    facts: Any = None
    """What the wrapper is to know of it; JSON."""
    local: Any = None
    """What it is given beside that if the body begins in this process, before the store has heard of the job."""
    trace: Mapping[str, str] | None = None
    """What continues the trace that it belongs to (`telemetry.carrier`), if that is not whoever hands it over."""
    system: bool = False
    """It is the package's own, and no tenant's."""
    queued: bool = False
    """It takes its turn, even where a slot of this very process is free. So says whoever hands over what somebody may
    have handed over before: what begins here begins before the store is asked whether it is there already. Its fence is
    above that of a body which so began elsewhere and was never heard of."""


def public_id(pool: str, key: str, at_ms: int) -> str:
    """The id of the job of such an order."""
    return shards.keys(pool).public_id(fixed_id(at_ms, key))


def is_watched() -> bool:
    """Whether this is a host's test (`queueapp.testing`): what is there only in case of a loss is left out of it."""
    return client.watcher is not None


def is_in_memory() -> bool:
    """Whether jobs are kept in this process alone (`queueapp.testing`), so that no other one runs them."""
    return shards.stand_in is not None


def hand_over(orders: Sequence[Order]) -> list[DuctorError | None]:
    """None for each job that is there now, else why its store did not take it. One alone may begin in this process."""
    prepared: list[Prepared | DuctorError] = [_prepared(order) for order in orders]
    found: list[DuctorError | None] = [one if isinstance(one, DuctorError) else None for one in prepared]
    places = [(place, one) for place, one in enumerate(prepared) if isinstance(one, Prepared)]
    alone = len(orders) == len(places) == 1 and not orders[0].queued
    begun = matching.send(places[0][1], orders[0].local) if alone else None
    answers = [begun] if begun is not None else send_each([(one.pool, one.job) for _, one in places])
    for (place, one), answer in zip(places, answers, strict=True):
        found[place] = error = _taken(one, answer)
        if isinstance(error, StoreError):
            # The package goes on trying: nobody called who could be told.
            failed_late(one, one.deferred(), error, kept=True)
    return found


def _prepared(order: Order) -> Prepared | DuctorError:
    bound = order.job
    options: dict[str, Any] = {OPTION: [order.wrapper, order.facts]} if order.wrapper else {}
    if order.trace and telemetry.active():
        options[telemetry.OPTION] = order.trace
    try:
        _require_alone(bound.task)
        made = prepare(
            bound.task,
            bound.args,
            bound.kwargs,
            tenant=SYSTEM_TENANT if order.system else "",
            options=options,
            handed_over=HandedOver(id=fixed_id(order.at_ms, order.key), tier=order.tier, unheard=order.queued),
        )
        rows.require_pool(made.pool)
        if not order.system:
            rows.require_tenant(made.job.tenant)
    except DuctorError as error:
        return error
    return made


def _require_alone(task: DuctorTask) -> None:
    for option in STAND_IN_OPTIONS:
        if getattr(task, option) is not None:
            raise InvalidOption(
                f"{task.module_path} has {option}={getattr(task, option)!r}, by which another job may stand for this "
                "one, whose end is waited for: call a task without it."
            )


def _taken(prepared: Prepared, answer: Answer) -> DuctorError | None:
    if not isinstance(answer, StoreError) and answer.outcome == "conflict":
        return None  # a trace or a deploy between the two makes them differ: it is the same job all the same
    try:
        accepted = check(prepared, answer)
    except DuctorError as error:
        return error
    announce(prepared, prepared.result(accepted))
    return None


Standing = Literal["there", "completed", "failed", "cancelled", "gone"]
_ENDED: dict[Outcome, Standing] = {Outcome.COMPLETED: "completed", Outcome.CANCELLED: "cancelled"}


def standing(pool: str, jobs: Sequence[tuple[str, int]]) -> list[tuple[Standing, str]]:
    """How each of these orders, (key, at_ms), stands, and what it failed with. Raises StoreError."""
    return [_standing(record) for record in _records(pool, [fixed_id(at_ms, key) for key, at_ms in jobs])]


def withdraw(pool: str, jobs: Sequence[tuple[str, int]], *, running: bool) -> list[bool]:
    """Cancels these orders: those that do not run, with `running` the others, too, which are told to stop.

    One that begins in that very moment is told as well. True for each that will not run. Raises StoreError.
    """
    ids = asked = [fixed_id(at_ms, key) for key, at_ms in jobs]
    if not running:
        kept = State.ACTIVE, State.WAITING, State.ENDED  # one that waits for its children has done part of its work
        ids = [one.id for one in _records(pool, ids) if one is not None and one.state not in kept]
    words = dict(zip(ids, transit.cancel(pool, ids), strict=True)) if ids else {}
    return [words.get(job_id) == "cancelled" for job_id in asked]


def _records(pool: str, ids: Sequence[str]) -> list[JobRecord | None]:
    """The jobs, wherever they were moved meanwhile."""
    found: list[JobRecord | None] = []
    for record in shards.reads(pool).jobs(ids) if ids else ():
        if record is not None and (moved := next_id(record)):
            there = read_job(moved)
            record = there[1] if there is not None else None
        found.append(record)
    return found


def _standing(record: JobRecord | None) -> tuple[Standing, str]:
    if record is None:
        return "gone", ""
    if record.state is State.DEAD:
        error = record.errors[-1] if record.errors else None
        text = str(error.detail.get("traceback") or error.detail.get("message") or "") if error is not None else ""
        return "failed", text or f"its job is a dead letter ({record.reason})"
    if record.state is not State.ENDED or record.outcome is None:
        return "there", ""
    how = _ENDED.get(record.outcome, "failed")
    return how, f"its job ended as {record.outcome.value}" if how == "failed" else ""
