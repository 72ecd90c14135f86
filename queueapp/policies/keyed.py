"""Jobs with concurrency keys: they stand in sub-lanes, which step aside while one of their keys is full.

A sub-lane holds the jobs of one lane with the same key set, in order. Its pointer stands among the lane's jobs at the
place of its head. When a key of its set is full, the sub-lane steps aside and waits for that key (`waiting.py`); a slot
that is given back is offered to the first waiter that may take it, which is not promised the slot: it competes by its
tenant's turn. Each sub-lane that is not empty stands in exactly one of the two. A lease takes a slot of every key at
once, or none, so that jobs with several keys never wait for each other in a ring. `tree.py` calls this;
`store/lua/include/keys.lua` does the same in the store, in the same order. Not thread-safe.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from queueapp.policies.node import Node, Pointers
from queueapp.policies.tokens import DispatchRate, Tokens
from queueapp.policies.waiting import LIMITS_LOOKED_AT, Key, Waiters

POINTER = "@"
"""What the member of a lane begins with that stands for a sub-lane."""
MOVED_PER_WAKE = 8
"""Waiters that one wake moves at most: a bound on the work of one call."""
ASIDES_PER_CALL = 16
"""Sub-lanes that the walk lets step aside in one call at most; then it passes their lane over until the next."""
SWEPT_PER_CALL, SWEPT_PER_CHANGE = 8, 64
"""Keys with waiters that one call, and one change of limits, looks at because their time has come."""
SWEEP_MS = 1000
"""How long a wake that was lost (its sub-lane was paused, say, before it could run) stays unnoticed at most."""
FULL_MS, DOUBLED_MOST = 30_000, 5
"""When a key is looked at again that was full: nothing is expected of it until a slot is given back, which is offered
at once, or a limit changes. Each look in vain doubles the time, five times at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """The keys of a job, one to four. Jobs with equal keys and limits have equal ids."""

    id: str
    keys: tuple[Key, ...]


