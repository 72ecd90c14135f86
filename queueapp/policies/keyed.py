"""Jobs with concurrency keys: they stand in sub-lanes, which step aside while one of their keys is full.

A sub-lane holds the jobs of one lane with the same key set, in order. Its pointer stands among the lane's jobs at the
place of its head. When a key of its set is full, the sub-lane is parked on that key; a slot that is given back is
offered to the first waiter that may take it, which is not promised the slot: it competes by its tenant's turn. Each
sub-lane that is not empty stands in exactly one of the two. A lease takes a slot of every key at once, or none, so that
jobs with several keys never wait for each other in a ring. `tree.py` calls this; `store/lua/include/keys.lua` does the
same in the store, in the same order. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from queueapp.policies.node import Pointers

POINTER = "@"
"""What the member of a lane begins with that stands for a sub-lane."""
LOOKED_AT_PER_WAKE, MOVED_PER_WAKE = 64, 8
"""Waiters that one wake looks at and moves at most: a bound on the work of one call."""
SWEPT_PER_CALL = 8
"""Keys with waiters that one call looks at because their time has come."""
SWEEP_MS = 1000
"""How long a wake that was lost (its sub-lane was paused, say, before it could run) stays unnoticed at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """At most `limit` leased jobs share a digest, unless another limit is configured for the pattern."""

    digest: str
    limit: int
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """The keys of a job, one to four. Jobs with equal keys and limits have equal ids."""

    id: str
    keys: tuple[Key, ...]


@dataclass(slots=True, kw_only=True)
class SubLane:
    """`name` is the name of its set in the store. `parked` is the digest of the full key, None in the lane."""

    name: str
    tenant: str
    lane: str
    continued: bool
    keys: tuple[Key, ...]
    jobs: Pointers = field(default_factory=Pointers)
    parked: str | None = None


@dataclass(slots=True, kw_only=True)
class _Touch:
    """What one call did to a sub-lane. `stood`: it had a pointer in the lane before."""

    sub: SubLane
    stood: bool
    leased: bool = False


class Lanes(Protocol):
    """What the sub-lanes need of the tree that they stand in."""

    def queue_of(self, tenant: str, lane: str, *, continued: bool) -> Pointers:
        """The jobs and pointers of a lane."""

    def refresh(self, tenant: str, lane: str) -> None:
        """The lane's head is another now."""

    def admits(self, tenant: str, lane: str) -> bool:
        """Tenant and lane themselves let a job run."""


