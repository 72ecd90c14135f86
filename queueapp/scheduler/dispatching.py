"""Scheduled dispatch: what the leader of a pool does with new jobs, under its term.

`Dispatcher` is one pool: ingress → rank → `admit`, then `dispatch` until the window is full or nothing may run, then
what the policy holds is kept for a successor. Where the store knows the policy, the store ranks and chooses; else a
`Mirror` of the policy's nodes does. The store refuses every write of a term that is over. Called by `leading`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Protocol

from queueapp import metrics
from queueapp.conf import settings
from queueapp.errors import DuctorError, Fenced, OrderChanged, StoreError, StoreUnavailable
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import DIRECT, find
from queueapp.scheduler.mirror import Mirror
from queueapp.store.configuration import PoolConf
from queueapp.store.dispatching import ADMIT_MOST, DISPATCH_MOST
from queueapp.store.leader_records import Admitted, Dispatched, IngressEntry, MirrorLane, Term

logger = logging.getLogger(__name__)

TOLD_MOST = 500
"""Changes that one answer tells at most."""
CALLS_A_ROUND = 8
"""A pool with more to do lets the others in between."""
LOOK_S = 5.0
"""Without a token, the configuration is read again after this; no wait in the store is longer."""
SLOTS_S = 0.25
"""The workers' slots are read again after this, and not before."""
FULL_S = 1.0
"""So often slots are counted while jobs wait for them: workers that came or went make another automatic window."""
WORKER_LIVE_MS = 15_000
"""A worker that did not call for so long, or for a lease where that is longer, has no slots: a busy one calls three
times in a lease, and what it runs fills the window as long as it runs."""
FLUSH_S = 0.2
FLUSH_SHARE = 20
"""What a policy holds is kept at most so often, and in at most a twentieth of the time."""
REFUSED_S = 5.0
"""What the store refused to keep is tried again after this."""
LET_GO_S = 2.0
"""So long a round may keep `let_go` waiting: a policy that never returns must not hold up the end of a process."""
READ_AGAIN_S = 1.0
"""A mirror that chose nothing right is read anew, but not more often than this."""


class DispatchStore(Protocol):
    """The methods of `store.Store` that a leader calls."""

    resent: int

    def read_ingress(self, consumer: str, most: int = ADMIT_MOST) -> list[IngressEntry]: ...

    def admit(
        self, term: Term, entries: Sequence[tuple[str, str, float | None]], *, order: int | None = None
    ) -> Admitted: ...

    def dispatch(
        self,
        term: Term,
        most: int,
        window: int,
        picks: Sequence[tuple[str, str]] = (),
        *,
        order: int | None = None,
    ) -> Dispatched: ...

    def mirror(self, cursor: str = "0") -> tuple[str, list[MirrorLane]]: ...

    def flush_policy(self, term: Term, number: int, blob: bytes, *, order: int | None = None) -> bool: ...

    def read_policy(self) -> tuple[int, bytes]: ...

    def nudge(self, scheduler: str) -> None: ...


class DispatchReads(Protocol):
    """The methods of `store.Reads` that a leader calls."""

    def in_force(self) -> tuple[PoolConf, int]: ...

    def live_slots(self, live_ms: int) -> int: ...

    def weights(self, tenants: Sequence[str]) -> dict[str, float]: ...


