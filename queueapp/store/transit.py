"""Jobs on their way from one pool to another, and what they leave behind: brought there, taken back, cancelled, found.

The two pools are two places of the store, and no script reaches both. So a job that has left waits in state `moving`
until the other pool has it: whoever dies in between leaves it there, and `deliver`, called by the next move and by
every scheduler, goes on. Each step may be repeated, by several at once, and does nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from queueapp.errors import StoreError
from queueapp.repeats import Repeats
from queueapp.states import Outcome
from queueapp.store import shards
from queueapp.store.following import HOPS, next_id
from queueapp.store.records import Departed, Leaving, Stub
from queueapp.store.store import Store

logger = logging.getLogger(__name__)

CHUNK = 250
STUBS_EVERY_MS = 3_600_000
"""How often a stub is asked whether it leads to a job still. Longer than an ended row stays at least."""
_told = Repeats()


class MovesStore(Protocol):
    """The methods of `store.Store` that the pool which jobs leave is asked for."""

    def departed(self, most: int = 250, after: tuple[str, str] | None = None, ids: Sequence[str] = ()) -> Leaving: ...

    def arrived(self, jobs: Sequence[tuple[str, int, bool]]) -> list[str]: ...

    def recall(self, jobs: Sequence[tuple[str, int]]) -> list[str]: ...

    def stubs(self, found: Sequence[tuple[str, int, str]] = (), *, every_ms: int, most: int = 250) -> list[Stub]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What became of a page of them."""

    brought: int
    """How many are where they were to go, or back where they were."""
    cursor: tuple[str, str] | None
    """Where the next page begins; None = this was the last."""
    fault: StoreError | None = None
    """Of the first pool that refused; what goes elsewhere went."""


def share(pool: str, store: MovesStore, after: tuple[str, str] | None = None) -> Share:
    """Brings a page of those that have left this pool to where they go. What cannot be brought holds up no other."""
    page = store.departed(CHUNK, after)
    brought, fault = _bring_all(pool, store, page.jobs)
    return Share(brought=brought, cursor=page.cursor, fault=fault)


def deliver(pool: str, store: MovesStore) -> int:
    """All of them; how many arrived. Raises the first StoreError of another pool once all were tried."""
    number, cursor = 0, None
    fault: StoreError | None = None
    while True:
        done = share(pool, store, cursor)
        number, cursor, fault = number + done.brought, done.cursor, fault or done.fault
        if cursor is None:
            break
    if fault is not None:
        raise fault
    return number


def bring(pool: str, store: MovesStore, ids: Sequence[str]) -> None:
    """These alone. Raises the first StoreError of another pool once all were tried."""
    fault: StoreError | None = None
    left = list(ids)
    while left:
        page = store.departed(CHUNK, ids=left[:CHUNK])
        _, refused = _bring_all(pool, store, page.jobs)
        fault = fault or refused
        seen = {job.id for job in page.jobs}
        # A page is bounded by bytes: what it did not reach comes after the last one that it has.
        last = max((at for at, job_id in enumerate(left[:CHUNK]) if job_id in seen), default=CHUNK - 1)
        left = left[last + 1 :]
    if fault is not None:
        raise fault


def _bring_all(pool: str, store: MovesStore, jobs: Sequence[Departed]) -> tuple[int, StoreError | None]:
    brought, fault = 0, None
    by_target: dict[str, list[Departed]] = {}
    for job in jobs:
        by_target.setdefault(job.to, []).append(job)
    for to, those in by_target.items():
        try:
            brought += _bring(pool, store, to, those)
        except StoreError as error:
            fault = fault or error
    return brought, fault


def _bring(pool: str, store: MovesStore, to: str, jobs: Sequence[Departed]) -> int:
    """Only what the other pool says that it has lets go here, and only what it says that it has not comes back."""
    target = _target(to)
    if target is None:
        if any(not job.back for job in jobs):
            _tell(pool, to, "nobody knows that pool")
        back = [(job.id, job.hop) for job in jobs if job.back == 2]
        return store.recall(back).count("back") if back else 0
    there = shards.store(target)
    # First those that go nowhere: of a pool that takes none, all else ends there.
    number = _take_back(store, there, [job for job in jobs if job.back])
    leaving = [job for job in jobs if not job.back]
    readable = [(job.id, job.packed) for job in leaving if job.packed is not None]
    words = dict(zip([job_id for job_id, _ in readable], there.arrive(readable) if readable else [], strict=True))
    if len(readable) < len(leaving) or "broken" in words.values():
        _tell(pool, to, "their rows cannot be read")
    return number + _let_go(store, there, [job for job in leaving if words.get(job.id) in ("arrived", "exists")])


