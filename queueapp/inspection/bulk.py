"""Cancel, retry, discard: any number of jobs, named by their ids or by what they have in common. One function for each,
whatever the skin (admin, REST, terminal).

Work goes in chunks of at most 250 jobs of one pool, each one atomic script call. Before the first one, what a selection
matches is counted again when the caller says how many it `expected`; more than that changes nothing and is told. Each
chunk answers one word per job, so that whatever ends the work in the middle (an error, a deploy, Ctrl-C) leaves what is
done done and the rest as it was: the same call again does the rest, and nothing twice.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypedDict, Unpack

from queueapp.errors import CountChanged, StoreError
from queueapp.inspection import actions
from queueapp.inspection.actions import ChunkAct, Done
from queueapp.inspection.finding import Finding
from queueapp.inspection.jobs import by_pool
from queueapp.inspection.moving import moving_to, taking_back
from queueapp.inspection.selection import CHUNK, READS, READS_OF_REQUEST, Selection, count
from queueapp.states import State
from queueapp.store import shards, transit

logger = logging.getLogger(__name__)

Progress = Callable[[Done], None]
"""Told after each chunk what became of all so far."""
Asked = Selection | Sequence[str]
"""What is meant: a selection, or public ids of any mix of pools."""


class How(TypedDict, total=False):
    """What each of these functions may be told."""

    by: str
    """Who asks: for the log, and what is written down."""
    note: str
    expected: int | None
    """Of a selection: exactly so many were shown. More than that changes nothing and raises CountChanged; fewer is what
    happens meanwhile. None: nobody was told a number, or only that there are at least so many."""
    most: int | None
    """So many at most, for a web request; it also reads no more than `READS_OF_REQUEST`."""
    place: str
    """`Done.place` of the request before, to go on there."""
    progress: Progress | None


class Act(Protocol):
    """One of the functions here, with whatever of its own is bound already, as skins call it."""

    def __call__(self, asked: Asked, **how: Unpack[How]) -> Done: ...


CUT_MS = 600_000
"""How long jobs of a tenant are cancelled when they are met, should the one who cancels all of them die meanwhile."""
RATE = 50.0
"""Dead letters a second that a selection sends back to work, unless another rate is asked for."""
MOST_OF_REQUEST = 1_000
"""Jobs that one web request acts on."""
STOP_AFTER = 0.5
"""The share of them that may die again, unless another is asked for."""
CHUNK_S = 2.0
"""What one chunk of them lasts."""
LOOKED_AT = 1_000
"""How many of those that were retried last are looked at, to see whether they died again."""
LEAST = 10
"""So many of them must have died again before a share counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """How dead letters go back to work."""

    rate: float | None = None
    """So many a second; 0 = as fast as it goes. None: `RATE` for a selection, 0 for ids."""
    stop_after: float | None = None
    """Stop when this share (below 1) or number of those that were retried are dead again; 0 = never. None:
    `STOP_AFTER` for a selection, 0 for ids."""
    waits: bool = True
    """False: for a web request, which cannot wait. All its jobs are laid out at the rate at once, never stopped."""
    from_ms: int = 0
    """Of a request that goes on: `Done.until_ms` of the one before, so that together they keep the rate."""


def cancel_many(asked: Asked, **how: Unpack[How]) -> Done:
    """Waiting jobs will not run, running ones are told to stop.

    All that waits of one tenant is cancelled at once: from the first moment on none of it is leased any more.
    """
    asked = _as_expected(asked, how)
    cut = None
    if isinstance(asked, Selection) and asked.whole_tenant and State.PENDING in asked.states and asked.submission:
        cut = _Cut(asked)

    def act(pool: str, ids: Sequence[str]) -> Sequence[str]:
        if cut is not None:
            cut.hold()
        return transit.cancel(pool, ids)

    done = None
    try:
        done = _each("Cancelled jobs", asked, act, how)
    finally:
        # One request of several leaves it to the next; it ends by itself should none come.
        if cut is not None and not (done is not None and done.more):
            cut.end()
    return done