@dataclass(slots=True, kw_only=True)
class SubLane:
    """`name` is the name of its set in the store. `aside` is the digest of the full key that it waits for, None in the
    lane."""

    name: str
    tenant: str
    lane: str
    continued: bool
    keys: tuple[Key, ...]
    jobs: Pointers = field(default_factory=Pointers)
    aside: str | None = None


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
    """The sub-lanes of one tree, the slots of its keys, and who waits for them. `turns`: its tenants take turns.

    A key whose pattern has a dispatch rate (`tokens.py`) and no token left is like one that is full.

    Changes are noted when they are made and take effect in `flush`, at the end of a call: first every sub-lane that
    was touched finds its place, then the slots that were given back are offered.
    """

    def __init__(self, lanes: Lanes, *, turns: bool, tokens: Tokens) -> None:
        self.now_ms = 0
        """Set by the driver: for `sweep`, and for dispatch rates."""
        self.crowded = False
        """The last call passed a lane over: another one finds more to do."""
        self._lanes = lanes
        self._turns = turns
        self._subs: dict[str, SubLane] = {}
        self._tokens = tokens
        self._configured: dict[str, int | None] = {}
        self._rates: dict[str, DispatchRate] = {}
        self._used: dict[str, set[str]] = {}
        self._leased: dict[str, tuple[Key, ...]] = {}
        self._blocked: dict[str, Waiters] = {}
        self._due: dict[str, float] = {}
        """The moment of the next look at a key with waiters; its fraction, in eighths, counts the looks in vain."""
        self._charges: dict[str, dict[str, float]] = {}
        self._touched: dict[str, _Touch] = {}
        self._offers: dict[str, int | None] = {}
        self._swept: set[str] = set()
        self._asides = 0
        self._passed: list[Node] = []

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
        """Who waits for a key, the first to be offered a slot first."""
        return [self._subs[name] for name in self._blocked.get(digest, ())]

    def used(self, digest: str) -> int:
        return len(self._used.get(digest, ()))

    def limit(self, key: Key) -> int | None:
        """None = no limit, 0 = closed."""
        return self._configured.get(key.pattern, key.limit)

    def full(self, sub: SubLane, *, but: str = "") -> str | None:
        """The first key of the set that has no slot left."""
        for key in sub.keys:
            if key.digest != but and not self._has_room(key):
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

    def lease(self, sub: SubLane, job_id: str, charge: float) -> None:
        """The head of a sub-lane that is not full is leased: it takes a slot of every key, and the pointer moves on.

        `charge` is what the lease costs its tenant's turn at the keys.
        """
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
            if (rate := self._rates.get(key.pattern)) is not None:
                self._tokens.take((key.digest, key.pattern, ""), rate, self.now_ms)
            if self._turns:
                charged = self._charges.setdefault(key.digest, {})
                charged[sub.tenant] = charged.get(sub.tenant, 0.0) + charge

    @property
    def may_step_aside(self) -> bool:
        return self._asides < ASIDES_PER_CALL

    def step_aside(self, sub: SubLane) -> None:
        """A sub-lane that is full was met by the walk."""
        self._asides += 1
        self._touch(sub)
        self._queue(sub).discard(POINTER + sub.name)

    def pass_over(self, node: Node, child: str) -> None:
        """Too many stepped aside: the child has no turn any more until the call ends."""
        node.passed.add(child)
        self._passed.append(node)

    def release(self, job_id: str) -> None:
        """A lease ended: its slots are free."""
        for key in self._leased.pop(job_id, ()):
            self._used[key.digest].discard(job_id)
            if not self._used[key.digest]:
                del self._used[key.digest]
            self._offer(key.digest, 1)

    def configure(
        self, pattern: str, limit: int | None, *, dispatch: DispatchRate | None = None, clear: bool = False
    ) -> None:
        """A limit and a dispatch rate for every key of a pattern; with `clear` the tasks' own limits hold again."""
        self._configured.pop(pattern, None)
        self._rates.pop(pattern, None)
        if not clear:
            self._configured[pattern] = limit
            if dispatch is not None:
                self._rates[pattern] = dispatch
        for digest, waiters in self._blocked.items():
            if any(key.pattern == pattern for key in waiters.limits()):
                self._due[digest] = min(self._due[digest], self.now_ms)
        self.sweep(SWEPT_PER_CHANGE)

    def sweep(self, most: int = SWEPT_PER_CALL) -> bool:
        """Look again at keys with waiters whose time has come; whether there were any."""
        due = sorted((due_ms, digest) for digest, due_ms in self._due.items() if due_ms <= self.now_ms)
        for _, digest in due[:most]:
            self._swept.add(digest)
            self._offer(digest, None)
        return bool(due)

    def flush(self) -> None:
        """What was noted takes effect."""
        if not self.unsettled and not self._passed:
            self.crowded, self._asides = False, 0
            return
        passed, self._passed = self._passed, []
        for node in passed:
            node.passed.clear()
        self.crowded, self._asides = bool(passed), 0
        touched, self._touched = self._touched, {}
        lanes = [touch.sub for touch in touched.values() if touch.sub.aside is None]
        for touch in touched.values():
            self._place(touch)
        self._charge()
        for sub in lanes:
            self._lanes.refresh(sub.tenant, sub.lane)
        offers, self._offers = self._offers, {}
        for digest, slots in offers.items():
            self._wake(digest, slots)
        self._swept.clear()

    # -- parts --------------------------------------------------------------------------------------------------

    def _queue(self, sub: SubLane) -> Pointers:
        return self._lanes.queue_of(sub.tenant, sub.lane, continued=sub.continued)

    def _touch(self, sub: SubLane) -> _Touch:
        """Called before the change."""
        touch = self._touched.get(sub.name)
        if touch is None:
            touch = self._touched[sub.name] = _Touch(sub=sub, stood=sub.aside is None and len(sub.jobs) > 0)
        return touch

    def _offer(self, digest: str, slots: int | None) -> None:
        """None: as many as are free."""
        known = self._offers.get(digest, 0)
        self._offers[digest] = None if known is None or slots is None else known + slots

    def _has_room(self, key: Key, woken: int = 0) -> bool:
        return self._has_slot(key, woken) and self._token_at(key, woken) is None

    def _has_slot(self, key: Key, woken: int) -> bool:
        limit = self.limit(key)
        return limit is None or self.used(key.digest) + woken < limit

    def _token_at(self, key: Key, woken: int) -> int | None:
        """When the key has a token beside those for `woken`; None: it has one now, or needs none."""
        rate, scope = self._rates.get(key.pattern), (key.digest, key.pattern, "")
        if rate is None or self._tokens.free(scope, rate, self.now_ms) > woken:
            return None
        return self._tokens.moment(scope, rate, self.now_ms, woken + 1)

    def _charge(self) -> None:
        """What was leased moves its tenants' turns at the keys that somebody waits for."""
        charges, self._charges = self._charges, {}
        for digest, charged in charges.items():
            if digest in self._blocked:
                for tenant, amount in charged.items():
                    self._blocked[digest].charge(tenant, amount)

    def _place(self, touch: _Touch) -> None:
        """Put the pointer of a sub-lane right: in the lane at the place of its head, or aside where a key is full."""
        sub, head = touch.sub, touch.sub.jobs.first()
        if sub.aside is not None:
            if head is None:
                self._come_back(sub)
            else:
                self._blocked[sub.aside].put(self._waits_for(sub), sub.tenant, sub.name, head[:2])
        else:
            queue = self._queue(sub)
            full = self.full(sub) if head is not None else None
            if head is not None and full is None:
                queue.put(POINTER + sub.name, *head[:2])
            else:
                queue.discard(POINTER + sub.name)
                if full is not None:
                    self._step_aside(sub, full)
                if touch.stood and not touch.leased:  # a slot that it was offered goes to another
                    for key in sub.keys:
                        self._offer(key.digest, 1)
        if head is None:
            del self._subs[sub.name]

    def _step_aside(self, sub: SubLane, digest: str) -> None:
        head = sub.jobs.first()
        assert head is not None, "an empty sub-lane waits for nothing"
        sub.aside = digest
        waiters = self._blocked.setdefault(digest, Waiters(turns=self._turns))
        key = self._waits_for(sub)
        waiters.put(key, sub.tenant, sub.name, head[:2])
        moment = self._token_at(key, 0) if self._has_slot(key, 0) else None
        if moment is not None:
            self._due[digest] = min(moment, self._due.get(digest, math.inf))
        else:
            self._due.setdefault(digest, self.now_ms + FULL_MS)

    def _come_back(self, sub: SubLane) -> None:
        key = self._waits_for(sub)
        self._blocked[key.digest].discard(key, sub.tenant, sub.name)
        if not self._blocked[key.digest]:
            del self._blocked[key.digest], self._due[key.digest]
        sub.aside = None

    def _waits_for(self, sub: SubLane) -> Key:
        return next(key for key in sub.keys if key.digest == sub.aside)

    def _wake(self, digest: str, slots: int | None) -> None:
        """Offer free slots of a key to its first waiters that fit.

        One that another key holds up waits for that one from now on. One whose tenant or lane may not run goes back
        into its lane, so that nobody waits behind it, and the offer goes on.
        """
        woken = moved = 0
        later: int | None = None
        while moved < MOVED_PER_WAKE and woken != slots and (waiters := self._blocked.get(digest)):
            later = self._later(waiters, woken)
            found = waiters.first(lambda key: self._has_room(key, woken))  # noqa: B023 - called at once
            if found is None:
                break
            sub = self._subs[found[0]]
            moved += 1
            self._come_back(sub)
            other = self.full(sub, but=digest)
            if other is not None:
                self._step_aside(sub, other)
                continue
            head = sub.jobs.first()
            assert head is not None, "an empty sub-lane waits for nothing"
            self._queue(sub).put(POINTER + sub.name, *head[:2])
            self._lanes.refresh(sub.tenant, sub.lane)
            if self._lanes.admits(sub.tenant, sub.lane):
                woken += 1
                waiters.began(found[1])
        if digest in self._due:
            self._look_again(digest, moved, at_once=moved == MOVED_PER_WAKE and woken != slots, later=later)

    def _later(self, waiters: Waiters, woken: int) -> int | None:
        """When the rate lets one start that it alone holds back now."""
        keys = heapq.nlargest(LIMITS_LOOKED_AT, waiters.limits(), key=lambda key: key.limit)
        moments = [self._token_at(key, woken) for key in keys if self._has_slot(key, woken)]
        return min((moment for moment in moments if moment is not None), default=None)

    def _look_again(self, digest: str, moved: int, *, at_once: bool, later: int | None) -> None:
        """When is the key looked at again that somebody waits for still, after `moved` of them left?"""
        due, known = float(self.now_ms + (0 if at_once else SWEEP_MS)), self._due[digest]
        if later is not None and not at_once:
            moment = min(float(later), due) if moved else float(later)
            self._due[digest] = moment if digest in self._swept else min(moment, known)
        elif digest in self._swept and not moved:
            doubled = min(int(known % 1 * 8) + 1, DOUBLED_MOST)
            self._due[digest] = self.now_ms + FULL_MS * 2**doubled + doubled / 8
        elif moved:
            self._due[digest] = due if digest in self._swept else min(due, known)