def _take_back(store: MovesStore, there: Store, jobs: Sequence[Departed]) -> int:
    """Those that were asked back: what is there stays there."""
    places = [(job.id, job.hop) for job in jobs]
    words = dict(zip([job_id for job_id, _ in places], there.came(places) if places else [], strict=True))
    number = _let_go(store, there, [job for job in jobs if words[job.id] == "here"])
    none = [(job.id, job.hop) for job in jobs if job.back == 2 and words[job.id] == "none"]
    return number + (store.recall(none).count("back") if none else 0)


def _let_go(store: MovesStore, there: Store, jobs: Sequence[Departed]) -> int:
    """The other pool has them, and is told first which of them were cancelled."""
    if cancelled := [job.id for job in jobs if job.cancelled]:
        there.cancel(cancelled)
    return store.arrived([(job.id, job.hop, job.cancelled) for job in jobs]).count("moved") if jobs else 0


def _target(to: str) -> str | None:
    """Name of the pool with this code and shard."""
    code, _, shard = to.partition(".")
    name = shards.pools_of([code]).get(code)
    known = name is not None and shards.keys(name).code == code and shard == str(shards.SHARD)
    return name if known else None


def _tell(pool: str, to: str, why: str) -> None:
    if _told.due((pool, to, why)):
        logger.error(
            "Jobs stay on their way to another pool: %s. `manage.py ductor move --from %s --back` takes them back.",
            why,
            pool,
            extra={"pool": pool, "to": to},
        )


def cancel(pool: str, ids: Sequence[str], *, hops: int = HOPS) -> list[str]:
    """`Store.cancel`, and where they are now of those that move to another pool or have moved.

    The word `moving` is left for what could not be brought there: it will be cancelled when it comes there, or back,
    unless it had come and ended before. Raises StoreError of this pool.
    """
    store = shards.store(pool)
    words = dict(zip(ids, store.cancel(ids), strict=True))
    moving = [job_id for job_id, word in words.items() if word == "moving"]
    if moving:
        try:
            bring(pool, store, moving)
        except StoreError as error:
            logger.warning("Jobs that were cancelled on their way to another pool stay there: %s", error)
    elsewhere = [job_id for job_id, word in words.items() if word in ("moving", "moved")]
    for there, those in _places(pool, elsewhere).items() if hops else ():
        said = dict(zip(those, cancel(there, those, hops=hops - 1), strict=True))
        if late := [job_id for job_id in moving if said.get(job_id) == "already"]:
            ended = shards.reads(there).jobs(late)
            said |= {job.id: "cancelled" for job in ended if job and job.outcome is Outcome.CANCELLED}
        words |= said
    # What has moved and is nowhere any more has ended.
    return ["already" if words[job_id] == "moved" else words[job_id] for job_id in ids]


def _places(pool: str, ids: Sequence[str]) -> dict[str, list[str]]:
    """Pool → those that have moved there."""
    found: dict[str, list[str]] = {}
    for record in shards.reads(pool).jobs(ids) if ids else ():
        place = shards.locate(next_id(record)) if record is not None and next_id(record) else None
        if place is not None:
            found.setdefault(place[0], []).append(place[1])
    return found


def look_at_stubs(store: MovesStore, *, every_ms: int = STUBS_EVERY_MS) -> bool:
    """A page of what moved jobs left here: it stays while it leads to a job, or to what is left of one; else it goes.

    Answers whether there are more. What a pool that refuses would say is asked another time.
    """
    page = store.stubs(every_ms=every_ms, most=CHUNK)
    if not page:
        return False
    by_target: dict[str, list[Stub]] = {}
    for stub in page:
        by_target.setdefault(stub.to, []).append(stub)
    found: list[tuple[str, int, str]] = []
    for to, those in by_target.items():
        target, words = _target(to), ["none"] * len(those)
        if target is not None:
            try:
                words = shards.store(target).came([(stub.id, stub.hop) for stub in those])
            except StoreError as error:
                logger.info("Whether moved jobs live could not be asked: %s", error, extra={"pool": target})
                words = ["here"] * len(those)
        found += [
            (stub.id, stub.hop, "lives" if word == "here" else "gone") for stub, word in zip(those, words, strict=True)
        ]
    return bool(store.stubs(found, every_ms=every_ms, most=1))