def move_many(asked: Asked, *, to: str, **how: Unpack[How]) -> Done:
    """Waiting jobs go on in the pool `to` (`moving`)."""
    return _each("Moved jobs", _as_expected(asked, how), moving_to(to), how, to=to)


def take_back_many(asked: Asked, **how: Unpack[How]) -> Done:
    """Jobs on their way to another pool come back, unless that pool has them (`moving`)."""
    return _each("Took jobs back", _as_expected(asked, how), taking_back(), how)


def discard_many(asked: Asked, **how: Unpack[How]) -> Done:
    """Dead letters away for good, with their arguments. What was done is written down (`actions`)."""
    act = actions.discarding(how.get("by", ""), how.get("note", ""))
    return _each("Discarded dead letters", _as_expected(asked, how), act, how)


def retry_many(
    asked: Asked,
    *,
    redrive: Redrive | None = None,
    sleep: Callable[[float], None] = time.sleep,
    **how: Unpack[How],
) -> Done:
    """Dead letters back to work, with fresh budgets, behind the other work of their tenants. It is written down.

    With a rate a chunk of `CHUNK_S` is laid out on the server, each job due at a time of its own, and the caller waits
    for that long before the next: who dies leaves the rest as dead letters, and no more than one chunk on its way.
    """
    selected, redrive = isinstance(asked, Selection), redrive or Redrive()
    run = _Run(
        by=how.get("by", ""),
        note=how.get("note", ""),
        rate=redrive.rate if redrive.rate is not None else RATE if selected else 0.0,
        stop_after=redrive.stop_after if redrive.stop_after is not None else STOP_AFTER if selected else 0.0,
        waits=redrive.waits,
        sleep=sleep,
        begun_ms=redrive.from_ms,
    )
    size = max(1, min(CHUNK, int(run.rate * CHUNK_S))) if run.rate and run.waits else CHUNK
    asked = _as_expected(asked, how)
    done = _each("Retried dead letters", asked, run.act, how, size=size, stop=run.stop, rate=run.rate)
    return replace(done, until_ms=run.until_ms)


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of `retry_many`: what it has laid out, and whom it looks at."""

    by: str
    note: str
    rate: float
    stop_after: float
    waits: bool
    sleep: Callable[[float], None]
    begun_ms: int
    """When the first is due, on the server's clock; 0, or a moment that is over = at once."""
    laid_out: int = 0
    retried: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))

    def act(self, pool: str, ids: Sequence[str]) -> Sequence[str]:
        words = actions.retrying(self.by, self.note, self.layout)(pool, ids)
        self.laid_out += len(ids)
        self.retried += ((pool, job_id) for job_id, word in zip(ids, words, strict=True) if word == "retried")
        return words

    def layout(self, pool: str) -> tuple[float, float]:
        """In how many ms the next one is due, and how long after each the one behind it."""
        if self.waits or not self.rate:
            return 0.0, 1000 / self.rate if self.rate else 0.0
        now_ms = shards.reads(pool).now_ms()
        self.begun_ms = max(self.begun_ms, 0 if self.laid_out else now_ms)
        return max(0.0, self.until_ms - now_ms), 1000 / self.rate

    @property
    def until_ms(self) -> int:
        """When the next one is due; 0: nothing was laid out."""
        return round(self.begun_ms + self.laid_out * 1000 / self.rate) if self.rate and not self.waits else 0

    def stop(self, last: int) -> str:
        """Between two chunks: waits for what the last one lasts, and says why the next one must not be."""
        if not self.waits:
            return ""
        if self.rate:
            self.sleep(last / self.rate)
        if not self.stop_after or not self.retried:
            return ""
        dead = 0
        for pool in {pool for pool, _ in self.retried}:
            dead += shards.reads(pool).still_dead([job_id for of, job_id in self.retried if of == pool])
        share = self.stop_after < 1
        limit = max(LEAST, self.stop_after * len(self.retried)) if share else self.stop_after
        if dead < limit:
            return ""
        return f"stopped: {dead} of the last {len(self.retried)} that were retried are dead again"