class Keyed:
    """The sub-lanes of one tree, the slots of its keys, and who waits for them.

    Changes are noted when they are made and take effect in `flush`, at the end of a call: first every sub-lane that
    was touched finds its place, then the slots that were given back are offered.
    """

    def __init__(self, lanes: Lanes) -> None:
        self.now_ms = 0
        """Set by the driver; only `sweep` asks for it."""
        self._lanes = lanes
        self._subs: dict[str, SubLane] = {}
        self._configured: dict[str, int | None] = {}
        self._used: dict[str, set[str]] = {}
        self._leased: dict[str, tuple[Key, ...]] = {}
        self._blocked: dict[str, Pointers] = {}
        self._due: dict[str, int] = {}
        self._touched: dict[str, _Touch] = {}
        self._offers: dict[str, int | None] = {}

    # -- reading ------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Something waits in a sub-lane, or runs with a key."""
        return bool(self._subs or self._leased or self._touched or self._offers)

    @property
    def unsettled(self) -> bool:
        """`flush` has something to do."""
        return bool(self._touched or self._offers)

    def sub_lanes(self) -> Iterator[SubLane]:
        return iter(self._subs.values())

    def waited_for(self) -> Iterator[str]:
        """Digests of the keys that somebody waits for."""
        return iter(self._due)

    def waiters(self, digest: str) -> list[SubLane]:
        """Who is parked on a key, the first to be offered a slot first."""
        waiting = self._blocked.get(digest, Pointers())
        return [self._subs[name] for name in sorted(waiting, key=lambda name: (waiting.score(name), name))]

    def used(self, digest: str) -> int:
        return len(self._used.get(digest, ()))

    def limit(self, key: Key) -> int | None:
        """None = no limit, 0 = closed."""
        return self._configured.get(key.pattern, key.limit)

    def full(self, sub: SubLane, *, but: str = "") -> str | None:
        """The first key of the set that has no slot left."""
        for key in sub.keys:
            limit = self.limit(key)
            if key.digest != but and limit is not None and self.used(key.digest) >= limit:
                return key.digest
        return None

    # -- changing -----------------------------------------------------------------------------------------------

    def put(self, name: str, keys: KeySet, tenant: str, lane: str, *, continued: bool) -> SubLane:
        """The sub-lane of such a job, made when it is not there; the caller adds the job to it."""
        sub = self._subs.get(name)
        if sub is None:
            sub = SubLane(name=name, tenant=tenant, lane=lane, continued=continued, keys=keys.keys)
            self._subs[name] = sub
        self._touch(sub)
        return sub

    def drop(self, name: str, job_id: str) -> None:
        """A job goes without having run."""
        sub = self._subs[name]
        self._touch(sub)
        sub.jobs.discard(job_id)

    def sub_lane(self, name: str) -> SubLane:
        return self._subs[name]

    def of_pointer(self, member: str) -> SubLane:
        return self._subs[member[len(POINTER) :]]

    def lease(self, sub: SubLane, job_id: str) -> None:
        """The head of a sub-lane that is not full is leased: it takes a slot of every key, and the pointer moves on."""
        self._touch(sub).leased = True
        sub.jobs.discard(job_id)
        head = sub.jobs.first()
        queue = self._queue(sub)
        if head is None:
            queue.discard(POINTER + sub.name)
        else:
            queue.put(POINTER + sub.name, *head[:2])
        self._leased[job_id] = sub.keys
        for key in sub.keys:
            self._used.setdefault(key.digest, set()).add(job_id)

    def step_aside(self, sub: SubLane) -> None:
        """A sub-lane that is full was met by the walk."""
        self._touch(sub)
        self._queue(sub).discard(POINTER + sub.name)

    def release(self, job_id: str) -> None:
        """A lease ended: its slots are free."""
        for key in self._leased.pop(job_id, ()):
            self._used[key.digest].discard(job_id)
            if not self._used[key.digest]:
                del self._used[key.digest]
            self._offer(key.digest, 1)

    def configure(self, pattern: str, limit: int | None, *, clear: bool = False) -> None:
        """A limit for every key of a pattern; with `clear` the tasks' own hold again."""
        if clear:
            self._configured.pop(pattern, None)
        else:
            self._configured[pattern] = limit
        self._look_at(sorted((due_ms, digest) for digest, due_ms in self._due.items())[:LOOKED_AT_PER_WAKE])

    def sweep(self, most: int = SWEPT_PER_CALL) -> bool:
        """Look again at keys with waiters that nobody has looked at for a second; whether there were any."""
        due = sorted((due_ms, digest) for digest, due_ms in self._due.items() if due_ms <= self.now_ms)
        self._look_at(due[:most])
        return bool(due)

    def flush(self) -> None:
        touched, self._touched = self._touched, {}
        lanes = [touch.sub for touch in touched.values() if touch.sub.parked is None]
        for touch in touched.values():
            self._place(touch)
        for sub in lanes:
            self._lanes.refresh(sub.tenant, sub.lane)
        offers, self._offers = self._offers, {}
        for digest, slots in offers.items():
            self._wake(digest, slots)

    # -- parts --------------------------------------------------------------------------------------------------

    def _queue(self, sub: SubLane) -> Pointers:
        return self._lanes.queue_of(sub.tenant, sub.lane, continued=sub.continued)

    def _touch(self, sub: SubLane) -> _Touch:
        """Called before the change."""
        touch = self._touched.get(sub.name)
        if touch is None:
            touch = self._touched[sub.name] = _Touch(sub=sub, stood=sub.parked is None and len(sub.jobs) > 0)
        return touch

    def _offer(self, digest: str, slots: int | None) -> None:
        """None: as many as are free."""
        known = self._offers.get(digest, 0)
        self._offers[digest] = None if known is None or slots is None else known + slots

    def _look_at(self, due: list[tuple[int, str]]) -> None:
        for _, digest in due:
            self._due[digest] = self.now_ms + SWEEP_MS
            self._offer(digest, None)

    def _place(self, touch: _Touch) -> None:
        """Put the pointer of a sub-lane right: in the lane at the place of its head, or parked where a key is full."""
        sub, head = touch.sub, touch.sub.jobs.first()
        if sub.parked is not None:
            if head is None:
                self._unpark(sub)
            else:
                self._blocked[sub.parked].put(sub.name, head[0])
        else:
            queue = self._queue(sub)
            full = self.full(sub) if head is not None else None
            if head is not None and full is None:
                queue.put(POINTER + sub.name, *head[:2])
            else:
                queue.discard(POINTER + sub.name)
                if full is not None:
                    self._park(sub, full)
                if touch.stood and not touch.leased:  # a slot that it was offered goes to another
                    for key in sub.keys:
                        self._offer(key.digest, 1)
        if head is None:
            del self._subs[sub.name]

    def _park(self, sub: SubLane, digest: str) -> None:
        head = sub.jobs.first()
        assert head is not None, "an empty sub-lane waits for nothing"
        sub.parked = digest
        self._blocked.setdefault(digest, Pointers()).put(sub.name, head[0])
        self._due.setdefault(digest, self.now_ms + SWEEP_MS)

    def _unpark(self, sub: SubLane) -> None:
        assert sub.parked is not None
        waiting = self._blocked[sub.parked]
        waiting.discard(sub.name)
        if not waiting:
            del self._blocked[sub.parked], self._due[sub.parked]
        sub.parked = None

    def _wake(self, digest: str, slots: int | None) -> None:
        """Offer free slots of a key to its first waiters that fit.

        One that another key holds up waits for that one from now on. One whose tenant or lane may not run goes back
        into its lane, so that nobody waits behind it, and the offer goes on.
        """
        woken = moved = 0
        for sub in self.waiters(digest)[:LOOKED_AT_PER_WAKE]:
            if moved == MOVED_PER_WAKE or woken == slots:
                break
            limit = next(self.limit(key) for key in sub.keys if key.digest == digest)
            if limit is not None and self.used(digest) + woken >= limit:
                continue
            moved += 1
            self._unpark(sub)
            other = self.full(sub, but=digest)
            if other is not None:
                self._park(sub, other)
                continue
            head = sub.jobs.first()
            assert head is not None, "an empty sub-lane waits for nothing"
            self._queue(sub).put(POINTER + sub.name, *head[:2])
            self._lanes.refresh(sub.tenant, sub.lane)
            woken += self._lanes.admits(sub.tenant, sub.lane)
        if moved == MOVED_PER_WAKE and woken != slots and digest in self._due:
            self._due[digest] = self.now_ms
