"""Many jobs at once: `queueapp.enqueue_many([t.using(tenant=a).bind(1, x=2), ...])`.

One store call per pool, and one more for the jobs that exist already; one Outcome per job, in order. Nothing raises
for one job: what is wrong with a job, or with the store, stands in its Outcome. Inside a transaction the jobs go out
after commit, again in one call per pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from queueapp import telemetry
from queueapp.conf import our_aliases
from queueapp.errors import DuctorError, InvalidOption
from queueapp.producer import client, rows
from queueapp.producer.client import Replay
from queueapp.producer.preparation import Prepared, prepare
from queueapp.producer.results import DEFERRED, DuctorResult
from queueapp.producer.sending import Answer, asend_each, send_each
from queueapp.producer.task import BoundTask
from queueapp.producer.tenancy import settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one job of a bulk call."""

    word: str
    """enqueued, parked, exists, debounced, skipped or deferred; else the code of the error (conflict, throttled,
    backlog_full, unserialisable, store_unavailable, ...).

    An error that is not Ductor's has no code; the name of its class stands for it.
    """
    result: DuctorResult | None = None
    """The job's handle; for exists, debounced and skipped that of the job that stands for it. None: there is none."""
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a job, now or after commit."""
        return self.error is None

    @property
    def id(self) -> str | None:
        return self.result.id if self.result is not None else None


Place = Prepared | Replay | Outcome
"""A job of the call: still to be sent, there already and to be read, or settled."""


def enqueue_many(jobs: Iterable[BoundTask]) -> list[Outcome]:
    """Enqueue bound tasks; one Outcome each, in order. Jobs of other backends go through their own `enqueue`."""
    if not telemetry.active():
        return _enqueue_many(jobs)
    jobs = list(jobs)
    with telemetry.sent(_sending(jobs)):
        return _enqueue_many(jobs)


def _enqueue_many(jobs: Iterable[BoundTask]) -> list[Outcome]:
    places: list[Place] = []
    for bound in jobs:
        try:
            if _is_foreign(bound):
                places.append(Outcome(word="enqueued", result=bound.task.enqueue(*bound.args, **bound.kwargs)))
                continue
            prepared = _prepare(bound)
            rows.require_pool(prepared.pool)
            rows.require_tenant(prepared.job.tenant)
            places.append(prepared)
        except Exception as error:
            places.append(_refused(error))
    _defer(places)
    waiting = _waiting(places)
    answers = send_each([(prepared.pool, prepared.job) for _, prepared in waiting])
    for (position, prepared), answer in zip(waiting, answers, strict=True):
        place = places[position] = _answered(prepared, answer)
        if isinstance(place, Outcome) and place.result is not None:
            client.announce(prepared, place.result)
    # After the announcements: under `immediate()` a job that is named twice has run by then.
    _stand_in(places, client.standing_in(_replays(places)))
    return [place for place in places if isinstance(place, Outcome)]


async def aenqueue_many(jobs: Iterable[BoundTask]) -> list[Outcome]:
    """See `enqueue_many`."""
    if not telemetry.active():
        return await _aenqueue_many(jobs)
    jobs = list(jobs)
    with telemetry.sent(_sending(jobs)):
        return await _aenqueue_many(jobs)


async def _aenqueue_many(jobs: Iterable[BoundTask]) -> list[Outcome]:
    places: list[Place] = []
    for bound in jobs:
        try:
            if _is_foreign(bound):
                places.append(Outcome(word="enqueued", result=await bound.task.aenqueue(*bound.args, **bound.kwargs)))
                continue
            if bound.task.tenant is None:
                await settle()
            prepared = _prepare(bound)
            await rows.arequire_pool(prepared.pool)
            await rows.arequire_tenant(prepared.job.tenant)
            places.append(prepared)
        except Exception as error:
            places.append(_refused(error))
    _defer(places)
    waiting = _waiting(places)
    answers = await asend_each([(prepared.pool, prepared.job) for _, prepared in waiting])
    for (position, prepared), answer in zip(waiting, answers, strict=True):
        place = places[position] = _answered(prepared, answer)
        if isinstance(place, Outcome) and place.result is not None:
            await client.aannounce(prepared, place.result)
    _stand_in(places, await client.astanding_in(_replays(places)))
    return [place for place in places if isinstance(place, Outcome)]


def _is_foreign(bound: BoundTask) -> bool:
    given: object = bound
    if not isinstance(given, BoundTask):
        raise InvalidOption(f"enqueue_many takes bound tasks, not {bound!r}: write task.using(...).bind(...).")
    return bound.task.backend not in our_aliases()


def _sending(jobs: Sequence[BoundTask]) -> telemetry.Sending:
    pools = sorted({bound.task.queue_name for bound in jobs})
    task = jobs[0].task.module_path if jobs else ""
    return telemetry.Sending(task=task, pool=",".join(pools), jobs=len(jobs))


def _prepare(bound: BoundTask) -> Prepared:
    bound.task.get_backend().validate_task(bound.task)
    return prepare(bound.task, bound.args, bound.kwargs)


def _defer(places: list[Place]) -> None:
    """Give jobs that wait for a commit to their transactions, all with the same options in one callback."""
    groups: dict[tuple[bool | None, str | None], list[tuple[int, Prepared]]] = {}
    for position, prepared in _waiting(places):
        groups.setdefault((prepared.task.on_commit, prepared.task.database), []).append((position, prepared))
    for alike in groups.values():
        handles = client.defer([prepared for _, prepared in alike])
        for (position, _), handle in zip(alike, handles, strict=False):
            places[position] = Outcome(word=DEFERRED, result=handle)


def _waiting(places: list[Place]) -> list[tuple[int, Prepared]]:
    return [(position, place) for position, place in enumerate(places) if isinstance(place, Prepared)]


def _replays(places: list[Place]) -> list[Replay]:
    return [place for place in places if isinstance(place, Replay)]


def _stand_in(places: list[Place], results: list[DuctorResult]) -> None:
    """Give the jobs that were there already their results."""
    found = iter(results)
    for position, place in enumerate(places):
        if isinstance(place, Replay):
            places[position] = Outcome(word=place.answer.outcome, result=next(found))


def _answered(prepared: Prepared, answer: Answer) -> Replay | Outcome:
    try:
        accepted = client.check(prepared, answer)
    except DuctorError as error:
        return _refused(error)
    if accepted.outcome in client.STAND_INS:
        return Replay(prepared, accepted)
    return Outcome(word=accepted.outcome, result=prepared.result(accepted))


def _refused(error: Exception) -> Outcome:
    return Outcome(word=error.code if isinstance(error, DuctorError) else type(error).__name__, error=error)