def _as_expected(asked: Asked, how: How) -> Asked:
    """A selection with its moment. Raises CountChanged when it has more jobs than were shown.

    Older jobs may have entered one of its states since, such as scheduled ones that came due. Who goes on with what was
    begun was asked before.
    """
    if not isinstance(asked, Selection):
        return asked
    selection, expected = asked.fixed(), how.get("expected")
    if expected is not None and not how.get("place"):
        found = count(selection, reads=READS if how.get("most") is None else READS_OF_REQUEST)
        if found.number > expected:
            raise CountChanged(expected=expected, number=found.number, exact=found.exact)
    return selection


class _Cut:
    """While it lasts, jobs of the tenant that stood in line when it began are cancelled when they are met."""

    def __init__(self, selection: Selection) -> None:
        self._store, self._tenant = shards.store(selection.pool), selection.tenant
        self._submission, self._holder = selection.submission, secrets.token_hex(4)
        self._held_at = 0.0
        self.hold()

    def hold(self) -> None:
        """Begins or renews it, once in a while."""
        if not self._held_at or time.monotonic() - self._held_at > CUT_MS / 3_000:
            self._store.cut(self._tenant, self._submission, CUT_MS, holder=self._holder)
            self._held_at = time.monotonic()

    def end(self) -> None:
        try:
            self._store.cut(self._tenant, 0, 0, holder=self._holder)
        except StoreError as error:  # it ends by itself
            logger.warning("The cancelling of a tenant's jobs could not be ended: %s", error)


def _each(
    what: str,
    asked: Asked,
    act: ChunkAct,
    how: How,
    *,
    size: int = CHUNK,
    stop: Callable[[int], str] = lambda _: "",
    **told: object,
) -> Done:
    """Does `act` to all of them in chunks, and logs what became of them, however it ends."""
    done, ended, progress = Done(), "", how.get("progress")

    def tell(so_far: Done) -> None:
        nonlocal done
        done = so_far
        if progress is not None:
            progress(so_far)

    try:
        done = _go(asked, act, how, tell, size=size, stop=stop)
    except BaseException as error:
        ended = f" Ended by {type(error).__name__}."
        raise
    finally:
        meant = {"filter": asked.words(), "pool": asked.pool} if isinstance(asked, Selection) else {"ids": len(asked)}
        who = {"by": how.get("by", ""), "note": how.get("note", "")}
        logger.info(
            "%s: %s%s", what, done.summary(), ended, extra={**who, **meant, **told, "counts": dict(done.counts)}
        )
    return done


def _go(
    asked: Asked,
    act: ChunkAct,
    how: How,
    tell: Progress,
    *,
    size: int,
    stop: Callable[[int], str],
) -> Done:
    """Raises StoreError when nothing at all could be done."""
    most, known, finding = how.get("most"), None, None
    chunks: Iterable[tuple[str, list[str]]]
    done = Done()
    if isinstance(asked, Selection):
        pool, expected = asked.pool, how.get("expected")
        reads = None if most is None else READS_OF_REQUEST
        # Never more than were shown, whichever came in their place.
        most = min((number for number in (most, expected) if number is not None), default=None)
        finding = Finding(asked, size=size, reads=reads, place=how.get("place", ""))
        chunks = ((pool, ids) for _, ids in finding)
    else:
        pools = by_pool(asked)
        known = sum(map(len, pools.values()))
        done = Done(counts={"gone": len(asked) - known} if len(asked) > known else {})
        chunks = [(name, ids[at : at + size]) for name, ids in pools.items() for at in range(0, len(ids), size)]
    tried = last = 0
    try:
        for pool, ids in chunks:
            share = ids if most is None else ids[: most - tried]
            here = finding.begin if finding is not None else ""
            if not share:
                return replace(done, more=True, place=here)
            if last and (why := stop(last)):
                return replace(done, fault=why, place=here)
            done += Done.of(act(pool, share))
            tried, last = tried + len(share), len(share)
            tell(done)
            if len(share) < len(ids):
                return replace(done, more=True, place=here)
    except StoreError as error:
        if tried == 0:
            raise
        return done + Done(counts={"unreached": known - tried} if known else {}, fault=str(error))
    return done if finding is None or not finding.place else replace(done, more=True, place=finding.place)