class Dispatcher:
    """One pool under its leader. `round` is called by the thread; `let_go` by whoever releases the lease."""

    def __init__(
        self,
        pool: str,
        store: DispatchStore,
        reads: Callable[[], DispatchReads],
        *,
        own: Callable[[], Mapping[str, str]] = lambda: settings.policies,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.pool = pool
        self.store = store
        self._reads = reads
        self._own = own
        self._clock = clock
        self._lock = threading.Lock()
        self._term: Term | None = None
        self._fenced = ""
        self._conf = PoolConf()
        self._order = 0
        self._conf_at = float("-inf")
        self._slots = 0
        self._slots_at = float("-inf")
        self._mirror: Mirror | None = None
        self._mirror_order = 0
        """The order of jobs that it follows."""
        self._stale = True
        """The store may have told something that did not arrive: the mirror must be read anew."""
        self._wrong = False
        """The mirror chose nothing where the store has something."""
        self._read_at = float("-inf")
        self._resent = 0
        self._number = 0
        self._flush_at = float("-inf")
        self.busy = False
        """The last round did something."""
        self.refused: StoreError | None = None
        """Why the last round admitted nothing, although the store is there and dispatch went on."""
        self.next_at = 0.0
        """When `round` wants to be called without having been told."""

    def begins(self, term: Term) -> bool:
        """This term has not had a round yet."""
        return (self._term is None or self._term.nonce != term.nonce) and self._fenced != term.nonce

    def fenced(self, term: Term) -> bool:
        """A write under this term was refused: another one has begun."""
        return self._fenced == term.nonce

    def round(self, term: Term, *, told: bool) -> bool:
        """Does what there is to do, as far as one turn goes; True: there is more. `told`: a token came for this pool.

        Raises what the store raises, and InvalidPolicy; after that the next round begins with the whole mirror.
        """
        with self._lock:
            self.busy = False
            if term.nonce == self._fenced:
                self.next_at = self._clock() + LOOK_S
                return False
            try:
                return self._round(term, told)
            except Fenced:
                # The scheduler's loop finds out at its next renewal; until then this term does nothing more.
                logger.warning("Fenced: another scheduler leads", extra={"pool": self.pool, "epoch": term.epoch})
                self._fenced = term.nonce
                metrics.terms_fenced(self.pool).inc()
                self._forget()
                self.next_at = self._clock() + LOOK_S
                return False
            except OrderChanged:
                # What was ranked or chosen for the order before was refused whole; entries stay to be read again.
                logger.info("The order of jobs has changed", extra={"pool": self.pool})
                self._mirror, self._conf_at = None, float("-inf")
                return True
            except Exception:
                self._stale = True
                raise

    def let_go(self, *, keeps: bool = True) -> bool:
        """Keeps what the policy holds, and forgets the term: the lease is about to be given up.

        With `keeps` False it only forgets. Answers whether the store could be reached, as far as it was asked.
        """
        if not self._lock.acquire(timeout=LET_GO_S):
            logger.warning("A round does not end; what its policy holds is not kept", extra={"pool": self.pool})
            return keeps
        try:
            if keeps:
                self._flush(at_once=True)
            return keeps
        except StoreError as error:
            logger.info("The state of the policy could not be kept: %s", error, extra={"pool": self.pool})
            return not isinstance(error, StoreUnavailable)
        finally:
            self._forget()
            self._lock.release()

    # -- a round ---------------------------------------------------------------------------------------------------

    def _round(self, term: Term, told: bool) -> bool:
        if self._term is None or self._term.nonce != term.nonce:
            self._forget()
        self._term = term
        self._look(told)
        self.next_at = self._clock() + LOOK_S
        if self._conf.dispatch != "scheduled":
            self._mirror = None
            return False
        self._prepare()
        self.refused = None
        try:
            more = self._admit(term)
        except (Fenced, OrderChanged, StoreUnavailable):
            raise
        except StoreError as error:
            # A full store takes no admission, and only what runs and ends makes room there: dispatch goes on.
            more, self.refused = False, error
        more = self._dispatch(term) or more
        self._flush()
        return more

    def _look(self, told: bool) -> None:
        """The configuration as it is now, and the slots of the workers where the window depends on them."""
        now = self._clock()
        if told or now - self._conf_at >= LOOK_S:
            self._conf, self._order = self._reads().in_force()
            self._conf_at = now
        if self._conf.dispatch == "scheduled" and not self._conf.window and now - self._slots_at >= SLOTS_S:
            self._slots = self._reads().live_slots(max(WORKER_LIVE_MS, settings.lease_ms))
            self._slots_at = now

    def _prepare(self) -> None:
        """The mirror that the policy needs, up to date."""
        name = self._conf.policy
        if name in DIRECT:
            self._mirror = None
            return
        if self._mirror is None or self._mirror_order != self._order:
            try:
                policy = find(name, self._own())
            except KeyError:
                raise DuctorError(
                    f'The pool {self.pool!r} runs under the policy {name!r}, and DUCTOR["POLICIES"] of this scheduler '
                    "does not have it: add it, or choose another policy."
                ) from None
            self._mirror, self._mirror_order, self._stale = Mirror(policy), self._order, True
            self._number, kept = self.store.read_policy()
            if kept:
                self._mirror.restore(kept)
        if self._resent != self.store.resent:
            self._resent, self._stale = self.store.resent, True
        if self._stale or (self._wrong and self._clock() - self._read_at >= READ_AGAIN_S):
            self._read_mirror(self._mirror)

    def _read_mirror(self, mirror: Mirror) -> None:
        pages, cursor = [], "0"
        while True:
            cursor, page = self.store.mirror(cursor)
            pages.append(page)
            if cursor == "0":
                break
        mirror.read(pages)
        self._stale = self._wrong = False
        self._read_at = self._clock()

    def _admit(self, term: Term) -> bool:
        """One batch of new jobs; whether there may be more."""
        entries = self.store.read_ingress(term.nonce, ADMIT_MOST)
        if not entries:
            return False
        self.busy = True
        if self._mirror is None:
            self.store.admit(term, [(entry.entry, entry.id, None) for entry in entries])
            return len(entries) >= ADMIT_MOST
        mirror = self._mirror
        ranks = self._ranks(mirror, entries)
        answer = self.store.admit(
            term, [(entry.entry, entry.id, ranks.get(entry.entry)) for entry in entries], order=self._mirror_order
        )
        mirror.follow(answer.entered, answer.corrected)
        mirror.admitted(
            (entry.tenant, entry.lane, (ranks[entry.entry], entry.seq, entry.cost))
            for entry in entries
            if entry.entry in ranks
        )
        return len(entries) >= ADMIT_MOST

    def _ranks(self, mirror: Mirror, entries: Sequence[IngressEntry]) -> dict[str, float]:
        """The rank of each entry, in their order; of what is none of ours none."""
        unknown = {entry.tenant for entry in entries if entry.id and mirror.weight(entry.tenant) is None}
        weights = self._reads().weights(sorted(unknown)) if unknown else {}
        ranks = {}
        for entry in entries:
            if entry.id:
                weight = mirror.weight(entry.tenant)
                ranks[entry.entry] = mirror.rank(
                    _candidate(entry), weights.get(entry.tenant, 1.0) if weight is None else weight
                )
        return ranks

    def _dispatch(self, term: Term) -> bool:
        """Fills the window; whether there may be more to do at once."""
        window = self._window
        if self._mirror is not None:
            return self._dispatch_by(self._mirror, term, window)
        jobs = 0
        for _ in range(CALLS_A_ROUND):
            done = self.store.dispatch(term, DISPATCH_MOST, window)
            jobs += done.jobs
            self.busy = self.busy or done.jobs > 0 or done.more
            if not (done.runnable and done.room):
                self._wait_for_room(done)
                return False
        self.next_at = min(self.next_at, self._clock() + READ_AGAIN_S)
        return jobs > 0 or done.more

    def _dispatch_by(self, mirror: Mirror, term: Term, window: int) -> bool:
        done = self.store.dispatch(
            term, 0, window, order=self._mirror_order
        )  # what happened, and how much room there is
        mirror.follow(done.entered, done.corrected)
        for _ in range(CALLS_A_ROUND):
            if len(done.entered) >= TOLD_MOST or len(done.corrected) >= TOLD_MOST:
                done = self.store.dispatch(term, 0, window, order=self._mirror_order)
                mirror.follow(done.entered, done.corrected)
                continue
            picks = mirror.choose(min(done.room, DISPATCH_MOST)) if done.runnable else []
            if not picks:
                break
            done = self.store.dispatch(
                term, DISPATCH_MOST, window, [(pick.tenant, pick.lane) for pick in picks], order=self._mirror_order
            )
            mirror.answer(picks, done.taken)
            mirror.follow(done.entered, done.corrected)
            self.busy = self.busy or done.jobs > 0
            if not done.jobs:
                break
        else:
            return True
        if done.more and done.room:
            self.busy = True
            return True
        if done.runnable and done.room:
            # The store could go on and the mirror does not know how.
            self._wrong = True
            self.next_at = min(self.next_at, max(self._read_at + READ_AGAIN_S, self._clock()))
        self._wait_for_room(done)
        return False

    @property
    def _window(self) -> int:
        window = self._conf.window or self._slots
        return window if self._conf.max_in_flight is None else min(window, self._conf.max_in_flight)

    def _wait_for_room(self, done: Dispatched) -> None:
        """A window that follows the workers may become larger without a token."""
        if done.runnable and not done.room and not self._conf.window:
            self.next_at = min(self.next_at, self._clock() + FULL_S)

    # -- what the policy holds -------------------------------------------------------------------------------------

    def _flush(self, *, at_once: bool = False) -> None:
        mirror, term, began = self._mirror, self._term, self._clock()
        if mirror is None or term is None or not mirror.changed:
            return
        if began < self._flush_at and not at_once:
            self.next_at = min(self.next_at, self._flush_at)
            return
        blob = mirror.dump()
        try:
            kept = self.store.flush_policy(term, self._number + 1, blob, order=self._mirror_order)
        except StoreError as error:
            mirror.changed = True
            if isinstance(error, (Fenced, OrderChanged, StoreUnavailable)):
                raise
            # As with admission: a full store keeps nothing more, and what was kept before stays.
            logger.info("The state of the policy could not be kept: %s", error, extra={"pool": self.pool})
            self._flush_at = self._clock() + REFUSED_S
            self.next_at = min(self.next_at, self._flush_at)
            return
        if kept:
            self._number += 1
        else:  # this very flush, whose reply was lost, or one that was numbered by somebody else
            self._number = max(self._number + 1, self.store.read_policy()[0])
        ended = self._clock()
        self._flush_at = ended + max(FLUSH_S, FLUSH_SHARE * (ended - began))

    def _forget(self) -> None:
        self._term, self._mirror, self._stale, self._wrong = None, None, True, False
        self._conf_at = self._slots_at = self._flush_at = self._read_at = float("-inf")


def _candidate(entry: IngressEntry) -> Candidate:
    return Candidate(
        id=entry.id,
        tenant=entry.tenant,
        lane=entry.lane,
        seq=entry.seq,
        priority=entry.priority,
        tier=entry.tier,
        cost=entry.cost,
        ready_ms=entry.ready_ms,
        deadline_ms=entry.deadline_ms,
    )
