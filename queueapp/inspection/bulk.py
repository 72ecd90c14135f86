"""Cancel, retry, discard: any number of jobs, named by their ids or by what they have in common. One function for each,
whatever the skin (admin, REST, terminal).

Work goes in chunks of at most 250 jobs of one pool, each one atomic script call. Before the first one, what a selection
matches is counted again when the caller says how many it `expected`; another number changes nothing and is told. Each
chunk answers one word per job, so that whatever ends the work in the middle (an error, a deploy, Ctrl-C) leaves what is
done done and the rest as it was: the same call again does the rest, and nothing twice.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from queueapp.errors import CountChanged, StoreError
from queueapp.inspection import actions
from queueapp.inspection.actions import Act, Done
from queueapp.inspection.jobs import by_pool
from queueapp.inspection.moving import moving_to
from queueapp.inspection.selection import CHUNK, PAGES_COUNTED, PAGES_OF_REQUEST, Selection, batches, count
from queueapp.states import State
from queueapp.store import shards

logger = logging.getLogger(__name__)

Progress = Callable[[Done], None]
"""Told after each chunk what became of all so far."""
Asked = Selection | Sequence[str]
"""What is meant: a selection, or public ids of any mix of pools."""

CUT_MS = 600_000
"""How long jobs of a tenant are cancelled when they are met, should the one who cancels all of them die meanwhile."""
RATE = 50.0
"""Dead letters a second that a selection sends back to work, unless another rate is asked for."""
STOP_AFTER = 0.5
"""The share of them that may die again, unless another is asked for."""
CHUNK_S = 2.0
"""What one chunk of them lasts."""
LOOKED_AT = 1_000
"""How many of those that were retried last are looked at, to see whether they died again."""
LEAST = 10
"""So many of them must have died again before a share counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How dead letters go back to work."""

    rate: float | None = None
    """So many a second; 0 = as fast as it goes. None: `RATE` for a selection, 0 for ids."""
    stop_after: float | None = None
    """Stop when this share (below 1) or number of those that were retried are dead again; 0 = never. None:
    `STOP_AFTER` for a selection, 0 for ids."""
    waits: bool = True
    """False: for a web request, which cannot wait. All its jobs are laid out at the rate at once, never stopped."""


def cancel_many(
    asked: Asked,
    *,
    by: str = "",
    note: str = "",
    expected: int | None = None,
    most: int | None = None,
    progress: Progress | None = None,
) -> Done:
    """Waiting jobs will not run, running ones are told to stop. `by` and `note` go to the log.

    All that waits of one tenant is cancelled at once: from the first moment on none of it is leased any more.
    """
    cut = None
    if isinstance(asked, Selection):
        asked = _as_expected(asked, expected, most)
        if asked.whole_tenant and State.PENDING in asked.states and asked.submission:
            cut = _Cut(asked)

    def act(pool: str, ids: Sequence[str]) -> Sequence[str]:
        if cut is not None:
            cut.hold()
        return shards.store(pool).cancel(ids)

    done = None
    try:
        done = _each(asked, act, most, progress)
    finally:
        # One request of several leaves it to the next; it ends by itself should none come.
        if cut is not None and not (done is not None and done.more):
            cut.end()
    logger.info("Cancelled jobs: %s", done.summary(), extra={"by": by, "note": note})
    return done


def move_many(
    asked: Asked,
    *,
    to: str,
    by: str = "",
    note: str = "",
    expected: int | None = None,
    most: int | None = None,
    progress: Progress | None = None,
) -> Done:
    """Waiting jobs go on in the pool `to` (`moving`). `by` and `note` go to the log."""
    if isinstance(asked, Selection):
        asked = _as_expected(asked, expected, most)
    done = _each(asked, moving_to(to), most, progress)
    logger.info("Moved jobs: %s", done.summary(), extra={"to": to, "by": by, "note": note})
    return done


def discard_many(
    asked: Asked,
    *,
    by: str = "",
    note: str = "",
    expected: int | None = None,
    most: int | None = None,
    progress: Progress | None = None,
) -> Done:
    """Dead letters away for good, with their arguments. What was done is written down (`actions`)."""
    if isinstance(asked, Selection):
        asked = _as_expected(asked, expected, most)
    return _each(asked, actions.discarding(by, note), most, progress)


def retry_many(
    asked: Asked,
    *,
    by: str = "",
    note: str = "",
    expected: int | None = None,
    most: int | None = None,
    progress: Progress | None = None,
    pace: Pace | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Done:
    """Dead letters back to work, with fresh budgets, behind the other work of their tenants. It is written down.

    With a rate a chunk of `CHUNK_S` is laid out on the server, each job due at a time of its own, and the caller waits
    for that long before the next: who dies leaves the rest as dead letters, and no more than one chunk on its way.
    """
    selected = isinstance(asked, Selection)
    pace = pace or Pace()
    rate = pace.rate if pace.rate is not None else RATE if selected else 0.0
    stop_after = pace.stop_after if pace.stop_after is not None else STOP_AFTER if selected else 0.0
    if isinstance(asked, Selection):
        asked = _as_expected(asked, expected, most)
    redrive = _Redrive(by=by, note=note, rate=rate, stop_after=stop_after, waits=pace.waits, sleep=sleep)
    size = max(1, min(CHUNK, int(rate * CHUNK_S))) if rate and pace.waits else CHUNK
    return _each(asked, redrive.act, most, progress, size=size, stop=redrive.stop)


@dataclass(slots=True, kw_only=True)
class _Redrive:
    """One run of `retry_many`: what it has laid out, and whom it looks at."""

    by: str
    note: str
    rate: float
    stop_after: float
    waits: bool
    sleep: Callable[[float], None]
    laid_out: int = 0
    retried: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))

    def act(self, pool: str, ids: Sequence[str]) -> Sequence[str]:
        gap_ms = 1000 / self.rate if self.rate else 0.0
        first_ms = 0.0 if self.waits else self.laid_out * gap_ms
        words = actions.retrying(self.by, self.note, first_ms=first_ms, gap_ms=gap_ms)(pool, ids)
        self.laid_out += len(ids)
        self.retried += ((pool, job_id) for job_id, word in zip(ids, words, strict=True) if word == "retried")
        return words

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


def _as_expected(selection: Selection, expected: int | None, most: int | None) -> Selection:
    """The selection with its moment. Raises CountChanged when it has not as many jobs as were expected."""
    selection = selection.fixed()
    if expected is not None:
        found = count(selection, pages=PAGES_COUNTED if most is None else PAGES_OF_REQUEST)
        if found.number != expected:
            raise CountChanged(expected=expected, number=found.number, exact=found.exact)
    return selection


class _Cut:
    """While it lasts, jobs of the tenant that stood in line when it began are cancelled when they are met."""

    def __init__(self, selection: Selection) -> None:
        self._store, self._tenant = shards.store(selection.pool), selection.tenant
        self._submission = selection.submission
        self._held_at = 0.0
        self.hold()

    def hold(self) -> None:
        """Begins or renews it, once in a while."""
        if not self._held_at or time.monotonic() - self._held_at > CUT_MS / 3_000:
            self._store.cut(self._tenant, self._submission, CUT_MS)
            self._held_at = time.monotonic()

    def end(self) -> None:
        try:
            self._store.cut(self._tenant, 0, 0)
        except StoreError as error:  # it ends by itself
            logger.warning("The cancelling of a tenant's jobs could not be ended: %s", error)


def _each(
    asked: Asked,
    act: Act,
    most: int | None,
    progress: Progress | None,
    *,
    size: int = CHUNK,
    stop: Callable[[int], str] = lambda _: "",
) -> Done:
    """Does `act` to all of them in chunks. Raises StoreError when nothing at all could be done."""
    done, known = Done(), None
    chunks: Iterable[tuple[str, list[str]]]
    if isinstance(asked, Selection):
        pool = asked.pool
        chunks = ((pool, ids) for _, ids in batches(asked, size=size))
    else:
        pools = by_pool(asked)
        known = sum(map(len, pools.values()))
        done = Done(counts={"gone": len(asked) - known} if len(asked) > known else {})
        chunks = [(name, ids[at : at + size]) for name, ids in pools.items() for at in range(0, len(ids), size)]
    tried = last = 0
    try:
        for pool, ids in chunks:
            if last and (why := stop(last)):
                return replace(done, fault=why)
            share = ids if most is None else ids[: most - tried]
            done += Done.of(act(pool, share))
            tried, last = tried + len(share), len(share)
            if progress is not None:
                progress(done)
            if most is not None and tried >= most:
                return replace(done, more=True)
    except StoreError as error:
        if tried == 0:
            raise
        return done + Done(counts={"unreached": known - tried} if known else {}, fault=str(error))
    return done
